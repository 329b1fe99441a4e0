"""The treasury fills wallets below their floor: bounded, once, and no wallet in foreign hands."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import pytest_asyncio
from msgspec.structs import replace
from structlog.testing import capture_logs

from ltzd import telemetry
from ltzd.chain.signing import Signer, WalletSigner
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.treasury.lane import TreasuryLane
from ltzd.rules.operator.fees import GWEI
from ltzd.rules.operator.requests import Action, RequestOutcome
from ltzd.rules.operator.top_ups import TopUpPolicy
from ltzd.store.database import Pool, transaction
from ltzd.store.operator import lanes, requests, wallets
from ltzd.store.operator.leases import Leases
from ltzd.store.operator.wallets import WalletState
from ltzd.values import Address, hex_of
from tests.support.chain.fake_node import CHAIN_ID, ETHER, FakeNode
from tests.support.chain.fake_pool import a_fake_pool
from tests.support.chain.mint_world import POLICY, true
from tests.support.chain.signers import UnreliableSigner
from tests.support.relays.lanes import OTHER_RELAYER, RELAYER, RelayWorld, a_relay_world
from tests.support.rows.core import running, states, value
from tests.support.waiting import until

TREASURY = Signer(b"\x55" * 32)
FLOOR, TOP_UP = ETHER, 3 * ETHER
TOP_UPS = TopUpPolicy(TOP_UP, 7 * ETHER, {"relay": FLOOR, "mint": FLOOR}, check_seconds=0.02)


@pytest_asyncio.fixture
async def world(database_url: str, pool: Pool, observer: Pool) -> AsyncIterator[RelayWorld]:
    async with a_relay_world(database_url, pool, observer) as world:
        await register(world, RELAYER)
        yield world


async def register(world: RelayWorld, signer: Signer, kind: str = "relay") -> None:
    """Adds a wallet with a lane whose balance is what the tests set."""
    async with transaction(world.observer) as connection:
        await wallets.add(connection, CHAIN_ID, signer.address, kind)
        await lanes.begin_term(connection, CHAIN_ID, signer.address, kind, 0)
    world.node.balances[signer.address] = 2 * FLOOR


async def set_state(world: RelayWorld, signer: Signer, state: WalletState) -> None:
    async with transaction(world.observer) as connection:
        await wallets.set_state(connection, CHAIN_ID, signer.address, state)


@asynccontextmanager
async def topping_up(
    world: RelayWorld, top_ups: TopUpPolicy = TOP_UPS, signer: WalletSigner = TREASURY
) -> AsyncIterator[TreasuryLane]:
    lane = TreasuryLane(
        world.pool,
        Leases(world.url),
        world.node.node,
        signer,
        CHAIN_ID,
        world.wakeups,
        POLICY,
        top_ups,
    )
    async with running(lane.run()):
        await until(lambda: true(lane.is_ready))
        yield lane


def drain(world: RelayWorld, signer: Signer = RELAYER) -> None:
    world.node.balances[signer.address] = FLOOR // 2


def transfers(world: RelayWorld) -> list[tuple[Address, int]]:
    """The transfers of the treasury on the canonical chain, in order."""
    return [
        (done.sent.to, done.sent.value)
        for block in world.node.blocks
        for done in block.transactions
        if done.sent.sender == TREASURY.address
    ]


async def spent(world: RelayWorld) -> int:
    return int(
        await value(
            world.observer,
            "SELECT coalesce(sum(value_wei), 0) FROM transactions WHERE kind = 'top_up'",
        )
    )


async def mined_until(world: RelayWorld, count: int) -> None:
    async def there() -> bool:
        world.node.mine()
        return len(transfers(world)) == count

    await until(there, 60.0)


async def quiet(world: RelayWorld) -> None:
    """Mines blocks for a while, in which nothing more should be sent."""
    for _ in range(4):
        world.node.mine(2)
        await world.some_polls()


async def test_a_wallet_below_its_floor_is_filled_once(world: RelayWorld) -> None:
    async with topping_up(world) as lane:
        await quiet(world)
        assert transfers(world) == []
        drain(world)
        await mined_until(world, 1)
        await quiet(world)
        assert lane.pause.reason is None
    assert transfers(world) == [(RELAYER.address, TOP_UP)]
    assert world.node.balances[RELAYER.address] == FLOOR // 2 + TOP_UP
    assert await value(world.observer, "SELECT state FROM transactions") == "confirmed"


async def test_a_top_up_is_reserved_while_it_is_being_signed(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replacement that is signed meanwhile would spend the same balance."""
    signer, loaded = UnreliableSigner(TREASURY), list[InFlightTransactions]()
    load = InFlightTransactions.load

    async def load_and_note(in_flight: InFlightTransactions) -> None:
        loaded.append(in_flight)
        await load(in_flight)

    monkeypatch.setattr(InFlightTransactions, "load", load_and_note)
    signer.holds = lambda _transaction: True
    drain(world)
    async with topping_up(world, signer=signer):
        await until(lambda: true(signer.requests == 1))
        assert loaded[0].reserved_wei() > TOP_UP


