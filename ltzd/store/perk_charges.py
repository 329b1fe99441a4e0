"""Charges of a token that a brand redeems, each with the relay that redeems it on chain.

A token's redemptions are inserted under the token's lock. A redemption that the indexer has read is
part of the token's row; until then it is in flight, unless its relay failed or has lapsed
(`relays.LAPSE`). The id is the reference on chain: of a request with an idempotency key it is made
from the key, so that a redemption whose rows a restore has lost is still found.
"""

from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from uuid import UUID

import asyncpg
import msgspec

from ltzd.errors import IdempotencyKeyReused
from ltzd.rules.perk_charges import MOST_TOKEN_ID, Token
from ltzd.rules.relayer.gas_budgets import brand_account
from ltzd.store.database import Connection
from ltzd.store.indexer import tokens
from ltzd.store.relayer import gas_budgets, relays
from ltzd.store.relayer.gas_budgets import GasChange
from ltzd.values import Address, Hash32


class NewChargeRedemption(msgspec.Struct, frozen=True):
    id: UUID
    brand: Address
    collection_id: int
    token_id: int
    holder: Address
    amount: int
    remaining_before: int
    max_charges: int
    reference: str | None
    idempotency_key: str | None
    fingerprint: bytes


class ChargeRedemption(msgspec.Struct, frozen=True):
    """`transaction_hash` is None until a node has taken it; `succeeded` until it is mined."""

    id: UUID
    collection_id: int
    token_id: int
    holder: Address
    amount: int
    remaining_before: int
    max_charges: int
    transaction_hash: Hash32 | None
    succeeded: bool | None
    mined_at: datetime | None

    @property
    def remaining(self) -> int:
        return self.remaining_before - self.amount


class StoredRedemption(ChargeRedemption, frozen=True):
    relay_id: int
    fingerprint: bytes


class TokenCharges(msgspec.Struct, frozen=True):
    """`under_way` counts the charges of earlier redemptions that are in flight."""

    token: Token
    under_way: int


async def lock_token(connection: Connection, token_id: int) -> None:
    """Serialise the writers of redemptions of this token until the transaction ends."""
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended('charges of ' || $1::text, 0))",
        str(token_id),
    )


async def use_nonce(connection: Connection, brand: Address, nonce: str, request: UUID) -> bool:
    """Insert a signed request's nonce with the request's other rows; False if the nonce was used
    before.
    """
    spent = await connection.fetchval(
        """
        INSERT INTO request_nonces (brand_id, nonce, request_id)
        VALUES ($1, $2, $3)
            ON CONFLICT (brand_id, nonce) DO NOTHING
     RETURNING true
        """,
        brand,
        nonce,
        request,
    )
    return bool(spent)


async def read_token_charges(connection: Connection, token_id: int) -> TokenCharges | None:
    """A token, and its charges in redemptions that are in flight.

    One statement reads both: a block indexed between two statements would be counted twice, or not
    at all.
    """
    if not 0 <= token_id <= MOST_TOKEN_ID:
        return None
    row = await connection.fetchrow(
        f"""
        SELECT t.*, c.charges, coalesce(u.amount, 0)::bigint AS under_way
          FROM tokens t
          JOIN collections c USING (collection_id)
         CROSS JOIN LATERAL (
               SELECT sum(r.amount) AS amount
                 FROM redemptions r
                 JOIN relays l ON l.id = r.relay_id
                 LEFT JOIN transactions tx ON tx.id = l.transaction_id
                WHERE r.token_id = t.token_id
                  AND (l.state = 'queued' AND l.created_at > now() - {relays.LAPSE}
                       OR tx.succeeded
                       OR tx.state IN ('signed', 'published')
                          AND NOT EXISTS (SELECT FROM attempts cancellation
                                           WHERE cancellation.transaction_id = tx.id
                                             AND cancellation.is_cancellation))
                  AND NOT EXISTS (
                      SELECT FROM charge_redemptions fact
                       WHERE fact.token_id = r.token_id
                         AND fact.reference = decode(replace(r.id::text, '-', ''), 'hex')
                                              || decode(repeat('00', 16), 'hex'))) AS u
         WHERE t.token_id = $1
        """,  # noqa: S608
        Decimal(token_id),
    )
    return None if row is None else TokenCharges(tokens.of_row(row), row["under_way"])


async def insert(
    connection: Connection,
    new: NewChargeRedemption,
    to: Address,
    data: bytes,
    gas_limit: int,
    wallet: Address | None = None,
    max_cost_wei: int = 0,
) -> int:
    """Queue a redemption for `wallet`, or for the wallet that sends the token's redemption before
    it.

    Any wallet may send it if both are None. `max_cost_wei` counts in today's gas of the brand and
    of everybody. Wakes the lanes and returns the relay's id. Raises IdempotencyKeyReused, after
    which the transaction must end, if a redemption of another token has just taken the key: the
    tokens' locks do not keep the two apart.
    """
    try:
        row = await connection.fetchrow(
            _INSERT,
            new.holder,
            to,
            data,
            new.fingerprint,
            gas_limit,
            new.brand,
            new.id,
            new.collection_id,
            Decimal(new.token_id),
            new.amount,
            new.remaining_before,
            new.max_charges,
            new.reference,
            new.idempotency_key,
            wallet,
            Decimal(max_cost_wei),
            account := brand_account(new.brand),
        )
    except asyncpg.UniqueViolationError as error:
        if error.constraint_name not in ("redemptions_by_key", "redemptions_pkey"):
            raise
        raise IdempotencyKeyReused("This idempotency key was used with another request") from error
    await gas_budgets.count(connection, [GasChange(row["gas_day"], account, max_cost_wei)])
    relay: int = row["id"]
    return relay


