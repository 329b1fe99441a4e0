"""PerkNFT's tokens, rebuilt from their facts: the holder of each, and the charges it has left.

A row is rebuilt from the facts that remain, newest first, whenever facts are inserted or undone. A
token is never removed otherwise: PerkNFT burns none.
"""

from collections.abc import Collection, Sequence
from decimal import Decimal

import asyncpg
import msgspec

from ltzd.rules.perk_charges import MOST_TOKEN_ID, SERIAL_BITS, Token
from ltzd.store.database import Connection
from ltzd.values import Address, Hash32

_MOST_SERIAL = 2**SERIAL_BITS - 1
_MOST_COLLECTION_ID = MOST_TOKEN_ID >> SERIAL_BITS


def collection_of(token_id: int) -> int:
    return token_id >> SERIAL_BITS


async def rebuild(connection: Connection, token_ids: Collection[int]) -> None:
    """Rebuild the rows of these tokens, after their facts have changed."""
    if not token_ids:
        return
    ids = sorted(set(token_ids))
    await connection.execute(
        """
        WITH gone AS (
          DELETE FROM tokens
           WHERE token_id = ANY($1::numeric[])
             AND NOT EXISTS (SELECT FROM perk_transfers f WHERE f.token_id = tokens.token_id)
        )
        INSERT INTO tokens (token_id, collection_id, holder, remaining, claimed_at,
                            last_redeemed_at, block_number)
        SELECT token.id, token.collection_id, moved.recipient, redeemed.remaining,
               claimed.mined_at, redeemed.mined_at,
               greatest(moved.block_number, redeemed.block_number)
          FROM unnest($1::numeric[], $2::bigint[]) AS token (id, collection_id)
         CROSS JOIN LATERAL (
               SELECT recipient, block_number
                 FROM perk_transfers
                WHERE token_id = token.id
                ORDER BY block_number DESC, log_index DESC
                LIMIT 1) AS moved
         CROSS JOIN LATERAL (
               SELECT b.mined_at
                 FROM perk_transfers f
                 JOIN blocks b ON b.number = f.block_number
                WHERE f.token_id = token.id
                ORDER BY f.block_number, f.log_index
                LIMIT 1) AS claimed
          LEFT JOIN LATERAL (
               SELECT f.remaining, f.block_number, b.mined_at
                 FROM charge_redemptions f
                 JOIN blocks b ON b.number = f.block_number
                WHERE f.token_id = token.id
                ORDER BY f.block_number DESC, f.log_index DESC
                LIMIT 1) AS redeemed ON true
            ON CONFLICT (token_id) DO UPDATE
           SET holder = excluded.holder,
               remaining = excluded.remaining,
               claimed_at = excluded.claimed_at,
               last_redeemed_at = excluded.last_redeemed_at,
               block_number = excluded.block_number
        """,
        list(map(Decimal, ids)),
        list(map(collection_of, ids)),
    )


class TokenLookup(msgspec.Struct, frozen=True):
    """A collection's brand, its token, and how far the chain was followed, all of one moment.

    `brand` is None for an unknown collection, `token` if the collection has no such token.
    """

    brand: Address | None
    token: Token | None
    block: int
    final_block: int


async def look_up(
    connection: Connection, chain_id: int, wanted: Sequence[tuple[int, int]]
) -> list[TokenLookup]:
    """Look up collections, each with one of its tokens, in one statement.

    The answer has the order of `wanted`.
    """
    rows = await connection.fetch(
        """
        SELECT c.brand, chain.cursor_number, chain.final_number, t.holder, c.charges,
               c.charges - coalesce(t.remaining, c.charges), t.claimed_at, t.last_redeemed_at,
               t.block_number
          FROM unnest($2::bigint[], $3::numeric[])
               WITH ORDINALITY AS wanted (collection_id, token_id, place)
         CROSS JOIN (SELECT cursor_number, final_number FROM chains WHERE chain_id = $1) AS chain
          LEFT JOIN collections c ON c.collection_id = wanted.collection_id
          LEFT JOIN tokens t
            ON t.token_id = wanted.token_id AND t.collection_id = c.collection_id
         ORDER BY wanted.place
        """,
        chain_id,
        [
            collection_id if 0 <= collection_id <= _MOST_COLLECTION_ID else None
            for collection_id, _ in wanted
        ],
        [Decimal(token_id) for _, token_id in wanted],
    )
    assert len(rows) == len(wanted), "the chain is followed before the first look-up"
    return [
        TokenLookup(
            brand,
            None if holder is None else Token(token_id, collection_id, holder, *rest),
            block,
            final_block,
        )
        for (collection_id, token_id), (brand, block, final_block, holder, *rest) in zip(
            wanted, rows, strict=True
        )
    ]


class TokenPage(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """Tokens as they were when the chain was followed up to this block; None if it is unknown.

    `total` is the number of tokens of the collection at that block.
    """

    tokens: Sequence[Token]
    total: int
    block_hash: Hash32 | None


_NOTHING = TokenPage((), 0, None)


async def read_page(
    connection: Connection, collection_id: int, after: int, limit: int
) -> TokenPage:
    """A collection's tokens after the token `after`, in the order of their ids.

    A token keeps its place in this order when its holder changes, so pages return each token once.
    """
    if not 0 <= collection_id <= _MOST_COLLECTION_ID:
        return _NOTHING
    # Token ids of one collection are consecutive.
    first = collection_id << SERIAL_BITS
    # With both bounds inside, a plan from before there were statistics sorts the whole collection.
    rows = await connection.fetch(
        """
        SELECT (t.token_id % 4294967296)::bigint, t.holder, c.charges,
               c.charges - coalesce(t.remaining, c.charges), t.claimed_at, t.last_redeemed_at,
               t.block_number, c.minted, (SELECT cursor_hash FROM chains)
          FROM (SELECT * FROM tokens WHERE token_id > $1 ORDER BY token_id LIMIT $3) AS t
          JOIN collections c USING (collection_id)
         WHERE t.token_id <= $2
         ORDER BY t.token_id
        """,
        Decimal(max(after, first)),
        Decimal(first + _MOST_SERIAL),
        limit,
    )
    if not rows:
        return _NOTHING
    page_tokens = [
        Token(first | serial, collection_id, holder, *rest)
        for serial, holder, *rest, _minted, _hash in rows
    ]
    return TokenPage(page_tokens, rows[0]["minted"], rows[0]["cursor_hash"])


async def count_held(connection: Connection, holder: Address, collection_id: int, most: int) -> int:
    """How many tokens of a collection a wallet holds, counted up to `most`."""
    if not 0 <= collection_id <= _MOST_COLLECTION_ID:
        return 0
    count: int = await connection.fetchval(
        """
        SELECT count(*)
          FROM (SELECT FROM tokens
                 WHERE holder = $1 AND collection_id = $2
                 LIMIT $3) AS held
        """,
        holder,
        collection_id,
        most,
    )
    return count


def of_row(row: asyncpg.Record) -> Token:
    """A row of `tokens` joined with its collection's charges."""
    charges: int = row["charges"]
    remaining: int | None = row["remaining"]
    return Token(
        id=int(row["token_id"]),
        collection_id=row["collection_id"],
        holder=Address(row["holder"]),
        max_charges=charges,
        used=0 if remaining is None else charges - remaining,
        claimed_at=row["claimed_at"],
        last_redeemed_at=row["last_redeemed_at"],
        block_number=row["block_number"],
    )
