"""Relays that an idle lane of the same process signs while they are admitted."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace

from ltzd.actions.relayer.admission import RelayAdmission
from ltzd.errors import DatabaseUnavailable, RateLimited
from ltzd.rules.relayer.admission import Admission, Admitted, NewRelay
from ltzd.rules.relayer.gas_budgets import NO_BUDGETS
from ltzd.store.database import open_pool, session
from ltzd.store.relayer import relays, signed_relays
from ltzd.store.wakeups import WakeupHub
from ltzd.values import Address
from tests.support.chain.mint_world import POLICY, true
from tests.support.chain.signers import UnreliableSigner
from tests.support.relays.lanes import (
    OTHER_RELAYER,
    OTHER_USER,
    RELAYER,
    USER,
    RelayWorld,
    a_plan,
    a_relay,
    a_relay_lane,
    row_states,
)
from tests.support.rows.core import a_wallet, running, value
from tests.support.waiting import until

PATIENT = replace(POLICY, repeat_seconds=10.0, replace_after_seconds=10.0)
"""Long enough that no bytes go out a second time."""


@asynccontextmanager
async def admitting(world: RelayWorld) -> AsyncIterator[RelayAdmission]:
    admission = RelayAdmission(world.pool, world.wakeups, NO_BUDGETS, world.direct_lanes)
    async with running(admission.run()):
        yield admission


def a_draft(number: int = 1, user: Address = USER, wallet: Address | None = None) -> NewRelay:
    return a_relay(a_plan(number.to_bytes(4, "big"), user, wallet=wallet))


async def has_emptied_queue(world: RelayWorld) -> None:
    """Waits until a lane takes relays from admissions."""
    await until(lambda: true(world.direct_lanes.choose() is not None))


async def admitted(admission: RelayAdmission, *drafts: NewRelay) -> list[Admission]:
    return list(await asyncio.gather(*map(admission.admit, drafts)))


async def test_an_idle_lane_sends_a_relay_that_was_never_queued(world: RelayWorld) -> None:
    async with world.relaying(PATIENT), admitting(world) as admission:
        await has_emptied_queue(world)
        users = [a_wallet(number) for number in range(1, 21)]
        answers = await admitted(admission, *[a_draft(user=user) for user in users])
        assert all(isinstance(answer, Admitted) and answer.is_new for answer in answers)
        assert await row_states(world.observer) == ["sent"] * 20
        await until(lambda: true(len(world.node.pool) == 20))
        world.node.mine()
        await world.relays_are(*["mined"] * 20)
    assert await value(world.observer, "SELECT count(*) FROM relays WHERE claimed_by IS NULL") == 0


async def test_relays_of_one_user_keep_their_order(world: RelayWorld) -> None:
    world.node.mines_at_once = True
    async with world.relaying(PATIENT), admitting(world) as admission:
        await has_emptied_queue(world)
        await admitted(admission, *[a_draft(number) for number in range(30)])
        await world.relays_are(*["mined"] * 30)
    await world.executed_in_order()


async def test_a_relay_that_names_another_wallet_waits_for_it(world: RelayWorld) -> None:
    await a_relay_lane(world.observer, OTHER_RELAYER)
    async with world.relaying(PATIENT), admitting(world) as admission:
        await has_emptied_queue(world)
        await admitted(admission, a_draft(wallet=OTHER_RELAYER.address))
        await admitted(admission, a_draft(user=OTHER_USER, wallet=RELAYER.address))
        assert await row_states(world.observer) == ["queued", "sent"]
        # The user's next relay must not overtake the first one.
        await admitted(admission, a_draft(2))
        await world.some_polls()
        assert await row_states(world.observer) == ["queued", "sent", "queued"]


async def test_waiting_relays_come_first(world: RelayWorld) -> None:
    async with world.relaying(replace(PATIENT, max_in_flight=3)), admitting(world) as admission:
        await has_emptied_queue(world)
        await admitted(admission, *[a_draft(user=a_wallet(number)) for number in range(1, 6)])
        await world.relays_are(*["sent"] * 3, *["queued"] * 2)
        assert world.direct_lanes.choose() is None
        world.node.mine()
        await world.relays_are(*["mined"] * 3, *["sent"] * 2)
        await has_emptied_queue(world)
        world.node.mines_at_once = True
        world.node.mine()
        await admitted(admission, a_draft(user=a_wallet(9)))
        await world.relays_are(*["mined"] * 6)


async def test_a_lane_whose_key_is_elsewhere_keeps_no_admission_waiting(
    world: RelayWorld,
) -> None:
    signer = UnreliableSigner(RELAYER)
    async with world.relaying(PATIENT, signer), admitting(world) as admission:
        await world.some_polls()
        assert world.direct_lanes.choose() is None
        await admitted(admission, a_draft())
        await world.relays_are("sent")


async def test_a_lane_offers_nothing_after_its_term(world: RelayWorld) -> None:
    async with world.relaying(PATIENT):
        await has_emptied_queue(world)
    assert world.direct_lanes.choose() is None
    async with admitting(world) as admission:
        await admitted(admission, a_draft())
    assert await row_states(world.observer) == ["queued"]


class Faulty:
    """Loses the connection once, before or after the statement that stores relays directly."""

    def __init__(self, patch: pytest.MonkeyPatch, point: str, error: BaseException) -> None:
        self.is_done = False
        self._insert = signed_relays.insert
        self._point = point
        self._error = error
        patch.setattr(signed_relays, "insert", self._run)

    async def _run(self, *arguments: Any) -> Any:
        if not self.is_done and self._point == "before":
            self.is_done = True
            raise self._error
        rows = await self._insert(*arguments)
        if not self.is_done:
            self.is_done = True
            raise self._error
        return rows


@pytest.mark.parametrize("error", [ConnectionResetError, asyncio.CancelledError])
@pytest.mark.parametrize("point", ["before", "after"])
async def test_a_write_with_an_unknown_outcome_begins_a_new_term_that_sends_what_is_stored(
    world: RelayWorld,
    monkeypatch: pytest.MonkeyPatch,
    point: str,
    error: Callable[[], BaseException],
) -> None:
    Faulty(monkeypatch, point, error())
    world.node.mines_at_once = True
    is_stored = point == "after"
    async with world.relaying(PATIENT):
        await has_emptied_queue(world)
        lane = world.direct_lanes.choose()
        assert lane is not None
        with pytest.raises((DatabaseUnavailable, asyncio.CancelledError)):
            await lane.admit([structs.replace(a_draft(), version=0)])
        await until(lambda: true(world.direct_lanes.choose() not in {lane, None}))
        if is_stored:
            await world.relays_are("mined")
        async with admitting(world) as admission:
            await admitted(admission, a_draft(2))
        await world.relays_are(*["mined"] * (1 + is_stored))
    assert await value(world.observer, "SELECT epoch FROM lanes") == 2
    await world.executed_in_order()


@pytest.mark.parametrize("point", ["before", "after"])
async def test_a_process_killed_at_the_write_loses_nothing_that_is_stored(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    insert, reached = signed_relays.insert, asyncio.Event()

    async def stands_still(*arguments: Any) -> Any:
        if point == "after":
            await insert(*arguments)
        reached.set()
        await asyncio.Event().wait()

    monkeypatch.setattr(signed_relays, "insert", stands_still)
    world.node.mines_at_once = True
    async with world.relaying(PATIENT), admitting(world) as admission:
        await has_emptied_queue(world)
        asking = asyncio.create_task(admission.admit(a_draft()))
        await reached.wait()
    asking.cancel()
    monkeypatch.setattr(signed_relays, "insert", insert)
    async with world.relaying(PATIENT), admitting(world) as admission:
        if point == "after":
            await world.relays_are("mined")
        await admitted(admission, a_draft(2))
        await world.relays_are(*["mined"] * (2 if point == "after" else 1))
    await world.executed_in_order()


async def test_two_processes_keep_a_users_limit_and_order_and_send_nothing_twice(
    world: RelayWorld,
) -> None:
    pool = await open_pool(world.url, name="ltzd other", size=6)
    other = RelayWorld(world.url, pool, world.observer, world.node)
    other.wakeups = WakeupHub(world.url, poll_seconds=0.02)
    world.node.mines_at_once = True
    try:
        async with (
            world.relaying(PATIENT),
            other.relaying(PATIENT, OTHER_RELAYER),
            admitting(world) as first,
            admitting(other) as second,
        ):
            await has_emptied_queue(world)
            await has_emptied_queue(other)
            answers = await asyncio.gather(
                *[(first, second)[n % 2].admit(a_draft(n)) for n in range(40)],
                *[(first, second)[n % 2].admit(a_draft(n, a_wallet(n))) for n in range(100, 130)],
                return_exceptions=True,
            )
            assert sum(isinstance(answer, Admitted) for answer in answers) == 65
            assert sum(isinstance(answer, RateLimited) for answer in answers) == 5
            await world.relays_are(*["mined"] * 65)
    finally:
        pool.terminate()
    async with session(world.observer) as connection:
        rows = await connection.fetch(
            "SELECT data FROM relays WHERE user_address = $1 ORDER BY id", USER
        )
        (usage,) = await relays.read_usage(connection, [(USER, None)])
    assert usage.used == 35
    assert set(world.node.executed().values()) == {1}
    order = [
        done.sent.data
        for block in world.node.blocks
        for done in block.transactions
        if done.sent.data in {row["data"] for row in rows}
    ]
    assert order == [row["data"] for row in rows]
