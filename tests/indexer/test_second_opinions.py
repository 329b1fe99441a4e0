"""With several nodes, one stale or lying node undoes, finalizes and leaves out nothing."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ltzd.chain.node.answers.typed import Header
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcCall
from ltzd.errors import Broken, NodeUnavailable
from ltzd.indexer.follower import Follower
from ltzd.indexer.log_witnesses import LogQuestion, LogWitnesses
from ltzd.indexer.policy import BackfillPolicy, IndexerPolicy
from ltzd.store.database import Pool, session
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import Cursor
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from ltzd.values import ZERO_ADDRESS, Address, hex_of
from tests.support.chain.fake_node import (
    CHAIN_ID,
    CONTRACTS,
    OTHERS_AT,
    FakeNode,
    Log,
    token_moved_log,
    transfer_log,
)
from tests.support.chain.node_group import NodeGroup
from tests.support.index_model.proving_node import ProvingNode
from tests.support.loop_turns import counted_turns
from tests.support.rows.core import a_hash, a_wallet, follow, value

ANN, BOB = a_wallet(1), a_wallet(2)
POLICY = IndexerPolicy(
    poll_seconds=0.01, head_blocks=1_000, second_check_seconds=2.0, stall_seconds=6.0
)


def given_to(wallet: Address, amount: int) -> Log:
    return transfer_log(ZERO_ADDRESS, wallet, amount)


@dataclass
class Watched:
    """A follower of several nodes, with a clock that only the test moves."""

    pool: Pool
    nodes: NodeGroup
    follower: Follower
    now: list[float] = field(default_factory=lambda: [0.0])

    async def step(self, after: float = 0.0) -> bool:
        self.now[0] += after
        return await self.follower.step()

    async def steps(self, count: int, each: float = 0.5) -> None:
        for _ in range(count):
            await self.step(each)

    async def cursor(self) -> Cursor:
        async with session(self.pool) as connection:
            return await chains.cursor(connection, CHAIN_ID)

    async def balance(self, wallet: Address) -> int:
        query = "SELECT coalesce(sum(amount), 0) FROM balances WHERE wallet = $1"
        async with session(self.pool) as connection:
            return int(await connection.fetchval(query, wallet))


Watch = Callable[..., Any]


@pytest.fixture
def watch(pool: Pool, database_url: str) -> Watch:
    async def watch(nodes: NodeGroup, policy: IndexerPolicy = POLICY) -> Watched:
        now = [0.0]
        follower = Follower(
            pool,
            Leases(database_url),
            nodes.node,
            await follow(pool, nodes.nodes[0]),
            CONTRACTS,
            WakeupHub(""),
            policy,
            clock=lambda: now[0],
        )
        await follower.begin_term()
        return Watched(pool, nodes, follower, now)

    return watch


# --- reorganised ------------------------------------------------------------------------------


async def test_a_stale_node_undoes_nothing_while_another_has_the_blocks(watch: Watch) -> None:
    nodes = NodeGroup.of(2, blocks=5)
    watched = await watch(nodes)
    await watched.steps(2)
    nodes.nodes[0].lag = 3
    nodes.nodes[1].mine(logs=[given_to(ANN, 10)])

    await watched.steps(20)

    assert (await watched.cursor()).hash == nodes.nodes[1].head.hash
    assert await watched.balance(ANN) == 10
    assert nodes.reported == []


async def test_a_head_that_all_nodes_have_lost_is_gone_at_the_second_look(watch: Watch) -> None:
    nodes = NodeGroup.of(2, blocks=5)
    watched = await watch(nodes)
    await watched.steps(2)
    for node in nodes.nodes:
        node.forget_blocks(2)

    await watched.steps(4)
    assert (await watched.cursor()).number == 5
    await watched.step(0.5)

    assert (await watched.cursor()).number == 3


async def test_a_reorg_that_a_second_node_shows_is_followed_at_once(watch: Watch) -> None:
    nodes = NodeGroup.of(2, blocks=5)
    watched = await watch(nodes)
    await watched.steps(2)
    nodes.nodes[0].reorg(2)
    nodes.share(0)

    assert await watched.step()
    await watched.steps(2)

    assert (await watched.cursor()).hash == nodes.nodes[0].head.hash


async def test_a_reorg_that_the_other_node_does_not_know_yet_waits_for_it(watch: Watch) -> None:
    nodes = NodeGroup.of(2, blocks=5)
    watched = await watch(nodes)
    await watched.steps(2)
    before = await watched.cursor()
    nodes.nodes[0].reorg(2)

    await watched.steps(3)
    assert await watched.cursor() == before
    nodes.share(0)
    await watched.steps(2)

    assert (await watched.cursor()).hash == nodes.nodes[0].head.hash
    assert nodes.reported == []


async def test_a_swapped_tip_that_two_others_deny_is_not_believed(watch: Watch) -> None:
    nodes = NodeGroup.of(3, blocks=5)
    watched = await watch(nodes)
    await watched.steps(2)
    nodes.nodes[0].forget_blocks(1)
    nodes.nodes[0].mine(logs=[given_to(BOB, 66)])
    nodes.nodes[1].mine(logs=[given_to(ANN, 10)])
    nodes.share(1, 2)

    await watched.step()
    assert (await watched.cursor()).hash == nodes.nodes[1].head.hash, "the majority is followed"
    await watched.steps(14)

    assert (await watched.balance(ANN), await watched.balance(BOB)) == (10, 0)
    assert nodes.reported == [(0, "branch")]


async def test_while_two_nodes_contradict_each_other_nothing_is_written(watch: Watch) -> None:
    nodes = NodeGroup.of(2, blocks=5)
    watched = await watch(nodes)
    await watched.steps(2)
    before = await watched.cursor()
    nodes.nodes[0].reorg(1)
    await watched.step()

    for position in range(40):
        for node in nodes.nodes:
            node.mine(logs=[given_to(ANN, 1)])
        nodes.in_use = position % 2
        await watched.step(0.5)

    assert await watched.cursor() == before
    assert nodes.reported == [], "neither is trusted over the other"


async def test_a_pool_that_distrusts_both_sides_makes_neither_of_them_right(watch: Watch) -> None:
    nodes = NodeGroup.of(2, blocks=5)
    watched = await watch(nodes)
    await watched.steps(2)
    before = await watched.cursor()
    nodes.nodes[0].reorg(1)
    await watched.step()
    nodes.distrusted = {0, 1}

    for _ in range(20):
        for node in nodes.nodes:
            node.mine()
        await watched.step(0.5)

    assert await watched.cursor() == before


@pytest.mark.parametrize("grows", [0, 1])
async def test_of_two_contradicting_nodes_the_one_that_goes_on_is_followed(
    watch: Watch, grows: int
) -> None:
    nodes = NodeGroup.of(2, blocks=5)
    watched = await watch(nodes)
    await watched.steps(2)
    nodes.nodes[0].reorg(1)
    await watched.step()

    for _ in range(16):
        nodes.nodes[grows].mine(logs=[given_to(ANN, 1)])
        await watched.step(0.5)
    await watched.steps(8)

    assert (await watched.cursor()).hash == nodes.nodes[grows].head.hash
    assert await watched.balance(ANN) == 16


async def test_one_liar_about_final_blocks_does_not_stop_the_indexer(watch: Watch) -> None:
    nodes = NodeGroup.of(3)
    for node in nodes.nodes:
        node.final_depth = 2
    nodes.nodes[0].mine(10)
    nodes.share(0)
    watched = await watch(nodes)
    await watched.steps(3)
    assert (await watched.cursor()).final_number == 8
    nodes.nodes[0].reorg(6)

    for _ in range(20):
        nodes.nodes[1].mine()
        nodes.share(1, 2)
        await watched.step(10)

    assert (await watched.cursor()).hash == nodes.nodes[1].head.hash


async def test_two_nodes_that_deny_final_blocks_stop_the_indexer(watch: Watch) -> None:
    nodes = NodeGroup.of(2)
    for node in nodes.nodes:
        node.final_depth = 2
    nodes.nodes[0].mine(10)
    nodes.share(0)
    watched = await watch(nodes)
    await watched.steps(3)
    nodes.nodes[0].reorg(6)
    nodes.share(0)

    with pytest.raises(Broken, match="below the final block 8"):
        await watched.step()


async def test_a_single_node_that_denies_final_blocks_for_a_moment_stops_nothing(
    watch: Watch,
) -> None:
    nodes = NodeGroup.of(1)
    node = nodes.nodes[0]
    node.final_depth = 2
    node.mine(10)
    watched = await watch(nodes)
    await watched.steps(2)
    real = list(node.blocks)
    node.reorg(6)

    for _ in range(5):
        with pytest.raises(NodeUnavailable, match="says one node"):
            await watched.step(10)
    node.blocks = real
    await watched.step(10)
    node.mine()
    await watched.steps(3)
    assert (await watched.cursor()).hash == node.head.hash

    node.reorg(6)
    for _ in range(6):
        with pytest.raises(NodeUnavailable, match="says one node"):
            await watched.step(10)
    with pytest.raises(Broken, match="below the final block"):
        await watched.step(10)


async def test_a_node_that_dies_during_a_dispute_leaves_the_decision_to_the_others(
    watch: Watch,
) -> None:
    nodes = NodeGroup.of(2, blocks=5)
    watched = await watch(nodes)
    await watched.steps(2)
    nodes.nodes[0].reorg(1)
    await watched.step()
    nodes.nodes[1].is_down = True

    before = await watched.cursor()
    await watched.steps(9)
    assert await watched.cursor() == before
    await watched.steps(5)

    assert (await watched.cursor()).hash == nodes.nodes[0].head.hash


# --- logs are empty ---------------------------------------------------------------------------


def omit_logs(node: FakeNode) -> None:
    """The node answers without any log: by range, by hash, and in receipts."""
    node.unheard = {CONTRACTS[0].address, *OTHERS_AT}
    node.is_blind_by_hash = True
    node._methods["eth_getBlockReceipts"] = lambda _hash: [{"logs": []}]


async def test_a_second_node_has_the_logs_that_the_first_leaves_out(watch: Watch) -> None:
    nodes = NodeGroup.of(2)
    watched = await watch(nodes)
    nodes.nodes[0].mine(logs=[given_to(ANN, 10)])
    nodes.share(0)
    omit_logs(nodes.nodes[0])

    await watched.step()

    assert await watched.balance(ANN) == 10
    assert nodes.reported == [(0, "logs")]


async def test_a_second_node_that_is_silent_about_logs_is_reported(watch: Watch) -> None:
    """The pool leaves it alone then, so that not each block waits for it."""
    nodes = NodeGroup.of(2)
    nodes.nodes[1] = silent = SilentAboutLogs()
    watched = await watch(nodes, replace(POLICY, second_check_seconds=0.05))
    nodes.nodes[0].mine(logs=[given_to(ANN, 10)])
    silent.blocks = nodes.nodes[0].blocks

    await watched.step()

    assert set(nodes.silent) == {1}
    assert nodes.reported == []


class SilentAboutLogs(FakeNode):
    """Shows blocks, and never answers a request for logs."""

    async def batch(self, calls: Sequence[RpcCall]) -> list[Any]:
        if any(method == "eth_getLogs" for method, _ in calls):
            await asyncio.Event().wait()
        return await super().batch(calls)


async def test_an_empty_answer_waits_for_a_node_that_has_the_block(watch: Watch) -> None:
    nodes = NodeGroup.of(2)
    watched = await watch(nodes)
    nodes.nodes[0].mine(logs=[given_to(ANN, 10)])
    omit_logs(nodes.nodes[0])

    await watched.steps(3)
    assert (await watched.cursor()).number == 0
    nodes.share(0)
    await watched.step()

    assert await watched.balance(ANN) == 10


async def test_a_node_whose_blocks_do_not_fit_each_other_is_passed_by(
    watch: Watch,
) -> None:
    nodes = NodeGroup.of(2, blocks=3)
    watched = await watch(nodes)
    await watched.steps(2)
    nodes.nodes[0].mine(3)
    nodes.share(0)
    real = nodes.nodes[0]._methods["eth_getBlockByNumber"]

    def unlinked(tag: str, full: bool) -> Any:
        block = real(tag, full)
        return block | {"parentHash": "0x" + "77" * 32} if tag == "0x5" else block

    nodes.nodes[0]._methods["eth_getBlockByNumber"] = unlinked
    await watched.steps(4)
    assert (await watched.cursor()).hash == nodes.nodes[1].head.hash
    assert nodes.reported == []
    nodes.nodes[0].mine()
    nodes.share(0)
    await watched.steps(2)
    assert (await watched.cursor()).hash == nodes.nodes[1].head.hash


async def test_a_node_whose_blocks_never_fit_each_other_is_reported(watch: Watch) -> None:
    nodes = NodeGroup.of(2, blocks=3)
    watched = await watch(nodes)
    await watched.steps(2)
    liar, honest = nodes.nodes
    real = liar._methods["eth_getBlockByNumber"]

    def unlinked(tag: str, full: bool) -> Any:
        block = real(tag, full)
        is_new = block and tag not in {"latest", "finalized"} and int(tag, 16) > 3
        return block | {"parentHash": "0x" + "77" * 32} if is_new else block

    liar._methods["eth_getBlockByNumber"] = unlinked
    for _ in range(20):
        honest.mine(2)
        nodes.share(1, 0)
        await watched.step(0.5)
    await watched.steps(2)

    assert (await watched.cursor()).hash == honest.head.hash
    assert nodes.reported == [(0, "block_links")]


FUTURE = 250_000_000_000
"""In the year 9892."""


async def false_times(watched: Watched) -> int:
    """The number of indexed blocks with another time than the last node shows."""
    query = "SELECT count(*) FROM blocks WHERE extract(epoch FROM mined_at) <> number + $1"
    async with session(watched.pool) as connection:
        count: int = await connection.fetchval(query, watched.nodes.nodes[-1].block_zero_time)
        return count


@pytest.mark.parametrize("head_blocks", [1_000, 2], ids=["near the head", "far from it"])
@pytest.mark.parametrize("time", [FUTURE, 1_600_000_000], ids=["future", "past"])
@pytest.mark.parametrize(
    ("count", "kind"), [(2, ProvingNode), (3, FakeNode)], ids=["refuted", "outvoted"]
)
async def test_a_node_that_dates_blocks_falsely_is_passed_by_and_reported(
    watch: Watch, head_blocks: int, time: int, count: int, kind: type[FakeNode]
) -> None:
    nodes = NodeGroup.of(count, kind=kind)
    backfill = BackfillPolicy(first_blocks=4, least_events=1)
    watched = await watch(nodes, replace(POLICY, head_blocks=head_blocks, backfill=backfill))
    for node in nodes.nodes:
        node.final_depth = 0
    nodes.nodes[0].mine(20, logs=[given_to(ANN, 10)])
    nodes.share(0)
    nodes.nodes[0].block_zero_time = time

    await watched.steps(2)

    assert (await watched.cursor()).hash == nodes.nodes[1].head.hash
    assert await watched.balance(ANN) == 10
    assert await false_times(watched) == 0
    assert set(nodes.reported) == {(0, "block_time")}


async def test_blocks_that_two_nodes_date_differently_wait_if_nothing_decides(watch: Watch) -> None:
    nodes = NodeGroup.of(2)
    watched = await watch(nodes)
    nodes.nodes[0].mine()
    nodes.share(0)
    nodes.nodes[0].block_zero_time += 1

    await watched.steps(3)
    assert (await watched.cursor()).number == 0
    assert set(nodes.reported) == {(0, "block_time"), (1, "block_time")}
    nodes.nodes[0].block_zero_time -= 1
    await watched.step()

    assert (await watched.cursor()).number == 1


def date_below_the_head(node: FakeNode, seconds: int) -> None:
    """The node dates its blocks this much later, but for the last one."""
    real = node._methods["eth_getBlockByNumber"]

    def dated(tag: str, full: bool) -> Any:
        block = real(tag, full)
        if not block or int(block["number"], 16) == node.head.number:
            return block
        return block | {"timestamp": hex(int(block["timestamp"], 16) + seconds)}

    node._methods["eth_getBlockByNumber"] = dated


@pytest.mark.parametrize("head_blocks", [1_000, 2], ids=["near the head", "far from it"])
async def test_a_node_that_dates_a_block_after_a_later_one_is_passed_by_and_reported(
    watch: Watch, head_blocks: int
) -> None:
    nodes = NodeGroup.of(2)
    watched = await watch(nodes, replace(POLICY, head_blocks=head_blocks))
    for node in nodes.nodes:
        node.final_depth = 0
    nodes.nodes[0].mine(20, logs=[given_to(ANN, 10)])
    nodes.share(0)
    date_below_the_head(nodes.nodes[0], 3_600)

    await watched.steps(2)

    assert (await watched.cursor()).hash == nodes.nodes[1].head.hash
    assert await false_times(watched) == 0
    assert nodes.reported == [(0, "block_time")]


@pytest.mark.parametrize("head_blocks", [1_000, 2], ids=["near the head", "far from it"])
async def test_a_node_whose_logs_are_refuted_tells_no_times_either(
    watch: Watch, head_blocks: int
) -> None:
    nodes = NodeGroup.of(2, kind=ProvingNode)
    watched = await watch(nodes, replace(POLICY, head_blocks=head_blocks))
    for node in nodes.nodes:
        node.final_depth = 0
    nodes.nodes[0].mine(20, logs=[given_to(ANN, 10)])
    nodes.share(0)
    change_all_logs(nodes.nodes[0], with_amount(11))
    date_below_the_head(nodes.nodes[0], -3_600)

    await watched.steps(2)

    assert (await watched.cursor()).hash == nodes.nodes[1].head.hash
    assert await watched.balance(ANN) == 10
    assert await false_times(watched) == 0
    assert set(nodes.reported) == {(0, "logs")}


async def test_a_new_branch_that_is_dated_falsely_is_not_written(watch: Watch) -> None:
    nodes = NodeGroup.of(2, blocks=5, kind=ProvingNode)
    watched = await watch(nodes)
    await watched.steps(2)
    nodes.nodes[0].reorg(2)
    nodes.share(0)
    nodes.nodes[0].block_zero_time = FUTURE

    await watched.steps(3)

    assert (await watched.cursor()).hash == nodes.nodes[1].head.hash
    assert await false_times(watched) == 0
    assert set(nodes.reported) == {(0, "block_time")}


async def test_a_chain_that_is_ahead_of_this_machines_clock_is_followed(watch: Watch) -> None:
    """Even while the second node is a block behind: no clock decides."""
    nodes = NodeGroup.of(2)
    watched = await watch(nodes)
    for node in nodes.nodes:
        node.block_zero_time = FUTURE
    nodes.nodes[0].mine(2)
    nodes.share(0)
    nodes.nodes[0].mine()

    await watched.steps(12)

    assert (await watched.cursor()).number == 3
    assert nodes.reported == []


async def test_an_only_nodes_word_about_the_time_is_taken(watch: Watch) -> None:
    nodes = NodeGroup.of(1)
    watched = await watch(nodes)
    nodes.nodes[0].block_zero_time = FUTURE
    nodes.nodes[0].mine()

    await watched.step()

    assert (await watched.cursor()).number == 1


async def test_an_empty_answer_that_nobody_can_check_is_believed_in_the_end(watch: Watch) -> None:
    nodes = NodeGroup.of(2)
    watched = await watch(nodes)
    nodes.nodes[0].mine(logs=[given_to(ANN, 10)])
    omit_logs(nodes.nodes[0])

    await watched.steps(12)

    assert (await watched.cursor()).number == 1


async def test_a_single_nodes_receipts_decide(watch: Watch) -> None:
    nodes = NodeGroup.of(1)
    watched = await watch(nodes)
    nodes.nodes[0].mine(logs=[given_to(ANN, 10)])
    nodes.nodes[0].empty_answers = 1
    nodes.nodes[0].is_blind_by_hash = True

    await watched.step()

    assert await watched.balance(ANN) == 10


async def test_a_second_node_fills_an_empty_range_far_from_the_head(watch: Watch) -> None:
    nodes = NodeGroup.of(2)
    for node in nodes.nodes:
        node.final_depth = 0
    nodes.nodes[0].mine(5, logs=[given_to(ANN, 10)])
    nodes.share(0)
    omit_logs(nodes.nodes[0])
    watched = await watch(nodes, replace(POLICY, head_blocks=2))

    await watched.step()

    assert await watched.balance(ANN) == 10
    assert nodes.reported == [(0, "logs")]


def leave_blooms_zero(node: FakeNode) -> None:
    real = node._methods["eth_getBlockByNumber"]

    def without_bloom(tag: str, full: bool) -> Any:
        block = real(tag, full)
        return block and block | {"logsBloom": "0x" + "00" * 256}

    node._methods["eth_getBlockByNumber"] = without_bloom


@pytest.mark.parametrize(("liar", "fork"), [(0, 1), (1, 21)])
async def test_settled_blocks_that_two_other_nodes_deny_are_not_indexed(
    watch: Watch, liar: int, fork: int
) -> None:
    """Ranges are read from all nodes in turn, and below finality nothing can be undone.

    The liar's branch leaves the others' where a range begins that the liar is asked for.
    """
    nodes = NodeGroup.of(3)
    for node in nodes.nodes:
        node.final_depth = 10
    honest = nodes.nodes[2]
    for _ in range(60):
        honest.mine(logs=[given_to(ANN, 1)])
    nodes.share(2)
    nodes.nodes[liar].blocks = honest.blocks[:fork]
    while nodes.nodes[liar].head.number < honest.head.number:
        nodes.nodes[liar].mine(logs=[given_to(BOB, 1)])
    backfill = BackfillPolicy(first_blocks=20, concurrency=4, least_events=1)
    watched = await watch(nodes, replace(POLICY, head_blocks=2, backfill=backfill))

    await watched.steps(20)

    assert await watched.balance(BOB) == 0
    assert await watched.balance(ANN) == 60
    assert set(nodes.reported) == {(liar, "branch")}


async def test_settled_blocks_that_one_of_two_nodes_denies_wait_for_a_person(watch: Watch) -> None:
    nodes = NodeGroup.of(2)
    for node in nodes.nodes:
        node.final_depth = 10
        node.mine(40)
    backfill = BackfillPolicy(first_blocks=20, least_events=1)
    watched = await watch(nodes, replace(POLICY, head_blocks=2, backfill=backfill))

    await watched.steps(20)

    assert (await watched.cursor()).number == 0
    assert set(nodes.reported) == {(0, "logs"), (1, "logs")}
    assert nodes.distrusted == set()


async def test_a_node_that_hides_logs_and_blooms_is_found_by_a_second_node(watch: Watch) -> None:
    nodes = NodeGroup.of(2)
    watched = await watch(nodes)
    nodes.nodes[0].mine(logs=[given_to(ANN, 1)])
    nodes.share(0)
    await watched.step()
    nodes.nodes[0].mine(logs=[given_to(ANN, 10)])
    nodes.share(0)
    omit_logs(nodes.nodes[0])
    leave_blooms_zero(nodes.nodes[0])

    await watched.step()

    assert await watched.balance(ANN) == 11
    assert nodes.reported == [(0, "logs")]


@pytest.mark.parametrize("knows", [False, True])
async def test_on_a_chain_without_blooms_an_empty_answer_is_checked(
    watch: Watch, knows: bool
) -> None:
    """`knows`: a block with logs and a zero bloom came before."""
    nodes = NodeGroup.of(1)
    (node,) = nodes.nodes
    leave_blooms_zero(node)
    watched = await watch(nodes)
    if knows:
        node.mine(logs=[given_to(ANN, 1)])
        await watched.step()
    node.mine(logs=[given_to(BOB, 10)])
    node.empty_answers = 1

    await watched.step()

    assert await watched.balance(BOB) == 10


async def test_on_a_chain_without_blooms_empty_blocks_cost_nothing(watch: Watch) -> None:
    nodes = NodeGroup.of(1)
    (node,) = nodes.nodes
    leave_blooms_zero(node)
    watched = await watch(nodes)
    node.mine(5)

    await watched.step()

    assert node.call_counts["eth_getLogs"] == 1


async def test_a_forged_log_that_no_contract_of_ours_writes_stops_nothing(watch: Watch) -> None:
    nodes = NodeGroup.of(2)
    watched = await watch(nodes)
    nodes.nodes[1].mine(logs=[given_to(ANN, 10)])
    nodes.nodes[0].mine(logs=[token_moved_log(ZERO_ADDRESS, ANN, 2**200)])

    await watched.step()

    assert await watched.balance(ANN) == 10
    assert nodes.reported == [(0, "logs")]


def change_logs(node: FakeNode, **change: str) -> None:
    answered = node._methods["eth_getLogs"]
    node._methods["eth_getLogs"] = lambda where: [entry | change for entry in answered(where)]


async def heights(watched: Watched) -> list[int]:
    async with session(watched.pool) as connection:
        rows = await connection.fetch("SELECT block_number FROM transfers ORDER BY 1")
    return [row["block_number"] for row in rows]


@pytest.mark.parametrize("liar", [0, 1])
async def test_a_log_at_another_height_than_its_block_is_outvoted(watch: Watch, liar: int) -> None:
    nodes = NodeGroup.of(2, blocks=3)
    watched = await watch(nodes)
    nodes.nodes[0].mine(2, logs=[given_to(ANN, 10)])
    nodes.share(0)
    change_logs(nodes.nodes[liar], blockNumber="0x3")

    await watched.step()

    assert await heights(watched) == [4]
    assert nodes.reported == [(liar, "logs")]


async def test_a_log_below_its_block_is_not_written_so_that_a_reorg_takes_it_back(
    watch: Watch,
) -> None:
    nodes = NodeGroup.of(1, blocks=3)
    (node,) = nodes.nodes
    watched = await watch(nodes)
    node.mine(2, logs=[given_to(ANN, 10)])
    answered = node._methods["eth_getLogs"]
    change_logs(node, blockNumber="0x3")
    with pytest.raises(NodeUnavailable, match="malformed"):
        await watched.step()
    assert await heights(watched) == []

    node._methods["eth_getLogs"] = answered
    await watched.step()
    assert await heights(watched) == [4]
    node.reorg(2)
    await watched.steps(3)
    assert await heights(watched) == []
    assert await watched.balance(ANN) == 0


async def test_a_second_answer_with_logs_of_another_block_is_malformed(watch: Watch) -> None:
    """The node ignores `blockHash`: its answer about one block has the logs of another one."""
    nodes = NodeGroup.of(1, blocks=3)
    (node,) = nodes.nodes
    watched = await watch(nodes)
    await watched.step()
    node.mine(logs=[given_to(ANN, 10)])
    node.mine(logs=[given_to(BOB, 10)])
    answered = node._methods["eth_getLogs"]

    def answer(where: dict[str, Any]) -> Any:
        if "blockHash" not in where:
            return []
        return answered({"address": where["address"], "fromBlock": "0x5", "toBlock": "0x5"})

    node._methods["eth_getLogs"] = answer
    with pytest.raises(NodeUnavailable, match="malformed"):
        await watched.step()

    node._methods["eth_getLogs"] = answered
    await watched.step()
    assert (await watched.balance(ANN), await watched.balance(BOB)) == (10, 10)
    assert await heights(watched) == [4, 5]


async def test_a_height_that_is_no_number_ends_neither_the_term_nor_the_process(
    watch: Watch,
) -> None:
    """Far from the head, where the two nodes' logs differ in more than their height."""
    nodes = NodeGroup.of(2)
    for node in nodes.nodes:
        node.final_depth = 0
    nodes.nodes[0].mine(5, logs=[given_to(ANN, 10)])
    nodes.share(0)
    change_logs(nodes.nodes[0], blockNumber="latest", data=f"0x{11:064x}")
    watched = await watch(nodes, replace(POLICY, head_blocks=2))

    await watched.steps(8)

    assert await watched.balance(ANN) == 10
    assert await heights(watched) == [1]


