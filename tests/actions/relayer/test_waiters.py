"""Waiting until a relay settles or a user is idle, whichever process sends the relays."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from itertools import pairwise

import pytest
import pytest_asyncio

from ltzd.actions.relayer.waiters import RelayWaiters
from ltzd.concurrency import work_slots
from ltzd.rules.operator.transactions import GasCost, Inclusion, State, Transaction
from ltzd.rules.relayer.calls import RelayProgress, RelayStatus
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.operator.lanes import Lane
from ltzd.store.relayer import relays
from ltzd.store.wakeups import CHANNELS, RELAYED, WakeupHub
from tests.support.chain.mint_world import true
from tests.support.relays.lanes import OTHER_USER, USER, a_plan, a_relay, a_relay_lane, send, write
from tests.support.rows.core import a_hash, running, save, value
from tests.support.waiting import until

PLACE = Inclusion(5, a_hash("block"), True, GasCost(a_hash("mined"), 50_000, 2))


@pytest.fixture
def wakeups(database_url: str) -> WakeupHub:
    """Wake-ups whose waiters find nothing by polling."""
    return WakeupHub(database_url, poll_seconds=60.0)


@pytest_asyncio.fixture
async def waiters(pool: Pool, wakeups: WakeupHub) -> AsyncIterator[RelayWaiters]:
    waiters = RelayWaiters(pool, wakeups)
    async with running(waiters.run()):
        yield waiters


def soon() -> float:
    return asyncio.get_running_loop().time() + 0.05


def late() -> float:
    return asyncio.get_running_loop().time() + 20


async def mined(pool: Pool, lane: Lane, rows: list[int], succeeded: bool = True) -> None:
    inclusion = Inclusion(PLACE.block_number, PLACE.block_hash, succeeded, PLACE.gas_cost)
    async with transaction(pool) as connection:
        for row in rows:
            await save(connection, lane, row, State.SIGNED, Transaction(State.MINED, inclusion))
        await relays.follow(connection, rows)


async def test_one_wakeup_answers_every_waiter_whose_relay_settled(
    pool: Pool, wakeups: WakeupHub, waiters: RelayWaiters
) -> None:
    lane = await a_relay_lane(pool)
    ids = await write(pool, a_relay(), a_relay(), a_relay())
    rows = await send(pool, lane)
    waits = [asyncio.create_task(waiters.settled(relay, late())) for relay in [*ids, ids[0]]]
    await asyncio.sleep(0)

    await mined(pool, lane, [rows[0].id])
    await mined(pool, lane, [rows[1].id], succeeded=False)
    wakeups.notify(RELAYED)

    first, second, again = await asyncio.gather(waits[0], waits[1], waits[3])
    assert first is not None
    assert second is not None
    assert (first.id, first.status) == (ids[0], RelayStatus.CONFIRMED)
    assert (second.id, second.status) == (ids[1], RelayStatus.FAILED)
    assert again == first
    assert not waits[2].done()
    waits[2].cancel()


async def test_a_pause_as_long_as_the_read_before_it_lets_wakeups_share_a_read(
    pool: Pool, wakeups: WakeupHub, waiters: RelayWaiters, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    (relay,) = await write(pool, a_relay())
    reads: list[tuple[float, float]] = []

    async def long_read(_: Connection, ids: Sequence[int]) -> dict[int, RelayProgress]:
        began = loop.time()
        await asyncio.sleep(0.02)
        reads.append((began, loop.time()))
        return {}

    monkeypatch.setattr(relays, "settled", long_read)
    waiting = asyncio.create_task(waiters.settled(relay, late()))

    async def has_read_often() -> bool:
        wakeups.notify(RELAYED)
        return len(reads) == 5

    await until(has_read_often)
    waiting.cancel()
    pauses = [later[0] - earlier[1] for earlier, later in pairwise(reads)]
    assert min(pauses) > 0.015


async def test_a_relay_settled_by_another_process_wakes_its_waiter(
    pool: Pool, wakeups: WakeupHub, waiters: RelayWaiters
) -> None:
    lane = await a_relay_lane(pool)
    (relay,) = await write(pool, a_relay())
    (row,) = await send(pool, lane)
    async with running(wakeups.listen()):
        await until(lambda: listening(pool))
        wait = asyncio.create_task(waiters.settled(relay, late()))
        await asyncio.sleep(0)
        async with transaction(pool) as connection:
            after = Transaction(State.MINED, PLACE)
            await save(connection, lane, row.id, State.SIGNED, after)
            await relays.follow(connection, [row.id])
            # A process ignores its own notifications, so this one has another origin.
            await connection.execute("SELECT pg_notify('ltzd_relayed', 'another process')")
        assert (await wait) is not None


async def listening(pool: Pool) -> bool:
    is_waiting: bool = await value(
        pool,
        "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'ltzd wakeups' "
        "AND datname = current_database() AND query LIKE '%' || $1 || '%' AND state = 'idle')",
        CHANNELS[-1],
    )
    return is_waiting


async def test_a_relay_that_has_not_settled_by_the_deadline_is_none(
    pool: Pool, waiters: RelayWaiters
) -> None:
    (relay,) = await write(pool, a_relay())
    assert await waiters.settled(relay, soon()) is None
    assert await waiters.settled(relay, soon() - 10) is None


async def joined(waiters: RelayWaiters, relay: int) -> RelayProgress | None:
    waiters.poll()
    return await waiters.settled(relay, late())


async def test_a_relay_that_settled_before_is_found_by_a_poll(
    pool: Pool, waiters: RelayWaiters
) -> None:
    """Covers a joined relay, and a simulated failure whose request is repeated."""
    lane = await a_relay_lane(pool)
    (relay,) = await write(pool, a_relay())
    (failed,) = await write(pool, a_relay(key="k", failure="ClaimsPaused()"))
    (row,) = await send(pool, lane)
    await mined(pool, lane, [row.id])
    async with asyncio.timeout(20):
        first, second = await asyncio.gather(joined(waiters, relay), joined(waiters, failed))
    assert first is not None
    assert first.id == relay
    assert second is not None
    assert second.reason == "ClaimsPaused()"


async def test_a_user_is_idle_when_none_of_his_serialized_relays_is_in_flight(
    pool: Pool, wakeups: WakeupHub, waiters: RelayWaiters
) -> None:
    lane = await a_relay_lane(pool)
    claim = a_relay(a_plan(claim=(7, 0)))
    others = a_relay(a_plan(user=OTHER_USER, serialized_per_user=True))
    await write(pool, claim, others, a_relay())
    rows = await send(pool, lane)
    turn = asyncio.create_task(waiters.user_idle(USER, late()))
    others_turn = asyncio.create_task(waiters.user_idle(OTHER_USER, late()))
    await asyncio.sleep(0)

    await mined(pool, lane, [rows[0].id])
    wakeups.notify(RELAYED)
    async with asyncio.timeout(20):
        await turn
    assert not others_turn.done()
    others_turn.cancel()


async def test_waiting_for_an_idle_user_returns_at_once(
    waiters: RelayWaiters,
) -> None:
    async with asyncio.timeout(20):
        await waiters.user_idle(USER, late())


async def test_waiting_for_a_busy_user_ends_at_the_deadline(
    pool: Pool, waiters: RelayWaiters
) -> None:
    await write(pool, a_relay(a_plan(claim=(7, 0))))
    deadline = soon()
    await waiters.user_idle(USER, deadline)
    assert asyncio.get_running_loop().time() >= deadline


async def test_withdrawing_a_relay_makes_its_user_idle(
    pool: Pool, wakeups: WakeupHub, waiters: RelayWaiters
) -> None:
    (relay,) = await write(pool, a_relay(a_plan(claim=(7, 0))))
    turn = asyncio.create_task(waiters.user_idle(USER, late()))
    await asyncio.sleep(0)
    async with session(pool) as connection:
        assert await relays.withdraw(connection, relay)
    wakeups.notify(RELAYED)
    async with asyncio.timeout(20):
        await turn


class Slot:
    is_free = False

    def release(self) -> None:
        self.is_free = True


@pytest.mark.parametrize(
    "wait",
    [
        lambda waiters: waiters.settled(1, soon()),
        lambda waiters: waiters.user_idle(USER, soon()),
    ],
)
async def test_a_request_that_waits_for_a_block_has_given_its_slot_back(
    waiters: RelayWaiters, wait: Callable[[RelayWaiters], Awaitable[object]]
) -> None:
    """Otherwise a process has no more relays in flight than slots."""
    slot = Slot()
    work_slots.hold(slot)
    await wait(waiters)
    assert slot.is_free


async def test_a_cancelled_waiter_is_removed(pool: Pool, waiters: RelayWaiters) -> None:
    (relay,) = await write(pool, a_relay())
    waits = [asyncio.create_task(waiters.settled(relay, late())) for _ in range(3)]
    await asyncio.sleep(0)
    for wait in waits:
        wait.cancel()
    await asyncio.gather(*waits, return_exceptions=True)
    await waiters.settled(relay, soon())
    assert not waiters._settled.keys()
    assert not waiters._idle_users.keys()


async def test_a_lost_database_connection_fails_one_poll_and_no_waiter(
    pool: Pool, wakeups: WakeupHub, waiters: RelayWaiters, monkeypatch: pytest.MonkeyPatch
) -> None:
    lane = await a_relay_lane(pool)
    (relay,) = await write(pool, a_relay())
    (row,) = await send(pool, lane)
    await mined(pool, lane, [row.id])
    failures = []

    async def is_lost(*_: object) -> None:
        failures.append(True)
        raise ConnectionResetError

    with monkeypatch.context() as patch:
        patch.setattr(relays, "settled", is_lost)
        wait = asyncio.create_task(joined(waiters, relay))
        await until(lambda: true(bool(failures)))
        assert not wait.done()
    wakeups.notify(RELAYED)
    async with asyncio.timeout(20):
        assert await wait is not None
