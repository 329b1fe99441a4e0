"""The tables can be distributed as docs/scale.md says: unique keys and a brand's hot statements.

The test reads the schema that the migrations make, so that it follows each change of it. Each
distributed table is made anew with hash partitions of its column. PostgreSQL refuses a unique key
that lacks the column, as Citus does; and its plans tell which partitions a statement touches.
"""

import json
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest_asyncio

from ltzd.rules.event_handler.claims import ClaimRecord
from ltzd.store import database, perk_charges
from ltzd.store.database import Connection
from ltzd.store.event_handler import events
from ltzd.store.event_handler.events import ClaimQuery, EventRow, NewEvent
from ltzd.store.event_handler.listing import EventSelection, list_events
from ltzd.store.site_plugin import check_ins, leaderboard_totals, members
from ltzd.store.site_plugin.members import Member
from ltzd.store.users import registrations, users
from ltzd.values import Address
from tests.support.rows.core import a_wallet

PAGE = (Path(__file__).parents[2] / "docs" / "scale.md").read_text()
SECTION = PAGE.partition("## Which column a table is distributed by\n")[2].partition("\n## ")[0]
SHARDS = 4
PLACES = {"reference", "one machine"}
GAIN_THE_COLUMN = {"payment_reversals"}
"""Distributed tables whose column a migration adds before they are distributed."""
BRANDS = [Address(bytes([number]) * 20) for number in range(1, 9)]
NOW = datetime(2026, 3, 14, 12, tzinfo=UTC)


def rows() -> Iterator[tuple[list[str], str]]:
    for line in SECTION.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `"):
            yield re.findall(r"`([\w.]+)`", cells[0]), cells[1].strip("`")


PLACE_OF = {table: place for tables, place in rows() for table in tables if "." not in table}
DETERMINING = {name for names, _ in rows() for name in names if "." in name}
DISTRIBUTED = {table: place for table, place in PLACE_OF.items() if place not in PLACES}


@pytest_asyncio.fixture
async def connection(database_url: str) -> AsyncIterator[Connection]:
    connection = await database.connect(database_url, "test")
    yield connection
    await connection.close()


async def test_every_table_has_a_place(connection: Connection) -> None:
    tables = await connection.fetch(
        """
        SELECT relname::text AS name
          FROM pg_class
         WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p')
           AND NOT relispartition
        """
    )
    assert {row["name"] for row in tables} == set(PLACE_OF)
    assert set(DISTRIBUTED.values()) == {"brand_id"}


@dataclass(frozen=True)
class UniqueKey:
    """`text` is what follows the table's name in the definition of the key's index."""

    table: str
    columns: tuple[str, ...]
    text: str

    @property
    def determining(self) -> set[str]:
        return DETERMINING & {f"{self.table}.{column}" for column in self.columns}

    def with_column(self, column: str) -> str:
        """The definition of an index whose key holds the column."""
        if column in self.columns:
            return self.text
        return self.text.replace("(", f"({column}, ", 1)


async def unique_keys(connection: Connection) -> list[UniqueKey]:
    indexes = await connection.fetch(
        """
        SELECT c.relname::text AS table, pg_get_indexdef(i.indexrelid) AS definition,
               ARRAY(SELECT a.attname::text
                       FROM unnest(i.indkey[:i.indnkeyatts - 1]) AS key (number)
                       JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = key.number
                    ) AS columns
          FROM pg_index i
          JOIN pg_class c ON c.oid = i.indrelid
         WHERE i.indisunique AND c.relname = ANY($1::text[]) AND NOT c.relispartition
           AND c.relnamespace = 'public'::regnamespace
        """,
        list(DISTRIBUTED),
    )
    return [
        UniqueKey(row["table"], tuple(row["columns"]), row["definition"].partition(" USING ")[2])
        for row in indexes
    ]


async def test_every_unique_key_holds_the_column_or_determines_it(connection: Connection) -> None:
    keys = await unique_keys(connection)
    assert len(keys) > len(DISTRIBUTED)
    for key in keys:
        holds = DISTRIBUTED[key.table] in key.columns
        assert holds or key.determining, f"{key.table} {key.columns}: no machine can check this key"
    used = {name for key in keys for name in key.determining}
    assert used == DETERMINING, "docs/scale.md explains a key that is no more"


