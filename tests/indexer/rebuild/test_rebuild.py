"""A rebuild gives the tables that indexing has given, whatever was in them before."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

import asyncpg
import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd.errors import LaneLost
from ltzd.indexer.contracts import indexed_contracts
from ltzd.indexer.follower import Follower
from ltzd.store import database
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import chains
from ltzd.store.indexer.rebuild import orders, swap
from ltzd.store.indexer.rebuild.fresh_tables import FRESH, REPLACED
from ltzd.values import LTZ, ZERO_ADDRESS, reward_reference
from tests.indexer.test_other_contracts import (
    ANN,
    DERIVED,
    FACTS,
    IndexedChain,
    a_follower,
    live,
)
from tests.support.chain.fake_node import (
    ADDRESSES,
    CHAIN_ID,
    CONTRACTS,
    FakeNode,
    minted_log,
    transfer_log,
)
from tests.support.chain.mortal_pool import Killed, Life
from tests.support.chain.rebuilding import (
    PAUSES,
    a_rebuilder,
    is_over,
    order,
    rebuild,
    rebuilding,
)
from tests.support.rows.core import a_hash, a_wallet, queue_reward, running, value
from tests.support.waiting import until

_TABLES = (*DERIVED, *FACTS, "mints", "blocks")
_REBUILT = ["blocks", *(table for contract in CONTRACTS for table in contract.tables)]
_STATE = "SELECT state FROM rebuilds ORDER BY id DESC LIMIT 1"
_ERROR = "SELECT coalesce(error, '') FROM rebuilds ORDER BY id DESC LIMIT 1"
_MINTED = "SELECT array_agg(mint_block_number ORDER BY seq) FROM rewards"


@dataclass
class Indexed(IndexedChain):
    """A chain of every kind of fact, indexed to the head; its last block is not final."""

    url: str
    rewards: list[UUID]

    async def all_tables(self) -> dict[str, list[tuple[Any, ...]]]:
        """Without the times at which blocks were seen."""
        tables = await self.tables(*DERIVED, *FACTS, "mints")
        async with session(self.pool) as connection:
            rows = await connection.fetch("SELECT number, hash, mined_at FROM blocks")
        return tables | {"blocks": sorted(map(tuple, rows))}

    async def rebuild(self) -> None:
        await rebuild(self.pool, self.url, self.node)


@pytest_asyncio.fixture
async def indexed(pool: Pool, database_url: str) -> AsyncIterator[Indexed]:
    node = FakeNode()
    node.final_depth = 1
    chain = await a_follower(pool, database_url, node)
    async with transaction(pool) as connection:
        rewards = [await queue_reward(connection, ANN, 7) for _ in range(2)]
        for seq, reward in enumerate(rewards):
            await connection.execute("UPDATE rewards SET seq = $2 WHERE id = $1", reward, seq)
    live(node)
    for seq, reward in enumerate(rewards):
        mint = minted_log(ANN, reward_reference(reward, 1, seq), 7 * LTZ)
        node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 7 * LTZ), mint])
    indexed = Indexed(pool, node, chain.follower, database_url, rewards)
    await indexed.catch_up()
    await chain.follower.step()
    assert await value(pool, _MINTED) == [5, 6]
    yield indexed


@pytest.mark.parametrize("from_block", [0, 3, 100])
async def test_a_rebuild_gives_the_same_tables_again(indexed: Indexed, from_block: int) -> None:
    whole = await indexed.all_tables()

    await order(indexed.pool, from_block)
    await indexed.rebuild()

    assert await indexed.all_tables() == whole
    assert await value(indexed.pool, _STATE) == "done"
    assert await value(indexed.pool, _MINTED) == [5, 6]


async def test_what_was_missing_wrong_and_foreign_is_right_after_a_rebuild(
    indexed: Indexed,
) -> None:
    whole = await indexed.all_tables()
    async with transaction(indexed.pool) as connection:
        foreign = await queue_reward(connection, ANN, 9)
        await connection.execute("UPDATE rewards SET seq = 2 WHERE id = $1", foreign)
        for statement in (
            "DELETE FROM transfers WHERE block_number = 2",
            "UPDATE balances SET amount = amount + 1",
            "DELETE FROM mints WHERE block_number = 6",
            "UPDATE perk_claims SET price = 99",
            "UPDATE tokens SET remaining = 2",
        ):
            await connection.execute(statement)
        await connection.execute(
            "UPDATE rewards SET mint_block_number = NULL, mint_block_hash = NULL,"
            " mint_transaction_hash = NULL WHERE seq = 1"
        )
        await connection.execute(
            "UPDATE rewards SET mint_block_number = 3, mint_block_hash = $2,"
            " mint_transaction_hash = $2 WHERE id = $1",
            foreign,
            a_hash("a block of nobody"),
        )

    await order(indexed.pool)
    await indexed.rebuild()

    assert await indexed.all_tables() == whole
    assert await value(indexed.pool, _MINTED) == [5, 6, None]


async def test_facts_below_the_block_of_the_order_are_kept_as_they_are(indexed: Indexed) -> None:
    async with transaction(indexed.pool) as connection:
        await connection.execute("UPDATE perk_claims SET price = 99")  # in block 2
        await connection.execute("DELETE FROM charge_redemptions")  # in block 3
    logs_calls = indexed.node.call_counts["eth_getLogs"]

    await order(indexed.pool, 3)
    await indexed.rebuild()

    assert await value(indexed.pool, "SELECT price FROM perk_claims") == 99
    assert await value(indexed.pool, "SELECT count(*) FROM charge_redemptions") == 1
    assert indexed.node.call_counts["eth_getLogs"] > logs_calls


# --- the swap ---------------------------------------------------------------------------------


async def _layout(pool: Pool) -> list[tuple[Any, ...]]:
    """Columns, keys, indexes, parameters, privileges and views of the live schema."""
    async with session(pool) as connection:
        rows = await connection.fetch(
            """
            SELECT relname::text, relkind::text, coalesce(reloptions::text, ''),
                   coalesce(relacl::text, ''), coalesce(pg_get_partkeydef(c.oid), ''),
                   CASE WHEN relkind = 'v' THEN pg_get_viewdef(c.oid)
                        WHEN relkind IN ('i', 'I') THEN pg_get_indexdef(c.oid) ELSE '' END,
                   ARRAY(SELECT attname || ' ' || format_type(atttypid, atttypmod) || attnotnull
                           FROM pg_attribute
                          WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped
                          ORDER BY attnum)::text,
                   ARRAY(SELECT conname || ' ' || pg_get_constraintdef(k.oid)
                           FROM pg_constraint k
                          WHERE conrelid = c.oid
                          ORDER BY conname)::text
              FROM pg_class c
             WHERE relnamespace = current_schema()::regnamespace AND NOT relispartition
             ORDER BY relname
            """
        )
    return [tuple(row) for row in rows]


async def _left_behind(pool: Pool) -> list[str]:
    async with session(pool) as connection:
        rows = await connection.fetch(
            "SELECT relnamespace::regnamespace || '.' || relname AS name FROM pg_class"
            " WHERE relnamespace = ANY(ARRAY[$1, $2]::regnamespace[]) AND relkind IN ('r', 'p')",
            FRESH,
            REPLACED,
        )
    return [row["name"] for row in rows]


async def test_a_rebuild_leaves_layout_privileges_and_views_as_they_were(indexed: Indexed) -> None:
    async with session(indexed.pool) as connection:
        await connection.execute("GRANT SELECT ON balances, transfers TO PUBLIC")
        await connection.execute("CREATE VIEW rich AS SELECT * FROM balances WHERE amount > 10")
        await connection.execute("CREATE VIEW richest AS SELECT max(amount) AS amount FROM rich")
    before = await _layout(indexed.pool)

    await order(indexed.pool)
    await indexed.rebuild()

    assert await _layout(indexed.pool) == before
    assert await _left_behind(indexed.pool) == [f"{FRESH}.chains"]
    node = indexed.node
    node.mine(logs=[transfer_log(ZERO_ADDRESS, a_wallet(77), 10**30)])
    await (await a_follower(indexed.pool, indexed.url, node)).catch_up()
    assert await value(indexed.pool, "SELECT amount FROM richest") == 10**30


_INDEXES = """
    SELECT array_agg(indexdef ORDER BY indexdef) FROM pg_indexes
     WHERE schemaname = current_schema() AND tablename !~ '_from_'
