"""Lanes on two or three nodes, of which some lag, hang, die or lie; and on one that does."""

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcError
from ltzd.operator.mints.lane import MintLane
from ltzd.operator.policy import LanePolicy, MintTarget, RelayTarget
from ltzd.operator.relays.lane import RelayLane
from ltzd.rules.conditions.facts import LaneState
from ltzd.rules.relayer.calls import RelayStatus
from ltzd.store.database import Pool
from ltzd.store.operator.leases import Leases
from ltzd.values import Hash32, hex_of
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, FakeNode, SentTransaction
from tests.support.chain.fake_pool import QUICK, FakeNodePool, a_fake_pool
from tests.support.chain.mint_world import PAUSES, POLICY, stop_of, true
from tests.support.relays.lanes import RELAYER, RelayWorld, a_relay_world, row_states
from tests.support.rows.core import MINTER, running, states, value
from tests.support.rows.processes import report_standby
from tests.support.waiting import Stopwatch, until

PATIENT = replace(POLICY, repeat_seconds=10.0, replace_after_seconds=10.0)
"""Long enough that no bytes go out a second time."""
NEVER_PATIENT = replace(PATIENT, pauses=replace(PAUSES, second_opinion=3600.0))
"""Other nodes that are behind are waited for throughout a test."""


@pytest_asyncio.fixture
async def world(database_url: str, pool: Pool, observer: Pool) -> AsyncIterator[RelayWorld]:
    async with a_relay_world(database_url, pool, observer) as world:
        yield world


ADOPTING = replace(PATIENT, adopts_wallets=True)


@asynccontextmanager
async def lane_on(
    world: RelayWorld, node: Node, policy: LanePolicy = PATIENT
) -> AsyncIterator[RelayLane]:
    lane = RelayLane(
        world.pool, Leases(world.url), node, RELAYER, RelayTarget(CHAIN_ID), world.wakeups, policy
    )
    async with running(lane.run()):
        yield lane


@asynccontextmanager
async def lane_on_nodes(
    world: RelayWorld, *nodes: FakeNode, policy: LanePolicy = PATIENT
) -> AsyncIterator[FakeNodePool]:
    """Runs a lane on a pool; the indexer stays with the world's own node."""
    async with a_fake_pool(*nodes) as pool, lane_on(world, pool.node(), policy) as lane:
        await until(lambda: true(lane.is_ready))
        yield pool


class Failures(dict[Hash32, dict[str, Any] | RpcError]):
    """The first request for receipts is refused, and turns the lane to the other node."""

    def __init__(self, pool: FakeNodePool) -> None:
        super().__init__()
        self._pool = pool
        self.count = 0

    def get(self, key: Hash32, default: Any = None) -> Any:
        if self.count:
            return default
        self.count += 1
        self._pool.prefer(1)
        return RpcError(-32603, "internal error")


async def rounds(node: FakeNode, count: int = 20) -> None:
    """Waits until a node has been asked for many blocks."""
    before = node.call_counts["eth_getBlockByNumber"]
    await until(lambda: true(node.call_counts["eth_getBlockByNumber"] >= before + count))


def a_receipt(node: FakeNode, sent: SentTransaction, succeeded: bool) -> dict[str, Any]:
    """Returns a receipt in the node's newest block, whether or not it has the transaction."""
    return {
        "transactionHash": hex_of(sent.hash),
        "blockNumber": hex(node.head.number),
        "blockHash": hex_of(node.head.hash),
        "status": hex(succeeded),
        "gasUsed": hex(50_000),
        "effectiveGasPrice": hex(10**9),
    }


# --- an executed relay is never told failed --------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_missing_receipts_never_fail_an_executed_relay(world: RelayWorld, count: int) -> None:
    """Every node lacks the receipts, while its state says that the nonce is used and final."""
    nodes = [world.node, *(world.node.sibling() for _ in range(count - 1))]
    (relay,) = await world.ask()
    async with lane_on_nodes(world, *nodes):
        await world.settled("published")
        for node in nodes:
            node.hides_receipts = True
        world.node.mine(10)
        await rounds(world.node, 60)
        assert await states(world.observer) == ["published"]
        for node in nodes:
            node.hides_receipts = False
        await world.relays_are("mined")
        await world.settled("confirmed")
    assert (await world.progress(relay)).status is RelayStatus.FINAL
    await world.executed_in_order()


@pytest.mark.parametrize("lying", [0, 1])
async def test_one_node_without_receipts_takes_nothing_back(world: RelayWorld, lying: int) -> None:
    nodes = [world.node, world.node.sibling()]
    await world.ask()
    async with lane_on_nodes(world, *nodes):
        await world.settled("published")
        world.node.mine()
        await world.relays_are("mined")
        nodes[lying].hides_receipts = True
        await rounds(world.node, 40)
        assert await row_states(world.observer) == ["mined"]
        world.node.mine(10)
        await world.settled("confirmed")
    await world.executed_in_order()


