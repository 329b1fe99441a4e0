"""The index's hot queries, each with the most pages that it may touch however large the index is.

`Explained` stands in for a connection and counts the pages that PostgreSQL touches for each
statement. A scan of a table or of a whole index touches thousands at the sizes used here.
"""

import json
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from benchmarks.harness.index_rows import (
    CHAIN_ID,
    COLLECTION_TOKENS,
    LANE,
    block_hash,
    wallet,
)
from ltzd.rules.indexer.contract_facts import Claimed, PerkFact, TokenTransferred
from ltzd.rules.indexer.log_position import LogPosition
from ltzd.rules.indexer.mint_facts import Fact, RewardMinted, Transfer
from ltzd.store import status
from ltzd.store.constraints import chat_claims
from ltzd.store.constraints.chat_claims import ChatClaim
from ltzd.store.database import Connection
from ltzd.store.indexer import (
    chains,
    collections,
    mint_facts,
    partitions,
    perk_facts,
    tokens,
    undo,
)
from ltzd.store.indexer.chains import BlockRow
from ltzd.store.operator import rewards, settlement
from ltzd.store.operator.lanes import Lane
from ltzd.store.site_plugin import redemption_payments
from ltzd.values import LTZ, ZERO_ADDRESS, reward_reference

_FACTS_OF_A_BLOCK: Final = 50