"""


async def test_a_rebuild_finds_views_and_indexes_of_a_schema_whose_name_needs_quotes(
    indexed: Indexed,
) -> None:
    async with session(indexed.pool) as connection:
        await connection.execute(
            """
            CREATE VIEW rich AS SELECT * FROM balances WHERE amount > 10;
            ALTER SCHEMA public RENAME TO "the ""LTZ"" books";
            DO $$ BEGIN
              EXECUTE format('ALTER DATABASE %I SET search_path = "the ""LTZ"" books"',
                             current_database());
            END $$;
            """
        )
    pool = await database.open_pool(indexed.url)
    try:
        whole = await value(pool, "SELECT array_agg(amount ORDER BY amount) FROM rich")
        indexes = await value(pool, _INDEXES)
        await value(pool, "UPDATE balances SET amount = amount + 1")
        await order(pool)
        await rebuild(pool, indexed.url, indexed.node)

        assert await value(pool, _STATE) == "done"
        assert await value(pool, "SELECT array_agg(amount ORDER BY amount) FROM rich") == whole
        assert await value(pool, _INDEXES) == indexes
    finally:
        pool.terminate()


async def test_readers_of_every_pool_notice_nothing_of_a_swap(
    indexed: Indexed, database_url: str
) -> None:
    """Their statements are prepared before the swap, and read the fresh tables after it."""
    reads = [
        "SELECT amount FROM balances WHERE wallet = $1",
        "SELECT b.hash FROM tokens t JOIN blocks b ON number = block_number WHERE $1 <> ''::bytea",
        "SELECT count(*) FROM skipped_rewards WHERE $1 <> ''::bytea",
        "SELECT count(*) FROM site_redemption_payments WHERE $1 <> ''::bytea",
        "SELECT * FROM transfers WHERE recipient = $1 ORDER BY block_number, log_index",
    ]
    pools = [await database.open_pool(database_url, size=2) for _ in range(3)]
    answers: set[str] = set()
    rounds = [0] * len(pools)

    async def read(number: int) -> None:
        while True:
            async with transaction(pools[number]) as connection:
                rows = [await connection.fetch(statement, ANN) for statement in reads]
            answers.add(repr(rows))
            rounds[number] += 1
            await asyncio.sleep(0)

    async def read_on(since: list[int]) -> bool:
        return all(now > before + 2 for now, before in zip(rounds, since, strict=True))

    try:
        async with running(*(read(number) for number in range(len(pools)))):
            await until(lambda: read_on([0] * len(pools)))
            for _ in range(2):
                await order(indexed.pool)
                await indexed.rebuild()
                await until(partial(read_on, list(rounds)))
    finally:
        for reader in pools:
            reader.terminate()
    assert len(answers) == 1


async def test_a_swap_waits_for_a_long_reader_and_lets_the_others_read(
    indexed: Indexed, database_url: str
) -> None:
    connection = await database.connect(database_url, "a long report")
    report = connection.transaction()
    await report.start()
    await connection.fetch("SELECT * FROM balances")
    await order(indexed.pool)

    async with rebuilding(indexed.pool, indexed.url, indexed.node):
        await until(lambda: _is(indexed.pool, _ERROR, "holds a lock"))
        for _ in range(20):
            assert await value(indexed.pool, "SELECT count(*) FROM balances") > 0
        assert await value(indexed.pool, _STATE) == "filling"
        await report.rollback()
        await until(lambda: is_over(indexed.pool))
    await connection.close()


async def _is(pool: Pool, query: str, part: str) -> bool:
    return part in await value(pool, query)


async def test_the_live_index_follows_the_head_during_a_rebuild(
    indexed: Indexed, database_url: str
) -> None:
    node = indexed.node
    follower = (await a_follower(indexed.pool, database_url, node)).follower
    await order(indexed.pool)
    async with running(follower.run()), rebuilding(indexed.pool, database_url, node):

        async def grows() -> bool:
            node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 1)])
            head = node.head.number
            await until(lambda: _has_reached(indexed.pool, head))
            return await is_over(indexed.pool)

        await until(grows)
    blocks = node.head.number - 6
    assert await value(indexed.pool, "SELECT count(*) FROM transfers WHERE amount = 1") == blocks


async def _has_reached(pool: Pool, head: int) -> bool:
    return bool(await value(pool, "SELECT cursor_number FROM chains") >= head)


async def test_a_rebuild_lets_a_stopped_index_go_on(indexed: Indexed, database_url: str) -> None:
    async with session(indexed.pool) as connection:
        epoch = await chains.epoch(connection, CHAIN_ID)
        await chains.stop(connection, CHAIN_ID, epoch, "a reason")
    follower = (await a_follower(indexed.pool, database_url, indexed.node)).follower
    async with running(follower.run()):
        await order(indexed.pool)
        await indexed.rebuild()
        indexed.node.mine()
        await until(lambda: _has_reached(indexed.pool, indexed.node.head.number))
    assert await value(indexed.pool, "SELECT stopped_reason FROM chains") is None


async def test_a_reorg_during_a_rebuild_touches_no_reward_before_the_swap(
    indexed: Indexed, database_url: str
) -> None:
    """The fresh index undoes block 6 by itself; the live one still shows its mint."""
    await order(indexed.pool)
    life = Life(12)
    with pytest.raises(Killed):
        await a_rebuilder(indexed.pool, database_url, indexed.node, life=life).run()
    assert await value(indexed.pool, _STATE) == "filling"
    indexed.node.reorg(1)
    indexed.node.mine(2)
    assert await value(indexed.pool, _MINTED) == [5, 6]

    follower = await a_follower(indexed.pool, database_url, indexed.node)
    await follower.catch_up()
    await indexed.rebuild()
    assert await value(indexed.pool, _MINTED) == [5, None]


# --- deaths -----------------------------------------------------------------------------------


async def test_a_rebuild_goes_on_where_a_killed_process_ended(
    indexed: Indexed, database_url: str
) -> None:
    """Each process dies a few database transactions later in its life than the one before."""
    whole = await indexed.all_tables()
    states = set()
    for uses in range(1, 61, 6):
        if await is_over(indexed.pool):
            await order(indexed.pool, 4)
        with pytest.raises(Killed):
            await a_rebuilder(indexed.pool, database_url, indexed.node, life=Life(uses)).run()
        states.add(await value(indexed.pool, _STATE))
        assert await indexed.all_tables() == whole
    await indexed.rebuild()
    assert await indexed.all_tables() == whole
    assert await _left_behind(indexed.pool) == [f"{FRESH}.chains"]
    assert {"filling", "swapped"} <= states


async def test_a_repair_of_kept_facts_begins_the_rebuild_again(
    indexed: Indexed, database_url: str
) -> None:
    await order(indexed.pool, 4)
    with pytest.raises(Killed):
        await a_rebuilder(indexed.pool, database_url, indexed.node, life=Life(20)).run()
    async with transaction(indexed.pool) as connection:
        await orders.restart_if_kept(connection, 4)
        assert await connection.fetchval(_STATE) in ("copying", "filling")
        await connection.execute("UPDATE perk_claims SET price = 99")
        await orders.restart_if_kept(connection, 2)
        assert await connection.fetchval(_STATE) == "ordered"
    await indexed.rebuild()
    assert await value(indexed.pool, "SELECT price FROM perk_claims") == 99


async def test_of_two_processes_one_rebuilds(indexed: Indexed, database_url: str) -> None:
    whole = await indexed.all_tables()
    rebuilders = [a_rebuilder(indexed.pool, database_url, indexed.node) for _ in range(2)]
    async with running(*(rebuilder.run() for rebuilder in rebuilders)):
        for _ in range(3):
            await order(indexed.pool)
            await until(lambda: is_over(indexed.pool))
    assert await indexed.all_tables() == whole


async def test_a_process_that_was_frozen_while_it_filled_writes_nothing_after_the_swap(
    indexed: Indexed, database_url: str
) -> None:
    """The live cursor stays, too, whose epoch and hash the process knows by chance."""
    await order(indexed.pool)
    await indexed.rebuild()
    settings = {"search_path": f"{FRESH}, public"}
    frozen = await database.connect(database_url, "frozen", settings=settings)
    live = await indexed.pool.fetchrow("SELECT epoch, cursor_number, cursor_hash FROM chains")
    with pytest.raises(LaneLost):
        await chains.move_cursor(
            frozen, CHAIN_ID, live["epoch"], live["cursor_hash"], (7, a_hash("7")), 7
        )
    await frozen.close()


async def test_a_full_disk_interrupts_a_rebuild_and_not_the_live_index(
    indexed: Indexed, database_url: str
) -> None:
    await order(indexed.pool)
    with pytest.raises(Killed):
        await a_rebuilder(indexed.pool, database_url, indexed.node, life=Life(6)).run()
    async with session(indexed.pool) as connection:
        await connection.execute(
            "CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN RAISE EXCEPTION 'no space' USING ERRCODE = 'disk_full'; END $$"
        )
        await connection.execute(
            f"CREATE TRIGGER full_disk BEFORE INSERT ON {FRESH}.balances"
            " FOR EACH ROW EXECUTE FUNCTION full_disk()"
        )
    async with rebuilding(indexed.pool, database_url, indexed.node):
        await until(lambda: _is(indexed.pool, _ERROR, "no space (53100)"))
        indexed.node.mine(logs=[transfer_log(ZERO_ADDRESS, ANN, 1)])
        await (await a_follower(indexed.pool, database_url, indexed.node)).catch_up()
        async with session(indexed.pool) as connection:
            await connection.execute("DROP FUNCTION full_disk CASCADE")
        await until(lambda: is_over(indexed.pool))
    assert await value(indexed.pool, _STATE) == "done"


# --- kept facts that contradict each other -----------------------------------------------------


async def _omit_kept_transfers(indexed: Indexed, above: int) -> dict[str, list[tuple[Any, ...]]]:
    """ANN spends what she has received in kept blocks, whose transfers are then moved to `omitted`.

    Returns the tables before.
    """
    indexed.node.mine(logs=[transfer_log(ANN, a_wallet(9), 7 * LTZ)])
    indexed.node.mine()
    await indexed.catch_up()
    await indexed.follower.step()
    whole = await indexed.all_tables()
    async with transaction(indexed.pool) as connection:
        await connection.execute("CREATE TABLE omitted (LIKE transfers)")
        await connection.execute(
            "WITH gone AS (DELETE FROM transfers WHERE recipient = $1 AND block_number > $2"
            " RETURNING *) INSERT INTO omitted SELECT * FROM gone",
            ANN,
            above,
        )
    return whole


@pytest.mark.parametrize("above", [0, 2], ids=["no balance", "a balance below zero"])
async def test_a_rebuild_whose_kept_facts_contradict_each_other_waits_for_their_repair(
    indexed: Indexed, database_url: str, above: int
) -> None:
    """The error is shown, and the process goes on, also the next one that takes the lease."""
    whole = await _omit_kept_transfers(indexed, above)
    await order(indexed.pool, 100)
    for _ in range(2):
        async with rebuilding(indexed.pool, database_url, indexed.node):
            await until(lambda: _is(indexed.pool, _ERROR, "Run: ltzd index repair"))
            assert await value(indexed.pool, _STATE) == "copying"
        await value(indexed.pool, "UPDATE rebuilds SET error = NULL")
    async with rebuilding(indexed.pool, database_url, indexed.node):
        await until(lambda: _is(indexed.pool, _ERROR, "below block 100"))
        async with transaction(indexed.pool) as connection:
            await connection.execute("INSERT INTO transfers SELECT * FROM omitted")
            await orders.restart_if_kept(connection, 2)
        await until(lambda: is_over(indexed.pool))
    assert await value(indexed.pool, _STATE) == "done"
    assert await indexed.all_tables() == whole


async def test_an_error_is_over_once_the_fresh_cursor_moves_on(
    indexed: Indexed, database_url: str
) -> None:
    await order(indexed.pool)
    await value(indexed.pool, "UPDATE rebuilds SET error = 'No node answers'")
    rebuilder = a_rebuilder(indexed.pool, database_url, indexed.node)
    async with session(indexed.pool) as connection:
        rebuild_row = await orders.find_open(connection)
    assert rebuild_row is not None
    for cursor, before, error in ((7, None, True), (7, 7, True), (8, 7, False)):
        await rebuilder._forget_error(rebuild_row, cursor, before)
        assert bool(await value(indexed.pool, _ERROR)) is error


async def test_a_postponed_rebuild_is_cancelled_at_once(
    indexed: Indexed, database_url: str
) -> None:
    await _omit_kept_transfers(indexed, 0)
    rebuild_id = await order(indexed.pool, 100)
    pauses = replace(PAUSES, retry_seconds=3_600.0)
    rebuilder = a_rebuilder(indexed.pool, database_url, indexed.node, pauses=pauses)
    async with running(rebuilder.run()):
        await until(lambda: _is(indexed.pool, _ERROR, "Run: ltzd index repair"))
        async with session(indexed.pool) as connection:
            assert await orders.cancel(connection, rebuild_id)
        await until(lambda: is_over(indexed.pool))
    assert await value(indexed.pool, _STATE) == "cancelled"
    assert await _left_behind(indexed.pool) == [f"{FRESH}.chains"]


# --- orders -----------------------------------------------------------------------------------

_MOVED = indexed_contracts(ADDRESSES | {"perk_nft": a_wallet(0x7777)})
_MOVED_AGAIN = indexed_contracts(ADDRESSES | {"perk_nft": a_wallet(0x8888)})


async def test_contracts_that_change_again_replace_the_rebuild(
    indexed: Indexed, database_url: str
) -> None:
    pool, node = indexed.pool, indexed.node
    await a_follower(pool, database_url, node, contracts=_MOVED)
    with pytest.raises(Killed):
        await a_rebuilder(pool, database_url, node, _MOVED, life=Life(12)).run()
    assert await value(pool, _STATE) == "filling"

    follower: Follower = (
        await a_follower(pool, database_url, node, contracts=_MOVED_AGAIN)
    ).follower
    assert await value(pool, _STATE) == "cancelled"
    async with running(follower.run()), rebuilding(pool, database_url, node, _MOVED_AGAIN):

        async def has_new() -> bool:
            return bool(
                await value(pool, "SELECT contracts[2] FROM chains") == a_wallet(0x8888)
                and await is_over(pool)
            )

        await until(has_new)
        node.mine()
        await until(lambda: _has_reached(pool, node.head.number))
    assert await value(pool, "SELECT count(*) FROM tokens") == 0
    assert await value(pool, "SELECT count(*) FROM items") == 1


async def test_contracts_that_change_back_need_no_rebuild(
    indexed: Indexed, database_url: str
) -> None:
    pool, node = indexed.pool, indexed.node
    whole = await indexed.all_tables()
    await a_follower(pool, database_url, node, contracts=_MOVED)
    assert await value(pool, "SELECT stopped_reason FROM chains") is not None

    again = await a_follower(pool, database_url, node, contracts=CONTRACTS)
    assert await value(pool, "SELECT stopped_reason FROM chains") is None
    assert await value(pool, _STATE) == "cancelled"
    assert await again.tables(*DERIVED, *FACTS) == {
        name: rows for name, rows in whole.items() if name not in ("mints", "blocks")
    }
    node.mine()
    await again.catch_up()


async def test_a_process_with_other_contracts_leaves_a_rebuild_alone(
    indexed: Indexed, database_url: str
) -> None:
    pool, node = indexed.pool, indexed.node
    await a_follower(pool, database_url, node, contracts=_MOVED)
    async with rebuilding(pool, database_url, node, _MOVED_AGAIN):
        await rebuild(pool, database_url, node, _MOVED)
    assert await value(pool, "SELECT contracts[2] FROM chains") == a_wallet(0x7777)


@pytest.mark.parametrize("uses", [0, 12])
async def test_a_cancelled_rebuild_leaves_nothing_behind(
    indexed: Indexed, database_url: str, uses: int
) -> None:
    whole = await indexed.all_tables()
    rebuild_id = await order(indexed.pool)
    if uses:
        life = Life(uses)
        with pytest.raises(Killed):
            await a_rebuilder(indexed.pool, database_url, indexed.node, life=life).run()
    async with session(indexed.pool) as connection:
        assert await orders.cancel(connection, rebuild_id)
    await indexed.rebuild()
    assert await _left_behind(indexed.pool) == [f"{FRESH}.chains"]
    assert await indexed.all_tables() == whole


@pytest.mark.parametrize("state", ["cancelled", "swapped"])
async def test_a_process_that_wakes_up_at_the_end_of_a_rebuild_leaves_the_next_one_alone(
    indexed: Indexed, database_url: str, state: str
) -> None:
    """It was frozen before the last step, which another process has taken meanwhile."""
    pool, node = indexed.pool, indexed.node
    whole = await indexed.all_tables()
    await order(pool)
    await value(pool, "UPDATE rebuilds SET state = $1", state)
    async with session(pool) as connection:
        seen_before = await orders.find_open(connection)
    assert seen_before is not None
    await indexed.rebuild()
    await order(pool)
    with pytest.raises(Killed):
        await a_rebuilder(pool, database_url, node, life=Life(12)).run()
    assert await value(pool, _STATE) == "filling"

    await a_rebuilder(pool, database_url, node)._continue(seen_before)

    assert await value(pool, f"SELECT count(*) FROM {FRESH}.chains") == 1
    await indexed.rebuild()
    assert await value(pool, _STATE) == "done"
    assert await indexed.all_tables() == whole


async def test_a_rebuild_does_not_begin_while_facts_that_it_keeps_are_being_mended(
    indexed: Indexed,
) -> None:
    """The rebuild would copy them as they were, and nothing would begin it again."""
    await order(indexed.pool, 100)
    async with session(indexed.pool) as connection:
        ordered = await orders.find_open(connection)
    assert ordered is not None
    async with session(indexed.pool) as correcting, session(indexed.pool) as beginning:
        change, begin = correcting.transaction(), beginning.transaction()
        await change.start()
        await orders.restart_if_kept(correcting, 2)
        await begin.start()
        await beginning.execute("SET LOCAL lock_timeout = '50ms'")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await orders.is_still(beginning, ordered)
        await begin.rollback()
        await change.commit()
    async with transaction(indexed.pool) as connection:
        assert await orders.is_still(connection, ordered)


async def test_one_rebuild_is_open_at_a_time(pool: Pool) -> None:
    await order(pool)
    async with session(pool) as connection:
        assert await orders.order(connection, "ordered") is None
        with pytest.raises(asyncpg.UniqueViolationError):
            await connection.execute("INSERT INTO rebuilds (reason) VALUES ('ordered')")


async def test_another_schema_revision_begins_the_fresh_tables_again(
    indexed: Indexed, database_url: str
) -> None:
    await order(indexed.pool)
    with pytest.raises(Killed):
        await a_rebuilder(indexed.pool, database_url, indexed.node, life=Life(12)).run()
    async with session(indexed.pool) as connection:
        await connection.execute("UPDATE rebuilds SET revision = 'of before'")
        await connection.execute(f"ALTER TABLE {FRESH}.items DROP COLUMN metadata")
    whole = await indexed.all_tables()
    await indexed.rebuild()
    assert await indexed.all_tables() == whole


async def test_an_upgrade_while_the_fresh_tables_are_filled_keeps_its_columns(
    indexed: Indexed, database_url: str
) -> None:
    """In a rolling upgrade the process that fills them is of the version before."""
    pool, node = indexed.pool, indexed.node
    whole = await indexed.all_tables()
    node.lag = 1
    await order(pool)

    async def is_filling() -> bool:
        return bool(await value(pool, _STATE) == "filling")

    async with rebuilding(pool, database_url, node):
        await until(is_filling)
        await _upgrade(pool)
        node.lag = 0
        await until(lambda: is_over(pool))
    assert await value(pool, "SELECT count(colour) FROM items") == 0
    assert await value(pool, "SELECT revision FROM rebuilds") == "of later"
    async with session(pool) as connection:
        await connection.execute("ALTER TABLE items DROP COLUMN colour")
    assert await indexed.all_tables() == whole


async def test_fresh_tables_of_another_schema_revision_are_not_swapped(
    indexed: Indexed, database_url: str
) -> None:
    """The upgrade ends between the last look at the revision and the locks of the swap."""
    pool = indexed.pool
    rebuild_id = await order(pool)
    with pytest.raises(Killed):
        await a_rebuilder(pool, database_url, indexed.node, life=Life(12)).run()
    assert await value(pool, _STATE) == "filling"
    height = "(SELECT cursor_number FROM chains)"
    await value(pool, f"UPDATE {FRESH}.chains SET cursor_number = {height}, head_number = {height}")
    await _upgrade(pool)

    with pytest.raises(LaneLost):
        async with transaction(pool) as connection:
            await swap.swap(connection, rebuild_id, _REBUILT)

    assert await value(pool, _STATE) == "filling"
    assert await value(pool, "SELECT count(colour) FROM items") == 0


async def _upgrade(pool: Pool) -> None:
    async with transaction(pool) as connection:
        await connection.execute("ALTER TABLE items ADD COLUMN colour text")
        await connection.execute("UPDATE alembic_version SET version_num = 'of later'")
