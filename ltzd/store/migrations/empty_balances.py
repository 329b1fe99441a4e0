"""Deletes the balances of zero that versions before revision 0024 have left."""

from typing import Any, Final

_PAGE: Final = 5_000


async def delete(connection: Any, _table: str) -> None:
    """Delete them a few thousand wallets at a time, outside of a transaction.

    Each part locks the chain's row, as every writer of balances does: a wallet that gets LTZ
    meanwhile must keep its row.
    """
    after: bytes | None = b""
    while after is not None:
        async with connection.transaction():
            await connection.execute("SELECT FROM chains FOR UPDATE")
            after = await connection.fetchval(
                """
                WITH page AS MATERIALIZED (
                  SELECT wallet FROM balances WHERE wallet > $1 ORDER BY wallet LIMIT $2
                ), gone AS (
                  DELETE FROM balances b USING page WHERE b.wallet = page.wallet AND b.amount = 0
                )
                SELECT wallet FROM page ORDER BY wallet DESC LIMIT 1
                """,
                after,
                _PAGE,
            )
