"""The chain that this database follows: its identity, the indexer's cursor, and the kept blocks.

The cursor moves by compare-and-set on its hash and the term's epoch, in the database transaction
that writes the facts. A holder whose term is over gets LaneLost.
"""

from collections.abc import Sequence

import msgspec

from ltzd.errors import LaneLost
from ltzd.store.database import Connection
from ltzd.store.indexer import partitions
from ltzd.values import Address, Hash32


class ChainIdentity(msgspec.Struct, frozen=True):
    """The chain and its LTZ contract, which was deployed in `first_block`."""

    chain_id: int
    genesis_hash: Hash32
    ltz: Address
    first_block: int


class Cursor(msgspec.Struct, frozen=True):
    number: int
    hash: Hash32
    final_number: int


class BlockRow(msgspec.Struct, frozen=True):
    number: int
    hash: Hash32
    parent_hash: Hash32
    timestamp: int


async def identity(connection: Connection) -> ChainIdentity | None:
    """The one chain of this database; returns None while the database is new."""
    row = await connection.fetchrow("SELECT chain_id, genesis_hash, ltz, first_block FROM chains")
    return ChainIdentity(*row) if row else None


async def start_following(connection: Connection, chain: ChainIdentity, base: BlockRow) -> None:
    """Start to follow a chain at `base`, the block before the LTZ contract. Safe to repeat."""
    await connection.execute(
        """
        INSERT INTO chains (chain_id, genesis_hash, ltz, first_block,
                            cursor_number, cursor_hash, head_number, final_number)
        VALUES ($1, $2, $3, $4, $5, $6, $5, 0)
            ON CONFLICT (chain_id) DO NOTHING
        """,
        chain.chain_id,
        chain.genesis_hash,
        chain.ltz,
        chain.first_block,
        base.number,
        base.hash,
    )
    if not await connection.fetchval("SELECT EXISTS (SELECT FROM blocks)"):
        await insert_blocks(connection, [base])


async def begin_term(connection: Connection, chain_id: int) -> int:
    """Increment the indexer's epoch and return it."""
    epoch: int = await connection.fetchval(
        "UPDATE chains SET epoch = epoch + 1 WHERE chain_id = $1 RETURNING epoch", chain_id
    )
    return epoch


async def has_all_facts_of(
    connection: Connection, chain_id: int, contracts: Sequence[Address]
) -> bool:
    """Whether the facts of these contracts were written with every block up to the cursor.

    They were not if other contracts were followed, or if a version that knows fewer contracts has
    had a term since: it increments the epoch and does not update `contracts_epoch`. Locks the row,
    as `begin_term` does.
    """
    whole: bool = await connection.fetchval(
        """
        SELECT coalesce(contracts = $2::bytea[] AND contracts_epoch = epoch, false)
          FROM chains
         WHERE chain_id = $1
           FOR NO KEY UPDATE
        """,
        chain_id,
        contracts,
    )
    return whole


async def contracts_in_use(connection: Connection) -> tuple[tuple[Address, ...], ...]:
    """The contracts whose facts the index holds, and those of an open rebuild."""
    rows = await connection.fetch(
        """
        SELECT contracts FROM chains WHERE contracts IS NOT NULL
         UNION
        SELECT contracts FROM rebuilds WHERE contracts IS NOT NULL AND ended_at IS NULL
        """
    )
    return tuple(tuple(map(Address, row["contracts"])) for row in rows)


async def record_contracts(
    connection: Connection, chain_id: int, contracts: Sequence[Address]
) -> None:
    """Record that these contracts' facts are written with every block from this term on."""
    await connection.execute(
        "UPDATE chains SET contracts = $2, contracts_epoch = epoch WHERE chain_id = $1",
        chain_id,
        contracts,
    )


async def has_no_blocks(connection: Connection, chain_id: int) -> bool:
    """Whether nothing is indexed yet: the cursor is at the first kept block."""
    is_empty: bool = await connection.fetchval(
        """
        SELECT cursor_hash = (SELECT hash FROM blocks ORDER BY number LIMIT 1)
          FROM chains
         WHERE chain_id = $1
        """,
        chain_id,
    )
    return is_empty


async def epoch(connection: Connection, chain_id: int) -> int:
    """The epoch of the newest term."""
    newest: int = await connection.fetchval(
        "SELECT epoch FROM chains WHERE chain_id = $1", chain_id
    )
    return newest


async def cursor(connection: Connection, chain_id: int) -> Cursor:
    row = await connection.fetchrow(
        "SELECT cursor_number, cursor_hash, final_number FROM chains WHERE chain_id = $1", chain_id
    )
    assert row is not None
    return Cursor(*row)


async def lock_cursor(connection: Connection, chain_id: int, epoch: int | None = None) -> Cursor:
    """The cursor, which does not move until the database transaction ends.

    Raises LaneLost if an epoch is given and another holder follows the chain.
    """
    row = await connection.fetchrow(
        """
        SELECT cursor_number, cursor_hash, final_number, epoch
          FROM chains
         WHERE chain_id = $1
           FOR NO KEY UPDATE
        """,
        chain_id,
    )
    assert row is not None
    if epoch is not None and row["epoch"] != epoch:
        raise LaneLost("Another process follows the chain")
    return Cursor(row[0], Hash32(row[1]), row[2])


