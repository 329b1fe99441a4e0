"""Partitions of events by time: created ahead, filled from the default one, each query pruned."""

import asyncio
from itertools import pairwise
from uuid import UUID, uuid4

from ltzd.rules.event_handler.event_ids import event_id, first_id
from ltzd.rules.event_handler.event_partitions import AHEAD, LEAST_WIDTH, USUAL_WIDTH
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.event_handler import partitions
from ltzd.store.migrations.event_partitions import DEFAULT, EVENTS, FIRST
from tests.support.rows.core import BRAND

NOW = 1_800_000_000 // USUAL_WIDTH * USUAL_WIDTH + 1_000
FIRST_OF_NOW = f"{EVENTS}_from_{NOW - 1_000}"


async def add(connection: Connection, id_: UUID, brand: bytes = BRAND) -> None:
    await connection.execute(
        """
        INSERT INTO events (id, brand_id, event_type, email, user_id, domain, ltz, created_at)
        VALUES ($1, $2, 'x', 'a@x.example', $1, 'x.example', 5, to_timestamp($3))
        """,
        id_,
        brand,
        NOW,
    )


async def places(connection: Connection) -> dict[str, int]:
    rows = await connection.fetch(
        "SELECT tableoid::regclass::text AS name, count(*) FROM events GROUP BY 1"
    )
    return {row["name"]: row["count"] for row in rows}


async def test_partitions_reach_beyond_the_next_days_and_follow_one_another(pool: Pool) -> None:
    async with session(pool) as connection:
        for days in range(0, 400, 20):
            await partitions.ensure(connection, NOW + days * 86_400)
        listed = await partitions.list_partitions(connection)

    assert [listed[0].name, listed[1].name] == [FIRST, FIRST_OF_NOW]
    assert listed[-1].upper >= first_id(NOW + 380 * 86_400 + AHEAD)
    for before, after in pairwise(listed[1:]):
        assert before.upper == after.lower
    assert len(listed) > 10


async def test_an_event_is_in_the_partition_of_its_time_or_else_in_the_default_one(
    pool: Pool,
) -> None:
    async with session(pool) as connection:
        await partitions.ensure(connection, NOW)
        for id_ in (
            uuid4(),
            event_id(NOW, 7),
            event_id(NOW - 365 * 86_400, 7),
            event_id(NOW + 365 * 86_400, 7),
            UUID("ffffffff-ffff-4fff-bfff-ffffffffffff"),
        ):
            await add(connection, id_)
        assert await places(connection) == {FIRST: 1, FIRST_OF_NOW: 1, DEFAULT: 3}


async def test_events_that_wait_in_the_default_partition_are_moved_to_theirs(pool: Pool) -> None:
    async with session(pool) as connection:
        for number in range(5):
            await add(connection, event_id(NOW - number * 40_000, number))
        assert await places(connection) == {DEFAULT: 5}

        await partitions.ensure(connection, NOW)

        listed = await partitions.list_partitions(connection)
        assert await places(connection) == {listed[1].name: 5}


async def test_events_at_the_edges_of_a_new_partition_go_to_their_sides(pool: Pool) -> None:
    lower, upper = NOW - 1_000, NOW - 1_000 + USUAL_WIDTH
    async with session(pool) as connection:
        for id_ in (first_id(lower), UUID(int=first_id(upper).int - 1), first_id(upper)):
            await add(connection, id_)
        await partitions.ensure(connection, NOW)

        assert await places(connection) == {FIRST_OF_NOW: 2, DEFAULT: 1}


async def test_many_that_wait_stay_and_the_next_partition_begins_after_them(pool: Pool) -> None:
    async with session(pool) as connection:
        await connection.execute(
            """
            INSERT INTO events (id, brand_id, event_type, user_id, domain, ltz)
            SELECT ($1 || lpad(to_hex(n), 12, '0'))::uuid, $2, 'x', gen_random_uuid(), 'x', 5
              FROM generate_series(1, 50001) AS n
            """,
            str(event_id(NOW, 0))[:24],
            BRAND,
        )
        await partitions.ensure(connection, NOW)

        assert await places(connection) == {DEFAULT: 50_001}
        lower = (await partitions.list_partitions(connection))[1].lower
        assert lower is not None
        assert first_id(NOW) < lower <= first_id(NOW + LEAST_WIDTH)
        await add(connection, event_id(NOW + LEAST_WIDTH, 1))
        assert len(await places(connection)) == 2


async def test_processes_that_need_the_same_partition_make_it_once(pool: Pool) -> None:
    async def make() -> None:
        async with session(pool) as connection:
            await partitions.ensure(connection, NOW)

    await asyncio.gather(*(make() for _ in range(6)))

    async with session(pool) as connection:
        assert len(await partitions.list_partitions(connection)) == 2


async def test_a_locked_table_is_left_for_the_next_call(pool: Pool) -> None:
    async with transaction(pool) as writer:
        await add(writer, event_id(NOW, 1))
        async with session(pool) as connection:
            await partitions.ensure(connection, NOW)
            assert len(await partitions.list_partitions(connection)) == 1
    async with session(pool) as connection:
        await partitions.ensure(connection, NOW)
        assert len(await partitions.list_partitions(connection)) == 2


async def test_a_new_partition_has_the_privileges_and_indexes_of_its_table(pool: Pool) -> None:
    async with session(pool) as connection:
        await connection.execute("GRANT SELECT ON events TO PUBLIC")
        await partitions.ensure(connection, NOW)
        rights = await connection.fetchval(
            "SELECT relacl::text FROM pg_class WHERE oid = $1::text::regclass", FIRST_OF_NOW
        )
        indexes = await connection.fetch(
            "SELECT indexdef FROM pg_indexes WHERE tablename = $1 ORDER BY 1", FIRST_OF_NOW
        )
    assert "=r/" in rights
    assert [row[0].partition(" USING ")[2] for row in indexes] == [
        "btree (brand_id, created_at)",
        "btree (id)",
    ]
