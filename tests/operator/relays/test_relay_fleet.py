"""Several relay lanes, in one process and in two: nothing is sent twice, nothing is lost, and each
user's relays keep their order, whenever a lane dies or stands still."""

from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ltzd.chain.signing import Signer
from ltzd.operator.policy import ROLE
from ltzd.store.database import Connection, open_pool, session
from ltzd.store.operator import wallets
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.wallets import WalletState
from ltzd.store.relayer import claims, relays
from ltzd.store.wakeups import WALLETS, WakeupHub
from ltzd.values import Address
from tests.support.chain.fake_node import CHAIN_ID
from tests.support.chain.mint_world import POLICY, true
from tests.support.chain.signers import UnreliableSigner
from tests.support.relays.lanes import (
    OTHER_RELAYER,
    OTHER_USER,
    RELAYER,
    USER,
    RelayWorld,
    a_relay_world,
    row_states,
)
from tests.support.rows.core import a_wallet, value
from tests.support.services.postgres import Databases
from tests.support.waiting import until

THIRD_RELAYER = Signer(b"\x04" * 32)
PATIENT = replace(POLICY, repeat_seconds=10.0, replace_after_seconds=10.0)
"""Long enough that no bytes go out a second time."""
FEW_IN_FLIGHT = replace(PATIENT, max_in_flight=4)


@asynccontextmanager
async def another_process(world: RelayWorld) -> AsyncIterator[RelayWorld]:
    """The same chain and database, seen through a pool and wake-ups of their own."""
    pool = await open_pool(world.url, name="ltzd other", size=6)
    other = RelayWorld(world.url, pool, world.observer, world.node)
    other.wakeups = WakeupHub(world.url, poll_seconds=0.02)
    try:
        yield other
    finally:
        pool.terminate()


async def each_executed_once_in_order(world: RelayWorld) -> None:
    """Asserts that each relay was executed once, and those of each user in the order of ids."""
    async with session(world.observer) as connection:
        rows = await connection.fetch("SELECT data, user_address FROM relays ORDER BY id")
    assert world.node.executed() == Counter(row["data"] for row in rows)
    users = {row["data"]: row["user_address"] for row in rows}
    wanted, actual = defaultdict(list), defaultdict(list)
    for row in rows:
        wanted[row["user_address"]].append(row["data"])
    for block in world.node.blocks:
        for done in sorted(block.transactions, key=lambda done: done.sent.nonce):
            actual[users[done.sent.data]].append(done.sent.data)
    assert actual == wanted
    signed = defaultdict(set)
    for sent in world.node.sent():
        signed[sent.sender, sent.nonce].add(sent.call)
    assert all(len(calls) == 1 for calls in signed.values()), "two calls with one nonce"


async def senders(world: RelayWorld) -> Counter[bytes]:
    return Counter(sent.sender for sent in world.node.sent())


async def all_mined(world: RelayWorld) -> None:
    """Mines until every relay is mined."""

    async def is_done() -> bool:
        world.node.mine()
        return set(await row_states(world.observer)) == {"mined"}

    await until(is_done, 60.0)


async def not_served(world: RelayWorld, signer: Signer, seconds: int = 20) -> None:
    """A frozen or killed process reports nothing, and renews nothing."""
    await value(
        world.observer,
        "UPDATE lanes SET served_at = now() - make_interval(secs => $2) WHERE wallet = $1",
        signer.address,
        float(seconds),
    )


async def claimed_by(world: RelayWorld) -> list[Address | None]:
    async with session(world.observer) as connection:
        rows = await connection.fetch("SELECT claimed_by FROM relays ORDER BY id")
    return [row[0] for row in rows]


# --- the queue is shared ------------------------------------------------------------------------


@pytest.mark.parametrize("processes", [1, 2])
async def test_three_lanes_share_many_users_relays_and_keep_each_users_order(
    world: RelayWorld, processes: int
) -> None:
    async with AsyncExitStack() as stack:
        other = world
        if processes == 2:
            other = await stack.enter_async_context(another_process(world))
        for place, signer in ((world, RELAYER), (world, OTHER_RELAYER), (other, THIRD_RELAYER)):
            await stack.enter_async_context(place.relaying(FEW_IN_FLIGHT, signer))
        for _ in range(4):
            for user in range(8):
                await world.ask(2, a_wallet(user))
            world.node.mine()
        await all_mined(world)
    await each_executed_once_in_order(world)
    assert len(await senders(world)) == 3


