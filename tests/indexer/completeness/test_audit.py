"""The audit reads settled blocks a second time, and what the index lacks is corrected."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from ltzd.chain.node.rpc import RpcError
from ltzd.errors import LaneLost, NodeUnavailable
from ltzd.indexer.audit import Audit
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import AuditPolicy, IndexerPolicy
from ltzd.indexer.repair import IndexRepair, RangeCheck
from ltzd.store.database import Pool, session
from ltzd.store.indexer import chains
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from ltzd.values import ZERO_ADDRESS, Address
from tests.support.chain.fake_node import (
    CHAIN_ID,
    CONTRACTS,
    OTHERS_AT,
    FakeNode,
    Log,
    claim_logs,
    purchase_log,
    transfer_log,
)
from tests.support.chain.node_group import NodeGroup
from tests.support.rows.core import a_wallet, follow, running, value
from tests.support.waiting import until

ANN, BOB = a_wallet(1), a_wallet(2)
QUICK = AuditPolicy(
    rest=0.0, least_pause_seconds=0.0, idle_seconds=0.01, totals_seconds=1e9, second_check_seconds=0
)
POLICY = IndexerPolicy(
    poll_seconds=0.01,
    head_blocks=2,
    range_blocks=20,
    second_check_seconds=0.0,
    term_pause_seconds=0.02,
    audit=QUICK,
)


def given_to(wallet: Address, amount: int) -> Log:
    return transfer_log(ZERO_ADDRESS, wallet, amount)


@dataclass
class Audited:
    """An index of nodes, and its audit, which a test runs step by step."""

    pool: Pool
    url: str
    nodes: NodeGroup
    now: list[float] = field(default_factory=lambda: [0.0])

    @property
    def node(self) -> FakeNode:
        return self.nodes.nodes[0]

    async def start(self) -> "Audited":
        for node in self.nodes.nodes:
            node.final_depth = 0
        self.identity = await follow(self.pool, self.node)
        self.follower = self.another_follower()
        await self.follower.begin_term()
        self.repair = IndexRepair(self.pool, CHAIN_ID, CONTRACTS, POLICY)
        self.audit = Audit(
            self.pool, CHAIN_ID, self.nodes.node, CONTRACTS, self.repair, QUICK, lambda: self.now[0]
        )
        self.now[0] = 1.0
        self.audit._compared_at = 0.0
        return self

    def another_follower(self, policy: IndexerPolicy = POLICY) -> Follower:
        hub, leases = WakeupHub(""), Leases(self.url)
        node = self.nodes.node
        return Follower(self.pool, leases, node, self.identity, CONTRACTS, hub, policy)

    async def index(self) -> None:
        while await self.follower.step():
            pass

    async def audit_all(self) -> None:
        for _ in range(20):
            if not await self.audit.step(self.follower._epoch):
                return
        raise AssertionError("the audit does not arrive")

    async def compare_totals(self) -> None:
        self.now[0] += 2e9
        await self.audit.step(self.follower._epoch)

    async def audited(self) -> int | None:
        number: int | None = await value(self.pool, "SELECT audited_number FROM chains")
        return number

    async def rows(self, table: str) -> int:
        return int(await value(self.pool, f"SELECT count(*) FROM {table}"))

    async def balance(self, wallet: Address) -> int:
        query = "SELECT coalesce(sum(amount), 0) FROM balances WHERE wallet = $1"
        return int(await value(self.pool, query, wallet))

    async def balance_is(self, wallet: Address, amount: int) -> bool:
        return await self.balance(wallet) == amount


@pytest.fixture
async def audited(pool: Pool, database_url: str) -> Audited:
    return await Audited(pool, database_url, NodeGroup.of(1)).start()


def omit(node: FakeNode, is_omitted: Callable[[dict[str, Any]], bool]) -> Callable[[], None]:
    """`eth_getLogs` leaves out logs, in each of its answers, until the returned function is called.

    Receipts have all logs.
    """
    answered = node._methods["eth_getLogs"]
    node._methods["eth_getLogs"] = lambda where: [
        entry for entry in answered(where) if not is_omitted(entry)
    ]

    def end() -> None:
        node._methods["eth_getLogs"] = answered

    return end


def refuse(*_parameters: object) -> None:
    raise RpcError(-32601, "the method is not available")


async def test_a_true_index_is_audited_to_the_final_block_and_not_changed(audited: Audited) -> None:
    audited.node.mine(7, logs=[given_to(ANN, 5)])
    audited.node.mine(30, logs=[given_to(BOB, 5), *claim_logs(BOB, 1 << 32)])
    await audited.index()
    await audited.audit_all()
    assert await audited.audited() == 37
    assert audited.node.call_counts["eth_getBlockReceipts"] == 2

    audited.node.final_depth = 3
    audited.node.mine(5, logs=[given_to(ANN, 1)])
    await audited.index()
    await audited.audit_all()
    assert await audited.audited() == 39
    assert await audited.rows("transfers") == 3


async def test_a_log_that_the_only_node_omitted_beside_others_of_its_kind_is_mended(
    audited: Audited,
) -> None:
    """The bloom holds the contract and the topic because of the other log."""
    omit(audited.node, lambda entry: int(entry["logIndex"], 16) == 1)
    audited.node.mine(9, logs=[given_to(ANN, 5), given_to(BOB, 7)])
    await audited.index()
    assert await audited.balance(BOB) == 0

    await audited.audit_all()
    assert await audited.balance(BOB) == 7
    assert await audited.audited() == 9


async def test_one_contracts_logs_omitted_in_a_full_block_are_mended(audited: Audited) -> None:
    """The bloom is saturated, and the node has answered with logs of the block."""
    sold = purchase_log(1, ANN, 2)
    many = [given_to(a_wallet(each), 1) for each in range(1, 400)]
    omit(audited.node, lambda entry: bytes.fromhex(entry["address"][2:]) == OTHERS_AT[1])
    audited.node.mine(9, logs=[*many, sold])
    await audited.index()
    assert await audited.rows("purchases") == 0

    await audited.audit_all()
    assert await audited.rows("purchases") == 1


async def test_another_node_is_asked_where_there_is_one(pool: Pool, database_url: str) -> None:
    audited = await Audited(pool, database_url, NodeGroup.of(2)).start()
    ends = [
        omit(node, lambda entry: int(entry["logIndex"], 16) == 1) for node in audited.nodes.nodes
    ]
    audited.nodes.nodes[0].mine(9, logs=[given_to(ANN, 5), given_to(BOB, 7)])
    audited.nodes.share(0)
    await audited.index()
    assert await audited.balance(BOB) == 0

    ends[1]()
    await audited.audit_all()
    assert await audited.balance(BOB) == 7


@pytest.mark.parametrize("count", [2, 3])
async def test_a_second_node_with_other_settled_blocks_changes_no_fact(
    pool: Pool, database_url: str, count: int
) -> None:
    """The node shows the true newest block, and forged blocks with forged logs below it."""
    audited = await Audited(pool, database_url, NodeGroup.of(count)).start()
    for node in audited.nodes.nodes:
        node.final_depth = 1
    audited.node.mine(9, logs=[given_to(ANN, 5)])
    audited.nodes.share(0)
    await audited.index()
    liar = audited.nodes.nodes[1]
    head = liar.head
    liar.forget_blocks(9)
    liar.mine(8, logs=[given_to(BOB, 500)])
    liar.blocks.append(head)

    for _ in range(10):
        with suppress(NodeUnavailable):
            await audited.audit.step(audited.follower._epoch)

    assert await audited.audited() == 8
    assert (await audited.balance(ANN), await audited.balance(BOB)) == (5, 0)


ANOTHER_HASH = "0x" + "5a" * 32


def name_another_transaction(node: FakeNode) -> None:
    answered = node._methods["eth_getBlockReceipts"]
    another = {"transactionHash": ANOTHER_HASH}
    node._methods["eth_getBlockReceipts"] = lambda block: [
        {**receipt, "logs": [{**entry, **another} for entry in receipt["logs"]]}
        for receipt in answered(block)
    ]


async def are_proved(*_answers: object) -> bool:
    return True


async def are_proved_of_the_liar(_block: Any, receipts: Any, _hash: Any) -> bool:
    """The other node encodes its receipts in a form of its own."""
    return ANOTHER_HASH in {entry["transactionHash"] for each in receipts for entry in each["logs"]}


@pytest.mark.parametrize(
    ("liar", "proves"),
    [(1, None), (0, None), (0, are_proved), (1, are_proved_of_the_liar)],
    ids=["other", "used", "proved", "other-proved"],
)
async def test_a_node_that_names_another_transaction_changes_no_fact(
    pool: Pool,
    database_url: str,
    monkeypatch: pytest.MonkeyPatch,
    liar: int,
    proves: Callable[..., Any] | None,
) -> None:
    """All else about the log is true, and no block's hash proves which transaction wrote it."""
    audited = await Audited(pool, database_url, NodeGroup.of(2)).start()
    audited.node.mine(9, logs=[given_to(ANN, 5)])
    audited.nodes.share(0)
    await audited.index()
    name_another_transaction(audited.nodes.nodes[liar])
    if proves is not None:
        monkeypatch.setattr("ltzd.chain.node.typed_calls.logs.are_receipts_of", proves)

    check = await audited.repair.check_receipts(audited.nodes.node, 1, 9)
    assert check.differences == []
    assert check.undecided == [1]
    assert audited.nodes.reported == []