async def test_a_node_below_the_block_takes_nothing_back(world: RelayWorld) -> None:
    """The node that serves alone falls behind the relay's block, and stays there."""
    second = world.node.sibling()
    await world.ask()
    async with lane_on_nodes(world, world.node, second, policy=POLICY):
        await world.settled("published")
        world.node.mine()
        await world.relays_are("mined")
        await value(world.observer, "DELETE FROM blocks WHERE number > 0 RETURNING 1")
        second.lag, world.node.is_down = 1, True
        await rounds(second, 60)
        assert await row_states(world.observer) == ["mined"]


# --- reorgs ----------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_a_reorg_that_the_nodes_agree_on_publishes_the_bytes_again(
    world: RelayWorld, count: int
) -> None:
    nodes = [world.node, *(world.node.sibling() for _ in range(count - 1))]
    world.node.final_depth = 50
    await world.ask(2)
    async with lane_on_nodes(world, *nodes):
        await world.settled("published", "published")
        world.node.mine(2)
        await world.relays_are("mined", "mined")
        world.node.reorg(2, forgets_transactions=True)
        await world.relays_are("sent", "sent")
        await until(lambda: true(len(world.node.pool) == 2))
        world.node.mine()
        await world.relays_are("mined", "mined")
    await world.executed_in_order()


@pytest.mark.parametrize("liar", [1, 2])
async def test_a_reorg_that_one_of_three_nodes_denies_publishes_the_bytes_again(
    world: RelayWorld, liar: int
) -> None:
    nodes = [world.node, world.node.sibling(), world.node.sibling()]
    world.node.final_depth = 50
    await world.ask()
    async with lane_on_nodes(world, *nodes):
        await world.settled("published")
        world.node.mine()
        await world.relays_are("mined")
        nodes[liar].blocks = list(world.node.blocks)
        world.node.reorg(1, forgets_transactions=True)
        await world.relays_are("sent")
        await until(lambda: true(len(world.node.pool) == 1))


async def test_a_reorg_that_one_of_two_nodes_denies_is_no_verdict(world: RelayWorld) -> None:
    """A node alone on a branch: the index of the first node follows the branch, the lane waits."""
    honest, world.node.final_depth = FakeNode(), 50
    await world.ask()
    async with lane_on_nodes(world, world.node, honest):
        await world.settled("published")
        world.node.mine()
        honest.blocks[:] = world.node.blocks
        await world.relays_are("mined")
        world.node.reorg(1)
        await rounds(honest, 30)
        assert await row_states(world.observer) == ["mined"]
        honest.blocks[:] = world.node.blocks
        await world.relays_are("sent")


async def test_a_chain_that_became_shorter_gets_the_bytes_again(world: RelayWorld) -> None:
    world.node.final_depth = 50
    await world.ask()
    async with lane_on_nodes(world, world.node, policy=POLICY):
        await world.settled("published")
        world.node.mine(3)
        await world.relays_are("mined")
        world.node.forget_blocks(3, forgets_transactions=True)
        await world.relays_are("sent")
        await until(lambda: true(len(world.node.pool) == 1))
        world.node.mine()
        await world.relays_are("mined")
    await world.executed_in_order()


# --- receipts that only one node has ---------------------------------------------------------


@pytest.mark.parametrize("succeeded", [True, False])
@pytest.mark.parametrize("honest_nodes", [1, 2])
async def test_a_forged_receipt_is_not_told_while_another_node_denies_it(
    world: RelayWorld, succeeded: bool, honest_nodes: int
) -> None:
    liar = world.node.sibling()
    honest = [world.node.sibling() for _ in range(honest_nodes)]
    (relay,) = await world.ask()
    async with lane_on_nodes(world, liar, *honest) as pool:
        await world.settled("published")
        await until(lambda: true(bool(liar.sent())))
        (sent, *_) = liar.sent()
        world.node.mine(takes_pool=False)
        liar.forged_receipts[sent.hash] = a_receipt(liar, sent, succeeded)
        await rounds(liar, 30)
        assert await row_states(world.observer) == ["sent"]
        if honest_nodes == 2:
            # A lane that has turned away from a slow node reads no forged receipt.
            await until(
                lambda: true(
                    "receipt_denied" in pool.contradictions()[0]
                    or pool.ranked("operator")[0] is not pool.members[0]
                )
            )
            assert pool.contradictions()[1:] == [set(), set()]
        del liar.forged_receipts[sent.hash]
        world.node.mine()
        await world.relays_are("mined")
        assert (await world.progress(relay)).status is RelayStatus.CONFIRMED
    await world.executed_in_order()


