"""Lanes on nodes of which one lies so that the lane would wait, overpay, refuse or cancel work.

The node in use is the first; it begins to lie while it is preferred.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace
from structlog.testing import capture_logs

from ltzd.chain.contracts import ltz
from ltzd.chain.node import second_opinions
from ltzd.chain.node.view import ChainView
from ltzd.errors import NodeUnavailable
from ltzd.operator.lane import WalletLane
from ltzd.operator.mints import references
from ltzd.operator.mints.lane import MintLane
from ltzd.operator.policy import NODE, LanePolicy, MintTarget, PauseBackoff
from ltzd.operator.relays.lane import RelayLane
from ltzd.rules.operator.fees import GWEI
from ltzd.store.database import Pool, transaction
from ltzd.store.operator.leases import Leases
from ltzd.values import Hash32
from tests.support.chain.fake_node import CHAIN_ID, ETHER, LTZ_AT, FakeNode
from tests.support.chain.fake_pool import QUICK, FakeNodePool, a_fake_pool
from tests.support.chain.mint_world import POLICY, stop_of, true
from tests.support.relays.lanes import RELAYER, TARGET, RelayWorld, a_relay_world, row_states
from tests.support.rows.core import MINTER, a_wallet, queue_reward, running, value
from tests.support.waiting import until

PATIENT = replace(POLICY, repeat_seconds=10.0, replace_after_seconds=10.0)
"""Long enough that no bytes go out a second time."""
STEADY = replace(QUICK, hedge_after=10.0, pinned_timeout=10.0)
"""A pause of this process makes no node slow: the node in use stays until it is reported."""
Lie = Callable[[FakeNode], None]


def gas_limit_of_30_000(node: FakeNode) -> None:
    node.false_gas_limit = 30_000


def base_fee_above_the_cap(node: FakeNode) -> None:
    node.base_fee = 1_000 * GWEI


def base_fee_that_no_balance_pays(node: FakeNode) -> None:
    """Below the cap; the wallets have a tenth of what the transactions would then cost."""
    node.base_fee = 30 * GWEI


def no_balance(node: FakeNode) -> None:
    node.balance = 0


def no_mint_limit(node: FakeNode) -> None:
    node.mint_capacity = 0


def used_up_mint_limit(node: FakeNode) -> None:
    node.mint_filled = 0


def no_roles(node: FakeNode) -> None:
    node.without_roles = {RELAYER.address}


LIES: list[Lie] = [
    gas_limit_of_30_000,
    base_fee_above_the_cap,
    base_fee_that_no_balance_pays,
    no_balance,
]
MINT_LIES: list[Lie] = [*LIES, no_mint_limit, used_up_mint_limit]
KINDS: dict[Lie, str] = {
    gas_limit_of_30_000: "block_gas",
    base_fee_above_the_cap: "gas_price",
    base_fee_that_no_balance_pays: "gas_price",
    no_balance: "balance",
    no_mint_limit: "mint_limit",
    used_up_mint_limit: "mint_limit",
    no_roles: "wallet_roles",
}


@pytest_asyncio.fixture
async def world(database_url: str, pool: Pool, observer: Pool) -> AsyncIterator[RelayWorld]:
    async with a_relay_world(database_url, pool, observer) as world:
        yield world


def some_nodes(world: RelayWorld, count: int) -> list[FakeNode]:
    return [world.node.sibling() for _ in range(count)]


@asynccontextmanager
async def a_pool(*nodes: FakeNode) -> AsyncIterator[FakeNodePool]:
    """Yields a pool whose first node is in use."""
    async with a_fake_pool(*nodes, policy=STEADY) as pool:
        pool.prefer(0)
        yield pool


def a_mint_lane(world: RelayWorld, pool: FakeNodePool, policy: LanePolicy = PATIENT) -> MintLane:
    target = MintTarget(CHAIN_ID, LTZ_AT)
    leases = Leases(world.url)
    return MintLane(world.pool, leases, pool.node(), MINTER, target, world.wakeups, policy)


def a_relay_lane(world: RelayWorld, pool: FakeNodePool, policy: LanePolicy = PATIENT) -> RelayLane:
    leases = Leases(world.url)
    return RelayLane(world.pool, leases, pool.node(), RELAYER, TARGET, world.wakeups, policy)


@asynccontextmanager
async def relaying(
    world: RelayWorld, *nodes: FakeNode, policy: LanePolicy = PATIENT
) -> AsyncIterator[tuple[FakeNodePool, RelayLane]]:
    async with a_pool(*nodes) as pool:
        lane = a_relay_lane(world, pool, policy)
        async with running(lane.run()):
            await until(lambda: true(lane.is_ready))
            yield pool, lane


async def rounds(node: FakeNode, count: int = 20) -> None:
    """Waits until a node has been asked for many blocks."""
    before = node.call_counts["eth_getBlockByNumber"]
    await until(lambda: true(node.call_counts["eth_getBlockByNumber"] >= before + count))


async def mine_while_lying(world: RelayWorld, lane: WalletLane, *, takes_pool: bool = True) -> None:
    """Mines two blocks, and waits until the lane reads its balance after each of them.

    By the time that it reads the second one, it has read and set everything of the first one.
    """
    for _ in range(2):
        world.node.mine(takes_pool=takes_pool)
        head = world.node.blocks[-1].hash
        await until(lambda: true(block_read(lane) == head))  # noqa: B023


def block_read(lane: WalletLane) -> Hash32 | None:
    """Returns the block after which the lane has read its balance last."""
    if lane._funds is None or lane._funds._account_read is None:
        return None
    view, _ = lane._funds._account_read
    return view.head.hash


# --- a liar in use -----------------------------------------------------------------------------


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("lie", LIES)
async def test_one_nodes_restricting_lie_holds_up_no_relay(
    world: RelayWorld, lie: Lie, count: int
) -> None:
    nodes = some_nodes(world, count)
    for node in nodes:
        node.balance = 100_000 * 10 * GWEI  # One relay, at three times the true fees.
    async with relaying(world, *nodes) as (pool, lane):
        lie(nodes[0])
        await mine_while_lying(world, lane)
        await world.ask()
        await until(lambda: true(len(world.node.pool) == 1))
        await until(lambda: true(KINDS[lie] in pool.contradictions()[0]))
        honest = pool.contradictions()[1:]
        if count == 3:
            assert honest == [set(), set()]
            assert pool.ranked("operator")[0] is not pool.members[0], "the liar is asked last"
        else:
            assert honest == [{KINDS[lie]}], "nobody can tell which of two lies"
            assert not any(member.is_distrusted for member in pool.members)
        world.node.mine()
        await world.relays_are("mined")
        await world.ask()
        await world.settled("mined", "published")
    assert await row_states(world.observer) == ["mined", "sent"]
    assert all(not sent.is_self_transfer for sent in world.node.sent())


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("lie", [*LIES, no_roles])
async def test_a_lie_from_the_beginning_of_a_term_holds_up_no_relay(
    world: RelayWorld, lie: Lie, count: int
) -> None:
    nodes = some_nodes(world, count)
    for node in nodes:
        node.balance = 100_000 * 10 * GWEI
    lie(nodes[0])
    await world.ask()
    async with relaying(world, *nodes) as (pool, _):
        await until(lambda: true(len(world.node.pool) == 1))
        await until(lambda: true(KINDS[lie] in pool.contradictions()[0]))
        world.node.mine()
        await world.relays_are("mined")
    assert all(not sent.is_self_transfer for sent in world.node.sent())


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("lie", MINT_LIES)
async def test_one_nodes_restricting_lie_holds_up_no_mint(
    world: RelayWorld, lie: Lie, count: int
) -> None:
    nodes = some_nodes(world, count)
    for node in nodes:
        node.balance = ETHER // 10
    async with a_pool(*nodes) as pool:
        lane = a_mint_lane(world, pool)
        async with running(lane.run()):
            await until(lambda: true(lane.is_ready))
            lie(nodes[0])
            await mine_while_lying(world, lane)
            await world.queue()
            await world.settled("published")
            if count == 3:
                await until(lambda: true(KINDS[lie] in pool.contradictions()[0]))
                assert pool.contradictions()[1:] == [set(), set()]
            world.node.mine()
            await world.settled("mined")
    assert not await value(world.observer, "SELECT bool_or(above_limit) FROM rewards")


@pytest.mark.parametrize("count", [2, 3])
async def test_a_reward_that_only_one_node_shows_as_refused_is_not_failed(
    world: RelayWorld, count: int
) -> None:
    nodes = some_nodes(world, count)
    accused, other = a_wallet(0xACC), a_wallet(0xB)
    nodes[0].bad_wallets = {accused}
    async with transaction(world.observer) as connection:
        for wallet in (accused, other):
            await queue_reward(connection, wallet)
        # The lane simulates rewards that LTZ has refused before.
        await connection.execute("UPDATE rewards SET failure = 'refused before'")
    async with a_pool(*nodes) as pool:
        lane = a_mint_lane(world, pool)
        async with running(lane.run()):
            await world.settled("published")
            if count == 3:
                await until(lambda: true("simulation" in pool.contradictions()[0]))
                assert pool.contradictions()[1:] == [set(), set()]
            world.node.mine()
            nodes[0].bad_wallets = set()
            await world.settled("mined", "published")
            world.node.mine()
            await world.settled("mined", "mined")
    assert not await value(world.observer, "SELECT bool_or(failed_at IS NOT NULL) FROM rewards")


@pytest.mark.parametrize("kind", [1, 2])
async def test_a_batch_of_refused_payments_that_no_second_node_confirms_stops_no_other_reward(
    world: RelayWorld, kind: int
) -> None:
    nodes = some_nodes(world, 2)
    refused = a_wallet(0xBAD)
    for node in nodes:
        node.bad_wallets = {refused}
    async with transaction(world.observer) as connection:
        for _ in range(ltz.MAX_BATCH):
            await queue_reward(connection, refused, kind=2)
        await queue_reward(connection, a_wallet(0xB), kind=kind)
        # The lane simulates rewards that LTZ has refused before.
        await connection.execute("UPDATE rewards SET failure = 'refused before'")

    async def failed() -> int:
        count: int = await value(
            world.observer, "SELECT count(*) FROM rewards WHERE failed_at IS NOT NULL"
        )
        return count

    async def all_have_failed() -> bool:
        return await failed() == ltz.MAX_BATCH

    async with a_pool(*nodes) as pool:
        nodes[1].is_down = True
        async with running(a_mint_lane(world, pool).run()):
            await world.settled("published")
            assert await failed() == 0
            nodes[1].is_down = False
            await until(all_have_failed)


@pytest.mark.parametrize("count", [2, 3])
async def test_a_low_gas_limit_and_a_high_base_fee_of_one_node_cancel_no_published_relay(
    world: RelayWorld, count: int
) -> None:
    nodes = some_nodes(world, count)
    async with relaying(world, *nodes, policy=POLICY) as (pool, _):
        await world.ask()
        await world.settled("published")
        gas_limit_of_30_000(nodes[0])
        base_fee_that_no_balance_pays(nodes[0])
        world.node.mine(takes_pool=False)
        await until(lambda: true("block_gas" in pool.contradictions()[0]))
        await rounds(nodes[1], 10)
        assert await row_states(world.observer) == ["sent"]
        cancelled = "SELECT bool_or(is_cancellation) FROM attempts"
        assert not await value(world.observer, cancelled)
        world.node.mine()
        await world.relays_are("mined")


@pytest.mark.parametrize("count", [2, 3])
async def test_a_contradiction_that_lasts_is_logged_once(world: RelayWorld, count: int) -> None:
    nodes = some_nodes(world, count)
    with capture_logs() as logs:
        async with relaying(world, *nodes) as (pool, lane):
            base_fee_above_the_cap(nodes[0])
            for _ in range(2):
                await mine_while_lying(world, lane)
            assert "gas_price" in pool.contradictions()[0]
    events = [entry["event"] for entry in logs if entry["event"].startswith("node.")]
    wanted = ["node.disagrees"] if count == 3 else ["node.contested"] * 2
    assert [event for event in events if event != "node.verified"] == wanted


def hides_the_base_fee(node: FakeNode) -> None:
    """The node shows a chain without base fees, whose gas price is just below the cap."""
    node.false_answers["eth_getBlockByNumber"] = _without_base_fee
    node.false_answers["eth_gasPrice"] = lambda _: hex(90 * GWEI)


def _without_base_fee(block: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in block.items() if name != "baseFeePerGas"}


@pytest.mark.parametrize("count", [2, 3])
async def test_a_node_that_hides_the_base_fee_makes_no_lane_pay_its_gas_price(
    world: RelayWorld, count: int
) -> None:
    nodes = some_nodes(world, count)
    hides_the_base_fee(nodes[0])
    async with relaying(world, *nodes) as (pool, _):
        await world.ask()
        await until(lambda: true(len(world.node.pool) == 1))
        assert "gas_price" in pool.contradictions()[0]
    (sent,) = world.node.pool.values()
    assert not sent.is_legacy
    assert sent.max_fee_per_gas <= 3 * GWEI


@pytest.mark.parametrize("count", [2, 3])
async def test_a_base_fee_that_one_node_shows_as_too_low_keeps_no_mint_from_being_mined(
    world: RelayWorld, count: int
) -> None:
    """By raises of a tenth the mint would need 32 attempts."""
    nodes = some_nodes(world, count)
    for node in (world.node, *nodes):
        node.base_fee = 20 * GWEI
    nodes[0].base_fee = GWEI
    async with a_pool(*nodes) as pool:
        lane = a_mint_lane(world, pool, POLICY)
        async with running(lane.run()):
            await until(lambda: true(lane.is_ready))
            await world.queue()
            await world.settled("published")
            await until(lambda: is_mined(world))
            assert "gas_price" in pool.contradictions()[0]
    assert len(set(world.node.sent()) | set(nodes[1].sent())) <= 4


async def is_mined(world: RelayWorld) -> bool:
    world.node.mine()
    return bool(world.node.minted())


# --- a liar that is asked second ---------------------------------------------------------------


async def test_one_node_of_three_permits_nothing_that_the_other_two_forbid(
    world: RelayWorld,
) -> None:
    """The wallets are empty; the second node claims that they are not."""
    nodes = some_nodes(world, 3)
    for node in nodes:
        node.balance = 0
    nodes[1].balance = 1_000 * ETHER
    async with relaying(world, *nodes) as (pool, lane):
        await world.ask()
        await until(lambda: true(pool.contradictions() == [set(), {"balance"}, set()]))
        await until(lambda: true(lane.pause.reason == "funds"))
        await rounds(nodes[0])
        assert await row_states(world.observer) == ["queued"]


async def test_a_balance_that_one_node_of_two_makes_up_drains_nothing_and_is_offered_slowly(
    world: RelayWorld,
) -> None:
    nodes = some_nodes(world, 2)
    nodes[0].balance = 0
    nodes[1].refuses = lambda _sent: "insufficient funds for gas * price + value"
    slow = replace(PATIENT, pauses=replace(PATIENT.pauses, publication=PauseBackoff(0.01, 3600.0)))
    async with relaying(world, *nodes, policy=slow):
        await world.ask(3)
        await until(lambda: true(bool(nodes[0].arrived)))
        await rounds(nodes[0], 40)
        assert len(nodes[0].arrived) <= 10 * 3, "refused bytes are offered after growing pauses"
        assert len(set(nodes[0].arrived)) == 3, "nothing is signed anew"
        assert not world.node.pool


# --- honest nodes ------------------------------------------------------------------------------


async def test_a_node_that_is_a_block_behind_neither_permits_nor_is_reported(
    world: RelayWorld,
) -> None:
    """The first node has seen what a mined relay has cost, the other one has not yet."""
    nodes = some_nodes(world, 2)
    quick = replace(PATIENT, pauses=replace(PATIENT.pauses, second_opinion=0.05))
    for node in nodes:
        node.balance = 100_000 * 4 * GWEI
    async with relaying(world, *nodes, policy=quick) as (pool, lane):
        await world.ask()
        await world.settled("published")
        nodes[1].lag, nodes[0].balance = 1, 0
        world.node.mine()
        await world.relays_are("mined")
        await world.ask()
        await until(lambda: true(lane.pause.reason == "funds"))
        await rounds(nodes[0])
        assert await row_states(world.observer) == ["mined", "queued"]
        assert pool.contradictions() == [set(), set()]


@pytest.mark.parametrize("lie", LIES)
async def test_an_answer_that_does_not_restrict_is_compared_with_no_other(
    world: RelayWorld, lie: Lie
) -> None:
    nodes = some_nodes(world, 2)
    async with relaying(world, *nodes) as (pool, lane):
        lie(nodes[1])
        for _ in range(3):
            await world.ask()
            await mine_while_lying(world, lane)
        assert pool.contradictions() == [set(), set()]
        assert nodes[1].call_counts["eth_feeHistory"] == 0
        assert nodes[1].call_counts["eth_getBalance"] == 0


async def test_blocks_that_two_nodes_show_as_small_refuse_a_relay(world: RelayWorld) -> None:
    nodes = some_nodes(world, 2)
    async with relaying(world, *nodes) as (_, lane):
        world.node.block_gas_limit = 90_000
        await mine_while_lying(world, lane)
        (relay,) = await world.ask()
        await world.relays_are("failed")
        assert "above the 90000" in (await world.progress(relay)).reason


async def test_a_small_block_that_no_other_node_confirms_keeps_a_relay_waiting(
    world: RelayWorld,
) -> None:
    nodes = some_nodes(world, 2)
    async with relaying(world, *nodes) as (_, lane):
        gas_limit_of_30_000(nodes[0])
        nodes[1].is_down = True
        await mine_while_lying(world, lane)
        await world.ask()
        await until(lambda: true(lane.pause.reason == "block_gas_unconfirmed"))
        await rounds(nodes[0])
        assert await row_states(world.observer) == ["queued"]
        nodes[1].is_down = False
        await until(lambda: true(len(world.node.pool) == 1))


async def test_a_small_block_that_no_other_node_confirms_cancels_no_published_relay(
    world: RelayWorld,
) -> None:
    nodes = some_nodes(world, 2)
    async with relaying(world, *nodes, policy=POLICY) as (_, lane):
        await world.ask()
        await world.settled("published")
        nodes[1].is_down = True
        gas_limit_of_30_000(nodes[0])
        await mine_while_lying(world, lane, takes_pool=False)
        await world.ask()
        await until(lambda: true(lane.pause.reason == "block_gas_unconfirmed"))
        # Fees are told at once, and the limit with the next block: a lane in between would pay.
        base_fee_that_no_balance_pays(nodes[0])
        await mine_while_lying(world, lane, takes_pool=False)
        assert await row_states(world.observer) == ["sent", "queued"]
        assert await value(world.observer, "SELECT count(*) FROM attempts") == 1


async def test_a_node_that_has_just_fallen_silent_holds_up_no_comparison(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing else finds out in this test that the node is silent."""
    monkeypatch.setattr(second_opinions, "_OPINION_SECONDS", 0.1)
    nodes = some_nodes(world, 2)
    endless = replace(STEADY, hedge_after=3600.0, pinned_timeout=3600.0)
    async with a_fake_pool(*nodes, policy=endless) as pool:
        pool.prefer(0)
        lane = a_relay_lane(world, pool)
        async with running(lane.run()):
            await until(lambda: true(lane.is_ready))
            nodes[1].is_hung = True
            base_fee_above_the_cap(nodes[0])
            await mine_while_lying(world, lane)
            await world.ask()
            await until(lambda: true(lane.pause.reason == "fees"))
            assert not pool.is_usable(pool.members[1])