@dataclass(frozen=True, slots=True)
class Sample:
    """The rows that the queries ask for in an index of `rows` blocks."""

    rows: int
    stride: int = 1

    @property
    def head(self) -> int:
        return self.rows * self.stride

    @property
    def wallets(self) -> int:
        return max(self.rows // 10, 1)

    def token(self, number: int) -> int:
        """The token that was claimed in block `number`, a multiple of ten."""
        collection, serial = divmod(number // 10, COLLECTION_TOKENS)
        return collection + 1 << 32 | serial + 1


@dataclass(frozen=True, slots=True)
class HotQuery:
    """`pages` bounds a query; it grows with the partitions, not with the rows of one."""

    name: str
    ask: Callable[[Any, Sample], Awaitable[object]]
    pages: int = 100


async def _commit(connection: Connection, sample: Sample) -> None:
    """A head block of fifty transfers, mints and claims each."""
    number, hash_ = sample.head + 1, block_hash(sample.rows + 1)
    await chains.insert_blocks(
        connection, [BlockRow(number, hash_, block_hash(sample.rows), 1_800_000_000)]
    )
    facts: list[Fact] = []
    perks: list[PerkFact] = []
    for index in range(_FACTS_OF_A_BLOCK):
        owner = wallet(index * 37, sample.wallets)
        token = (1 << 40) + index
        places = [LogPosition(number, hash_, index * 4 + part, hash_) for part in range(4)]
        reference = reward_reference(UUID(int=index), 1, sample.rows + index)
        facts.append(Transfer(places[0], ZERO_ADDRESS, owner, LTZ))
        facts.append(RewardMinted(places[1], owner, reference, LTZ))
        perks.append(TokenTransferred(places[2], ZERO_ADDRESS, owner, token))
        perks.append(Claimed(places[3], token >> 32, owner, token, 30, 1, b"\x07" * 32))
    await mint_facts.insert(connection, facts)
    await perk_facts.insert(connection, perks)


async def _undo(connection: Connection, sample: Sample) -> None:
    await undo.undo_above(
        connection, sample.head - 20 * sample.stride, [mint_facts.undo_above, perk_facts.undo_above]
    )


async def _payment(connection: Connection, _sample: Sample) -> None:
    await redemption_payments.restore(connection, UUID(int=7))


async def _chat_accounts(connection: Connection, sample: Sample) -> None:
    claim = ChatClaim(1, wallet(10, sample.wallets), 1)
    await chat_claims.exhausted_accounts(connection, claim, ["ann"])


async def _settle(connection: Connection, _sample: Sample) -> None:
    await settlement.mined_to_settle(connection, Lane(CHAIN_ID, LANE, 1, "mint"), 100)


async def _skipped(connection: Connection, _sample: Sample) -> None:
    assert sum((await rewards.count_skipped(connection, range(1, 100))).values()) == 40


HOT_QUERIES: Final = (
    HotQuery("a commit of a head block", _commit, 10_000),
    HotQuery("an undo of twenty blocks", _undo, 3_000),
    HotQuery("the partitions' check", lambda c, s: partitions.ensure(c, s.head + 1), 400),
    HotQuery("the cursor", lambda c, s: chains.cursor(c, CHAIN_ID)),
    HotQuery(
        "the newest blocks",
        lambda c, s: chains.newest_blocks(c, s.head, 128, s.head - 64 * s.stride),
    ),
    HotQuery("the settled block", lambda c, s: chains.settled_number(c, 64, 60)),
    HotQuery("a balance", lambda c, s: mint_facts.balance(c, wallet(7, s.wallets))),
    HotQuery("tokens with brands", lambda c, s: tokens.look_up(c, CHAIN_ID, [(1, s.token(10))])),
    HotQuery("a page of tokens", lambda c, s: tokens.read_page(c, 1, 0, 50), 200),
    HotQuery("a wallet's tokens", lambda c, s: tokens.count_held(c, wallet(10, s.wallets), 1, 100)),
    HotQuery("the oldest token, rebuilt", lambda c, s: tokens.rebuild(c, [s.token(10)]), 300),
    HotQuery("a collection, rebuilt", lambda c, s: collections.rebuild(c, [1])),
    HotQuery(
        "claims of a wallet and of a stranger",
        lambda c, s: collections.read_claims(
            c, [(wallet(10, s.wallets), 1), (wallet(-1, 2**60), 1)]
        ),
    ),
    HotQuery("a chat account's claims", _chat_accounts),
    HotQuery("a redemption's payment", _payment),
    HotQuery("mined transactions to settle", _settle, 600),
    HotQuery("skipped rewards", _skipped, 2_000),
    # Up to 500,000 mints are counted.
    HotQuery("`ltzd status`", lambda c, s: status.read_status(c), 15_000),
)


class Explained:
    """A connection that explains each statement before it runs, and undoes what that has written.

    `pages` is the sum of the pages that were touched, `scanned` the tables that were read whole.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.pages = 0
        self.scanned: set[str] = set()

    async def fetch(self, sql: str, *arguments: object, **options: Any) -> Any:
        await self._explain(sql, arguments)
        return await self._connection.fetch(sql, *arguments, **options)

    async def fetchrow(self, sql: str, *arguments: object, **options: Any) -> Any:
        await self._explain(sql, arguments)
        return await self._connection.fetchrow(sql, *arguments, **options)

    async def fetchval(self, sql: str, *arguments: object, **options: Any) -> Any:
        await self._explain(sql, arguments)
        return await self._connection.fetchval(sql, *arguments, **options)

    async def execute(self, sql: str, *arguments: object, **options: Any) -> Any:
        await self._explain(sql, arguments)
        return await self._connection.execute(sql, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        """COPY, transactions and anything else that has no plan."""
        return getattr(self._connection, name)

    async def _explain(self, sql: str, arguments: tuple[object, ...]) -> None:
        if sql.split(maxsplit=1)[0] not in {"SELECT", "INSERT", "UPDATE", "DELETE", "WITH"}:
            return
        block = self._connection.transaction()
        await block.start()
        try:
            (row,) = await self._connection.fetch(
                "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) " + sql, *arguments
            )
        finally:
            await block.rollback()
        plan = json.loads(row[0])[0]["Plan"]
        self.pages += plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]
        self.scanned |= {
            node["Relation Name"] for node in _nodes(plan) if node["Node Type"] == "Seq Scan"
        }


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from _nodes(below)


async def touched(connection: Connection, query: HotQuery, sample: Sample) -> tuple[int, set[str]]:
    """The pages that a query touches and the tables that it scans; its writes are undone."""
    block = connection.transaction()
    await block.start()
    try:
        explained = Explained(connection)
        await query.ask(explained, sample)
    finally:
        await block.rollback()
    return explained.pages, explained.scanned