# --- logs that a block's hash proves or refutes -------------------------------------------------


def change_all_logs(node: FakeNode, change: Callable[[list[Any]], list[Any]]) -> None:
    """The node's lie: by range, by hash, and in receipts."""
    logs, receipts = node._methods["eth_getLogs"], node._methods["eth_getBlockReceipts"]
    node._methods["eth_getLogs"] = lambda where: change(logs(where))
    node._methods["eth_getBlockReceipts"] = lambda block_hash: [
        {**receipt, "logs": change(receipt["logs"])} for receipt in receipts(block_hash)
    ]


def with_amount(amount: int) -> Callable[[list[Any]], list[Any]]:
    return lambda logs: [log | {"data": f"0x{amount:064x}"} for log in logs]


def doubled(logs: list[Any]) -> list[Any]:
    """A second log of the same block, which its bloom allows."""
    return [*logs, *(log | {"logIndex": "0x7"} for log in logs[:1])]


LIES: dict[str, Callable[[list[Any]], list[Any]]] = {
    "another amount": with_amount(11),
    "a log more": doubled,
    "no log": lambda _logs: [],
}


@pytest.mark.parametrize("blocks", [1, 3, 12], ids=["the last block", "below it", "a backfill"])
@pytest.mark.parametrize("liar", [0, 1], ids=["in use", "not in use"])
@pytest.mark.parametrize("lie", LIES)
async def test_of_two_nodes_logs_the_block_proves_the_true_ones(
    watch: Watch, lie: str, liar: int, blocks: int
) -> None:
    nodes = NodeGroup.of(2, kind=ProvingNode)
    for node in nodes.nodes:
        node.final_depth = 0
    watched = await watch(nodes, replace(POLICY, head_blocks=4))
    nodes.nodes[0].mine(blocks, logs=[given_to(ANN, 10)])
    nodes.share(0)
    change_all_logs(nodes.nodes[liar], LIES[lie])

    await watched.steps(8)

    assert (await watched.cursor()).hash == nodes.nodes[0].head.hash
    assert await watched.balance(ANN) == 10
    # A node that lacks logs, and is not in use, may have an index that lags.
    is_reported = liar == 0 or lie != "no log"
    assert set(nodes.reported) <= {(liar, "logs")}
    assert bool(nodes.reported) == is_reported