async def test_the_day_bounds_what_a_wallet_that_stays_empty_can_cost(world: RelayWorld) -> None:
    """As a thief would do who moves each top-up on, without a nonce that the database misses."""
    async with topping_up(world) as lane:
        for count in (1, 2):
            drain(world)
            await mined_until(world, count)
        drain(world)
        await quiet(world)
        assert lane.pause.reason == "day_spent"
        await age_a_day(world)
        await mined_until(world, 3)
    assert await spent(world) == 3 * TOP_UP


async def age_a_day(world: RelayWorld) -> None:
    await value(
        world.observer,
        "WITH old AS (UPDATE transactions SET created_at = created_at - interval '1 day' "
        "RETURNING 1) SELECT count(*) FROM old",
    )


async def test_two_wallets_below_their_floors_share_the_day(world: RelayWorld) -> None:
    """A balance counts for one top-up: both are read once, and the first one is old by then."""
    await register(world, OTHER_RELAYER, "mint")
    drain(world)
    drain(world, OTHER_RELAYER)
    async with topping_up(world, replace(TOP_UPS, check_seconds=3600.0)):
        await mined_until(world, 2)
    assert {to for to, _ in transfers(world)} == {RELAYER.address, OTHER_RELAYER.address}


@pytest.mark.parametrize("state", [WalletState.RETIRED, WalletState.DRAINING])
async def test_a_wallet_that_is_not_active_gets_nothing(
    world: RelayWorld, state: WalletState
) -> None:
    await set_state(world, RELAYER, state)
    drain(world)
    async with topping_up(world):
        await quiet(world)
    assert transfers(world) == []


async def has_state(world: RelayWorld, state: str) -> bool:
    return await states(world.observer) == [state]


async def test_a_top_up_under_way_to_a_stolen_wallet_can_be_cancelled(world: RelayWorld) -> None:
    """docs/runbooks/stolen-key.md: the treasury signs no new one, and this one is cancelled."""
    drain(world)
    async with topping_up(world):
        await until(lambda: has_state(world, "published"))
        await set_state(world, RELAYER, WalletState.RETIRED)
        async with transaction(world.observer) as connection:
            top_up = await connection.fetchval("SELECT id FROM transactions")
            request, _ = await requests.ask(
                connection, top_up, Action.CANCEL, expires_in_seconds=60
            )

        async def is_done() -> bool:
            async with transaction(world.observer) as connection:
                written = await requests.find(connection, request.id)
            return written is not None and written.outcome is RequestOutcome.DONE

        await until(is_done)
        await until(lambda: true(any(sent.value == 0 for sent in world.node.sent())))
        await quiet(world)
        await until(lambda: has_state(world, "cancelled"))
    assert transfers(world) == [(TREASURY.address, 0)]


async def test_a_paused_wallet_gets_nothing_until_it_is_resumed(world: RelayWorld) -> None:
    await paused(world, "looking into it")
    drain(world)
    async with topping_up(world):
        await quiet(world)
        assert transfers(world) == []
        await paused(world, None)
        await mined_until(world, 1)


async def paused(world: RelayWorld, reason: str | None) -> None:
    async with transaction(world.observer) as connection:
        await wallets.set_paused(connection, CHAIN_ID, RELAYER.address, reason)


async def test_a_wallet_that_a_thief_signs_with_gets_nothing(world: RelayWorld) -> None:
    await register(world, OTHER_RELAYER)
    drain(world)
    world.node.use_nonce(RELAYER)
    with capture_logs() as logs:
        async with topping_up(world):
            await quiet(world)
            assert telemetry.REGISTRY.get_sample_value("ltzd_operator_foreign_wallets") == 1
    assert transfers(world) == []
    reports = [log["wallet"] for log in logs if log["event"] == "treasury.foreign_signer"]
    assert reports == [hex_of(RELAYER.address)]


async def test_a_wallet_with_a_displaced_transaction_gets_nothing(world: RelayWorld) -> None:
    async with world.relaying():
        await world.ask()
        await world.settled("published")
        world.node.pool.clear()
        world.node.use_nonce(RELAYER)
        world.node.mine(4)
        await world.settled("displaced")
    drain(world)
    async with topping_up(world):
        await quiet(world)
    assert transfers(world) == []


@asynccontextmanager
async def topping_up_with(world: RelayWorld, *nodes: FakeNode) -> AsyncIterator[None]:
    """A treasury that reads through a pool whose first node is in use."""
    for node in nodes:
        node.balances = world.node.balances
    async with a_fake_pool(*nodes) as pool:
        pool.prefer(0)
        lane = TreasuryLane(
            world.pool,
            Leases(world.url),
            pool.node(),
            TREASURY,
            CHAIN_ID,
            world.wakeups,
            POLICY,
            TOP_UPS,
        )
        async with running(lane.run()):
            await until(lambda: true(lane.is_ready))
            yield


