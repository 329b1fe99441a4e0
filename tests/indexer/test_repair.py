"""An index that a node has lied to is checked and corrected, by itself or on request."""

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from ltzd.chain.node.rpc import RpcError
from ltzd.errors import ImpossibleFact, IndexMoved, NodeUnavailable
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import BackfillPolicy, IndexerPolicy
from ltzd.indexer.repair import IndexRepair, RangeCheck
from ltzd.store.brands import configurations as brands
from ltzd.store.database import Pool, session
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.indexer.chains import ChainIdentity
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from ltzd.values import LTZ as LTZ_UNITS
from ltzd.values import ZERO_ADDRESS, hex_of, reward_reference
from tests.support.chain.fake_node import (
    CHAIN_ID,
    CONTRACTS,
    LTZ_AT,
    logs_json,
    minted_log,
    token_moved_log,
    transfer_log,
)
from tests.support.chain.node_group import NodeGroup
from tests.support.index_model.chain import REWARDS, ModelChain
from tests.support.index_model.node import LyingNode
from tests.support.index_model.tables import differences, insert_rewards
from tests.support.rows.books import ONE
from tests.support.rows.core import a_wallet, follow, queue_reward, running, value
from tests.support.waiting import until

ANN, BOB = a_wallet(1), a_wallet(2)
BALANCES = "SELECT array_agg(amount ORDER BY amount) FROM balances"
NEAR = IndexerPolicy(
    poll_seconds=0.01, head_blocks=1_000, second_check_seconds=0.0, term_pause_seconds=0.02
)
FAR = IndexerPolicy(
    poll_seconds=0.01,
    head_blocks=2,
    range_blocks=20,
    second_check_seconds=0.0,
    backfill=BackfillPolicy(least_events=1, most_events=1),
    term_pause_seconds=0.02,
)


class Lied:
    """A model chain behind a lying node, its index, and the repair of it."""

    def __init__(self, pool: Pool, url: str, seed: int, policy: IndexerPolicy = NEAR) -> None:
        self.pool, self._url, self._policy = pool, url, policy
        self.node = LyingNode()
        self.node.final_depth = 4
        self.chain = ModelChain(self.node, seed)
        self.chance = random.Random(seed)
        self.repair = IndexRepair(pool, CHAIN_ID, CONTRACTS, policy)

    async def start(self) -> "Lied":
        await insert_rewards(self.pool, REWARDS)
        self.identity: ChainIdentity = await follow(self.pool, self.node)
        return self

    def follower(self) -> Follower:
        hub, leases = WakeupHub(""), Leases(self._url)
        return Follower(
            self.pool, leases, self.node.node, self.identity, CONTRACTS, hub, self._policy
        )

    async def index(self) -> None:
        """Indexes all blocks. Raises ImpossibleFact."""
        follower = self.follower()
        await follower.begin_term()
        while await follower.step():
            pass

    def hide(self, count: int) -> None:
        """Near the head all is one commit, which a hidden receipt of LTZ may make impossible."""
        logs = [
            log
            for block in self.node.blocks
            for log in logs_json(block, None)
            if self._policy is FAR or log["address"] != hex_of(LTZ_AT)
        ]
        for log in self.chance.sample(logs, count):
            self.node.lies[log["blockHash"], log["logIndex"]] = lambda _log: None

    def tell_the_truth(self) -> None:
        self.node.lies, self.node.invented = {}, []

    async def check(self, first: int = 1, *, corrects: bool = False) -> list[RangeCheck]:
        checks = []
        async for check in self.repair.walk(self.node.node, first, self.node.head.number):
            if corrects:
                await self.repair.correct(check)
            checks.append(check)
        return checks

    async def differences(self) -> dict[str, Any]:
        return await differences(self.pool, self.chain.states)


@pytest.fixture
async def lied(pool: Pool, database_url: str) -> Lied:
    return await Lied(pool, database_url, seed=3).start()