@pytest.mark.parametrize("succeeded", [True, False])
@pytest.mark.parametrize("honest_nodes", [1, 2])
@pytest.mark.parametrize("is_mined", [False, True])
async def test_a_forged_receipt_of_a_final_block_is_not_told_either(
    world: RelayWorld, succeeded: bool, honest_nodes: int, is_mined: bool
) -> None:
    """The finality of a block does not prove that the block holds the transaction."""
    world.node.final_depth = 2
    world.node.mine(4)
    liar = world.node.sibling()
    honest = [world.node.sibling() for _ in range(honest_nodes)]
    await until(lambda: is_final(world, 3))
    (relay,) = await world.ask()
    async with lane_on_nodes(world, liar, *honest):
        await world.settled("published")
        (sent, *_) = liar.sent()
        final = world.node.blocks[3]
        liar.forged_receipts[sent.hash] = a_receipt(liar, sent, succeeded) | {
            "blockNumber": hex(final.number),
            "blockHash": hex_of(final.hash),
        }
        if is_mined:
            world.node.mine()
        await rounds(liar, 30)
        number = await value(world.observer, "SELECT block_number FROM transactions")
        assert number != final.number
        del liar.forged_receipts[sent.hash]
        world.node.mine()
        await world.relays_are("mined")
        assert (await world.progress(relay)).status is not RelayStatus.FAILED
    await world.executed_in_order()


async def test_a_failure_that_the_only_node_invented_is_read_again_once_it_is_final(
    world: RelayWorld,
) -> None:
    """No second node denies the receipt, whose block is the true one."""
    node = world.node
    (relay,) = await world.ask()
    async with lane_on_nodes(world, node):
        await world.settled("published")
        (sent, *_) = node.sent()
        node.hides_receipts = True
        node.mine()
        node.forged_receipts[sent.hash] = a_receipt(node, sent, succeeded=False)
        await until(lambda: has_status(world, relay, RelayStatus.FAILED))
        del node.forged_receipts[sent.hash]
        node.hides_receipts = False
        node.mine(10)
        await until(lambda: has_status(world, relay, RelayStatus.FINAL))
        assert await states(world.observer) == ["confirmed"]
    await world.executed_in_order()


async def has_status(world: RelayWorld, relay: int, status: RelayStatus) -> bool:
    return (await world.progress(relay)).status is status


async def is_final(world: RelayWorld, number: int) -> bool:
    return bool(await value(world.observer, "SELECT final_number >= $1 FROM chains", number))


LIES_ABOUT_COST: dict[str, dict[str, Any]] = {
    "a price that PostgreSQL cannot hold": {"effectiveGasPrice": hex(2**63)},
    "a price of a day's budget": {"effectiveGasPrice": hex(2**62)},
    "more gas than the limit": {"gasUsed": hex(2**60)},
    "an L1 fee where there is no L1": {"l1Fee": hex(2**255)},
}


@pytest.mark.parametrize("lie", LIES_ABOUT_COST.values(), ids=LIES_ABOUT_COST)
@pytest.mark.parametrize("honest_nodes", [0, 2])
async def test_a_true_receipt_with_a_false_cost_spends_what_was_reserved_at_most(
    world: RelayWorld, lie: dict[str, Any], honest_nodes: int
) -> None:
    """An honest majority's cost is the one that counts; the lane goes on in any case."""
    liar = world.node.sibling()
    honest = [world.node.sibling() for _ in range(honest_nodes)]
    await world.ask()
    async with lane_on_nodes(world, liar, *honest):
        await world.settled("published")
        (sent, *_) = liar.sent()
        block = world.node.mine()
        true_receipt = a_receipt(liar, sent, True) | {"effectiveGasPrice": hex(block.base_fee)}
        liar.forged_receipts[sent.hash] = true_receipt | lie
        await world.relays_are("mined")

        cost = await world.observer.fetchrow(
            "SELECT gas_used, effective_gas_price, l1_fee_wei FROM transactions"
        )

        assert cost is not None
        if honest_nodes:
            assert tuple(cost) == (50_000, block.base_fee, 0)
        else:
            assert cost["gas_used"] <= sent.gas_limit
            assert cost["effective_gas_price"] <= sent.max_fee_per_gas
            assert cost["l1_fee_wei"] == 0
        await world.ask()
        await world.settled("mined", "published")
        world.node.mine()
        await world.relays_are("mined", "mined")


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ({"transactionHash": "0x", "blockHash": "0x"}, "malformed_answer"),
        (RpcError(-32603, "internal error"), "rounds_fail"),
    ],
)
async def test_a_node_at_which_no_round_succeeds_is_turned_away_from(
    world: RelayWorld, answer: dict[str, Any] | RpcError, kind: str
) -> None:
    """The node answers all else, so that its circuit stays closed."""
    faulty, honest = world.node.sibling(), world.node.sibling()
    policy = replace(PATIENT, pauses=replace(PAUSES, standstill=0.2, status=0.02))
    await world.ask()
    async with lane_on_nodes(world, faulty, honest, policy=policy) as pool:
        await world.settled("published")
        (sent, *_) = faulty.sent()
        faulty.forged_receipts[sent.hash] = answer
        world.node.mine()
        await world.relays_are("mined")
        assert pool.contradictions() == [{kind}, set()]
    await world.executed_in_order()