async def test_a_third_node_decides_which_transaction_wrote_a_log(
    pool: Pool, database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The index lacks a log; the node in use proves it, and one of the others lies about it."""
    audited = await Audited(pool, database_url, NodeGroup.of(3)).start()
    ends = [omit(node, lambda entry: entry["logIndex"] == "0x1") for node in audited.nodes.nodes]
    audited.node.mine(9, logs=[given_to(ANN, 5), given_to(BOB, 7)])
    audited.nodes.share(0)
    await audited.index()
    for end in ends:
        end()
    liar = audited.nodes.nodes[1]
    answered = liar._methods["eth_getLogs"]
    another = {"transactionHash": ANOTHER_HASH}
    liar._methods["eth_getLogs"] = lambda where: [{**entry, **another} for entry in answered(where)]
    monkeypatch.setattr("ltzd.chain.node.typed_calls.logs.are_receipts_of", are_proved)

    check = await audited.repair.check_receipts(audited.nodes.node, 1, 9)
    assert [difference.kind for difference in check.differences] == ["missing"]
    assert check.undecided == []


async def test_a_second_node_without_logs_does_not_hold_the_audit_up(
    pool: Pool, database_url: str
) -> None:
    audited = await Audited(pool, database_url, NodeGroup.of(2)).start()
    audited.nodes.nodes[0].mine(9, logs=[given_to(ANN, 5)])
    audited.nodes.share(0)
    await audited.index()

    audited.nodes.nodes[1]._methods["eth_getLogs"] = refuse
    with pytest.raises(NodeUnavailable):
        await audited.audit_all()
    await audited.audit_all()
    assert await audited.audited() == 9


async def test_totals_that_differ_make_the_audit_find_the_block_above_the_final_one_too(
    audited: Audited,
) -> None:
    audited.node.mine(9, logs=[given_to(ANN, 5), given_to(BOB, 7)])
    audited.node.final_depth = 50
    await audited.index()
    async with session(audited.pool) as connection:
        await connection.execute("DELETE FROM transfers WHERE recipient = $1", BOB)
        await connection.execute("DELETE FROM balances WHERE wallet = $1", BOB)

    await audited.compare_totals()
    assert await audited.balance(BOB) == 7
    assert await audited.rows("transfers") == 2


async def test_totals_are_compared_at_the_end_of_each_range_of_a_backfill(
    audited: Audited,
) -> None:
    """Blocks are not audited: the head is too far away. The first comparison is due anyway."""
    omit(audited.node, lambda entry: int(entry["logIndex"], 16) == 1)
    far = replace(POLICY, audit=replace(QUICK, nearby_blocks=-1))

    async with running(audited.another_follower(far).run()):
        for amount in (7, 14, 21):
            audited.node.mine(20, logs=[given_to(ANN, 5), given_to(BOB, 7)])
            await until(partial(audited.balance_is, BOB, amount))
    assert await audited.audited() is None


async def test_blocks_that_come_during_a_search_are_searched_by_the_next_comparison(
    audited: Audited, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They may lack facts as well, and differ in the same totals by the same amounts."""
    omit(audited.node, lambda entry: int(entry["logIndex"], 16) == 1)
    logs = [given_to(ANN, 5), given_to(BOB, 7)]
    head = audited.node.mine(20, logs=logs).number
    await audited.index()
    correct = audited.audit._repair.correct

    async def correct_while_blocks_come(check: RangeCheck, epoch: int) -> None:
        await correct(check, epoch)
        if check.differences and audited.node.head.number == head:
            audited.node.mine(20, logs=logs)
            await audited.index()

    monkeypatch.setattr(audited.audit._repair, "correct", correct_while_blocks_come)
    await audited.compare_totals()
    assert await audited.balance(BOB) == 7
    await audited.compare_totals()
    assert await audited.balance(BOB) == 14
    assert audited.audit.differing_totals == ()


async def test_a_range_whose_state_is_pruned_is_compared_later_on(audited: Audited) -> None:
    audited.node.mine(9, logs=[given_to(ANN, 5)])
    await audited.index()
    answered = audited.node._methods["eth_call"]
    audited.node._methods["eth_call"] = refuse
    compared = []
    for _ in range(2):
        audited.audit.end_range()
        before = audited.node.call_counts["eth_call"]
        with suppress(NodeUnavailable):
            await audited.audit.step(audited.follower._epoch)
        compared.append(audited.node.call_counts["eth_call"] > before)
    assert compared == [True, False]

    audited.node._methods["eth_call"] = answered
    await audited.compare_totals()
    audited.audit.end_range()
    before = audited.node.call_counts["eth_call"]
    await audited.audit.step(audited.follower._epoch)
    assert audited.node.call_counts["eth_call"] > before


async def test_totals_that_no_block_explains_are_searched_for_once(audited: Audited) -> None:
    node = audited.node
    node.mine(9, logs=[given_to(ANN, 5)])
    await audited.index()
    answered = node._methods["eth_call"]
    node._methods["eth_call"] = lambda *ask: (
        f"0x{99:064x}" if ask[0]["data"] == "0x18160ddd" else answered(*ask)
    )
    await audited.compare_totals()
    receipts = node.call_counts["eth_getBlockReceipts"]
    assert receipts == 1
    for _ in range(3):
        await audited.compare_totals()
    assert node.call_counts["eth_getBlockReceipts"] == receipts
    assert await audited.rows("transfers") == 1


async def test_blocks_that_a_reorg_has_replaced_are_audited_again(audited: Audited) -> None:
    audited.node.mine(9, logs=[given_to(ANN, 5)])
    await audited.index()
    await audited.audit_all()
    async with session(audited.pool) as connection:
        cursor = await chains.cursor(connection, CHAIN_ID)
        fork = (4, audited.node.blocks[4].hash)
        await chains.move_cursor(
            connection, CHAIN_ID, audited.follower._epoch, cursor.hash, fork, 9
        )
    assert await audited.audited() == 4


async def test_the_audit_ends_with_its_term_and_rests_while_the_index_is_stopped(
    audited: Audited,
) -> None:
    audited.node.mine(9)
    await audited.index()
    async with session(audited.pool) as connection:
        await chains.stop(connection, CHAIN_ID, audited.follower._epoch, "Something broke.")
    await audited.audit_all()
    assert await audited.audited() is None

    async with session(audited.pool) as connection:
        await chains.resume(connection, CHAIN_ID)
        await chains.begin_term(connection, CHAIN_ID)
    with pytest.raises(LaneLost):
        await audited.audit_all()
    await audited.audit.run(audited.follower._epoch)
    assert await audited.audited() is None


@pytest.mark.parametrize(("seconds", "pauses"), [(0.0, 2), (0.1, 5)], ids=["quick", "slow"])
async def test_the_audit_pauses_after_each_block_whose_receipts_take_long(
    audited: Audited, monkeypatch: pytest.MonkeyPatch, seconds: float, pauses: int
) -> None:
    node, rests = audited.node, []
    for _ in range(5):
        node.mine(logs=[given_to(ANN, 5)])
    node.mine(4)
    await audited.index()
    answered = node._methods["eth_getBlockReceipts"]

    def take_long(*ask: object) -> object:
        audited.now[0] += seconds
        return answered(*ask)

    async def rest(begun: float) -> None:
        rests.append(begun)

    monkeypatch.setitem(node._methods, "eth_getBlockReceipts", take_long)
    monkeypatch.setattr(audited.audit, "_rest", rest)
    await audited.audit_all()
    assert len(rests) == pauses


async def test_a_follower_audits_in_the_background(audited: Audited) -> None:
    omit(audited.node, lambda entry: int(entry["logIndex"], 16) == 1)
    audited.node.mine(9, logs=[given_to(ANN, 5), given_to(BOB, 7)])

    async def is_whole() -> bool:
        return await audited.balance(BOB) == 7 and await audited.audited() == 9

    async with running(audited.another_follower().run()):
        await until(is_whole)


async def test_a_spent_receipt_that_the_only_node_goes_on_to_hide_is_found_in_the_blocks_receipts(
    audited: Audited,
) -> None:
    """The audit comes too late: the index repairs itself as soon as a fact is impossible."""
    omit(audited.node, lambda entry: entry["blockNumber"] == "0x1" and entry["logIndex"] == "0x1")
    audited.node.mine(3, logs=[given_to(ANN, 5), given_to(BOB, 7)])
    await audited.index()
    audited.node.mine(3, logs=[transfer_log(BOB, ANN, 7)])

    async def is_whole() -> bool:
        return await audited.balance(ANN) == 12

    late = replace(POLICY, audit=replace(QUICK, idle_seconds=600.0))
    follower = audited.another_follower(late)
    async with running(follower.run()):
        await until(is_whole)
    assert await audited.audited() is None
    assert await value(audited.pool, "SELECT stopped_reason FROM chains") is None