@pytest.mark.parametrize("policy", [NEAR, FAR], ids=["near", "far"])
@pytest.mark.parametrize("seed", range(3))
async def test_hidden_facts_are_found_and_mended(
    pool: Pool, database_url: str, seed: int, policy: IndexerPolicy
) -> None:
    lied = await Lied(pool, database_url, seed, policy).start()
    lied.chain.mine(50)
    lied.hide(6)
    with suppress(ImpossibleFact):  # a hidden receipt was spent
        await lied.index()
    before = await lied.differences()
    assert before

    lied.tell_the_truth()
    kinds = sum((check.counts() for check in await lied.check()), start=Counter[str]())
    assert set(kinds) == {"missing"}
    assert await lied.differences() == before, "a check has written"
    await lied.check(corrects=True)
    assert await lied.differences() == {}
    assert not any(check.differences for check in await lied.check())
    await lied.index()
    assert await lied.differences() == {}


async def test_invented_and_changed_facts_are_corrected(lied: Lied) -> None:
    lied.chain.mine(20)
    block = lied.node.mine(
        logs=[transfer_log(ZERO_ADDRESS, ANN, 5), transfer_log(ZERO_ADDRESS, ANN, 7)]
    )
    state = lied.chain.states[lied.node.blocks[-2].hash].copy()
    state.balances[ANN] = state.balances.get(ANN, 0) + 12
    state.facts["transfers"] += 2
    lied.chain.states[block.hash] = state
    lied.chain.mine(10)
    more = f"0x{6:064x}"
    lied.node.lies[hex_of(block.hash), "0x1"] = lambda log: {**log, "data": more}
    invented = logs_json(block, None)[0]
    lied.node.invented = [{**invented, "logIndex": "0x9"}]
    await lied.index()
    assert set(await lied.differences()) == {"balances", "facts"}

    lied.tell_the_truth()
    check = await lied.repair.check(lied.node.node, 1, 27)
    assert check.counts() == {"foreign": 1, "wrong": 1}
    assert {each.block_number for each in check.differences} == {block.number}
    await lied.check(corrects=True)
    assert await lied.differences() == {}


async def test_facts_that_need_each_other_are_mended_together(
    pool: Pool, database_url: str
) -> None:
    """Ranges of 20 blocks: ANN's receipt and her payment to BOB lie in different ones."""
    lied = await Lied(pool, database_url, 3, FAR).start()
    node = lied.node
    node.mine(30)
    node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 5)])
    node.mine(30)
    node.mine(logs=[transfer_log(ANN, BOB, 4)])
    node.mine(30)
    for number in (31, 62):
        node.lies[hex_of(node.blocks[number].hash), "0x0"] = lambda _log: None
    await lied.index()
    lied.tell_the_truth()

    late = await lied.repair.check(node.node, 55, 70)
    assert await lied.repair.correct(late) == 0
    assert lied.repair.has_uncorrected()
    early = await lied.repair.check(node.node, 25, 40)
    assert await lied.repair.correct(early) == 2
    assert not lied.repair.has_uncorrected()
    async with session(pool) as connection:
        rows = await connection.fetch("SELECT wallet, amount FROM balances WHERE amount > 0")
    assert {row["wallet"]: row["amount"] for row in rows} == {ANN: 1, BOB: 4}


async def test_facts_that_wait_and_are_found_again_are_mended_once(
    pool: Pool, database_url: str
) -> None:
    """BOB's receipt waits for ANN's, and its block is compared once more meanwhile."""
    lied = await Lied(pool, database_url, 3).start()
    node = lied.node
    early = node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 5)])
    late = node.mine(logs=[transfer_log(ANN, BOB, 4)])
    node.mine(9)
    for block in (early, late):
        node.lies[hex_of(block.hash), "0x0"] = lambda _log: None
    await lied.index()
    lied.tell_the_truth()

    for numbers in ([late.number], [late.number]):
        check = await lied.repair.check_blocks(node.node, numbers, 1, 2)
        assert await lied.repair.correct(check) == 0
    check = await lied.repair.check_blocks(node.node, [early.number, late.number], 1, 2)
    assert await lied.repair.correct(check) == 2
    assert not lied.repair.has_uncorrected()
    assert await value(pool, BALANCES) == [1, 4]


