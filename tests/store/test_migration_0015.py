"""Migration 0015 renames what is stored, on a database with rows, and changes nothing else."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest_asyncio

from ltzd.rules.event_handler.brand_limits import QuotaKind
from ltzd.store.migrations import upgrades
from tests.support.services.postgres import Databases

TABLES = {
    "claims": "event_claims",
    "claim_totals": "event_claim_totals",
    "local_users": "custodial_users",
    "local_accounts": "custodial_accounts",
    "checkins": "check_ins",
    "streak_standings": "leaderboard_streaks",
    "standing_totals": "leaderboard_totals",
}
COLUMNS = {
    ("chains", "number"): "cursor_number",
    ("chains", "hash"): "cursor_hash",
    ("relays", "takes_turns"): "serialized_per_user",
    ("relays", "worst_wei"): "max_cost_wei",
    ("retired_secrets", "until"): "expires_at",
    ("site_redemptions", "answered_at"): "completed_at",
    ("site_members", "wrong_codes"): "failed_code_count",
    ("site_members", "wrong_since"): "failed_codes_since",
}
USAGE_KINDS = {
    "ltz_a_day": "ltz_per_day",
    "wallets_an_hour": "wallets_per_hour",
    "pregenerations_a_day": "pregenerations_per_day",
    "signed_pregenerations_a_day": "signed_pregenerations_per_day",
}
OLD_WORDS = ("local_", "checkins", "standing", "live_site", "watched_", "in_turn", "_counted")
"""Parts of stored names that are gone."""

ROWS = (
    "INSERT INTO brands (id, name, configuration, revision) VALUES ('{brand}', 'Demo', '{{}}', 1)",
    "INSERT INTO brand_secrets VALUES ('{brand}', 'security_key', 'key', 'sealed')",
    "INSERT INTO retired_secrets VALUES ('{brand}', 'security_key', now(), 'key', 'sealed')",
    "INSERT INTO claims VALUES ('{brand}', 'form_submit', 'ann@shop.example', 3, '{id}', now())",
    "INSERT INTO claim_totals VALUES ('{brand}', 'form_submit', 3, 5)",
    "INSERT INTO local_users VALUES ('ltzd:1', '{wallet}', 'key', 'sealed')",
    "INSERT INTO local_accounts VALUES ('email', 'ann@shop.example', 'ltzd:1', true)",
    "INSERT INTO users VALUES ('{id}', 'ann@shop.example', 'ltzd:1', '{wallet}')",
    "INSERT INTO checkins VALUES ('{brand}', '{wallet}', '2026-03-01', 2, 5, '{id}')",
    "INSERT INTO streak_standings VALUES ('{brand}', 'all', '1970-01-01', '{wallet}', 2)",
    "INSERT INTO standing_totals VALUES ('{brand}', 'streaks', 'all', '1970-01-01', 3, 1)",
    "INSERT INTO chains VALUES (31337, '{hash}', '{wallet}', 1, 4, 9, '{hash}', 12, 5)",
    (
        "INSERT INTO relays (user_address, to_address, data, function, takes_turns, fingerprint, "
        "gas_limit, worst_wei, window_start, state) "
        "VALUES ('{wallet}', '{wallet}', '', 'f', true, '', 21000, 7, now(), 'queued')"
    ),
    (
        "INSERT INTO site_links VALUES ('{id}', '{brand}', 'site.example', 7, '{id}', 'subject', "
        "'{wallet}', 20, now(), now() + interval '1 day')"
    ),
    (
        "INSERT INTO site_members (brand_id, host, site_user_id, username, email_key, user_id, "
        "wallet, link_id, wrong_codes, wrong_since) VALUES ('{brand}', 'site.example', 7, 'ann', "
        "'ann@shop.example', '{id}', '{wallet}', '{id}', 4, now())"
    ),
    (
        "INSERT INTO site_redemptions (id, brand_id, wallet, perk_id, name, category, item_id, "
        "price, confirmation_code, state, answered_at) VALUES ('{id}', '{brand}', '{wallet}', "
        "'{id}', 'Coffee', 'drinks', 1, 5, 'CODE', 'done', now())"
    ),
    (
        "INSERT INTO transactions (chain_id, wallet, nonce, kind, to_address, data, gas_limit, "
        "state) VALUES (31337, '{wallet}', 0, 'mint', '{wallet}', '', 1, 'published')"
    ),
    "INSERT INTO attempts SELECT '{hash}', id, 'raw', 3, 1 FROM transactions",
    *(
        f"INSERT INTO brand_usage VALUES ('{{brand}}', '{kind}', now(), {used}, 9)"
        for used, kind in enumerate(USAGE_KINDS)
    ),
)
VALUES = {
    "brand": "\\x" + "b0" * 20,
    "wallet": "\\x" + "a1" * 20,
    "hash": "\\x" + "77" * 32,
    "id": "6f1c1f2e-0000-4000-8000-000000000001",
}


@pytest_asyncio.fixture
async def url(databases: Databases) -> AsyncIterator[str]:
    """A database at revision 0014 that holds a row of everything that 0015 renames."""
    async with databases.fresh() as url:
        connection = await asyncpg.connect(url)
        await connection.execute("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
        await asyncio.to_thread(upgrades.upgrade, url, "0014")
        for statement in ROWS:
            await connection.execute(statement.format(**VALUES))
        await connection.close()
        yield url


async def _migrate(url: str) -> None:
    await asyncio.to_thread(upgrades.upgrade, url, "0015")


async def test_every_row_of_a_filled_database_is_kept_under_the_new_names(url: str) -> None:
    before = await _rows(url)
    assert all(before[table] for table in TABLES), "each renamed table holds a row"

    await _migrate(url)

    renamed = {
        TABLES.get(table, table): [_renamed(table, row) for row in rows]
        for table, rows in before.items()
        if table != "alembic_version"
    }
    after = await _rows(url)
    assert after.pop("alembic_version") == [{"version_num": "0015"}]
    assert after == renamed
    assert {row["kind"] for row in after["brand_usage"]} >= {kind.value for kind in QuotaKind}


async def test_views_read_the_renamed_tables(url: str) -> None:
    await _migrate(url)

    connection = await asyncpg.connect(url)
    assert await connection.fetchval("SELECT username FROM active_site_links") == "ann"
    assert await connection.fetchval("SELECT max_fee_per_gas FROM open_transactions") == 3
    await connection.close()


async def test_no_stored_name_keeps_an_old_word_and_no_constraint_or_index_is_lost(
    url: str,
) -> None:
    before = await _names(url)

    await _migrate(url)

    after = await _names(url)
    assert [len(names) for names in after] == [len(names) for names in before]
    old_tables = {table for table in TABLES if table in after[0]}
    assert not old_tables
    kept = {name for names in after for name in names if any(word in name for word in OLD_WORDS)}
    assert kept == set()


async def test_constraints_still_refuse_what_they_refused(url: str) -> None:
    await _migrate(url)

    connection = await asyncpg.connect(url)
    refused = (
        ("UPDATE event_claim_totals SET claims = 6", "claims_within_maximum"),
        ("UPDATE brand_usage SET used = 10", "usage_within_maximum"),
        ("UPDATE brand_usage SET kind = 'ltz_a_day'", "brand_usage_kind_check"),
        ("UPDATE relays SET window_start = NULL", "relays_window_start_check"),
        ("UPDATE site_redemptions SET completed_at = NULL", "site_redemptions_completed"),
    )
    broken = []
    for statement, _ in refused:
        try:
            await connection.execute(statement)
        except asyncpg.CheckViolationError as error:
            broken.append(error.constraint_name)
    await connection.close()
    assert broken == [constraint for _, constraint in refused]


def _renamed(table: str, row: dict[str, Any]) -> dict[str, Any]:
    named = {COLUMNS.get((table, column), column): value for column, value in row.items()}
    if table == "brand_usage":
        named["kind"] = USAGE_KINDS[row["kind"]]
    return named


async def _rows(url: str) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table, as JSON, by the table's name."""
    connection = await asyncpg.connect(url)
    tables = await connection.fetch(
        "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY 1"
    )
    rows = {
        table: [
            json.loads(row[0])
            for row in await connection.fetch(f"SELECT to_jsonb(t) FROM {table} t ORDER BY t::text")
        ]
        for (table,) in tables
    }
    await connection.close()
    rows["brand_usage"].sort(key=lambda row: int(row["used"]))
    return rows


async def _names(url: str) -> list[list[str]]:
    """The names of tables, views and indexes, then of constraints, then of columns."""
    connection = await asyncpg.connect(url)
    questions = (
        "SELECT relname FROM pg_class WHERE relnamespace = 'public'::regnamespace",
        (
            "SELECT conname FROM pg_constraint "
            "WHERE connamespace = 'public'::regnamespace AND contype <> 'n'"
        ),
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'public'",
    )
    names = [[row[0] for row in await connection.fetch(question)] for question in questions]
    await connection.close()
    return names