async def test_a_relay_goes_to_the_other_lane_once_its_users_earlier_one_is_mined(
    world: RelayWorld,
) -> None:
    """The other lane is woken by the block, and does not wait for its next look at the queue."""
    patient = replace(PATIENT, max_in_flight=1)
    async with world.relaying(patient) as lane, world.relaying(patient, OTHER_RELAYER):
        (first,) = await world.ask(wallet=RELAYER.address)
        await world.relays_are("sent")
        (second,) = await world.ask(wallet=OTHER_RELAYER.address)
        await world.some_polls()
        assert await row_states(world.observer) == ["sent", "queued"]
        world.node.mine()
        await world.relays_are("mined", "sent")
        assert lane.is_ready
        await until(lambda: true(bool(world.node.pool)))
        world.node.mine()
        await world.relays_are("mined", "mined")
    assert (await world.progress(first)).sender == RELAYER.address
    assert (await world.progress(second)).sender == OTHER_RELAYER.address


async def test_a_lane_that_cannot_pay_leaves_the_queue_to_the_others(world: RelayWorld) -> None:
    """One wallet is empty; the fake node tells the same balance to both otherwise."""
    world.node.balances[RELAYER.address] = 1
    async with world.relaying(PATIENT) as poor, world.relaying(PATIENT, OTHER_RELAYER):
        for user in range(6):
            await world.ask(1, a_wallet(user))
        await world.relays_are(*["sent"] * 6)
        await world.ask(1, USER)
        await world.relays_are(*["sent"] * 7)
        assert poor.is_serving
    assert set(await senders(world)) == {OTHER_RELAYER.address}


async def test_a_wallet_without_its_roles_leaves_the_queue_to_the_others(
    world: RelayWorld,
) -> None:
    """As between `ltzd wallet add` and `ltzd wallet grant`, or after a guardian's revocation."""
    world.node.mines_at_once = True
    world.node.without_roles = {RELAYER.address}
    async with world.relaying(PATIENT):
        await shown_reason(world, RELAYER, ROLE)
        assert world.direct_lanes.choose() is None
        async with world.relaying(PATIENT, OTHER_RELAYER):
            for number in range(20):
                await world.ask(1, a_wallet(number))
            await all_mined(world)
        assert await senders(world) == {OTHER_RELAYER.address: 20}

        world.node.without_roles = set()
        await shown_reason(world, RELAYER, None)
        await world.ask(1, a_wallet(20))
        await all_mined(world)
    await each_executed_once_in_order(world)


async def test_a_wallet_that_loses_its_roles_sends_nothing_after_the_first_relay_that_fails(
    world: RelayWorld,
) -> None:
    world.node.mines_at_once = True
    async with world.relaying(PATIENT):
        await world.ask(1, a_wallet(0))
        await all_mined(world)
        world.node.without_roles = {RELAYER.address}
        await world.ask(1, a_wallet(1))
        await shown_reason(world, RELAYER, ROLE)
        await world.ask(3, a_wallet(2))
        await world.some_polls()
        assert (await row_states(world.observer))[2:] == ["queued"] * 3

        world.node.without_roles = set()

        async def are_settled() -> bool:
            world.node.mine()
            return await row_states(world.observer) == ["mined"] * 5

        await until(are_settled)
    outcomes = [done.succeeded for block in world.node.blocks for done in block.transactions]
    assert outcomes == [True, False, True, True, True]


async def test_a_lane_whose_signer_is_away_gives_its_relays_to_the_others(
    world: RelayWorld,
) -> None:
    away = UnreliableSigner(RELAYER)
    away.is_away = True
    async with world.relaying(PATIENT, away):
        await world.ask(4, USER)
        await until(lambda: true(away.requests >= 2))
        async with world.relaying(PATIENT, OTHER_RELAYER):
            await world.relays_are(*["sent"] * 4)
    assert set(await senders(world)) == {OTHER_RELAYER.address}