async def test_a_correction_that_cannot_be_holds_up_no_other_one(
    pool: Pool, database_url: str
) -> None:
    """The only node invents that BOB has paid what he never had."""
    lied = await Lied(pool, database_url, 3).start()
    node = lied.node
    invented_at = node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 1)])
    hidden_at = node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 4)])
    node.mine(9)
    node.lies[hex_of(hidden_at.hash), "0x0"] = lambda _log: None
    await lied.index()
    lied.tell_the_truth()
    paid = logs_json(replace(invented_at, emitted=[transfer_log(BOB, ANN, 4)]), None)[0]
    node.invented = [{**paid, "logIndex": "0x1"}]

    check = await lied.repair.check_blocks(node.node, [invented_at.number], 1, 2)
    assert await lied.repair.correct(check) == 0
    check = await lied.repair.check_blocks(node.node, [hidden_at.number], 1, 2)
    assert await lied.repair.correct(check) == 1
    assert lied.repair.has_uncorrected()
    assert await value(pool, BALANCES) == [5]


@pytest.mark.parametrize("later", [0, 20], ids=["not final", "final"])
async def test_a_correction_that_waits_for_a_block_that_a_reorg_undoes_is_forgotten(
    pool: Pool, database_url: str, later: int
) -> None:
    """The block of BOB's receipt is undone; on the new branch ANN could pay him, and does not."""
    lied = await Lied(pool, database_url, 3).start()
    node = lied.node
    node.mine(4)
    undone = node.mine(logs=[transfer_log(ANN, BOB, 4)])
    node.mine()
    node.lies[hex_of(undone.hash), "0x0"] = lambda _log: None
    await lied.index()
    lied.tell_the_truth()
    check = await lied.repair.check_blocks(node.node, [undone.number], 1, 6)
    assert await lied.repair.correct(check) == 0

    node.reorg(2)
    hidden_at = node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 5)])
    node.mine(later)
    await lied.index()
    await value(pool, "DELETE FROM transfers")
    await value(pool, "DELETE FROM balances")
    check = await lied.repair.check_blocks(node.node, [hidden_at.number], 1, 8)
    assert await lied.repair.correct(check) == 1
    assert not lied.repair.has_uncorrected()
    assert await value(pool, BALANCES) == [5]
    hashes = "SELECT array_agg(hash ORDER BY number) FROM blocks"
    assert await value(pool, hashes) == [block.hash for block in node.blocks]


async def test_a_block_that_a_reorg_undoes_between_check_and_mending_is_not_mended(
    pool: Pool, database_url: str
) -> None:
    """Another block of its height is final by then."""
    lied = await Lied(pool, database_url, 3).start()
    node = lied.node
    node.mine(4)
    undone = node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 4)])
    node.lies[hex_of(undone.hash), "0x0"] = lambda _log: None
    await lied.index()
    lied.tell_the_truth()
    check = await lied.repair.check_blocks(node.node, [undone.number], 1, 5)
    assert check.differences

    node.reorg(1)
    node.mine(20)
    await lied.index()
    with pytest.raises(IndexMoved):
        await lied.repair.correct(check)
    assert await value(pool, BALANCES) is None


@pytest.mark.parametrize("policy", [NEAR, FAR], ids=["near", "far"])
async def test_an_impossible_fact_makes_the_indexer_mend_its_cause_and_go_on(
    pool: Pool, database_url: str, policy: IndexerPolicy
) -> None:
    lied = await Lied(pool, database_url, 3, policy).start()
    node = lied.node
    block = node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 5)])
    node.mine(30)
    node.lies[hex_of(block.hash), "0x0"] = lambda _log: None
    await lied.index()
    lied.tell_the_truth()
    node.mine(logs=[transfer_log(ANN, BOB, 4)])
    node.mine(40)

    async with running(lied.follower().run()):
        await until(lambda: value(pool, "SELECT cursor_number = 72 FROM chains"))
    assert await value(pool, "SELECT stopped_reason FROM chains") is None
    assert await value(pool, BALANCES) == [1, 4]


