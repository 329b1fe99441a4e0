"""The logs of PerkNFT, PointsSale and BusinessEscrow are indexed like LTZ's."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest

from ltzd.errors import Broken, LaneLost
from ltzd.indexer.contracts import IndexedContract, indexed_contracts
from ltzd.indexer.follower import Follower
from ltzd.indexer.head_poll import poll_head
from ltzd.indexer.policy import IndexerPolicy
from ltzd.store.constraints import results as constraint_results
from ltzd.store.constraints.results import ConstraintSubject, ResultKey
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import chains
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from ltzd.values import ZERO_ADDRESS, Address
from tests.support.chain.fake_node import (
    ADDRESSES,
    CHAIN_ID,
    CONTRACTS,
    LTZ_AT,
    OTHERS_AT,
    FakeNode,
    Log,
    claim_logs,
    collection_log,
    collection_updated_log,
    item_log,
    locked_log,
    purchase_log,
    redeemed_log,
    token_moved_log,
    transfer_log,
)
from tests.support.chain.rebuilding import rebuild
from tests.support.rows.core import a_wallet, follow, value
from tests.support.rows.tokens import indexed_token

ANN, BOB, BRAND = a_wallet(1), a_wallet(2), a_wallet(3)
DEAL = b"\xde" * 32
TOKEN = 7 << 32 | 1
NEAR = IndexerPolicy(head_blocks=1_000, follows_deep_reorgs=True)
FAR = IndexerPolicy(head_blocks=2, range_blocks=20)

DERIVED = ("tokens", "collections", "items", "deals", "balances")
FACTS = (
    "transfers",
    "perk_transfers",
    "perk_claims",
    "charge_redemptions",
    "collection_facts",
    "item_settings",
    "purchases",
    "deal_facts",
)


@dataclass
class IndexedChain:
    pool: Pool
    node: FakeNode
    follower: Follower

    async def catch_up(self) -> None:
        for _ in range(200):
            more = await self.follower.step()
            async with session(self.pool) as connection:
                cursor = await chains.cursor(connection, CHAIN_ID)
            if not more and cursor.hash == self.node.head.hash:
                return
        raise AssertionError("the follower does not arrive")

    async def tables(self, *names: str) -> dict[str, list[tuple[Any, ...]]]:
        async with session(self.pool) as connection:
            return {
                name: sorted(
                    tuple(row) for row in await connection.fetch(f"SELECT {name}::text FROM {name}")
                )
                for name in names
            }


async def a_follower(
    pool: Pool,
    url: str,
    node: FakeNode,
    policy: IndexerPolicy = NEAR,
    contracts: Sequence[IndexedContract] = CONTRACTS,
) -> IndexedChain:
    """A follower that has begun its term."""
    chain = await follow(pool, node)
    follower = Follower(pool, Leases(url), node.node, chain, contracts, WakeupHub(""), policy)
    await follower.begin_term()
    return IndexedChain(pool, node, follower)


@pytest.fixture
async def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
async def following(pool: Pool, database_url: str, node: FakeNode) -> IndexedChain:
    return await a_follower(pool, database_url, node)


def a_life() -> list[list[Log]]:
    """Returns the logs of each block, with every kind of fact."""
    return [
        [collection_log(7, BRAND), item_log(1, BRAND, stock=10)],
        [transfer_log(ZERO_ADDRESS, ANN, 100), *claim_logs(ANN, TOKEN), purchase_log(1, ANN, 2)],
        [redeemed_log(TOKEN, ANN, 1, 2), locked_log(DEAL, ANN, BOB, 5)],
        [token_moved_log(ANN, BOB, TOKEN), collection_updated_log(7, BOB, 9)],
    ]


def live(node: FakeNode) -> None:
    for logs in a_life():
        node.mine(logs=logs)


@pytest.mark.parametrize("policy", [NEAR, FAR], ids=["near", "far"])
async def test_logs_of_all_four_contracts_become_rows(
    pool: Pool, database_url: str, node: FakeNode, policy: IndexerPolicy
) -> None:
    following = await a_follower(pool, database_url, node, policy)
    node.final_depth = 0
    live(node)
    node.mine(5)
    await following.catch_up()

    async with session(pool) as connection:
        token = await indexed_token(connection, TOKEN)
        collection = await connection.fetchrow(
            "SELECT payout, price, minted FROM collections WHERE collection_id = 7"
        )
        sold = await connection.fetchval("SELECT sold FROM items WHERE item_id = 1")
        deal = await connection.fetchval("SELECT state FROM deals WHERE deal_id = $1", DEAL)
    assert token is not None
    assert (token.holder, token.max_charges, token.used, token.block_number) == (BOB, 3, 1, 4)
    assert tuple(collection) == (BOB, 9, 1)
    assert (sold, deal) == (2, "locked")
    for table in FACTS:
        assert await value(pool, f"SELECT count(*) FROM {table}") > 0, table


async def test_a_reorg_undoes_the_dropped_facts_and_leaves_the_others_unchanged(
    following: IndexedChain, node: FakeNode
) -> None:
    seen = [await following.tables(*DERIVED, *FACTS)]
    for logs in a_life():
        node.mine(logs=logs)
        await following.catch_up()
        seen.append(await following.tables(*DERIVED, *FACTS))

    for kept in (3, 2, 1, 0):
        node.reorg(node.head.number - kept)
        await following.catch_up()
        now = await following.tables(*DERIVED, *FACTS)
        now["balances"] = [row for row in now["balances"] if not row[0].endswith(",0)")]
        assert now == seen[kept]


@pytest.mark.parametrize("contract", [LTZ_AT, *OTHERS_AT])
@pytest.mark.parametrize("is_blind_by_hash", [False, True])
async def test_logs_of_one_contract_that_a_node_omits_are_found(
    following: IndexedChain, node: FakeNode, contract: Address, is_blind_by_hash: bool
) -> None:
    node.unheard = {contract}
    node.is_blind_by_hash = is_blind_by_hash
    live(node)
    await following.catch_up()

    for table in FACTS:
        assert await value(following.pool, f"SELECT count(*) FROM {table}") > 0, table
    assert (node.call_counts["eth_getBlockReceipts"] > 0) == is_blind_by_hash


@pytest.mark.parametrize(("hides_logs", "asks"), [(False, 0), (True, 1)])
async def test_a_saturated_bloom_is_no_reason_to_read_all_receipts_of_a_block_with_logs(
    following: IndexedChain, node: FakeNode, hides_logs: bool, asks: int
) -> None:
    """The bloom of 300 transfers seems to hold every contract."""
    node.unheard = {LTZ_AT} if hides_logs else set()
    node.is_blind_by_hash = hides_logs
    wallets = [(10**6 + number).to_bytes(20, "big") for number in range(301)]
    node.mine(logs=[transfer_log(bytes(20), wallet, 1) for wallet in wallets])
    await following.catch_up()
    assert await value(following.pool, "SELECT count(*) FROM transfers") == 301
    assert node.call_counts["eth_getBlockReceipts"] == asks


async def test_a_contract_that_logged_only_unindexed_events_is_not_rechecked(
    following: IndexedChain, node: FakeNode
) -> None:
    """The log is an approval: the bloom holds the contract and no indexed event."""
    node.mine(logs=[Log([b"\x8c" * 32, bytes(32)], b"", address) for address in OTHERS_AT])
    await following.catch_up()

    assert node.call_counts["eth_getLogs"] == 1


async def test_a_repeated_commit_of_a_block_is_refused_and_changes_nothing(
    following: IndexedChain, node: FakeNode
) -> None:
    async with session(following.pool) as connection:
        before = await chains.cursor(connection, CHAIN_ID)
    live(node)
    poll = await poll_head(node.node, before, CONTRACTS, 0)
    await following.follower._advance(node.node, before, poll)
    seen = await following.tables(*DERIVED, *FACTS)

    with pytest.raises(LaneLost):
        await following.follower._advance(node.node, before, poll)

    assert await following.tables(*DERIVED, *FACTS) == seen


async def test_a_contract_that_is_not_perk_nft_stops_the_indexer_with_a_reason(
    following: IndexedChain, node: FakeNode
) -> None:
    node.mine(logs=[token_moved_log(ZERO_ADDRESS, ANN, 2**200)])

    with pytest.raises(Broken, match=r"is no PerkNFT.*contracts\.perk_nft"):
        await following.follower.step()


# --- constraint results -----------------------------------------------------------------------


async def a_result(pool: Pool, user: Address) -> None:
    key = ResultKey(user, 7, 0)
    async with session(pool) as connection:
        ticket = await constraint_results.begin(
            connection, key, ConstraintSubject(BRAND, "nft_holding"), 60
        )
        assert await constraint_results.put(connection, key, ticket, True, 60)


async def with_results(pool: Pool) -> set[bytes]:
    async with session(pool) as connection:
        rows = await connection.fetch("SELECT user_address FROM constraint_results")
    return {row[0] for row in rows}


async def test_a_transfer_and_its_undo_delete_the_constraint_results_of_both_wallets(
    following: IndexedChain, node: FakeNode
) -> None:
    stranger = a_wallet(9)
    for user in (ANN, BOB, stranger):
        await a_result(following.pool, user)
    node.mine(logs=[collection_log(7, BRAND), *claim_logs(ANN, TOKEN)])
    await following.catch_up()
    assert await with_results(following.pool) == {BOB, stranger}, "a mint is a transfer"

    await a_result(following.pool, ANN)
    node.mine(logs=[token_moved_log(ANN, BOB, TOKEN)])
    await following.catch_up()
    assert await with_results(following.pool) == {stranger}

    await a_result(following.pool, ANN)
    await a_result(following.pool, BOB)
    node.reorg(1)
    await following.catch_up()
    assert await with_results(following.pool) == {stranger}


async def test_results_are_deleted_in_the_transaction_that_writes_the_block(
    following: IndexedChain, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write fails after the facts were inserted: the results are kept, the facts are not."""
    await a_result(following.pool, ANN)
    node.mine(logs=[collection_log(7, BRAND), *claim_logs(ANN, TOKEN)])

    async def fails(*_: object) -> None:
        raise LaneLost("too late")

    with monkeypatch.context() as patch:
        patch.setattr("ltzd.store.wakeups.notify", fails)
        with pytest.raises(LaneLost):
            await following.follower.step()
    assert await with_results(following.pool) == {ANN}
    assert await value(following.pool, "SELECT count(*) FROM perk_transfers") == 0

    await following.catch_up()
    assert await with_results(following.pool) == set()


