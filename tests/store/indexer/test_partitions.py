"""Partitions by height exist before a commit needs them, once, wherever the tables are."""

import asyncio

from ltzd.rules.indexer.log_position import LogPosition
from ltzd.rules.indexer.mint_facts import Transfer
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.indexer import chains, mint_facts, partitions
from ltzd.store.indexer.chains import BlockRow
from ltzd.store.migrations import partitioning
from ltzd.store.migrations.partitioning import FIRST_WIDTH, TABLES
from ltzd.values import ZERO_ADDRESS
from tests.support.rows.core import a_hash, a_wallet

FAR = 250_000_000
"""A height of a chain with blocks of a quarter second."""


async def commit(connection: Connection, number: int) -> None:
    """Writes a block with a transfer as the follower does."""
    position = LogPosition(number, a_hash(str(number)), 0, a_hash(f"transaction {number}"))
    block = BlockRow(number, position.block_hash, a_hash(str(number - 1)), 1_700_000_000)
    await chains.insert_blocks(connection, [block])
    await mint_facts.insert(connection, [Transfer(position, ZERO_ADDRESS, a_wallet(1), 5)])


async def bounds(connection: Connection, name: str) -> list[str]:
    rows = await connection.fetch(
        """
        SELECT c.relname || ' ' || pg_get_expr(c.relpartbound, c.oid) AS bound
          FROM pg_inherits i
          JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = to_regclass($1)
         ORDER BY c.oid
        """,
        name,
    )
    return [row["bound"].replace("FOR VALUES ", "") for row in rows]


async def test_a_block_in_the_first_partition_needs_no_other(pool: Pool) -> None:
    async with transaction(pool) as connection:
        await commit(connection, FIRST_WIDTH - 1)

    async with session(pool) as connection:
        for name in TABLES:
            assert await bounds(connection, name) == [
                f"{name}_from_0 FROM (MINVALUE) TO ('{FIRST_WIDTH}')"
            ]


async def test_a_block_above_the_newest_partition_gets_one_that_continues_it(pool: Pool) -> None:
    async with transaction(pool) as connection:
        await commit(connection, FIRST_WIDTH)
    async with transaction(pool) as connection:
        await commit(connection, FAR)

    upper = (FAR // FIRST_WIDTH + 1) * FIRST_WIDTH
    async with session(pool) as connection:
        assert await bounds(connection, "mints") == [
            f"mints_from_0 FROM (MINVALUE) TO ('{FIRST_WIDTH}')",
            f"mints_from_{FIRST_WIDTH} FROM ('{FIRST_WIDTH}') TO ('{2 * FIRST_WIDTH}')",
            f"mints_from_{2 * FIRST_WIDTH} FROM ('{2 * FIRST_WIDTH}') TO ('{upper}')",
        ]
        assert await connection.fetchval("SELECT count(*) FROM transfers") == 2
        assert await chains.newest_blocks(connection, FAR, 3) == [
            (FAR, a_hash(str(FAR))),
            (FIRST_WIDTH, a_hash(str(FIRST_WIDTH))),
        ]


async def test_processes_that_need_the_same_partition_make_it_once(pool: Pool) -> None:
    async def make() -> None:
        async with transaction(pool) as connection:
            await partitions.ensure(connection, FIRST_WIDTH)

    await asyncio.gather(*(make() for _ in range(6)))

    async with session(pool) as connection:
        assert len(await bounds(connection, "blocks")) == 2


async def test_readers_do_not_wait_for_a_partition_that_is_not_committed_yet(pool: Pool) -> None:
    async with transaction(pool) as writer:
        await commit(writer, FAR)
        async with session(pool) as reader:
            assert await reader.fetchval("SELECT count(*) FROM transfers", timeout=5) == 0
            assert await chains.newest_blocks(reader, FAR, 1) == []


async def test_tables_in_another_schema_get_partitions_of_their_own(pool: Pool) -> None:
    async with transaction(pool) as connection:
        await connection.execute("CREATE SCHEMA fresh; SET LOCAL search_path = fresh, public")
        for name in TABLES:
            await partitioning.create_parent(connection, name, f"public.{name}", "fresh")
        await commit(connection, 5)
        assert await bounds(connection, "fresh.transfers") == [
            f"transfers_from_0 FROM ('0') TO ('{FIRST_WIDTH}')"
        ]
        assert await connection.fetchval("SELECT count(*) FROM fresh.transfers") == 1
        assert await connection.fetchval("SELECT count(*) FROM public.transfers") == 0


async def test_a_new_partition_has_the_privileges_of_its_table(pool: Pool) -> None:
    async with transaction(pool) as connection:
        await connection.execute(
            """
            CREATE ROLE reporter;
            GRANT SELECT ON transfers TO PUBLIC;
            GRANT SELECT ON transfers TO reporter WITH GRANT OPTION;
            """
        )
        await commit(connection, FIRST_WIDTH)
        rights = await connection.fetchval(
            "SELECT relacl::text FROM pg_class WHERE oid = $1::text::regclass",
            f"transfers_from_{FIRST_WIDTH}",
        )
        await connection.execute("DROP OWNED BY reporter; DROP ROLE reporter")
    assert "=r/" in rights
    assert "reporter=r*/" in rights
