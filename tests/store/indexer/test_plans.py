"""Hot queries touch few pages of a large index; `make bench-store` asks the same at 10^7 rows."""

from contextlib import suppress

from benchmarks.harness import event_rows
from benchmarks.harness.event_queries import EVENT_QUERIES, NEW_EVENTS, new_events
from benchmarks.harness.hot_queries import HOT_QUERIES, Sample, touched
from benchmarks.harness.index_rows import fill
from ltzd.store.database import Pool, session
from ltzd.store.event_handler import events
from ltzd.store.migrations.partitioning import TABLES

SAMPLE = Sample(rows=40_000, stride=80)
"""Heights that spread over four partitions."""


async def test_hot_queries_touch_few_pages_with_and_without_statistics(pool: Pool) -> None:
    async with session(pool) as connection:
        await fill(connection, SAMPLE.rows, SAMPLE.stride)
        large = {
            row["name"]
            for row in await connection.fetch(
                "SELECT relname::text AS name FROM pg_class "
                "WHERE relkind = 'r' AND pg_relation_size(oid) > 80000"
            )
        }
        assert len(large) > 2 * len(TABLES)
        for prepare in ("SELECT 1", "ANALYZE"):
            await connection.execute(prepare)
            for query in HOT_QUERIES:
                pages, scanned = await touched(connection, query, SAMPLE)
                assert scanned & large == set(), query.name
                assert 0 < pages <= query.pages, query.name


async def test_statements_over_events_touch_few_pages_of_their_partitions(pool: Pool) -> None:
    async with session(pool) as connection:
        await event_rows.fill(connection, SAMPLE.rows)
        large = {
            row["name"]
            for row in await connection.fetch(
                "SELECT relname::text AS name FROM pg_class "
                "WHERE relkind = 'r' AND relname ~ '^(events|users)' "
                "AND pg_relation_size(oid) > 80000"
            )
        }
        assert len(large) > 10
        for prepare in ("SELECT 1", "ANALYZE"):
            await connection.execute(prepare)
            for query in EVENT_QUERIES:
                pages, scanned = await touched(connection, query, SAMPLE)
                assert scanned & large == set(), query.name
                assert 0 < pages <= query.pages, query.name


async def test_events_look_up_their_users_alone_by_a_plan_that_was_made_for_a_few(
    pool: Pool,
) -> None:
    """A connection keeps a plan until PostgreSQL has new statistics, a minute or more later."""
    few = Sample(rows=1_000, stride=80)
    async with session(pool) as connection:
        await event_rows.fill(connection, few.rows)
        with suppress(_Undone):
            async with connection.transaction():
                await events.insert(connection, new_events(few))
                raise _Undone
        await connection.execute(
            """
            INSERT INTO users (id, email_key, identity_subject, wallet)
            SELECT gen_random_uuid(), 'user' || n || '@other.example', 'did:other:' || n,
                   substring(sha256(int8send(n)) FOR 20)
              FROM generate_series(1, 5000) AS n
            """
        )
        async with connection.transaction():
            assert len(await events.insert(connection, new_events(few))) == NEW_EVENTS
            read = await connection.fetchval(
                "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables "
                "WHERE relname = 'users'"
            )
    assert NEW_EVENTS <= read <= 4 * NEW_EVENTS


class _Undone(Exception): ...