async def test_of_three_nodes_logs_that_all_differ_the_block_proves_the_true_ones(
    watch: Watch,
) -> None:
    """Two blocks decide: of each the hash refutes one node."""
    nodes = NodeGroup.of(3, kind=ProvingNode)
    watched = await watch(nodes)
    nodes.nodes[0].mine(logs=[given_to(ANN, 10)])
    first = hex_of(nodes.nodes[0].head.hash)
    nodes.nodes[0].mine(2, logs=[given_to(BOB, 20)])
    nodes.share(0)

    def lie_about(is_first: bool, amount: int) -> Callable[[list[Any]], list[Any]]:
        return lambda logs: [
            log | {"data": f"0x{amount:064x}"} if (log["blockHash"] == first) == is_first else log
            for log in logs
        ]

    change_all_logs(nodes.nodes[0], lie_about(False, 11))
    change_all_logs(nodes.nodes[1], lie_about(True, 12))

    await watched.steps(3)

    assert (await watched.balance(ANN), await watched.balance(BOB)) == (10, 20)
    assert set(nodes.reported) == {(0, "logs"), (1, "logs")}


async def test_a_block_that_a_node_made_up_proves_no_logs(watch: Watch) -> None:
    """The false block proves its logs, but no true block has it as an ancestor."""
    nodes = NodeGroup.of(2, kind=ProvingNode)
    watched = await watch(nodes)
    true, liar = nodes.nodes
    true.mine(3)
    liar.mine(logs=[given_to(BOB, 20)])
    made_up = liar.head
    nodes.share(0)
    liar.blocks[1] = made_up

    await watched.step()

    assert (await watched.cursor()).hash == true.head.hash
    assert await watched.balance(BOB) == 0
    assert nodes.reported == [(1, "logs")]