@pytest.mark.parametrize("honest_nodes", [1, 2])
async def test_a_receipt_of_another_transaction_is_malformed_and_ends_no_lane(
    world: RelayWorld, honest_nodes: int
) -> None:
    liar = world.node.sibling()
    honest = [world.node.sibling() for _ in range(honest_nodes)]
    await world.ask()
    async with lane_on_nodes(world, liar, *honest) as pool:
        await world.settled("published")
        (sent, *_) = liar.sent()
        world.node.mine()
        foreign = {"transactionHash": "0x" + "ab" * 32}
        liar.forged_receipts[sent.hash] = a_receipt(liar, sent, True) | foreign
        await world.relays_are("mined")
        assert pool.contradictions() == [{"malformed_answer"}, *[set()] * honest_nodes]
    await world.executed_in_order()


async def test_a_node_that_shows_other_blocks_than_the_requested_ones_is_reported(
    world: RelayWorld,
) -> None:
    liar, honest = world.node.sibling(), world.node.sibling()
    await world.ask()
    async with lane_on_nodes(world, liar, honest) as pool:
        await world.settled("published")
        real = liar._methods["eth_getBlockByNumber"]
        liar._methods["eth_getBlockByNumber"] = lambda tag, full: real(below(tag), full)
        world.node.mine(2)
        await world.relays_are("mined")
        assert "malformed_answer" in pool.contradictions()[0] or pool.members[0].is_open
    await world.executed_in_order()


def below(tag: str) -> str:
    return hex(max(0, int(tag, 16) - 1)) if tag.startswith("0x") else tag


async def test_a_lane_turns_to_its_other_node_before_it_leaves_the_wallet_to_another_process(
    world: RelayWorld,
) -> None:
    """The other process may use the same nodes, and would turn away from the faulty one as late."""
    faulty, honest = world.node.sibling(), world.node.sibling()
    pauses = replace(PAUSES, standstill=2.0, without_node=0.5, status=0.02)
    await world.ask()
    async with lane_on_nodes(world, faulty, honest, policy=replace(PATIENT, pauses=pauses)) as pool:
        await world.settled("published")
        (sent, *_) = faulty.sent()
        faulty.forged_receipts[sent.hash] = RpcError(-32603, "internal error")
        world.node.mine()

        async def is_mined() -> bool:
            await report_standby(world.observer, LaneState(RELAYER.address, "relay", is_held=False))
            return await row_states(world.observer) == ["mined"]

        await until(is_mined)
        assert pool.contradictions() == [{"rounds_fail"}, set()]
    await world.executed_in_order()


async def test_nodes_that_are_all_away_are_not_said_to_contradict_themselves(
    world: RelayWorld,
) -> None:
    """Rounds fail because no node is left to ask, and not at the node that was asked last."""
    nodes = [world.node.sibling(), world.node.sibling()]
    policy = replace(PATIENT, pauses=replace(PAUSES, standstill=0.2, status=0.02))
    await world.ask()
    async with lane_on_nodes(world, *nodes, policy=policy) as pool:
        await world.settled("published")
        for node in nodes:
            node.is_down = True
        await until(lambda: true(all(member.is_open for member in pool.members)))
        away = Stopwatch()
        await until(lambda: true(away.seconds() > 5 * policy.pauses.standstill))
        for node in nodes:
            node.is_down = False
        world.node.mine()
        await world.relays_are("mined")
        assert pool.contradictions() == [set(), set()]
    await world.executed_in_order()


async def test_failures_far_apart_are_no_series(world: RelayWorld) -> None:
    """Between them, rounds succeed at the other node, and this one is not asked."""
    clumsy, honest = world.node.sibling(), world.node.sibling()
    policy = replace(PATIENT, pauses=replace(PAUSES, standstill=0.2, status=0.02))
    await world.ask()
    async with lane_on_nodes(world, clumsy, honest, policy=policy) as pool:

        async def fails_once() -> None:
            failures = Failures(pool)
            clumsy.forged_receipts = failures
            await until(lambda: true(failures.count == 1))

        await world.settled("published")
        await fails_once()
        other = Stopwatch()
        await until(lambda: true(other.seconds() > 5 * policy.pauses.standstill))
        pool.prefer(0)
        await fails_once()
        world.node.mine()
        await world.relays_are("mined")
        assert pool.contradictions() == [set(), set()]


async def test_one_malformed_answer_is_not_held_against_a_node(world: RelayWorld) -> None:
    class Once(dict[Hash32, dict[str, Any] | RpcError]):
        def get(self, key: Hash32, default: Any = None) -> Any:
            return self.pop(key, default)

    clumsy, honest = world.node.sibling(), world.node.sibling()
    await world.ask()
    async with lane_on_nodes(world, clumsy, honest) as pool:
        await world.settled("published")
        (sent, *_) = clumsy.sent()
        clumsy.forged_receipts = Once({sent.hash: {"transactionHash": "0x", "blockHash": "0x"}})
        world.node.mine()
        await world.relays_are("mined")
        assert not clumsy.forged_receipts
        assert pool.contradictions() == [set(), set()]


