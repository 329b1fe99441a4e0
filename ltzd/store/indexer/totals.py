"""Reads what the tables tell of the contracts' own totals (`indexer/completeness/totals`).

All of it is read in one repeatable-read transaction of the caller's, together with the cursor. Rows
are sampled from a random place on, so that in the course of time all rows are compared.
"""

from collections.abc import Mapping

from ltzd.store.database import Connection
from ltzd.values import Address

_SAMPLE = 8
_NEWEST_TRANSFERS = 8


async def supply(connection: Connection) -> int:
    """The sum of all balances, in LTZ's smallest unit. Reads all of them."""
    amount: int = await connection.fetchval("SELECT coalesce(sum(amount), 0) FROM balances")
    return int(amount)


async def balances(connection: Connection, place: bytes) -> Mapping[Address, int]:
    """The wallets of the newest transfers, and those from the address `place` on."""
    rows = await connection.fetch(
        """
        WITH newest AS (
          SELECT sender, recipient FROM transfers ORDER BY block_number DESC LIMIT $2
        ), sample AS (
          SELECT sender AS wallet FROM newest
           UNION
          SELECT recipient FROM newest
           UNION
          (SELECT wallet FROM balances WHERE wallet >= $1 ORDER BY wallet LIMIT $3)
        )
        SELECT sample.wallet, coalesce(balances.amount, 0)
          FROM sample
          LEFT JOIN balances USING (wallet)
         WHERE sample.wallet <> $4
        """,
        place[:20],
        _NEWEST_TRANSFERS,
        _SAMPLE,
        bytes(20),
    )
    return {Address(wallet): int(amount) for wallet, amount in rows}


async def holders(connection: Connection, place: bytes) -> Mapping[int, Address]:
    """The holders of the tokens of the newest transfers, and of a few random collections."""
    rows = await connection.fetch(
        """
        WITH newest AS (
          SELECT token_id FROM perk_transfers ORDER BY block_number DESC LIMIT $2
        ), places AS (
          SELECT min(token_id) + (max(token_id) - min(token_id)) * $1::numeric AS place FROM tokens
        ), sample AS (
          SELECT token_id FROM newest
           UNION
          (SELECT token_id FROM tokens WHERE token_id >= (SELECT place FROM places)
            ORDER BY token_id LIMIT $3)
        )
        SELECT token_id, holder FROM tokens JOIN sample USING (token_id)
        """,
        _fraction(place),
        _NEWEST_TRANSFERS,
        _SAMPLE,
    )
    return {int(token_id): Address(holder) for token_id, holder in rows}


async def collections(connection: Connection) -> int:
    """How many collections there are."""
    count: int = await connection.fetchval("SELECT count(*) FROM collections")
    return count


async def minted_tokens(connection: Connection, place: bytes) -> Mapping[int, int]:
    """The number of tokens minted, by collection."""
    return await _sample(connection, "collections", "collection_id", "minted", place)


async def sold_pieces(connection: Connection, place: bytes) -> Mapping[int, int]:
    """The number of pieces sold, by item."""
    return await _sample(connection, "items", "item_id", "sold", place)


async def _sample(
    connection: Connection, table: str, key: str, count: str, place: bytes
) -> Mapping[int, int]:
    rows = await connection.fetch(
        f"""
        WITH places AS (
          SELECT min({key}) + (max({key}) - min({key})) * $1::numeric AS place FROM {table}
        )
        SELECT {key}, {count}
          FROM {table}
         WHERE {key} >= (SELECT place FROM places)
         ORDER BY {key}
         LIMIT $2
        """,  # noqa: S608
        _fraction(place),
        _SAMPLE,
    )
    return {int(id_): int(number) for id_, number in rows}


async def deal_states(connection: Connection, place: bytes) -> Mapping[bytes, str]:
    rows = await connection.fetch(
        "SELECT deal_id, state FROM deals WHERE deal_id >= $1 ORDER BY deal_id LIMIT $2",
        place,
        _SAMPLE,
    )
    return {bytes(deal_id): str(state) for deal_id, state in rows}


def _fraction(place: bytes) -> str:
    """A number from 0 to 1, as PostgreSQL reads it."""
    return f"{int.from_bytes(place[:4], 'big') / 2**32:.9f}"