async def test_the_only_node_is_believed(world: RelayWorld) -> None:
    (node,) = some_nodes(world, 1)
    async with relaying(world, node) as (_, lane):
        no_balance(node)
        await mine_while_lying(world, lane)
        await world.ask()
        await until(lambda: true(lane.pause.reason == "funds"))
        gas_limit_of_30_000(node)
        await mine_while_lying(world, lane)
        await world.relays_are("failed")


# --- references --------------------------------------------------------------------------------


async def a_served_mint_lane(world: RelayWorld, nodes: list[FakeNode]) -> None:
    """Lets the lane have its first term, in which the database gets its counter."""
    async with a_pool(*nodes) as pool:
        lane = a_mint_lane(world, pool)
        async with running(lane.run()):
            await until(lambda: true(lane.is_ready))


@pytest.mark.parametrize("count", [2, 3])
async def test_references_that_only_one_node_shows_as_used_stop_no_lane(
    world: RelayWorld, count: int
) -> None:
    nodes = some_nodes(world, count)
    await a_served_mint_lane(world, nodes)
    nodes[0].false_references = True
    async with a_pool(*nodes) as pool:
        lane = a_mint_lane(world, pool)
        async with running(lane.run()):
            await until(lambda: true(lane.is_ready))
            assert lane.stopped is None
            assert "references" in pool.contradictions()[0]
            await world.queue()
            await world.settled("published")


