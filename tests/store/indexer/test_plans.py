"""Hot queries touch few pages of a large index; `make bench-store` asks the same at 10^7 rows."""

from benchmarks.harness import event_rows
from benchmarks.harness.event_queries import EVENT_QUERIES
from benchmarks.harness.hot_queries import HOT_QUERIES, Sample, touched
from benchmarks.harness.index_rows import fill
from ltzd.store.database import Pool, session
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
