"""A node that omits logs of settled blocks is found out by the blocks' blooms and receipts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from ltzd.errors import NodeUnavailable
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.store.database import Pool
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from ltzd.values import ZERO_ADDRESS, hash_of, hex_of
from tests.support.chain.fake_node import (
    CONTRACTS,
    LTZ_AT,
    OTHERS_AT,
    FakeNode,
    claim_logs,
    item_log,
    locked_log,
    minted_log,
    token_moved_log,
    transfer_log,
)
from tests.support.rows.core import a_wallet, follow, value

ANN, BOB = a_wallet(1), a_wallet(2)
FAR = IndexerPolicy(poll_seconds=0.01, head_blocks=2, range_blocks=20)
TABLES = ("transfers", "perk_transfers", "perk_claims", "items", "deals")


@dataclass
class Backfill:
    pool: Pool
    node: FakeNode
    follower: Follower

    async def finish(self) -> None:
        for _ in range(50):
            if not await self.follower.step() and not self.follower._inconsistencies.count:
                return
        raise AssertionError("the follower does not arrive")

    async def rows(self, table: str) -> int:
        return int(await value(self.pool, f"SELECT count(*) FROM {table}"))


@pytest.fixture
async def backfill(pool: Pool, database_url: str) -> Backfill:
    node = FakeNode()
    node.final_depth = 0
    chain = await follow(pool, node)
    follower = Follower(pool, Leases(database_url), node.node, chain, CONTRACTS, WakeupHub(""), FAR)
    await follower.begin_term()
    return Backfill(pool, node, follower)


def omit(node: FakeNode, is_omitted: Callable[[dict[str, Any]], bool]) -> None:
    """From now on the node's `eth_getLogs` leaves out logs, and its receipts do not."""
    answered = node._methods["eth_getLogs"]
    node._methods["eth_getLogs"] = lambda where: [
        entry for entry in answered(where) if not is_omitted(entry)
    ]


def live(node: FakeNode) -> None:
    """Each contract logs in some of 45 blocks."""
    node.mine(7, logs=[transfer_log(ZERO_ADDRESS, ANN, 10)])
    node.mine(9, logs=claim_logs(BOB, 1 << 32))
    node.mine(9, logs=[item_log(1, ANN, 5), transfer_log(ANN, BOB, 1)])
    node.mine(20, logs=[locked_log(b"\x01" * 32, ANN, BOB, 5)])


@pytest.mark.parametrize("contract", [LTZ_AT, *OTHERS_AT])
async def test_a_contracts_logs_that_the_only_node_omits_are_found(
    backfill: Backfill, contract: bytes
) -> None:
    omit(backfill.node, lambda entry: bytes.fromhex(entry["address"][2:]) == contract)
    live(backfill.node)
    await backfill.finish()

    for table in TABLES:
        assert await backfill.rows(table) > 0, table
    assert 1 <= backfill.node.call_counts["eth_getBlockReceipts"] <= 2


async def test_an_honest_node_is_asked_for_no_receipts(backfill: Backfill) -> None:
    live(backfill.node)
    await backfill.finish()

    assert backfill.node.call_counts["eth_getBlockReceipts"] == 0
    assert backfill.node.call_counts["eth_getBlockByHash"] == 0


async def test_a_kind_of_log_that_is_missing_beside_others_of_its_contract_is_found(
    backfill: Backfill,
) -> None:
    """PerkNFT's transfers have the topic of LTZ's, so that a transfer of LTZ would explain it."""
    moved = hash_of("0x" + token_moved_log(ANN, BOB, 1).topics[0].hex())
    live(backfill.node)
    backfill.node.mine(9, logs=[item_log(1, ANN, 5), *claim_logs(BOB, 1 << 32 | 1)])
    omit(backfill.node, lambda entry: hash_of(entry["topics"][0]) == moved)
    await backfill.finish()

    assert await backfill.rows("perk_claims") == 2
    assert await backfill.rows("perk_transfers") == 2
    assert await backfill.rows("transfers") == 2


async def test_an_empty_answer_about_full_blocks_is_probed(backfill: Backfill) -> None:
    """The blooms of such blocks prove nothing; the node has no log of any block in its index."""
    node = backfill.node
    many = [transfer_log(ZERO_ADDRESS, a_wallet(each), 1) for each in range(1, 400)]
    for _ in range(3):
        node.mine(logs=many)
    node.mine(9)
    omit(node, lambda _entry: True)
    await backfill.finish()

    assert await backfill.rows("transfers") == 3 * 399
    assert node.call_counts["eth_getBlockReceipts"] == 3


async def test_a_chain_without_blooms_is_probed_where_a_range_has_no_logs(
    backfill: Backfill,
) -> None:
    node = backfill.node
    answered = node._methods["eth_getBlockByNumber"]

    def without_bloom(tag: str, full: bool) -> Any:
        block = answered(tag, full)
        return block and block | {
            "logsBloom": "0x" + "00" * 256,
            "transactions": ["0x" + "0a" * 32],
        }

    node._methods["eth_getBlockByNumber"] = without_bloom
    node.mine(30, logs=[transfer_log(ZERO_ADDRESS, ANN, 10), minted_log(ANN, bytes(32), 10)])
    omit(node, lambda entry: int(entry["blockNumber"], 16) == 1)
    await backfill.finish()

    assert await backfill.rows("transfers") == 1


async def test_a_block_whose_logs_come_in_another_order_is_written_before_the_next_one(
    backfill: Backfill,
) -> None:
    """BOB pays in a block of one log with what he got in a block of two."""
    node = backfill.node
    node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 1), transfer_log(ZERO_ADDRESS, BOB, 10)])
    node.mine(9, logs=[transfer_log(BOB, ANN, 4)])
    answered = node._methods["eth_getLogs"]
    node._methods["eth_getLogs"] = lambda where: answered(where)[::-1]
    await backfill.finish()

    assert await backfill.rows("transfers") == 3


@pytest.mark.parametrize(
    "change",
    [
        {"data": f"0x{'zz' * 32}"},
        {"address": "0xzz"},
        {"logIndex": "0x80000000"},
        {"logIndex": "-0x1"},
        {"transactionHash": "0x12"},
    ],
    ids=str,
)
async def test_a_malformed_log_ends_the_term_and_neither_the_process_nor_the_index(
    backfill: Backfill, change: dict[str, str]
) -> None:
    """A transfer is malformed, or a mint, which is decoded in another way."""
    node, given = backfill.node, transfer_log(ZERO_ADDRESS, ANN, 1)
    changed = minted_log(ANN, bytes(32), 1) if "transactionHash" in change else given
    topic = hex_of(changed.topics[0])
    node.mine(9, logs=[given, minted_log(ANN, bytes(32), 1)])
    answered = node._methods["eth_getLogs"]
    node._methods["eth_getLogs"] = lambda where: [
        entry | change if entry["topics"][0] == topic else entry for entry in answered(where)
    ]
    with pytest.raises(NodeUnavailable, match="malformed"):
        await backfill.finish()

    node._methods["eth_getLogs"] = answered
    await backfill.finish()
    assert await backfill.rows("transfers") == 1
