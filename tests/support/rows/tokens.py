"""The indexed row of a token."""

from decimal import Decimal

from ltzd.rules.perk_charges import Token
from ltzd.store.database import Connection
from ltzd.store.indexer import tokens


async def indexed_token(connection: Connection, token_id: int) -> Token | None:
    row = await connection.fetchrow(
        """
        SELECT t.*, c.charges
          FROM tokens t
          JOIN collections c USING (collection_id)
         WHERE t.token_id = $1
        """,
        Decimal(token_id),
    )
    return None if row is None else tokens.of_row(row)