class SlowToProve(ProvingNode):
    """Never answers with receipts once `is_slow`; answers all else."""

    is_slow = False

    async def _answer(self, method: str, params: Sequence[Any]) -> Any:
        if self.is_slow and method == "eth_getBlockReceipts":
            await asyncio.Event().wait()
        return await super()._answer(method, params)


async def test_a_node_that_is_slow_to_prove_logs_leaves_the_liar_not_alone(watch: Watch) -> None:
    true, liar = SlowToProve(), ProvingNode()
    nodes = NodeGroup([true, liar])
    watched = await watch(nodes, replace(POLICY, second_check_seconds=0.05))
    true.mine(logs=[given_to(ANN, 10)])
    nodes.share(0)
    change_all_logs(liar, with_amount(11))
    true.is_slow = True

    await watched.steps(3)

    assert (await watched.cursor()).number == 0
    assert nodes.silent == []
    assert set(nodes.reported) == {(0, "logs"), (1, "logs")}


async def test_nodes_that_name_different_transactions_of_a_log_are_not_decided_by_its_block(
    watch: Watch,
) -> None:
    nodes = NodeGroup.of(2, kind=ProvingNode)
    watched = await watch(nodes)
    nodes.nodes[0].mine(logs=[given_to(ANN, 10)])
    nodes.share(0)
    another = hex_of(a_hash("another transaction"))
    change_all_logs(
        nodes.nodes[1], lambda logs: [log | {"transactionHash": another} for log in logs]
    )

    await watched.steps(6)

    assert (await watched.cursor()).number == 0
    assert set(nodes.reported) == {(0, "logs"), (1, "logs")}