@pytest.mark.parametrize("count", [2, 3])
async def test_one_node_that_shows_all_references_as_used_keeps_no_new_database_searching(
    world: RelayWorld, count: int
) -> None:
    nodes = some_nodes(world, count)
    nodes[0].false_references = True
    async with a_pool(*nodes) as pool:
        lane = a_mint_lane(world, pool)
        async with running(lane.run()):
            await until(lambda: true(lane.is_ready))
            assert "references" in pool.contradictions()[0]
            await world.queue()
            await world.settled("published")
    assert await value(world.observer, "SELECT max(seq) FROM rewards") == 0


async def test_the_only_node_that_shows_all_references_as_used_ends_the_search(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(references, "_MOST_WORDS", 64)
    world.node.false_references = True
    view = await ChainView.newest(world.node.node)
    with pytest.raises(NodeUnavailable, match="more used references"):
        await references.first_free_seq(view, LTZ_AT)


async def test_references_that_no_other_node_confirms_keep_a_lane_waiting(
    world: RelayWorld,
) -> None:
    nodes = some_nodes(world, 2)
    await a_served_mint_lane(world, nodes)
    nodes[0].false_references = True
    async with a_pool(*nodes) as pool:
        nodes[1].is_down = True
        lane = a_mint_lane(world, pool)
        async with running(lane.run()):
            await rounds(nodes[0])
            assert (lane.stopped, lane.is_serving) == (None, False)
            nodes[1].is_down = False
            await until(lambda: true(lane.is_serving))


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_references_that_all_nodes_show_as_used_stop_the_lane(
    world: RelayWorld, count: int
) -> None:
    nodes = some_nodes(world, count)
    await a_served_mint_lane(world, nodes)
    for node in nodes:
        node.false_references = True
    async with a_pool(*nodes) as pool:
        lane = a_mint_lane(world, pool)
        async with running(lane.run()):
            assert "LTZ has minted reference" in await stop_of(lane)


# --- a nonce that is too high ------------------------------------------------------------------


def a_high_nonce(node: FakeNode) -> None:
    node.false_nonce = 7


def a_high_pending_nonce(node: FakeNode) -> None:
    """The node claims that its pool holds transactions of every wallet."""
    count = node._methods["eth_getTransactionCount"]
    node._methods["eth_getTransactionCount"] = lambda wallet, tag: (
        hex(7) if tag == "pending" else count(wallet, tag)
    )


NONCE_LIES: list[Lie] = [a_high_nonce, a_high_pending_nonce]


@pytest.mark.parametrize("liar", [0, 1, 2])
@pytest.mark.parametrize("lie", NONCE_LIES)
async def test_one_node_of_three_stops_no_new_wallet_by_a_high_nonce(
    world: RelayWorld, lie: Lie, liar: int
) -> None:
    nodes = some_nodes(world, 3)
    lie(nodes[liar])
    async with a_pool(*nodes) as pool:
        lane = a_mint_lane(world, pool)
        async with running(lane.run()):
            await world.queue()
            await world.settled("published")
            assert lane.stopped is None
    assert {sent.nonce for sent in world.node.pool.values()} == {0}


@pytest.mark.parametrize("lie", NONCE_LIES)
async def test_a_new_wallet_waits_while_two_nodes_disagree_about_its_nonce(
    world: RelayWorld, lie: Lie
) -> None:
    nodes = some_nodes(world, 2)
    honest = dict(nodes[0]._methods)
    lie(nodes[0])
    async with a_pool(*nodes) as pool:
        lane = a_mint_lane(world, pool)
        async with running(lane.run()):
            await world.queue()
            await until(lambda: true(lane.pause.reason == NODE))
            await rounds(nodes[1], 4)
            assert (lane.stopped, nodes[0].arrived, nodes[1].arrived) == (None, [], [])
            nodes[0].false_nonce, nodes[0]._methods = None, honest
            await world.settled("published")


@pytest.mark.parametrize("liar", [0, 1, 2])
@pytest.mark.parametrize("lie", NONCE_LIES)
async def test_one_node_of_three_stops_no_lane_by_a_high_nonce_after_a_promotion(
    world: RelayWorld, lie: Lie, liar: int
) -> None:
    nodes = some_nodes(world, 3)
    await a_served_mint_lane(world, nodes)
    await value(world.observer, "UPDATE lanes SET timeline = 'another server' RETURNING 1")
    lie(nodes[liar])
    async with a_pool(*nodes) as pool:
        lane = a_mint_lane(world, pool)
        async with running(lane.run()):
            await world.queue()
            await world.settled("published")
            assert lane.stopped is None


async def test_a_lane_that_one_node_of_two_stops_after_a_promotion_says_that_it_may_lie(
    world: RelayWorld,
) -> None:
    nodes = some_nodes(world, 2)
    await a_served_mint_lane(world, nodes)
    await value(world.observer, "UPDATE lanes SET timeline = 'another server' RETURNING 1")
    a_high_nonce(nodes[1])
    async with a_pool(*nodes) as pool:
        lane = a_mint_lane(world, pool)
        async with running(lane.run()):
            assert "1 of 2 nodes shows" in await stop_of(lane)
