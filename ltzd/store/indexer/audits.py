"""How far the index was read a second time and compared: `chains.audited_number`."""

import msgspec

from ltzd.errors import LaneLost
from ltzd.store.database import Connection


class AuditProgress(msgspec.Struct, frozen=True):
    """Every block up to `audited_number` was compared; the next one is audited next."""

    audited_number: int
    cursor_number: int
    final_number: int
    head_number: int
    is_stopped: bool


async def progress(connection: Connection, chain_id: int) -> AuditProgress:
    row = await connection.fetchrow(
        """
        SELECT greatest(audited_number, first_block - 1), cursor_number, final_number, head_number,
               stopped_reason IS NOT NULL
          FROM chains
         WHERE chain_id = $1
        """,
        chain_id,
    )
    assert row is not None
    return AuditProgress(*row)


async def record(connection: Connection, chain_id: int, epoch: int, number: int) -> None:
    """Every block up to `number` was compared. Raises LaneLost if the term is over.

    Blocks that were undone meanwhile do not count.
    """
    recorded = await connection.fetchval(
        """
        UPDATE chains
           SET audited_number = greatest(audited_number, least($3, final_number))
         WHERE chain_id = $1 AND epoch = $2
     RETURNING true
        """,
        chain_id,
        epoch,
        number,
    )
    if recorded is None:
        raise LaneLost("Another process follows the chain")