async def shard(connection: Connection) -> None:
    """Make the distributed tables in a schema that the session finds first."""
    await connection.execute("CREATE SCHEMA shards; SET search_path = shards, public")
    for table, column in DISTRIBUTED.items():
        added = f", {column} bytea" if table in GAIN_THE_COLUMN else ""
        await connection.execute(
            f"CREATE TABLE shards.{table} (LIKE public.{table} INCLUDING DEFAULTS"
            f" INCLUDING CONSTRAINTS INCLUDING IDENTITY{added}) PARTITION BY HASH ({column})"
        )
        for number in range(SHARDS):
            await connection.execute(
                f"CREATE TABLE shards.{table}_{number} PARTITION OF shards.{table}"
                f" FOR VALUES WITH (MODULUS {SHARDS}, REMAINDER {number})"
            )
    for key in await unique_keys(connection):
        definition = key.with_column(DISTRIBUTED[key.table])
        await connection.execute(f"CREATE UNIQUE INDEX ON shards.{key.table} USING {definition}")


class WatchedConnection:
    """A connection that notes the hash partitions that its statements touch.

    `spread` are the statements that touch several shards, each with the partitions.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.touched: set[int] = set()
        self.spread: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name not in {"fetch", "fetchrow", "fetchval", "execute"}:
            return getattr(self._connection, name)

        async def run(sql: str, *arguments: object) -> Any:
            await self._explain(sql, arguments)
            return await getattr(self._connection, name)(sql, *arguments)

        return run

    async def _explain(self, sql: str, arguments: tuple[object, ...]) -> None:
        block = self._connection.transaction()
        await block.start()
        try:
            text = await self._connection.fetchval(
                "EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) " + sql, *arguments
            )
        finally:
            await block.rollback()
        touched = {
            (table, int(number))
            for node in nodes(json.loads(text)[0]["Plan"])
            for table, _, number in [node.get("Relation Name", "").rpartition("_")]
            if table in DISTRIBUTED and number.isdecimal() and node["Actual Loops"] > 0
        }
        shards = {number for _, number in touched}
        self.touched |= shards
        if len(shards) > 1:
            self.spread.append(f"{sorted(touched)}: {sql}")


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


def an_event(brand: Address, number: int) -> NewEvent:
    email = f"user{number}@shop.example"
    subject = f"did:privy:{number}"
    row = EventRow(
        id=uuid4(),
        brand_id=brand,
        event_type="form_submit",
        email=email,
        user_id=users.user_id(subject, email),
        domain="shop.example",
        source=None,
        user_identifier=None,
        metadata={},
        ltz=5,
        wallet=a_wallet(number),
    )
    claim = ClaimRecord(1, row.id, NOW)
    key = (brand, "form_submit", email)
    return NewEvent(
        row, key, claim, subject, maximum=1_000, nonce=f"nonce-{number}", request_id=uuid4()
    )


async def ask_as_the_brand(connection: Connection, brand: Address) -> None:
    """The statements of a brand's requests: events, signed requests, its site and its lists."""
    new = [an_event(brand, number) for number in range(20)]
    queries = [
        ClaimQuery(event.key, event.key[:2], brand, (brand, f"nonce-{number}"))
        for number, event in enumerate(new)
    ]
    assert not (await events.read_snapshot(connection, queries)).claims
    assert len(await events.insert(connection, new)) == len(new)
    snapshot = await events.read_snapshot(connection, queries)
    assert (len(snapshot.claims), len(snapshot.nonces)) == (len(new), len(new))
    assert len(await list_events(connection, EventSelection(brand=brand, limit=30))) == len(new)
    assert await perk_charges.use_nonce(connection, brand, "another nonce", uuid4())
    await registrations.wallets_this_hour(connection, brand)
    member = Member(brand, "shop.example", 1, "ann", uuid4(), a_wallet(1), None)
    await check_ins.read_snapshot(connection, member)
    await members.find(connection, brand, "shop.example", 1)
    await leaderboard_totals.read_top(connection, brand, "ltz_earned", "week", date(2026, 3, 9), 10)


async def test_a_brands_statements_touch_the_brands_shard_alone(connection: Connection) -> None:
    await shard(connection)
    # Small tables are read whole otherwise, which says nothing of large ones.
    await connection.execute("SET enable_seqscan = off; SET enable_hashjoin = off")
    await connection.execute("SET enable_mergejoin = off; SET plan_cache_mode = force_custom_plan")
    shard_of = {}
    for brand in BRANDS:
        await connection.execute(
            "INSERT INTO brands (id, name, configuration, revision) VALUES ($1, 'a', '{}', 1)",
            brand,
        )
        watched = WatchedConnection(connection)
        await ask_as_the_brand(cast("Connection", watched), brand)
        assert not watched.spread, "\n".join(watched.spread)
        (shard_of[brand],) = watched.touched
    assert len(set(shard_of.values())) > 1
    for table in ("events", "rewards", "event_claims", "event_claim_totals", "request_nonces"):
        stored = await connection.fetch(
            f"SELECT DISTINCT brand_id, tableoid::regclass::text AS shard FROM shards.{table}"
        )
        assert {Address(row["brand_id"]): int(row["shard"][-1]) for row in stored} == shard_of