async def test_one_malformed_answer_of_each_node_is_held_against_neither(
    world: RelayWorld,
) -> None:
    class Once(dict[Hash32, dict[str, Any] | RpcError]):
        """The lane turns to the other node after the answer."""

        def get(self, key: Hash32, default: Any = None) -> Any:
            if key in self:
                pool.prefer(1 if self is nodes[0].forged_receipts else 0)
            return self.pop(key, default)

    nodes = [world.node.sibling(), world.node.sibling()]
    await world.ask()
    async with lane_on_nodes(world, *nodes) as pool:
        await world.settled("published")
        (sent, *_) = nodes[0].sent()
        pool.prefer(0)
        for node in nodes:
            node.forged_receipts = Once({sent.hash: {"transactionHash": "0x", "blockHash": "0x"}})
        world.node.mine()
        await world.relays_are("mined")
        assert not any(node.forged_receipts for node in nodes)
        assert pool.contradictions() == [set(), set()]


async def test_a_lane_that_stands_still_for_disputed_receipts_says_so(world: RelayWorld) -> None:
    liar, honest = world.node.sibling(), world.node.sibling()
    policy = replace(PATIENT, max_in_flight=1, pauses=replace(PAUSES, standstill=0.2, status=0.02))
    await world.ask()
    async with lane_on_nodes(world, liar, honest, policy=policy):
        await world.settled("published")
        (sent, *_) = liar.sent()
        world.node.mine(takes_pool=False)
        liar.forged_receipts[sent.hash] = a_receipt(liar, sent, True)
        await world.ask()

        async def is_told() -> bool:
            reason: str | None = await value(world.observer, "SELECT paused_for FROM lanes")
            return reason == "receipts"

        await until(is_told)
        del liar.forged_receipts[sent.hash]
        world.node.mine()
        await world.settled("mined", "published")

        async def is_over() -> bool:
            reason: str | None = await value(world.observer, "SELECT paused_for FROM lanes")
            return reason is None

        await until(is_over)


@pytest.mark.parametrize("position", [0, 1, 2])
async def test_one_liar_of_three_holds_up_no_receipt(world: RelayWorld, position: int) -> None:
    nodes = [world.node.sibling() for _ in range(3)]
    nodes[position].hides_receipts = True
    async with lane_on_nodes(world, *nodes):
        await world.ask(3)
        await world.settled(*["published"] * 3)
        world.node.mine()
        await world.relays_are(*["mined"] * 3)
    await world.executed_in_order()


async def test_a_receipt_waits_a_moment_for_a_node_that_is_behind(world: RelayWorld) -> None:
    second = world.node.sibling()
    await world.ask()
    async with lane_on_nodes(world, world.node, second, policy=NEVER_PATIENT):
        await world.settled("published")
        second.lag = 1
        world.node.mine()
        await rounds(world.node)
        assert await row_states(world.observer) == ["sent"]
        second.lag = 0
        await world.relays_are("mined")


@pytest.mark.parametrize("bad", [0, 1])
async def test_a_node_that_stands_still_holds_up_no_receipt(world: RelayWorld, bad: int) -> None:
    nodes = [world.node.sibling(), world.node.sibling()]
    quick = replace(PATIENT, pauses=replace(PAUSES, second_opinion=0.1))
    async with lane_on_nodes(world, *nodes, policy=quick):
        nodes[bad].lag = 1
        for _ in range(3):
            await world.ask()
            await until(lambda: true(bool(world.node.pool)))
            world.node.mine()
            nodes[bad].lag += 1
        await world.relays_are("mined", "mined", "mined")


@pytest.mark.parametrize("bad", [0, 1])
@pytest.mark.parametrize("fault", ["is_down", "is_hung"])
async def test_a_dead_or_hung_node_of_two_changes_nothing(
    world: RelayWorld, bad: int, fault: str
) -> None:
    nodes = [world.node.sibling(), world.node.sibling()]
    async with lane_on_nodes(world, *nodes):
        await world.ask(2)
        await world.settled("published", "published")
        setattr(nodes[bad], fault, True)
        world.node.mine()
        await world.relays_are("mined", "mined")
        await world.ask()
        await until(lambda: true(len(world.node.pool) == 1))
        world.node.mine()
        await world.relays_are("mined", "mined", "mined")
        setattr(nodes[bad], fault, False)
        world.node.mine(5)
        await world.settled(*["confirmed"] * 3)
    await world.executed_in_order()


async def test_a_node_that_has_just_fallen_silent_holds_up_neither_a_takeover_nor_a_receipt(
    world: RelayWorld,
) -> None:
    """Nothing else finds out in this test that the node is silent."""
    endless = replace(QUICK, hedge_after=3600.0, pinned_timeout=3600.0)
    policy = replace(PATIENT, pauses=replace(PAUSES, second_opinion=0.1))
    second = world.node.sibling()
    async with a_fake_pool(world.node, second, policy=endless) as pool:
        pool.prefer(0)
        async with lane_on(world, pool.node(), policy) as lane:
            await until(lambda: true(lane.is_ready))
        second.is_hung = True
        async with lane_on(world, pool.node(), policy) as lane:
            await until(lambda: true(lane.is_serving))
            assert pool.is_usable(pool.members[1]), "the silent node was not needed"
            await world.ask()
            await until(lambda: true(bool(world.node.pool)))
            world.node.mine()
            await world.relays_are("mined")
            assert not pool.is_usable(pool.members[1])