async def test_the_cause_of_an_impossible_fact_on_a_new_branch_is_mended(lied: Lied) -> None:
    """ANN's receipt lies below the fork, and nodes do not show the indexed head any more."""
    node, pool = lied.node, lied.pool
    block = node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 5)])
    node.mine(10)
    node.lies[hex_of(block.hash), "0x0"] = lambda _log: None
    await lied.index()
    lied.tell_the_truth()
    node.forget_blocks(2)
    node.mine(logs=[transfer_log(ANN, BOB, 4)])
    node.mine(3)

    async with running(lied.follower().run()):
        await until(lambda: value(pool, "SELECT cursor_number = 13 FROM chains"))
    assert await value(pool, "SELECT stopped_reason FROM chains") is None
    assert await value(pool, BALANCES) == [1, 4]


async def test_a_log_of_another_contract_on_a_new_branch_stops_the_index(lied: Lied) -> None:
    """Its cause is searched for in blocks of a branch that nodes do not show any more."""
    lied.node.mine(10)
    await lied.index()
    lied.node.forget_blocks(2)
    lied.node.mine(4, logs=[token_moved_log(ZERO_ADDRESS, ANN, 2**200)])

    async with running(lied.follower().run()):
        reason = await until(lambda: value(lied.pool, "SELECT stopped_reason FROM chains"))
    assert "correct contracts.perk_nft" in str(reason)


def prune(node: LyingNode, up_to: int) -> None:
    """From now on the node has no logs and no receipts of old blocks."""
    logs, receipts = node._methods["eth_getLogs"], node._methods["eth_getBlockReceipts"]
    old = {hex_of(block.hash) for block in node.blocks[: up_to + 1]}

    def refuse() -> None:
        raise RpcError(-32000, "pruned history unavailable")

    def logs_of(where: dict[str, Any]) -> Any:
        return refuse() if int(where.get("fromBlock", "0x7f"), 16) <= up_to else logs(where)

    node._methods["eth_getLogs"] = logs_of
    node._methods["eth_getBlockReceipts"] = lambda at: refuse() if at in old else receipts(at)


async def test_an_impossible_fact_whose_cause_no_node_shows_any_more_stops_the_index(
    lied: Lied,
) -> None:
    node, pool = lied.node, lied.pool
    block = node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 5)])
    node.mine(30)
    node.lies[hex_of(block.hash), "0x0"] = lambda _log: None
    await lied.index()
    lied.tell_the_truth()
    prune(node, 20)
    node.mine(logs=[transfer_log(ANN, BOB, 4)])

    async with running(lied.follower().run()):
        reason = await until(lambda: value(pool, "SELECT stopped_reason FROM chains"))
    assert "Run: ltzd index repair" in str(reason)


async def test_a_damaged_balance_is_mended_although_no_node_shows_old_logs(lied: Lied) -> None:
    node, pool = lied.node, lied.pool
    node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 5)])
    node.mine(30)
    await lied.index()
    await value(pool, "UPDATE balances SET amount = 1")
    prune(node, 20)
    node.mine(logs=[transfer_log(ANN, BOB, 4)])

    async with running(lied.follower().run()):
        await until(lambda: value(pool, "SELECT cursor_number = 32 FROM chains"))
    assert await value(pool, BALANCES) == [1, 4]


async def test_a_node_of_another_chain_mends_nothing(lied: Lied) -> None:
    lied.chain.mine(30)
    await lied.index()
    node = lied.node
    node.forget_blocks(20)
    node.mine(20)

    with pytest.raises(NodeUnavailable, match="does not show the indexed block 30"):
        await lied.repair.check(node.node, 1, 30)
    assert await lied.differences() == {}