_INSERT = f"""
WITH before AS (
  SELECT coalesce(tx.wallet, l.wallet) AS wallet
    FROM redemptions r
    JOIN relays l ON l.id = r.relay_id
    LEFT JOIN transactions tx ON tx.id = l.transaction_id
   WHERE r.token_id = $9
     AND (l.state = 'queued' AND l.created_at > now() - {relays.LAPSE}
          OR tx.state IN ('signed', 'published'))
   ORDER BY l.id DESC
   LIMIT 1
), relay AS (
  INSERT INTO relays (user_address, to_address, data, function, serialized_per_user,
                      fingerprint, gas_limit, max_cost_wei, state, brand_id, wallet,
                      gas_day, gas_wei, identity)
  VALUES ($1, $2, $3, 'PerkNFT.redeemCharge', false, $4, $5, $16, 'queued', $6,
          coalesce((SELECT wallet FROM before), $15), (now() AT TIME ZONE 'UTC')::date,
          $16, $17)
RETURNING id, gas_day
), redemption AS (
  INSERT INTO redemptions (id, brand_id, collection_id, token_id, holder, amount,
                           remaining_before, max_charges, reference, idempotency_key,
                           fingerprint, relay_id)
  SELECT $7, $6, $8, $9, $1, $10, $11, $12, $13, $14, $4, id FROM relay
)
SELECT id, gas_day FROM relay
"""  # noqa: S608


async def withdraw(connection: Connection, redemption: StoredRedemption) -> None:
    """Withdraw a redemption that no lane has signed, and the token's later ones with it.

    The later ones name a number of charges from which this redemption is subtracted: PerkNFT would
    refuse them. Call it in a transaction that holds the token's lock.
    """
    rows = await connection.fetch(
        "SELECT relay_id FROM redemptions WHERE token_id = $1 AND relay_id > $2",
        Decimal(redemption.token_id),
        redemption.relay_id,
    )
    await relays.withdraw(connection, redemption.relay_id, [row["relay_id"] for row in rows])


async def by_key(connection: Connection, brand: Address, key: str) -> StoredRedemption | None:
    row = await connection.fetchrow(
        "SELECT * FROM redemption_progress WHERE brand_id = $1 AND idempotency_key = $2",
        brand,
        key,
    )
    return None if row is None else _redemption(row)


async def by_id(connection: Connection, redemption: UUID) -> StoredRedemption | None:
    """Return None for a redemption that was withdrawn."""
    row = await connection.fetchrow("SELECT * FROM redemption_progress WHERE id = $1", redemption)
    return None if row is None else _redemption(row)


async def on_chain(
    connection: Connection, ids: Sequence[UUID], token_id: int
) -> ChargeRedemption | None:
    """Return what the index knows of a redemption of the token with one of these ids.

    A restored database may have lost its rows while its transaction was mined.
    """
    row = await connection.fetchrow(
        """
        SELECT f.*, substr(f.reference, 1, 16) AS id, t.collection_id, c.charges, b.mined_at
          FROM charge_redemptions f
          JOIN blocks b ON b.number = f.block_number
          JOIN tokens t USING (token_id)
          JOIN collections c USING (collection_id)
         WHERE f.token_id = $1 AND f.reference = ANY($2::bytea[])
         ORDER BY f.block_number, f.log_index
         LIMIT 1
        """,
        Decimal(token_id),
        [each.bytes + bytes(16) for each in ids],
    )
    if row is None:
        return None
    return ChargeRedemption(
        id=UUID(bytes=row["id"]),
        collection_id=row["collection_id"],
        token_id=token_id,
        holder=Address(row["holder"]),
        amount=row["amount"],
        remaining_before=row["remaining"] + row["amount"],
        max_charges=row["charges"],
        transaction_hash=Hash32(row["transaction_hash"]),
        succeeded=True,
        mined_at=row["mined_at"],
    )


def _redemption(row: asyncpg.Record) -> StoredRedemption:
    return StoredRedemption(
        id=row["id"],
        relay_id=row["relay_id"],
        collection_id=row["collection_id"],
        token_id=int(row["token_id"]),
        holder=Address(row["holder"]),
        amount=row["amount"],
        remaining_before=row["remaining_before"],
        max_charges=row["max_charges"],
        fingerprint=row["fingerprint"],
        transaction_hash=None if row["hash"] is None else Hash32(row["hash"]),
        succeeded=row["succeeded"],
        mined_at=row["mined_at"],
    )