@pytest.mark.parametrize("liar", [0, 1, 2])
async def test_a_full_wallet_that_one_node_of_three_makes_up_keeps_no_top_up_back(
    world: RelayWorld, liar: int
) -> None:
    nodes = [world.node.sibling() for _ in range(3)]
    drain(world)
    async with topping_up_with(world, *nodes):
        nodes[liar].balances = {}
        await mined_until(world, 1)
    assert transfers(world) == [(RELAYER.address, TOP_UP)]


@pytest.mark.parametrize(("count", "liar"), [(2, 0), (2, 1), (3, 0), (3, 1), (3, 2)])
async def test_an_empty_wallet_that_one_node_makes_up_gets_nothing(
    world: RelayWorld, count: int, liar: int
) -> None:
    nodes = [world.node.sibling() for _ in range(count)]
    async with topping_up_with(world, *nodes):
        nodes[liar].balances = {RELAYER.address: 0}
        await quiet(world)
    assert transfers(world) == []


@pytest.mark.parametrize("liar", [0, 1, 2])
async def test_a_thiefs_nonce_that_one_node_of_three_hides_keeps_a_wallet_from_top_ups(
    world: RelayWorld, liar: int
) -> None:
    nodes = [world.node.sibling() for _ in range(3)]
    world.node.use_nonce(RELAYER)
    nodes[liar].false_nonce = 0
    async with topping_up_with(world, *nodes):
        drain(world)
        await quiet(world)
    assert transfers(world) == []


async def test_a_treasury_that_cannot_pay_waits(world: RelayWorld) -> None:
    world.node.balances[TREASURY.address] = TOP_UP
    drain(world)
    async with topping_up(world) as lane:
        await until(lambda: true(lane.pause.reason == "funds"))
        assert await spent(world) == 0
        world.node.balances[TREASURY.address] = 2 * TOP_UP
        await mined_until(world, 1)


async def test_a_dearer_attempt_transfers_the_same_amount(world: RelayWorld) -> None:
    drain(world)
    async with topping_up(world):
        await until(lambda: true(bool(world.node.pool)))
        world.node.base_fee = 20 * GWEI
        await until(lambda: more_attempts(world))
        await mined_until(world, 1)
    assert {sent.value for sent in world.node.sent()} == {TOP_UP}
    assert {sent.nonce for sent in world.node.sent()} == {0}


async def more_attempts(world: RelayWorld) -> bool:
    world.node.mine()
    return await value(world.observer, "SELECT count(*) > 1 FROM attempts") is True


@pytest.mark.parametrize("loses", ["request", "reply"])
async def test_a_kill_at_the_publication_sends_one_top_up(world: RelayWorld, loses: str) -> None:
    drain(world)
    world.node.lost_requests, world.node.lost_replies = (1, 0) if loses == "request" else (0, 1)
    async with topping_up(world):
        await until(lambda: stored(world))
    async with topping_up(world):
        await mined_until(world, 1)
        await quiet(world)
    assert transfers(world) == [(RELAYER.address, TOP_UP)]


async def stored(world: RelayWorld) -> bool:
    return await spent(world) > 0


async def test_kills_at_any_time_send_one_top_up_for_each_that_is_stored(
    world: RelayWorld,
) -> None:
    drain(world)
    for kill_after in range(12):
        async with topping_up(world):
            await asyncio.sleep(kill_after / 400)
    async with topping_up(world):
        await mined_until(world, 1)
        await quiet(world)
    assert transfers(world) == [(RELAYER.address, TOP_UP)]
    assert await spent(world) == TOP_UP


async def test_two_processes_of_one_treasury_fill_a_wallet_once(world: RelayWorld) -> None:
    drain(world)
    async with topping_up(world):
        second = TreasuryLane(
            world.pool,
            Leases(world.url),
            world.node.node,
            TREASURY,
            CHAIN_ID,
            world.wakeups,
            POLICY,
            TOP_UPS,
        )
        async with running(second.run()):
            await mined_until(world, 1)
            await quiet(world)
    assert transfers(world) == [(RELAYER.address, TOP_UP)]


async def test_a_balance_that_falls_below_its_floor_is_logged_once(world: RelayWorld) -> None:
    policy = replace(POLICY, balance_floors={"relay": FLOOR})
    with capture_logs() as logs:
        async with world.relaying(policy):
            await world.some_polls()
            drain(world)
            world.node.mine(3)
            await world.some_polls()
            world.node.mine(3)
            await world.some_polls()
    low = [log for log in logs if log["event"] == "balance.below_floor"]
    assert [(log["wallet"], log["floor_wei"]) for log in low] == [(hex_of(RELAYER.address), FLOOR)]
