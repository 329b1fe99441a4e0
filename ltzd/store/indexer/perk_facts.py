"""PerkNFT's facts, and the tokens and collections derived from them.

Facts are inserted and undone only in the database transaction that moves the cursor. Inserting and
undoing have the same effect on derived rows: these are rebuilt from the facts that remain, and the
constraint results of the wallets that a token moved between are deleted.
"""

from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Final

from ltzd.rules.indexer.contract_facts import (
    ChargeRedeemed,
    Claimed,
    CollectionBrandSet,
    CollectionCreated,
    CollectionUpdated,
    PerkFact,
    TokenTransferred,
)
from ltzd.store.constraints import results as constraint_results
from ltzd.store.database import Connection
from ltzd.store.indexer import collections, tokens
from ltzd.store.indexer.derived_rows import DerivedTable
from ltzd.store.indexer.fact_rows import (
    Corrections,
    FactRow,
    FactTable,
    copy_facts,
    exchange,
)
from ltzd.values import ZERO_ADDRESS, Address

CollectionFact = CollectionCreated | CollectionUpdated | CollectionBrandSet

TABLES: Final = (
    "perk_transfers",
    "perk_claims",
    "charge_redemptions",
    "collection_facts",
    "tokens",
    "collections",
    "constraint_results",
)


async def insert(connection: Connection, facts: Sequence[PerkFact]) -> None:
    """Write new facts, whose blocks are written, and rebuild what is derived from them."""
    moved = await copy_facts(connection, TRANSFERS, facts)
    await copy_facts(connection, CLAIMS, facts)
    redeemed = await copy_facts(connection, REDEMPTIONS, facts)
    changed = await copy_facts(connection, COLLECTIONS, facts)
    await _rebuild(connection, moved, redeemed, changed)


async def undo_above(connection: Connection, fork: int) -> None:
    """Delete every fact above block `fork`, while its block is still in the database."""
    moved = await connection.fetch(
        "DELETE FROM perk_transfers WHERE block_number > $1 RETURNING token_id, sender, recipient",
        fork,
    )
    await connection.execute("DELETE FROM perk_claims WHERE block_number > $1", fork)
    redeemed = await connection.fetch(
        "DELETE FROM charge_redemptions WHERE block_number > $1 RETURNING token_id", fork
    )
    changed = await connection.fetch(
        "DELETE FROM collection_facts WHERE block_number > $1 RETURNING collection_id", fork
    )
    await _rebuild(connection, moved, redeemed, changed)


async def correct(connection: Connection, corrections: Corrections) -> None:
    """Correct facts anywhere in the history, and rebuild what is derived from them."""
    moved = (await exchange(connection, TRANSFERS, corrections)).rows
    await exchange(connection, CLAIMS, corrections)
    redeemed = (await exchange(connection, REDEMPTIONS, corrections)).rows
    changed = (await exchange(connection, COLLECTIONS, corrections)).rows
    await _delete_collections(connection, [row["collection_id"] for row in changed])
    await _rebuild(connection, moved, redeemed, changed)


async def derive(connection: Connection, first: int, last: int) -> None:
    """Rebuild what follows from the facts of the blocks first…last, which were copied here."""
    moved, redeemed, changed = [
        await connection.fetch(
            f"SELECT * FROM {table} WHERE block_number BETWEEN $1 AND $2",  # noqa: S608
            first,
            last,
        )
        for table in ("perk_transfers", "charge_redemptions", "collection_facts")
    ]
    await _rebuild(connection, moved, redeemed, changed)


async def _delete_collections(connection: Connection, ids: Sequence[int]) -> None:
    """Delete before rebuilding: a collection whose first fact is gone must have no row."""
    await connection.execute("DELETE FROM collections WHERE collection_id = ANY($1::bigint[])", ids)


async def rebuild_tokens(connection: Connection, ids: Sequence[Decimal]) -> None:
    """Rebuild tokens from their facts."""
    await tokens.rebuild(connection, [int(id_) for id_ in ids])


async def rebuild_collections(connection: Connection, ids: Sequence[int]) -> None:
    """Rebuild collections from their facts and tokens."""
    await _delete_collections(connection, ids)
    await collections.rebuild(connection, ids)


async def _rebuild(
    connection: Connection,
    moved: Collection[FactRow],
    redeemed: Collection[FactRow],
    changed: Collection[FactRow],
) -> None:
    await tokens.rebuild(connection, [int(row["token_id"]) for row in (*moved, *redeemed)])
    minted = {
        tokens.collection_of(int(row["token_id"])) for row in moved if row["sender"] == ZERO_ADDRESS
    }
    await collections.rebuild(connection, minted | {row["collection_id"] for row in changed})
    touched = {Address(wallet) for row in moved for wallet in (row["sender"], row["recipient"])}
    await constraint_results.invalidate(connection, touched - {ZERO_ADDRESS})