@pytest.mark.parametrize("turns", [3, 9, 14, 25])
async def test_a_repair_that_dies_changes_all_or_nothing_and_can_be_repeated(
    pool: Pool, database_url: str, turns: int
) -> None:
    lied = await Lied(pool, database_url, 5).start()
    lied.chain.mine(40)
    lied.hide(8)
    lied.chain.mine(4)
    await lied.index()
    before = await lied.differences()
    lied.tell_the_truth()
    check = await lied.repair.check(lied.node.node, 1, 40)
    assert check.differences

    repairing = asyncio.ensure_future(lied.repair.correct(check))
    for _ in range(turns):
        await asyncio.sleep(0.001)
    repairing.cancel()
    with suppress(asyncio.CancelledError):
        await repairing

    after = await lied.differences()
    assert after in ({}, before)
    for _ in range(2):
        await lied.check(corrects=True)
        assert await lied.differences() == {}


async def test_a_reward_whose_mint_was_hidden_is_announced_once_when_it_is_mended(
    lied: Lied, pool: Pool, tmp_path: Path
) -> None:
    async with session(pool) as connection:
        sealer = Sealer.from_file(tmp_path / "master.key", create=True)
        await brands.apply(connection, ONE, sealer)
        reward = await queue_reward(connection, ANN, 7, brand=ONE.address)
    reference = reward_reference(reward, 1, 0)
    block = lied.node.mine(
        logs=[
            transfer_log(ZERO_ADDRESS, ANN, 7 * LTZ_UNITS),
            minted_log(ANN, reference, 7 * LTZ_UNITS),
        ]
    )
    lied.node.mine(9)
    lied.node.lies[hex_of(block.hash), "0x1"] = lambda _log: None
    await lied.index()
    assert await reward_rows(pool, reward) == (None, 0, 0)

    lied.tell_the_truth()
    for _ in range(2):
        await lied.check(corrects=True)
        assert await reward_rows(pool, reward) == (block.hash, 7, 1)

    # A mint that no node shows any more: the announcement stays, as after a reorg.
    lied.node.lies[hex_of(block.hash), "0x1"] = lambda _log: None
    for _ in range(2):
        await lied.check(corrects=True)
        assert await reward_rows(pool, reward) == (None, 0, 1)


async def reward_rows(pool: Pool, reward: UUID) -> tuple[bytes | None, int, int]:
    """The block of the reward's mint, the wallet's earnings, and the webhooks about the reward."""
    mint = await value(pool, "SELECT mint_block_hash FROM rewards WHERE id = $1", reward)
    earned = await value(
        pool, "SELECT coalesce(sum(ltz), 0) FROM earnings WHERE wallet = $1 AND period = 'all'", ANN
    )
    webhooks = await value(pool, "SELECT count(*) FROM webhooks WHERE subject = $1", reward)
    return mint, int(earned), webhooks


async def test_a_single_node_whose_bloom_contradicts_it_deletes_nothing(
    pool: Pool, database_url: str
) -> None:
    """The node hides a log of which its bloom still tells."""
    lied = await Lied(pool, database_url, 3).start()
    lied.node.has_blooms = True
    block = lied.node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 5)])
    lied.node.mine(9)
    await lied.index()
    lied.node.lies[hex_of(block.hash), "0x0"] = lambda _log: None

    check = await lied.repair.check_blocks(lied.node.node, [block.number], 1, 10)
    assert (check.undecided, check.differences) == ([block.number], [])


async def test_two_nodes_that_show_different_receipts_change_nothing(
    pool: Pool, database_url: str
) -> None:
    lied = await Lied(pool, database_url, 3).start()
    block = lied.node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 5)])
    lied.node.mine(9)
    await lied.index()
    group = NodeGroup([lied.node, LyingNode()])
    group.nodes[1].blocks = lied.node.blocks
    lied.node.lies[hex_of(block.hash), "0x0"] = lambda _log: None

    check = await lied.repair.check_blocks(group.node.pinned(), [block.number], 1, 10)
    assert (check.undecided, check.differences) == ([block.number], [])