async def test_the_node_in_use_falls_silent_and_a_takeover_reads_the_next_one_at_once(
    world: RelayWorld,
) -> None:
    """Nothing but the read of the newest block finds out in this test that the node is silent."""
    endless = replace(QUICK, hedge_after=3600.0, pinned_timeout=3600.0, silent_after=3600.0)
    policy = replace(PATIENT, pauses=replace(PAUSES, second_opinion=0.1))
    second = world.node.sibling()
    async with a_fake_pool(world.node, second, policy=endless) as pool:
        async with lane_on(world, pool.node(), policy) as lane:
            await until(lambda: true(lane.is_ready))
        pool.prefer(1)
        second.is_hung = True
        async with lane_on(world, pool.node(), policy) as lane:
            await until(lambda: true(lane.is_serving))
            await world.ask()
            await until(lambda: true(bool(world.node.pool)))
            world.node.mine()
            await world.relays_are("mined")


# --- foreign nonces --------------------------------------------------------------------------


async def taken_elsewhere(world: RelayWorld, *nodes: FakeNode) -> int:
    """Signs two relays that no node gets, and mines a foreign transaction with the first nonce."""
    for node in nodes:
        node.lost_requests = 1_000_000
    relay, _ = await world.ask(2)
    await world.settled("signed", "signed")
    world.node.use_nonce(RELAYER)
    for node in nodes:
        node.lost_requests = 0
    return relay


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("kept_states", [1_000_000, 2], ids=["archive", "pruned"])
async def test_a_foreign_transaction_displaces_a_relay_once_its_block_is_final(
    world: RelayWorld, count: int, kept_states: int
) -> None:
    nodes = [world.node, *(world.node.sibling() for _ in range(count - 1))]
    async with lane_on_nodes(world, *nodes, policy=POLICY):
        for node in nodes:
            node.kept_states = kept_states
        taken = await taken_elsewhere(world, *nodes)
        await rounds(world.node, 30)
        assert await row_states(world.observer) == ["sent", "sent"], "the block may still go"
        await until(lambda: true(bool(world.node.pool)))
        world.node.mine(4)
        await world.settled("displaced", "confirmed")
    assert (await world.progress(taken)).status is RelayStatus.FAILED
    assert world.node.executed().total() == 1


@pytest.mark.parametrize("in_use", [0, 1, 2])
@pytest.mark.parametrize("liar", [1, 2])
async def test_one_node_of_three_cannot_deny_a_foreign_transaction_for_ever(
    world: RelayWorld, liar: int, in_use: int
) -> None:
    """In use, the liar shows the nonce as used, and no block in which it was used."""
    nodes = [world.node, world.node.sibling(), world.node.sibling()]
    nodes[liar].false_answers["eth_getBlockByNumber"] = lambda block: (
        block and block | {"transactions": []}
    )
    for node in nodes:
        node.refuses = lambda _sent: True
    async with lane_on_nodes(world, *nodes, policy=POLICY) as pool:
        await world.ask(2)
        await world.settled("signed", "signed")
        pool.prefer(in_use)
        world.node.use_nonce(RELAYER)
        for node in nodes:
            node.refuses = lambda _sent: False
        await until(lambda: true(bool(world.node.pool)))
        world.node.mine(4)
        await world.settled("displaced", "confirmed")
        assert all(
            kinds <= ({"use_hidden"} if position == liar else set())
            for position, kinds in enumerate(pool.contradictions())
        )


@pytest.mark.parametrize("kept_states", [1_000_000, 2], ids=["archive", "pruned"])
async def test_a_foreign_transaction_is_found_after_a_restart_long_after_its_block(
    world: RelayWorld, kept_states: int
) -> None:
    async with lane_on_nodes(world, world.node, policy=POLICY):
        await taken_elsewhere(world, world.node)
        world.node.lost_requests = 1_000_000
    world.node.mine(60)
    world.node.lost_requests, world.node.kept_states = 0, kept_states
    # The foreign use may be found before the lane is ready.
    async with a_fake_pool(world.node) as pool, lane_on(world, pool.node(), POLICY):
        await until(lambda: true(bool(world.node.pool)))
        world.node.mine()
        await world.settled("displaced", "mined")
    assert world.node.executed().total() == 1


async def test_a_foreign_transaction_that_a_reorg_removes_takes_no_nonce(
    world: RelayWorld,
) -> None:
    world.node.final_depth = 20
    async with lane_on_nodes(world, world.node, policy=POLICY):
        await taken_elsewhere(world, world.node)
        world.node.mine()
        await rounds(world.node, 20)
        world.node.forget_blocks(4 if world.node.head.number > 4 else 2)
        world.node.pool.clear()
        await until(lambda: true(len(world.node.pool) == 2))
        world.node.mine(3)
        await world.relays_are("mined", "mined")
    await world.executed_in_order()