async def test_a_slow_signer_holds_no_database_transaction_open(world: RelayWorld) -> None:
    slow = UnreliableSigner(RELAYER)
    slow.holds = lambda _transaction: True
    async with world.relaying(PATIENT, slow):
        await world.ask(3)
        await until(lambda: true(slow.requests == 1))
        waiting = await value(
            world.observer,
            "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%' "
            "AND datname = current_database()",
        )
        assert waiting == 0
        assert await claimed_by(world) == [RELAYER.address] * 3
        slow.holds = lambda _transaction: False
        await world.relays_are(*["sent"] * 3)


async def test_a_relay_that_is_withdrawn_while_it_is_signed_is_not_sent(world: RelayWorld) -> None:
    slow = UnreliableSigner(RELAYER)
    slow.holds = lambda _transaction: True
    async with world.relaying(PATIENT, slow):
        _, second, _ = await world.ask(3)
        await until(lambda: true(slow.requests == 1))
        async with session(world.observer) as connection:
            assert await relays.withdraw(connection, second)
        slow.holds = lambda _transaction: False
        await world.relays_are("sent", "sent")
        await all_mined(world)
    await each_executed_once_in_order(world)


# --- people's orders ----------------------------------------------------------------------------


async def set_state(world: RelayWorld, signer: Signer, state: WalletState) -> None:
    async with session(world.observer) as connection:
        await wallets.add(connection, CHAIN_ID, signer.address, "relay")
        await wallets.set_state(connection, CHAIN_ID, signer.address, state)
    world.wakeups.notify(WALLETS)


async def shown_reason(world: RelayWorld, signer: Signer, reason: str | None) -> None:
    async def is_shown() -> bool:
        shown: str | None = await value(
            world.observer, "SELECT paused_for FROM lanes WHERE wallet = $1", signer.address
        )
        return shown == reason

    await until(is_shown)


async def test_a_draining_wallet_sends_the_relays_that_name_it_and_nothing_else(
    world: RelayWorld,
) -> None:
    async with world.relaying(PATIENT):
        await set_state(world, RELAYER, WalletState.DRAINING)
        await shown_reason(world, RELAYER, "draining")
        await world.ask(1, USER, wallet=RELAYER.address)
        await world.ask(2, OTHER_USER)
        await world.relays_are("sent", "queued", "queued")
        await world.some_polls()
        assert await row_states(world.observer) == ["sent", "queued", "queued"]
        await shown_reason(world, RELAYER, "draining")
        async with world.relaying(PATIENT, OTHER_RELAYER):
            await world.relays_are("sent", "sent", "sent")
            await all_mined(world)

        await set_state(world, RELAYER, WalletState.ACTIVE)
        await shown_reason(world, RELAYER, None)
        await world.ask(1, a_wallet(9))
        await all_mined(world)
    await each_executed_once_in_order(world)


@pytest.mark.parametrize("state", [WalletState.RETIRED, "paused"])
async def test_a_retired_or_paused_wallet_sends_nothing_that_names_it(
    world: RelayWorld, state: WalletState | str
) -> None:
    async with world.relaying(PATIENT):
        if isinstance(state, WalletState):
            await set_state(world, RELAYER, state)
        else:
            await set_state(world, RELAYER, WalletState.DRAINING)
            async with session(world.observer) as connection:
                await wallets.set_paused(connection, CHAIN_ID, RELAYER.address, "a person")
            world.wakeups.notify(WALLETS)
        reason = "draining" if isinstance(state, WalletState) else "by_hand"
        await shown_reason(world, RELAYER, reason)
        await world.ask(1, USER, wallet=RELAYER.address)
        await world.some_polls()
        assert await row_states(world.observer) == ["queued"]


# --- death and standstill -------------------------------------------------------------------------


