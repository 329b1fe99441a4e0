"""A fifth contract is indexed like the others once the registry has a line for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from ltzd import telemetry
from ltzd.chain.contracts import abi_words
from ltzd.chain.contracts.abi_words import LogReader
from ltzd.indexer.contracts import IndexedContract
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.rules.indexer.log_position import LogPosition
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.indexer import chains
from ltzd.store.indexer.fact_rows import Corrections, FactTable, TableCorrection, exchange
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from ltzd.values import Address
from tests.support.chain.fake_node import CHAIN_ID, CONTRACTS, FakeNode, Log
from tests.support.chain.rebuilding import rebuild
from tests.support.rows.core import a_wallet, follow

# --- the module of a fifth contract -----------------------------------------------------------

VOUCHERS_AT = Address(b"\x75" * 20)
ISSUED_TOPIC = abi_words.topic("Issued(address,uint256)")


@dataclass(frozen=True, slots=True)
class VoucherIssued:
    kind: ClassVar[str] = "voucher"

    position: LogPosition
    holder: Address
    worth: int


def decode_log(log: Mapping[str, Any]) -> VoucherIssued | None:
    reader = LogReader(log)
    if reader.topic != ISSUED_TOPIC:
        return None
    issued = VoucherIssued(reader.position, reader.indexed.address(), reader.data.uint())
    reader.end()
    return issued


ISSUED = FactTable(
    "vouchers", (VoucherIssued,), ("holder", "worth"), lambda fact: (fact.holder, fact.worth)
)


async def insert(connection: Connection, facts: Sequence[VoucherIssued]) -> None:
    await exchange(connection, ISSUED, {"vouchers": TableCorrection(insert=facts)})


async def undo_above(connection: Connection, fork: int) -> None:
    await connection.execute("DELETE FROM vouchers WHERE block_number > $1", fork)


async def correct(connection: Connection, corrections: Corrections) -> None:
    await exchange(connection, ISSUED, corrections)


async def derive(_connection: Connection, _first: int, _last: int) -> None:
    """Nothing follows from a voucher."""


# --- its line in the registry -----------------------------------------------------------------

REGISTRY = (
    *CONTRACTS,
    IndexedContract(
        VOUCHERS_AT,
        (ISSUED_TOPIC,),
        decode_log,
        insert,
        undo_above,
        ("vouchers",),
        correct,
        (ISSUED,),
        derive,
    ),
)


# --- the tests --------------------------------------------------------------------------------

ANN, BOB = a_wallet(1), a_wallet(2)


def issued_log(holder: Address, worth: int) -> Log:
    topics = [ISSUED_TOPIC, bytes(12) + holder]
    return Log(topics, worth.to_bytes(32, "big"), VOUCHERS_AT)


@pytest.fixture
async def vouchers_table(pool: Pool) -> None:
    create = """
        CREATE TABLE vouchers (block_hash bytea, log_index int, block_number bigint,
                               transaction_hash bytea, holder bytea, worth bigint)
    """
    async with session(pool) as connection:
        await connection.execute(create)


@dataclass
class Indexing:
    pool: Pool
    follower: Follower

    async def catch_up(self) -> None:
        while await self.follower.step():
            pass

    async def vouchers(self) -> list[tuple[Address, int]]:
        async with session(self.pool) as connection:
            rows = await connection.fetch("SELECT holder, worth FROM vouchers ORDER BY worth")
        return [(Address(row["holder"]), row["worth"]) for row in rows]


async def begin(pool: Pool, url: str, node: FakeNode, policy: IndexerPolicy) -> Indexing:
    chain = await follow(pool, node)
    follower = Follower(pool, Leases(url), node.node, chain, REGISTRY, WakeupHub(""), policy)
    await follower.begin_term()
    return Indexing(pool, follower)


NEAR = IndexerPolicy(head_blocks=1_000, follows_deep_reorgs=True)
FAR = IndexerPolicy(head_blocks=2, range_blocks=20)


@pytest.mark.parametrize("policy", [NEAR, FAR], ids=["near", "far"])
async def test_the_facts_of_a_fifth_contract_are_stored_and_counted(
    pool: Pool, database_url: str, vouchers_table: None, policy: IndexerPolicy
) -> None:
    node = FakeNode()
    node.final_depth = 0
    indexing = await begin(pool, database_url, node, policy)
    counter = telemetry.FACTS.labels("voucher")._value
    before = counter.get()

    node.mine(logs=[issued_log(ANN, 1)])
    node.mine(logs=[issued_log(BOB, 2), issued_log(ANN, 3)])
    node.mine(4)
    await indexing.catch_up()

    assert await indexing.vouchers() == [(ANN, 1), (BOB, 2), (ANN, 3)]
    assert counter.get() == before + 3


@pytest.mark.parametrize("is_blind_by_hash", [False, True])
async def test_logs_of_a_fifth_contract_that_a_node_omits_are_found(
    pool: Pool, database_url: str, vouchers_table: None, is_blind_by_hash: bool
) -> None:
    node = FakeNode()
    node.unheard = {VOUCHERS_AT}
    node.is_blind_by_hash = is_blind_by_hash
    indexing = await begin(pool, database_url, node, NEAR)

    node.mine(logs=[issued_log(ANN, 1)])
    await indexing.catch_up()

    assert await indexing.vouchers() == [(ANN, 1)]


async def test_a_reorg_undoes_the_facts_of_a_fifth_contract(
    pool: Pool, database_url: str, vouchers_table: None
) -> None:
    node = FakeNode()
    indexing = await begin(pool, database_url, node, NEAR)
    node.mine(logs=[issued_log(ANN, 1)])
    node.mine(logs=[issued_log(BOB, 2)])
    await indexing.catch_up()

    node.reorg(1)
    for _ in range(3):
        await indexing.catch_up()

    assert await indexing.vouchers() == [(ANN, 1)]


async def test_the_facts_of_a_fifth_contract_are_rebuilt(
    pool: Pool, database_url: str, vouchers_table: None
) -> None:
    node = FakeNode()
    indexing = await begin(pool, database_url, node, NEAR)
    node.mine(logs=[issued_log(ANN, 1)])
    await indexing.catch_up()
    async with transaction(pool) as connection:
        await chains.begin_term(connection, CHAIN_ID)  # as a version that knows fewer contracts

        await connection.execute("DELETE FROM vouchers")

    again = await begin(pool, database_url, node, NEAR)
    await rebuild(pool, database_url, node, REGISTRY)
    assert await again.vouchers() == [(ANN, 1)]


def test_no_two_contracts_of_the_registry_share_an_address_or_a_table() -> None:
    tables = [table for contract in REGISTRY for table in contract.tables]
    assert len(set(tables)) == len(tables)
    assert len({contract.address for contract in REGISTRY}) == len(REGISTRY)