def without(field: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A lie that leaves out one field of a log."""
    return lambda log: {name: part for name, part in log.items() if name != field}


@pytest.mark.parametrize("field", ["topics", "data"])
async def test_a_second_node_with_a_malformed_log_is_no_witness(
    pool: Pool, database_url: str, field: str
) -> None:
    lied = await Lied(pool, database_url, 3).start()
    block = lied.node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 5)])
    lied.node.mine(9)
    await lied.index()
    group = NodeGroup([lied.node, other := LyingNode()])
    other.blocks = lied.node.blocks
    other.lies[hex_of(block.hash), "0x0"] = without(field)

    check = await lied.repair.check_blocks(group.node.pinned(), [block.number], 1, 10)
    assert (check.undecided, check.differences) == ([], [])


@pytest.mark.parametrize("field", ["topics", "data"])
async def test_a_malformed_log_of_the_only_node_is_no_difference(
    pool: Pool, database_url: str, field: str
) -> None:
    lied = await Lied(pool, database_url, 3).start()
    lied.node.has_blooms = True
    block = lied.node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 5)])
    lied.node.mine(9)
    await lied.index()
    lied.node.lies[hex_of(block.hash), "0x0"] = without(field)

    with pytest.raises(NodeUnavailable, match="malformed"):
        await lied.repair.check(lied.node.node, 1, 5)


DAMAGES = (
    ("balances", "UPDATE balances SET amount = amount + 1"),
    ("balances", "DELETE FROM balances"),
    ("balances", "INSERT INTO balances SELECT sha256(wallet), amount FROM balances"),
    ("tokens", "UPDATE tokens SET holder = sha256(holder)"),
    ("tokens", "UPDATE tokens SET remaining = 99"),
    ("tokens", "DELETE FROM tokens"),
    ("collections", "UPDATE collections SET minted = minted + 1"),
    ("collections", "DELETE FROM collections"),
    ("items", "UPDATE items SET sold = sold + 1"),
    ("items", "DELETE FROM items"),
    ("deals", "UPDATE deals SET state = 'x'"),
    ("deals", "DELETE FROM deals"),
)


async def test_damaged_derived_rows_are_found_and_made_anew(lied: Lied, pool: Pool) -> None:
    lied.chain.mine(40)
    await lied.index()
    assert not await lied.repair.check_derived()
    for table, damage in DAMAGES:
        await value(pool, damage)
        assert table in await lied.repair.check_derived(), damage
        await lied.repair.check_derived(corrects=True)
        assert await lied.differences() == {}, damage
    assert not await lied.repair.check_derived()


async def test_a_damaged_balance_is_mended_when_it_makes_a_fact_impossible(
    lied: Lied, pool: Pool
) -> None:
    lied.node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 5)])
    await lied.index()
    await value(pool, "UPDATE balances SET amount = 1")
    lied.node.mine(logs=[transfer_log(ANN, BOB, 4)])

    async with running(lied.follower().run()):
        await until(lambda: value(pool, "SELECT cursor_number = 2 FROM chains"))
    assert await value(pool, BALANCES) == [1, 4]


async def test_facts_that_contradict_each_other_stop_the_index_and_not_the_process(
    lied: Lied, pool: Pool
) -> None:
    """A fact and a balance are lost from the database, in blocks that were audited."""
    lied.node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 5)])
    lied.node.mine(logs=[transfer_log(ANN, BOB, 4)])
    await lied.index()
    await value(pool, "DELETE FROM transfers WHERE block_number = 1")
    await value(pool, "DELETE FROM balances WHERE amount = 1")
    await value(pool, "UPDATE chains SET audited_number = 2")
    lied.node.mine(logs=[transfer_log(ANN, BOB, 1)])

    async with running(lied.follower().run()):
        reason = await until(lambda: value(pool, "SELECT stopped_reason FROM chains"))
    assert "Run: ltzd index repair" in str(reason)


async def test_a_range_of_many_facts_is_compared_in_parts(lied: Lied, pool: Pool) -> None:
    for _ in range(7):
        lied.node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 1) for _ in range(700)])
    lied.node.mine(5)
    await lied.index()
    gone = "DELETE FROM transfers WHERE block_number = $1 AND log_index = $2"
    for number, index in ((1, 0), (3, 699), (4, 0), (7, 699)):
        await value(pool, gone, number, index)

    check = await lied.repair.check(lied.node.node, 1, 12)
    blocks = [(each.block_number, each.log_index) for each in check.differences]
    assert blocks == [(1, 0), (3, 699), (4, 0), (7, 699)]