class Standstill:
    """Stops one wallet's lane at one point of its work, once, until it is released or killed."""

    POINTS = ("before claim", "after claim", "signing", "before store", "after store")

    def __init__(self, patch: pytest.MonkeyPatch, point: str) -> None:
        self.signer = UnreliableSigner(RELAYER)
        self.is_reached = False
        self.is_released = False
        self._point = point
        if point == "signing":
            self.signer.holds = lambda _transaction: self._holds()
        patch.setattr(claims, "claim", self._around("claim", claims.claim))
        patch.setattr(claims, "store_signed", self._around("store", claims.store_signed))

    def _holds(self) -> bool:
        self.is_reached = True
        return not self.is_released

    def _around(self, name: str, statement: Callable[..., Any]) -> Callable[..., Any]:
        async def run(connection: Connection, lane: Lane, *rest: Any, **more: Any) -> Any:
            is_it = lane.wallet == RELAYER.address
            if is_it and self._point == f"before {name}":
                await self._stand_still(True)
            rows = await statement(connection, lane, *rest, **more)
            if is_it and self._point == f"after {name}":
                await self._stand_still(bool(rows))
            return rows

        return run

    async def _stand_still(self, is_it_now: bool) -> None:
        if is_it_now and not self.is_released:
            self.is_reached = True
            await until(lambda: true(self.is_released), 60.0)


@pytest.mark.parametrize("heir", ["the wallet's next term", "another wallet"])
@pytest.mark.parametrize("point", Standstill.POINTS)
async def test_a_lane_killed_at_any_point_loses_nothing_and_sends_nothing_twice(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch, point: str, heir: str
) -> None:
    standstill = Standstill(monkeypatch, point)
    async with world.relay_lane(PATIENT, standstill.signer):
        for user in (USER, OTHER_USER, USER):
            await world.ask(2, user)
        await until(lambda: true(standstill.is_reached))
    standstill.is_released = True
    await not_served(world, RELAYER)
    async with AsyncExitStack() as stack:
        if heir == "another wallet":
            await stack.enter_async_context(world.relaying(PATIENT, OTHER_RELAYER))
            if point != "after store":
                await world.relays_are(*["sent"] * 6)
                await until(lambda: true(bool(world.node.sent())))  # A row comes before its bytes.
                assert set(await senders(world)) == {OTHER_RELAYER.address}
        await stack.enter_async_context(world.relaying(PATIENT))
        await world.ask(1, USER)
        await all_mined(world)
    await each_executed_once_in_order(world)


@pytest.mark.parametrize("point", Standstill.POINTS)
async def test_a_lane_that_stands_still_and_goes_on_sends_nothing_that_others_took_over(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    standstill = Standstill(monkeypatch, point)
    async with world.relay_lane(PATIENT, standstill.signer) as frozen:
        for user in (USER, OTHER_USER, USER):
            await world.ask(2, user)
        await until(lambda: true(standstill.is_reached))
        await not_served(world, RELAYER)
        async with world.relaying(replace(PATIENT, max_in_flight=3), OTHER_RELAYER):
            if point != "after store":
                await world.relays_are(*["sent"] * 3, *["queued"] * 3)
            standstill.is_released = True
            await world.ask(1, USER)
            await all_mined(world)
            assert frozen.is_serving
    await each_executed_once_in_order(world)
    epoch = "SELECT epoch FROM lanes WHERE wallet = $1"
    assert await value(world.observer, epoch, RELAYER.address) == 1, "no term was lost"


async def test_a_new_term_frees_the_claims_of_the_last_one_before_it_has_a_node(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    standstill = Standstill(monkeypatch, "after claim")
    async with world.relay_lane(PATIENT, standstill.signer):
        await world.ask(3)
        await until(lambda: true(standstill.is_reached))
    assert await claimed_by(world) == [RELAYER.address] * 3
    world.node.is_down = True
    async with world.relay_lane(PATIENT):

        async def are_free() -> bool:
            return await claimed_by(world) == [None] * 3

        await until(are_free)


async def test_a_lane_that_stands_still_holds_back_its_users_only_for_a_moment(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others' relays are not delayed at all; the claims are free once the lane is not alive."""
    standstill = Standstill(monkeypatch, "after claim")
    policy = replace(PATIENT, max_in_flight=2)
    async with world.relay_lane(policy, standstill.signer):
        await world.ask(3, USER)
        await until(lambda: true(standstill.is_reached))
        async with world.relaying(PATIENT, OTHER_RELAYER):
            await world.ask(2, OTHER_USER)
            await world.relays_are(*["queued"] * 3, *["sent"] * 2)
            await not_served(world, RELAYER)
            await world.relays_are(*["sent"] * 5)
    assert set(await senders(world)) == {OTHER_RELAYER.address}


# --- anything, in any order -----------------------------------------------------------------------

SIGNERS = (RELAYER, OTHER_RELAYER, THIRD_RELAYER)
lanes_ = st.integers(0, 2)
happenings = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), st.integers(0, 2), st.integers(1, 4)),
        st.tuples(st.just("ask by name"), st.integers(0, 2), lanes_),
        st.tuples(st.just("mine"), st.integers(1, 2), st.none()),
        st.tuples(st.just("kill"), lanes_, st.none()),
        st.tuples(st.just("start"), lanes_, st.none()),
        st.tuples(st.just("freeze"), lanes_, st.none()),
        st.tuples(st.just("withdraw"), st.integers(0, 9), st.none()),
        st.tuples(st.just("lose publications"), st.integers(1, 3), st.none()),
        st.tuples(st.just("cut connections"), st.none(), st.none()),
        st.tuples(st.just("wait"), st.none(), st.none()),
    ),
    min_size=5,
    max_size=30,
)


