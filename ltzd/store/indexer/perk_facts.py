"""PerkNFT's facts, and the tokens and collections that are settled from them.

They come and go only together with the cursor, as `facts` says. What a block brings and what a
reorg takes away touches rows in the same way: they are found anew from the facts that remain, and
what constraints said of the wallets that a token went between is forgotten.
"""

from collections.abc import Collection, Sequence
from decimal import Decimal
from typing import Final, TypeVar

import asyncpg

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
from ltzd.store.indexer.fact_rows import position_columns
from ltzd.values import ZERO_ADDRESS, Address

CollectionFact = CollectionCreated | CollectionUpdated | CollectionBrandSet
Kind = TypeVar("Kind")

TABLES: Final = (
    "perk_transfers",
    "perk_claims",
    "charge_redemptions",
    "collection_facts",
    "tokens",
    "collections",
    "constraint_results",
)


async def insert(connection: Connection, those: Sequence[PerkFact]) -> None:
    """Write facts whose blocks are written, and settle what they touch; known ones do nothing."""
    if not those:
        return
    moved = await _insert_transfers(connection, _of(TokenTransferred, those))
    await _insert_claims(connection, _of(Claimed, those))
    redeemed = await _insert_redemptions(connection, _of(ChargeRedeemed, those))
    changed = await _insert_collections(
        connection,
        [
            one
            for one in those
            if isinstance(one, CollectionCreated | CollectionUpdated | CollectionBrandSet)
        ],
    )
    await _settle(connection, moved, redeemed, changed)


async def undo_above(connection: Connection, fork: int) -> None:
    """Take back every fact above block `fork`, while its block is still there."""
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
    await _settle(connection, moved, redeemed, changed)


async def _settle(
    connection: Connection,
    moved: Collection[asyncpg.Record],
    redeemed: Collection[asyncpg.Record],
    changed: Collection[asyncpg.Record],
) -> None:
    await tokens.rebuild(connection, [int(row["token_id"]) for row in (*moved, *redeemed)])
    minted = {
        tokens.collection_of(int(row["token_id"])) for row in moved if row["sender"] == ZERO_ADDRESS
    }
    await collections.rebuild(connection, minted | {row["collection_id"] for row in changed})
    touched = {Address(one) for row in moved for one in (row["sender"], row["recipient"])}
    await constraint_results.invalidate(connection, touched - {ZERO_ADDRESS})


def _of(kind: type[Kind], those: Sequence[PerkFact]) -> list[Kind]:
    return [one for one in those if isinstance(one, kind)]


async def _insert_transfers(
    connection: Connection, those: Sequence[TokenTransferred]
) -> list[asyncpg.Record]:
    if not those:
        return []
    rows: list[asyncpg.Record] = await connection.fetch(
        """
        INSERT INTO perk_transfers (block_hash, log_index, block_number, transaction_hash,
                                    token_id, sender, recipient)
        SELECT * FROM unnest($1::bytea[], $2::int[], $3::bigint[], $4::bytea[],
                             $5::numeric[], $6::bytea[], $7::bytea[])
            ON CONFLICT (block_hash, log_index) DO NOTHING
     RETURNING token_id, sender, recipient
        """,
        *position_columns(those),
        [Decimal(one.token_id) for one in those],
        [one.sender for one in those],
        [one.recipient for one in those],
    )
    return rows


async def _insert_claims(connection: Connection, those: Sequence[Claimed]) -> None:
    if not those:
        return
    await connection.execute(
        """
        INSERT INTO perk_claims (block_hash, log_index, block_number, transaction_hash,
                                 user_address, collection_id, token_id, price, claims, reference)
        SELECT * FROM unnest($1::bytea[], $2::int[], $3::bigint[], $4::bytea[], $5::bytea[],
                             $6::bigint[], $7::numeric[], $8::numeric[], $9::int[], $10::bytea[])
            ON CONFLICT (block_hash, log_index) DO NOTHING
        """,
        *position_columns(those),
        [one.user for one in those],
        [one.collection_id for one in those],
        [Decimal(one.token_id) for one in those],
        [Decimal(one.price) for one in those],
        [one.claims for one in those],
        [one.reference for one in those],
    )


async def _insert_redemptions(
    connection: Connection, those: Sequence[ChargeRedeemed]
) -> list[asyncpg.Record]:
    if not those:
        return []
    rows: list[asyncpg.Record] = await connection.fetch(
        """
        INSERT INTO charge_redemptions (block_hash, log_index, block_number, transaction_hash,
                                        token_id, holder, reference, amount, remaining)
        SELECT * FROM unnest($1::bytea[], $2::int[], $3::bigint[], $4::bytea[], $5::numeric[],
                             $6::bytea[], $7::bytea[], $8::int[], $9::int[])
            ON CONFLICT (block_hash, log_index) DO NOTHING
     RETURNING token_id
        """,
        *position_columns(those),
        [Decimal(one.token_id) for one in those],
        [one.holder for one in those],
        [one.reference for one in those],
        [one.amount for one in those],
        [one.remaining for one in those],
    )
    return rows


async def _insert_collections(
    connection: Connection, those: Sequence[CollectionFact]
) -> list[asyncpg.Record]:
    """They are rare: one statement each."""
    return [
        row
        for one in those
        for row in await connection.fetch(
            """
            INSERT INTO collection_facts (block_hash, log_index, block_number, transaction_hash,
                                          collection_id, brand, payout, price, max_supply,
                                          max_per_user, is_active, charges, requires_signature, uri)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14)
                ON CONFLICT (block_hash, log_index) DO NOTHING
         RETURNING collection_id
            """,
            one.position.block_hash,
            one.position.log_index,
            one.position.block_number,
            one.position.transaction_hash,
            one.collection_id,
            *_said(one),
        )
    ]


def _said(fact: CollectionFact) -> tuple[object, ...]:
    """Brand, terms, and what never changes; None for what the log does not tell."""
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