@pytest.mark.parametrize("count", [1, 2])
async def test_a_false_nonce_displaces_nothing(world: RelayWorld, count: int) -> None:
    """A node claims that the nonce is used, and shows nothing that has used it."""
    nodes = [world.node, *(world.node.sibling() for _ in range(count - 1))]
    async with lane_on_nodes(world, *nodes, policy=POLICY):
        await world.ask()
        await world.settled("published")
        world.node.false_nonce = 7
        world.node.mine(10, takes_pool=False)
        await rounds(world.node, 60)
        assert await states(world.observer) == ["published"]
        world.node.false_nonce = None
        world.node.mine()
        await world.relays_are("mined")
    await world.executed_in_order()


class Forger(FakeNode):
    """Shows a transaction with the wallet's next nonce that the wallet never signed."""

    forges = False

    def _block_by_number(self, tag: Any, full: bool) -> Any:
        block = super()._block_by_number(tag, full)
        if block and full and self.forges and int(block["number"], 16) == 2:
            foreign = FakeNode()
            sent = foreign.use_nonce(RELAYER)
            fields = foreign._block_by_number("latest", True)["transactions"][0]
            assert fields["hash"] == hex_of(sent.hash)
            block["transactions"] = [fields | {"value": "0x1", "hash": hex_of(Hash32(b"f" * 32))}]
        return block


async def test_a_forged_transaction_displaces_nothing_even_of_one_node(
    world: RelayWorld,
) -> None:
    forger = Forger()
    forger.blocks, forger.pool = world.node.blocks, world.node.pool
    async with lane_on_nodes(world, forger, policy=POLICY) as pool:
        await world.ask()
        await world.settled("published")
        forger.forges, forger.false_nonce = True, 1
        world.node.mine(10, takes_pool=False)
        await until(lambda: true("forged_transaction" in pool.contradictions()[0]))
        await rounds(forger, 30)
        assert await states(world.observer) == ["published"]
        forger.forges, forger.false_nonce = False, None
        world.node.mine()
        await world.relays_are("mined")
    await world.executed_in_order()


# --- a node that contradicts itself ----------------------------------------------------------


async def test_a_nonce_below_a_mined_transaction_is_reported(world: RelayWorld) -> None:
    liar = world.node.sibling()
    async with lane_on_nodes(world, liar) as pool:
        await world.ask()
        await world.settled("published")
        liar.false_nonce = 0
        world.node.mine()
        await until(lambda: true(pool.contradictions() == [{"nonce_below_mined"}]))


async def test_a_receipt_in_a_block_that_is_not_canonical_is_not_believed_and_reported(
    world: RelayWorld,
) -> None:
    liar = world.node.sibling()
    async with lane_on_nodes(world, liar) as pool:
        await world.ask()
        await world.settled("published")
        (sent, *_) = liar.sent()
        forged = a_receipt(liar, sent, succeeded=True) | {"blockHash": "0x" + "ab" * 32}
        liar.forged_receipts[sent.hash] = forged
        world.node.mine(takes_pool=False)
        await until(lambda: true(pool.contradictions() == [{"receipt_of_foreign_block"}]))
        await rounds(liar)
        assert await row_states(world.observer) == ["sent"]


async def test_a_receipt_above_the_head_is_not_believed(world: RelayWorld) -> None:
    liar = world.node.sibling()
    async with lane_on_nodes(world, liar):
        await world.ask()
        await world.settled("published")
        (sent, *_) = liar.sent()
        liar.forged_receipts[sent.hash] = a_receipt(liar, sent, True) | {"blockNumber": "0xfff"}
        await rounds(liar)
        assert await row_states(world.observer) == ["sent"]


async def test_a_head_below_the_blocks_that_a_node_shows_is_reported(world: RelayWorld) -> None:
    liar = world.node.sibling()
    async with lane_on_nodes(world, liar) as pool:
        await world.ask()
        await world.settled("published")
        liar.frozen_head = liar.head.number
        world.node.mine()
        await until(lambda: true("head_below_block" in pool.contradictions()[0]))
        assert await row_states(world.observer) == ["sent"]


# --- one block of one node -------------------------------------------------------------------


async def test_balance_and_mint_limit_are_read_after_the_same_blocks(world: RelayWorld) -> None:
    """Blocks arrive between any two reads, and the second node is one block behind."""
    nodes = [world.node.sibling(), world.node.sibling()]
    nodes[1].lag = 1
    async with a_fake_pool(*nodes) as pool:
        lane = MintLane(
            world.pool,
            Leases(world.url),
            pool.node(),
            MINTER,
            MintTarget(CHAIN_ID, LTZ_AT),
            world.wakeups,
            PATIENT,
        )
        async with running(lane.run()):
            await until(lambda: true(lane.is_ready))
            for node in nodes:
                node.read_after.clear()
                node.balances_after.clear()
            for _ in range(20):
                for node in nodes:
                    for method in ("eth_call", "eth_getBalance"):
                        node.before[method] = world.node.mine
                world.node.mine()
                await rounds(nodes[0], 4)
            for node in nodes:
                node.before.clear()
            await rounds(nodes[0], 10)
    for node in nodes:
        assert set(node.balances_after) >= set(node.read_after)
    assert len({block for node in nodes for block in node.balances_after}) > 5