async def move_cursor(
    connection: Connection,
    chain_id: int,
    epoch: int,
    expected_hash: Hash32,
    to: tuple[int, Hash32],
    head_number: int,
) -> None:
    """Move the cursor from the block `expected_hash` to another one.

    Raises LaneLost if the cursor is elsewhere, if another term has begun, or if the index is
    stopped.
    """
    number, block_hash = to
    moved = await connection.fetchval(
        """
        UPDATE chains
           SET cursor_number = $4, cursor_hash = $5, head_number = $6,
               final_number = least(final_number, $4), updated_at = now(),
               audited_number = CASE WHEN audited_number > $4 THEN $4 ELSE audited_number END
         WHERE chain_id = $1 AND epoch = $2 AND cursor_hash = $3 AND stopped_reason IS NULL
     RETURNING cursor_number
        """,
        chain_id,
        epoch,
        expected_hash,
        number,
        block_hash,
        head_number,
    )
    if moved is None:
        raise LaneLost("Another process follows the chain")


async def stop(connection: Connection, chain_id: int, epoch: int, reason: str) -> None:
    """Record that nothing is indexed from now on, and why. An earlier reason stays.

    Raises LaneLost if another holder follows the chain.
    """
    stopped = await connection.fetchval(
        """
        UPDATE chains
           SET stopped_reason = coalesce(stopped_reason, $3),
               stopped_at = coalesce(stopped_at, now())
         WHERE chain_id = $1 AND epoch = $2
     RETURNING true
        """,
        chain_id,
        epoch,
        reason,
    )
    if stopped is None:
        raise LaneLost("Another process follows the chain")


async def resume(connection: Connection, chain_id: int) -> bool:
    """Let a stopped index go on; returns whether it was stopped."""
    resumed: bool | None = await connection.fetchval(
        """
        UPDATE chains
           SET stopped_reason = NULL, stopped_at = NULL
         WHERE chain_id = $1 AND stopped_reason IS NOT NULL
     RETURNING true
        """,
        chain_id,
    )
    return bool(resumed)


async def stopped_reason(connection: Connection, chain_id: int) -> str | None:
    """Why the index is stopped, or None if it is not."""
    reason: str | None = await connection.fetchval(
        "SELECT stopped_reason FROM chains WHERE chain_id = $1", chain_id
    )
    return reason


async def audited_number(connection: Connection, chain_id: int) -> int:
    """The block up to which all were read a second time; the first block's parent before that."""
    number: int = await connection.fetchval(
        """
        SELECT greatest(coalesce(audited_number, 0), first_block - 1)
          FROM chains
         WHERE chain_id = $1
        """,
        chain_id,
    )
    return number


async def raise_finality(
    connection: Connection, chain_id: int, epoch: int, final_number: int
) -> None:
    """Move finality up, never past the cursor."""
    await connection.execute(
        """
        UPDATE chains
           SET final_number = greatest(final_number, least($3, cursor_number))
         WHERE chain_id = $1 AND epoch = $2 AND final_number < least($3, cursor_number)
        """,
        chain_id,
        epoch,
        final_number,
    )


async def settled_number(connection: Connection, depth: int, seconds: float) -> int | None:
    """The highest block that is `depth` below the cursor and was seen `seconds` ago.

    This is finality for nodes that have no `finalized` tag.
    """
    number: int | None = await connection.fetchval(
        """
        SELECT number
          FROM blocks
         WHERE number <= (SELECT cursor_number FROM chains) - $1
           AND seen_at <= now() - make_interval(secs => $2)
         ORDER BY number DESC
         LIMIT 1
        """,
        depth,
        seconds,
    )
    return number


async def insert_blocks(connection: Connection, blocks: Sequence[BlockRow]) -> None:
    """Insert new blocks, and the partitions that they and their facts need.

    Raises asyncpg.UniqueViolationError for a height that has a block.
    """
    if not blocks:
        return
    await partitions.ensure(connection, max(block.number for block in blocks))
    await connection.execute(
        """
        INSERT INTO blocks (number, hash, parent_hash, mined_at)
        SELECT number, hash, parent_hash, to_timestamp(mined_at)
          FROM unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::bigint[])
               AS block (number, hash, parent_hash, mined_at)
        """,
        [block.number for block in blocks],
        [block.hash for block in blocks],
        [block.parent_hash for block in blocks],
        [block.timestamp for block in blocks],
    )


async def newest_blocks(
    connection: Connection, below: int, limit: int, final_number: int | None = None
) -> list[tuple[int, Hash32]]:
    """Kept blocks at and below height `below`, newest first.

    With `final_number` the last of them is the highest kept block that is final.
    """
    rows = await connection.fetch(
        """
        SELECT number, hash
          FROM blocks
         WHERE number <= $1
           AND number >= coalesce((SELECT number FROM blocks WHERE number <= $3
                                    ORDER BY number DESC LIMIT 1), 0)
         ORDER BY number DESC
         LIMIT $2
        """,
        below,
        limit,
        final_number,
    )
    return [(row["number"], Hash32(row["hash"])) for row in rows]


async def kept_blocks(connection: Connection, numbers: Sequence[int]) -> dict[int, Hash32]:
    """The hash of each of these heights whose block is kept."""
    rows = await connection.fetch(
        "SELECT number, hash FROM blocks WHERE number = ANY($1::bigint[])", numbers
    )
    return {row["number"]: Hash32(row["hash"]) for row in rows}


async def delete_blocks(connection: Connection, numbers: Sequence[int]) -> None:
    """Delete the kept blocks of these heights."""
    await connection.execute("DELETE FROM blocks WHERE number = ANY($1::bigint[])", numbers)


async def newest_block_time(connection: Connection) -> int:
    """The time of the newest indexed block, in Unix seconds. Some block is always kept."""
    seconds: int = await connection.fetchval(
        "SELECT extract(epoch FROM mined_at)::bigint FROM blocks ORDER BY number DESC LIMIT 1"
    )
    return seconds