# --- finality ---------------------------------------------------------------------------------


async def test_the_finality_of_another_branch_makes_no_block_of_one_node_final(
    watch: Watch,
) -> None:
    """Its blocks could not be undone any more, once the other nodes are heard."""
    nodes = NodeGroup.of(3, blocks=5)
    for node in nodes.nodes:
        node.final_depth = 1
    watched = await watch(nodes, replace(POLICY, finality_pause_seconds=0.0))
    await watched.steps(3)
    assert (await watched.cursor()).final_number == 4
    nodes.nodes[0].mine(8)
    nodes.nodes[1].mine(8, logs=[given_to(ANN, 10)])
    nodes.share(1, 2)

    await watched.steps(3)
    cursor = await watched.cursor()
    assert (cursor.number, cursor.final_number) == (13, 4)
    nodes.in_use = 1
    await watched.steps(5)

    assert await watched.balance(ANN) == 10
    assert (await watched.cursor()).final_number == 12


async def test_a_node_that_finalizes_far_ahead_of_the_others_is_not_believed(watch: Watch) -> None:
    nodes = NodeGroup.of(3, blocks=20)
    nodes.nodes[0].final_depth = 0
    nodes.nodes[1].final_depth = 10
    nodes.nodes[2].final_depth = 12
    watched = await watch(nodes)

    await watched.steps(4, each=3)

    assert (await watched.cursor()).final_number == 10


