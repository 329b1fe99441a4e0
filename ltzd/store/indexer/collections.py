"""PerkNFT's collections, rebuilt from their facts. Prices are in LTZ's smallest unit.

Like a token's row, a collection's row is rebuilt from the facts that remain whenever facts are
inserted or undone. `minted` is the newest token's serial number: PerkNFT counts serial numbers from
1 without gaps and burns no token.
"""

from collections.abc import Collection, Sequence

import msgspec

from ltzd.store.database import Connection
from ltzd.values import Address, Hash32

_MOST_ID = 2**63 - 1


class CollectionOwner(msgspec.Struct, frozen=True):
    """A collection's brand, its number of tokens, and the block up to which the chain is
    followed.
    """

    brand: Address
    minted: int
    block_hash: Hash32 | None


async def rebuild(connection: Connection, collection_ids: Collection[int]) -> None:
    """Rebuild the rows of these collections, after their facts have changed and tokens were
    rebuilt.
    """
    if not collection_ids:
        return
    await connection.execute(
        """
        WITH gone AS (
          DELETE FROM collections c
           WHERE collection_id = ANY($1::bigint[])
             AND NOT EXISTS (SELECT FROM collection_facts f
                              WHERE f.collection_id = c.collection_id)
        )
        INSERT INTO collections (collection_id, brand, payout, price, max_supply, max_per_user,
                                 is_active, charges, requires_signature, uri, minted)
        SELECT collection.id, given.brand, terms.payout, terms.price, terms.max_supply,
               terms.max_per_user, terms.is_active, created.charges, created.requires_signature,
               created.uri, coalesce(newest.serial, 0)
          FROM unnest($1::bigint[]) AS collection (id)
         CROSS JOIN LATERAL (
               SELECT charges, requires_signature, uri
                 FROM collection_facts
                WHERE collection_id = collection.id AND charges IS NOT NULL
                ORDER BY block_number, log_index
                LIMIT 1) AS created
         CROSS JOIN LATERAL (
               SELECT payout, price, max_supply, max_per_user, is_active
                 FROM collection_facts
                WHERE collection_id = collection.id AND payout IS NOT NULL
                ORDER BY block_number DESC, log_index DESC
                LIMIT 1) AS terms
         CROSS JOIN LATERAL (
               SELECT brand
                 FROM collection_facts
                WHERE collection_id = collection.id AND brand IS NOT NULL
                ORDER BY block_number DESC, log_index DESC
                LIMIT 1) AS given
          LEFT JOIN LATERAL (
               SELECT token_id % 4294967296 AS serial
                 FROM tokens
                WHERE token_id BETWEEN collection.id::numeric * 4294967296
                                   AND collection.id::numeric * 4294967296 + 4294967295
                ORDER BY token_id DESC
                LIMIT 1) AS newest ON true
            ON CONFLICT (collection_id) DO UPDATE
           SET brand = excluded.brand,
               payout = excluded.payout,
               price = excluded.price,
               max_supply = excluded.max_supply,
               max_per_user = excluded.max_per_user,
               is_active = excluded.is_active,
               charges = excluded.charges,
               requires_signature = excluded.requires_signature,
               uri = excluded.uri,
               minted = excluded.minted
        """,
        sorted(set(collection_ids)),
    )


class IndexedClaims(msgspec.Struct, frozen=True):
    """`max_per_user` of a collection (0 is no limit), and a user's claims in it."""

    max_per_user: int
    claims: int


async def read_claims(
    connection: Connection, queries: Sequence[tuple[Address, int]]
) -> list[IndexedClaims | None]:
    """Each user's claims in a collection, in order, with None where it is not indexed."""
    rows = await connection.fetch(
        """
        SELECT c.max_per_user, coalesce(p.claims, 0) AS claims
          FROM unnest($1::bytea[], $2::bigint[])
               WITH ORDINALITY AS query (user_address, collection_id, n)
          LEFT JOIN collections c ON c.collection_id = query.collection_id
          LEFT JOIN LATERAL (
               SELECT max(claims) AS claims
                 FROM perk_claims
                WHERE user_address = query.user_address
                  AND collection_id = query.collection_id) AS p ON true
         ORDER BY query.n
        """,
        [user for user, _ in queries],
        [id_ if 0 <= id_ <= _MOST_ID else -1 for _, id_ in queries],
    )
    return [None if row[0] is None else IndexedClaims(row[0], row[1]) for row in rows]


async def read_owners(
    connection: Connection, collection_ids: Collection[int]
) -> dict[int, CollectionOwner]:
    """The owners of those collections that exist, in one statement.

    Reads one row for each collection, however many tokens it has.
    """
    rows = await connection.fetch(
        """
        SELECT collection_id, brand, minted, (SELECT cursor_hash FROM chains)
          FROM collections
         WHERE collection_id = ANY($1::bigint[])
        """,
        [collection_id for collection_id in set(collection_ids) if 0 <= collection_id <= _MOST_ID],
    )
    return {row[0]: CollectionOwner(Address(row[1]), row[2], row[3]) for row in rows}


async def brand_of(connection: Connection, collection_id: int) -> Address | None:
    """Return the collection's brand, or None for an unknown collection."""
    if not 0 <= collection_id <= _MOST_ID:
        return None
    brand: bytes | None = await connection.fetchval(
        "SELECT brand FROM collections WHERE collection_id = $1", collection_id
    )
    return None if brand is None else Address(brand)