# --- reindexing -------------------------------------------------------------------------------


async def test_after_a_term_of_a_version_that_indexed_only_ltz_the_index_is_rebuilt(
    following: IndexedChain, node: FakeNode, pool: Pool, database_url: str
) -> None:
    live(node)
    await following.catch_up()
    whole = await following.tables(*DERIVED, *FACTS)
    async with transaction(pool) as connection:
        await chains.begin_term(connection, CHAIN_ID)  # as the older version does, and no more
        for table in ("perk_transfers", "perk_claims", "tokens"):
            await connection.execute(f"DELETE FROM {table}")

    again = await a_follower(pool, database_url, node)
    assert await value(pool, "SELECT stopped_reason FROM chains") is not None
    await rebuild(pool, database_url, node)
    assert await again.tables(*DERIVED, *FACTS) == whole

    restarted = await a_follower(pool, database_url, node)
    assert await value(pool, "SELECT stopped_reason FROM chains") is None
    assert await value(pool, "SELECT count(*) FROM rebuilds") == 1, "it was rebuilt twice"
    node.mine()
    await restarted.catch_up()
    assert await restarted.tables(*DERIVED, *FACTS) == whole


async def test_another_perk_nft_in_the_settings_rebuilds_the_index(
    following: IndexedChain, node: FakeNode, pool: Pool, database_url: str
) -> None:
    live(node)
    await following.catch_up()

    moved = indexed_contracts(ADDRESSES | {"perk_nft": a_wallet(0x7777)})
    other = await a_follower(pool, database_url, node, contracts=moved)
    await rebuild(pool, database_url, node, moved)

    left = await other.tables(*DERIVED)
    assert (left["tokens"], left["collections"]) == ([], [])
    assert left["items"]
    assert left["deals"]