# --- random faults ---------------------------------------------------------------------------


class Trouble:
    """Random faults of all nodes but the first one, blocks, reorgs, and relays."""

    def __init__(self, world: RelayWorld, nodes: list[FakeNode], chance: random.Random) -> None:
        self._world = world
        self._nodes = nodes
        self._chance = chance

    async def strike(self) -> None:
        chance, node = self._chance, self._chance.choice(self._nodes)
        match chance.randrange(10):
            case 0 | 1:
                await self._world.ask(chance.randint(1, 5))
            case 2 | 3:
                self._world.node.mine(chance.randint(1, 3))
            case 4:
                depth = min(chance.randint(1, 4), self._world.node.head.number - 1)
                self._world.node.reorg(depth, forgets_transactions=chance.random() < 0.5)
            case 5:
                node.hides_receipts = not node.hides_receipts
            case 6:
                node.lag = chance.randint(0, min(3, node.head.number - 1))
            case 7:
                node.is_down = not node.is_down
            case 8:
                node.lost_replies, node.lost_requests = chance.randint(0, 3), chance.randint(0, 3)
            case 9:
                node.refuses = _refuses_for_good if chance.random() < 0.5 else _refuses_nothing
        await value(self._world.observer, "SELECT pg_sleep($1)", chance.random() / 25)

    def end(self) -> None:
        for node in self._nodes:
            node.hides_receipts = node.is_down = False
            node.lag = node.lost_replies = node.lost_requests = 0
            node.refuses = _refuses_nothing


def _refuses_for_good(_sent: SentTransaction) -> bool | str:
    return "oversized data"


def _refuses_nothing(_sent: SentTransaction) -> bool | str:
    return False


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("seed", [1, 269074925, None])
async def test_while_one_node_is_honest_each_relay_is_executed_once_and_none_is_told_failed(
    world: RelayWorld, count: int, seed: int | None
) -> None:
    seed = random.randrange(10**9) if seed is None else seed
    print(f"seed {seed}")
    world.node.final_depth = 8
    nodes = [world.node, *(world.node.sibling() for _ in range(count - 1))]
    trouble = Trouble(world, nodes[1:], random.Random(seed))
    async with a_fake_pool(*nodes) as pool, lane_on(world, pool.node(), POLICY):
        for _ in range(60):
            await trouble.strike()
            ids = await relay_ids(world)
            for relay in ids:
                assert (await world.progress(relay)).status is not RelayStatus.FAILED
        trouble.end()

        async def all_mined() -> bool:
            """A lane may not have seen the last reorg yet, which undid what its rows call mined."""
            world.node.mine()
            are_mined = set(await row_states(world.observer)) <= {"mined"}
            return are_mined and world.node.executed().total() == len(await relay_ids(world))

        await until(all_mined, 30.0)
    await world.executed_in_order()


async def relay_ids(world: RelayWorld) -> list[int]:
    ids: list[int] | None = await value(
        world.observer, "SELECT array_agg(id) FROM relays WHERE state <> 'queued'"
    )
    return ids or []


# --- the beginning of a term -----------------------------------------------------------------


@pytest.mark.parametrize("liar", [0, 1])
async def test_one_node_of_two_cannot_stop_a_lane_by_a_high_nonce(
    world: RelayWorld, liar: int
) -> None:
    nodes = [world.node.sibling(), world.node.sibling()]
    async with lane_on_nodes(world, *nodes):
        pass
    nodes[liar].false_nonce = 5
    async with a_fake_pool(*nodes) as pool, lane_on(world, pool.node()) as lane:
        await until(lambda: true(lane.is_serving))
        assert lane.stopped is None


@pytest.mark.parametrize("count", [1, 2, 3])
async def test_a_nonce_that_all_nodes_have_seen_used_stops_the_lane(
    world: RelayWorld, count: int
) -> None:
    nodes = [world.node.sibling() for _ in range(count)]
    async with lane_on_nodes(world, *nodes):
        pass
    world.node.use_nonce(RELAYER)
    async with a_fake_pool(*nodes) as pool, lane_on(world, pool.node()) as lane:
        assert "has used 1 nonces on chain" in await stop_of(lane)


async def test_a_new_lane_waits_until_the_nodes_agree_on_its_nonce(world: RelayWorld) -> None:
    nodes = [world.node.sibling(), world.node.sibling()]
    for _ in range(3):
        world.node.use_nonce(RELAYER)
    nodes[0].false_nonce = 9
    async with a_fake_pool(*nodes) as pool, lane_on(world, pool.node(), ADOPTING) as lane:
        await rounds(nodes[1])
        assert not lane.is_serving
        nodes[0].false_nonce = None
        await until(lambda: true(lane.is_serving))
    assert await value(world.observer, "SELECT next_nonce FROM lanes") == 3
