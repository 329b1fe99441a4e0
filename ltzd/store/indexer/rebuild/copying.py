"""Begins fresh tables, and copies the facts that a rebuild keeps into them.

`copy_next` runs on a connection whose search path begins with the fresh tables. The
facts are copied; what is derived from them is derived again.
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from ltzd.store.database import Connection
from ltzd.store.indexer import chains, partitions
from ltzd.store.indexer.chains import BlockRow
from ltzd.store.indexer.rebuild import fresh_tables
from ltzd.store.indexer.rebuild.fresh_tables import FRESH
from ltzd.values import Address, Hash32

Derive = Callable[[Connection, int, int], Awaitable[None]]
"""Derives from one contract's facts of the blocks first…last, which were not derived from yet."""

_BLOCKS: Final = 200
"""Kept blocks of one transaction."""


async def start(connection: Connection, chain_id: int, contracts: Sequence[Address]) -> None:
    """Put the fresh cursor at the first kept block, in the transaction that creates the tables.

    No earlier holder of a term can have the fresh epoch: it follows from the time.
    """
    live = await fresh_tables.live_schema(connection)
    base = await connection.fetchrow(
        f"""
        SELECT number, hash, parent_hash, extract(epoch FROM mined_at)::bigint
          FROM {live}.blocks
         ORDER BY number
         LIMIT 1
        """  # noqa: S608
    )
    await connection.execute(
        f"""
        INSERT INTO {FRESH}.chains (chain_id, genesis_hash, ltz, first_block, cursor_number,
                                    cursor_hash, head_number, final_number, contracts, epoch,
                                    contracts_epoch)
        SELECT chain_id, genesis_hash, ltz, first_block, $2, $3, head_number, $2, $4, e, e
          FROM {live}.chains
         CROSS JOIN (SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint) AS now (e)
         WHERE chain_id = $1
        """,  # noqa: S608
        chain_id,
        base["number"],
        base["hash"],
        contracts,
    )
    await connection.execute(f"SET LOCAL search_path = {FRESH}, {live}")
    await chains.insert_blocks(connection, [BlockRow(*base)])
    await connection.execute(f"SET LOCAL search_path = {live}")


async def copy_next(
    connection: Connection,
    chain_id: int,
    epoch: int,
    from_block: int,
    fact_tables: Sequence[str],
    derive: Sequence[Derive],
) -> bool:
    """Copy the next blocks' facts below `from_block`; returns whether there were any.

    Only final blocks are copied: the live index may still undo the others. Raises LaneLost if the
    term of `epoch` is over.
    """
    live = await fresh_tables.live_schema(connection)
    cursor = await chains.cursor(connection, chain_id)
    last = await connection.fetchrow(
        f"""
        SELECT number, hash
          FROM (SELECT number, hash
                  FROM {live}.blocks
                 WHERE number > $1 AND number < $2
                   AND number <= (SELECT final_number FROM {live}.chains WHERE chain_id = $3)
                 ORDER BY number
                 LIMIT $4) AS batch
         ORDER BY number DESC
         LIMIT 1
        """,  # noqa: S608
        cursor.number,
        from_block,
        chain_id,
        _BLOCKS,
    )
    if last is None:
        return False
    head_number: int = await connection.fetchval("SELECT head_number FROM chains")
    to = (last["number"], Hash32(last["hash"]))
    await chains.move_cursor(connection, chain_id, epoch, cursor.hash, to, head_number)
    await partitions.ensure(connection, to[0])
    await _copy_rows(connection, live, "blocks", "number", cursor.number, to[0])
    for table in fact_tables:
        await _copy_rows(connection, live, table, "block_number", cursor.number, to[0])
    for of_contract in derive:
        await of_contract(connection, cursor.number + 1, to[0])
    return True


async def _copy_rows(
    connection: Connection, live: str, table: str, height: str, above: int, last: int
) -> None:
    await connection.execute(
        f"""
        INSERT INTO {FRESH}.{table}
        SELECT * FROM {live}.{table} WHERE {height} > $1 AND {height} <= $2
        """,  # noqa: S608
        above,
        last,
    )