class Fleet:
    """Three wallets' lanes, to which the happenings of a property happen."""

    def __init__(self, world: RelayWorld) -> None:
        self._world = world
        self._running: dict[int, AsyncExitStack] = {}

    async def start(self, number: int, _nothing: None = None) -> None:
        if number not in self._running:
            self._running[number] = stack = AsyncExitStack()
            lane = self._world.relay_lane(FEW_IN_FLIGHT, SIGNERS[number])
            await stack.enter_async_context(lane)

    async def kill(self, number: int, _nothing: None = None) -> None:
        if number in self._running:
            await self._running.pop(number).aclose()

    async def freeze(self, number: int, _nothing: None) -> None:
        """The other lanes take it for dead, and it works on."""
        await not_served(self._world, SIGNERS[number])

    async def ask(self, user: int, count: int) -> None:
        await self._world.ask(count, a_wallet(user))

    async def ask_by_name(self, user: int, wallet: int) -> None:
        await self._world.ask(1, a_wallet(user), wallet=SIGNERS[wallet].address)

    async def mine(self, blocks: int, _nothing: None) -> None:
        self._world.node.mine(blocks)

    async def withdraw(self, number: int, _nothing: None) -> None:
        async with session(self._world.observer) as connection:
            rows = await connection.fetch("SELECT id FROM relays WHERE state = 'queued'")
            if rows:
                await relays.withdraw(connection, rows[number % len(rows)]["id"])

    async def lose_publications(self, count: int, _nothing: None) -> None:
        self._world.node.lost_requests = self._world.node.lost_replies = count

    async def cut_connections(self, _none: None, _nothing: None) -> None:
        await self._world.kill("ltzd%")

    async def wait(self, _none: None, _nothing: None) -> None:
        await value(self._world.observer, "SELECT pg_sleep(0.03)")


async def three_are_served(world: RelayWorld) -> bool:
    async with session(world.observer) as connection:
        return len(await wallets.list_served(connection, CHAIN_ID, "relay")) == 3


@given(happenings)
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_whatever_happens_to_lanes_each_relay_is_executed_once_in_its_users_order(
    databases: Databases, happened: Sequence[tuple[str, Any, Any]]
) -> None:
    async with databases.fresh() as url, AsyncExitStack() as stack:
        pools = [await open_pool(url, name=name, size=6) for name in ("ltzd", "test")]
        for opened in pools:
            stack.callback(opened.terminate)
        world = await stack.enter_async_context(a_relay_world(url, *pools))
        fleet = Fleet(world)
        for number in range(3):
            stack.push_async_callback(fleet.kill, number)
            await fleet.start(number)
        await until(lambda: three_are_served(world))  # A wallet without a lane holds back nothing.
        for step, first, second in happened:
            await getattr(fleet, step.replace(" ", "_"))(first, second)
        await fleet.lose_publications(0, None)
        for number in range(3):
            await fleet.start(number)
        await fleet.ask(0, 1)
        await all_mined(world)
        await each_executed_once_in_order(world)