async def test_a_node_that_finalizes_far_ahead_is_not_believed_while_the_other_is_silent(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other node fails for a moment, and is a witness still."""
    nodes = NodeGroup.of(2, blocks=20)
    for node in nodes.nodes:
        node.final_depth = 10
    watched = await watch(nodes)
    await watched.steps(2)
    assert (await watched.cursor()).final_number == 10

    async def fail(_calls: Sequence[RpcCall]) -> list[Any]:
        raise NodeUnavailable("The node does not answer in time", kind="timeout")

    nodes.nodes[0].final_depth = 0
    with monkeypatch.context() as silenced:
        silenced.setattr(nodes.nodes[1], "batch", fail)
        await watched.steps(3, each=60.0)
    assert (await watched.cursor()).final_number == 10

    nodes.nodes[1].final_depth = 4
    await watched.step(60.0)
    assert (await watched.cursor()).final_number == 16


@pytest.mark.parametrize("final_depth", [28, None], ids=["stands still", "is not told any more"])
async def test_finality_that_the_node_in_use_holds_back_is_that_of_the_others(
    watch: Watch, final_depth: int | None
) -> None:
    nodes = NodeGroup.of(3)
    for node in nodes.nodes:
        node.final_depth = 10
    nodes.nodes[0].mine(20)
    nodes.share(0)
    watched = await watch(nodes)
    await watched.steps(2)
    assert (await watched.cursor()).final_number == 10
    nodes.nodes[0].final_depth = final_depth
    nodes.nodes[0].mine(18)
    nodes.share(0)

    await watched.steps(2, each=60.0)

    assert (await watched.cursor()).final_number == 28


async def test_a_node_whose_finality_is_above_its_head_is_reported(watch: Watch) -> None:
    nodes = NodeGroup.of(2, blocks=20)
    nodes.nodes[0].final_depth = -5
    real = nodes.nodes[0]._methods["eth_getBlockByNumber"]

    def from_the_future(tag: str, full: bool) -> Any:
        block = real("latest" if tag == "finalized" else tag, full)
        return block | {"number": hex(99)} if tag == "finalized" else block

    nodes.nodes[0]._methods["eth_getBlockByNumber"] = from_the_future
    watched = await watch(nodes)

    await watched.step()

    assert (await watched.cursor()).final_number == 0
    assert nodes.reported == [(0, "finality")]


# --- random nodes -----------------------------------------------------------------------------

lies = st.lists(
    st.one_of(
        st.tuples(st.just("mine"), st.integers(1, 3)),
        st.tuples(st.just("reorg"), st.integers(1, 4)),
        st.tuples(st.just("fork"), st.integers(1, 4)),
        st.tuples(st.just("lag"), st.integers(0, 4)),
        st.tuples(st.just("follow"), st.just(1)),
        st.tuples(st.just("use"), st.integers(0, 2)),
        st.tuples(st.just("steps"), st.integers(1, 3)),
    ),
    max_size=25,
)


def happen(nodes: NodeGroup, what: str, count: int) -> None:
    """The first node is the liar; the two others are always of one mind."""
    liar, honest, _ = nodes.nodes
    match what:
        case "mine":
            honest.mine(count, logs=[given_to(ANN, 7)])
            nodes.share(1, 2)
        case "reorg":
            honest.reorg(min(count, honest.head.number))
            nodes.share(1, 2)
        case "fork":
            liar.reorg(min(count, liar.head.number))
            liar.mine(count, logs=[given_to(BOB, 66)])
        case "lag":
            liar.lag = count
        case "follow":
            nodes.share(1, 0)
        case "use":
            nodes.in_use = count
    liar.lag = min(liar.lag, liar.head.number)


@given(lies)
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_with_one_liar_of_three_the_store_follows_the_honest_two(
    pool: Pool, watch: Watch, happened: list[tuple[str, int]]
) -> None:
    async with session(pool) as connection:
        await connection.execute("TRUNCATE transfers, mints, balances, blocks, chains")
    nodes = NodeGroup.of(3, blocks=6)
    honest = nodes.nodes[1]
    deep = replace(POLICY, follows_deep_reorgs=True)
    watched = await watch(nodes, deep)
    for what, count in happened:
        if what == "steps":
            await watched.steps(count)
        else:
            happen(nodes, what, count)
    nodes.in_use, nodes.distrusted = 1, set()
    for _ in range(30):
        honest.mine()
        nodes.share(1, 2)
        await watched.step(0.5)
    for _ in range(3):
        await watched.step(0.5)

    assert (await watched.cursor()).hash == honest.head.hash
    assert await value(pool, "SELECT count(*) FROM transfers") == sum(
        len(list(block.logs())) for block in honest.blocks
    )


async def test_other_tasks_run_while_a_block_of_thousands_of_logs_is_compared() -> None:
    node = NodeGroup.of(2, blocks=1).node.pinned()
    block = a_hash("a full block")
    hashes = {"blockHash": hex_of(block), "transactionHash": hex_of(a_hash("a mint"))}
    hashes["blockNumber"] = "0x1"
    given = {"address": hex_of(ANN), "topics": [hex_of(a_hash("a topic"))], "data": "0x"}
    logs = [{**hashes, **given, "logIndex": hex(index)} for index in range(4_000)]

    async def read(_node: Node) -> tuple[list[dict[str, Any]], Header]:
        return logs, last

    last = Header(1, block, a_hash("its parent"), 0, bytes(256), None)
    with counted_turns() as turns:
        confirmed = await LogWitnesses().confirmed(node, logs, LogQuestion([], last, read))
    assert confirmed is not None
    assert confirmed.logs == logs
    assert turns.count >= 2 * len(logs) / 200, "the logs of each node are compared 200 at a time"