def _columns(fact: CollectionFact) -> tuple[object, ...]:
    """The brand, the terms, and what never changes; a value that the log does not hold is None."""
    match fact:
        case CollectionBrandSet():
            return (fact.brand, *(None,) * 8)
        case CollectionUpdated():
            return (None, *_terms(fact), *(None,) * 3)
        case CollectionCreated():
            # PostgreSQL's text holds no NUL, which a Solidity string may.
            uri = fact.uri.replace("\x00", "\N{REPLACEMENT CHARACTER}")
            return (fact.brand, *_terms(fact), fact.charges, fact.requires_signature, uri)


def _terms(fact: CollectionCreated | CollectionUpdated) -> tuple[object, ...]:
    return (
        fact.payout,
        Decimal(fact.price),
        fact.max_supply,
        fact.max_per_user,
        fact.is_active,
    )


TRANSFERS: Final = FactTable(
    "perk_transfers",
    (TokenTransferred,),
    ("token_id", "sender", "recipient"),
    lambda fact: (Decimal(fact.token_id), fact.sender, fact.recipient),
)
CLAIMS: Final = FactTable(
    "perk_claims",
    (Claimed,),
    ("user_address", "collection_id", "token_id", "price", "claims", "reference"),
    lambda fact: (
        fact.user,
        fact.collection_id,
        Decimal(fact.token_id),
        Decimal(fact.price),
        fact.claims,
        fact.reference,
    ),
)
REDEMPTIONS: Final = FactTable(
    "charge_redemptions",
    (ChargeRedeemed,),
    ("token_id", "holder", "reference", "amount", "remaining"),
    lambda fact: (
        Decimal(fact.token_id),
        fact.holder,
        fact.reference,
        fact.amount,
        fact.remaining,
    ),
)
COLLECTIONS: Final = FactTable(
    "collection_facts",
    (CollectionCreated, CollectionUpdated, CollectionBrandSet),
    (
        "collection_id",
        "brand",
        "payout",
        "price",
        "max_supply",
        "max_per_user",
        "is_active",
        "charges",
        "requires_signature",
        "uri",
    ),
    lambda fact: (fact.collection_id, *_columns(fact)),
)
FACT_TABLES: Final = (TRANSFERS, CLAIMS, REDEMPTIONS, COLLECTIONS)

DERIVED: Final = (
    DerivedTable(
        "tokens",
        """
        SELECT token_id
          FROM (SELECT DISTINCT ON (token_id) token_id, recipient
                  FROM perk_transfers
                 ORDER BY token_id, block_number DESC, log_index DESC) AS moved
          FULL JOIN tokens t USING (token_id)
          LEFT JOIN (SELECT DISTINCT ON (token_id) token_id, remaining
                       FROM charge_redemptions
                      ORDER BY token_id, block_number DESC, log_index DESC) AS redeemed
         USING (token_id)
         WHERE moved.recipient IS DISTINCT FROM t.holder
            OR redeemed.remaining IS DISTINCT FROM t.remaining
        """,
        rebuild_tokens,
    ),
    DerivedTable(
        "collections",
        """
        SELECT collection_id
          FROM (SELECT DISTINCT ON (collection_id) collection_id, charges
                  FROM collection_facts
                 WHERE charges IS NOT NULL
                 ORDER BY collection_id, block_number, log_index) AS created
          FULL JOIN collections c USING (collection_id)
          LEFT JOIN (SELECT DISTINCT ON (collection_id) collection_id, payout, price, max_supply,
                            max_per_user, is_active
                       FROM collection_facts
                      WHERE payout IS NOT NULL
                      ORDER BY collection_id, block_number DESC, log_index DESC) AS terms
         USING (collection_id)
          LEFT JOIN (SELECT DISTINCT ON (collection_id) collection_id, brand
                       FROM collection_facts
                      WHERE brand IS NOT NULL
                      ORDER BY collection_id, block_number DESC, log_index DESC) AS given
         USING (collection_id)
          LEFT JOIN (SELECT collection_id, max(token_id % 4294967296) AS serial
                       FROM tokens
                      GROUP BY collection_id) AS newest
         USING (collection_id)
         WHERE (created.charges, terms.payout, terms.price, terms.max_supply, terms.max_per_user,
                terms.is_active, given.brand, coalesce(newest.serial, 0))
               IS DISTINCT FROM
               (c.charges, c.payout, c.price, c.max_supply, c.max_per_user,
                c.is_active, c.brand, c.minted::numeric)
        """,
        rebuild_collections,
    ),
)
