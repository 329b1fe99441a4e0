"""Perks that site sessions redeem, stored before anything is signed.

A redemption is inserted under its wallet's lock. Its relay carries the redemption's id in the
idempotency key, which is kept for a day, and in the fingerprint, which stays. Its fact on chain
carries the id in the reference. Prices are in LTZ's smallest unit.
"""

import hashlib
from collections.abc import Mapping, Sequence
from decimal import Decimal
from enum import Enum
from uuid import UUID

import asyncpg
import msgspec

from ltzd.rules.site_plugin.redemptions import Offer
from ltzd.store.database import Connection
from ltzd.store.relayer import relays
from ltzd.store.site_plugin.members import Member
from ltzd.store.site_plugin.redemption_payments import OF_INDEXED_CONTRACT, RELAY_OF_REDEMPTION
from ltzd.values import Address


class RedemptionState(Enum):
    OPEN = "open"
    DONE = "done"
    """Paid on chain; the user was given the confirmation code."""
    FAILED = "failed"
    REVERSED = "reversed"
    """The redemption was done, and a reorganisation has undone its payment for good."""


class NewSiteRedemption(msgspec.Struct, frozen=True):
    """A redemption of a collection or an item; the other id is None."""

    id: UUID
    brand: Address
    wallet: Address
    perk_id: UUID
    name: str
    category: str
    collection_id: int | None
    item_id: int | None
    price: int
    confirmation_code: str

    @property
    def reference(self) -> bytes:
        return self.id.bytes + bytes(16)

    @property
    def idempotency_key(self) -> str:
        return f"site redemption {self.id}"

    @property
    def fingerprint(self) -> bytes:
        return hashlib.sha256(self.id.bytes).digest()


class SiteRedemption(NewSiteRedemption, frozen=True):
    """`failure` is the reason that the user of a failed redemption is given.

    `is_payment_lost`: a reorganisation has undone the redemption's payment, which may be mined
    again.
    """

    state: RedemptionState = RedemptionState.OPEN
    failure: str | None = None
    is_payment_lost: bool = False


class RedemptionProgress(msgspec.Struct, frozen=True):
    """Whether a fact pays the redemption, and the relay that will cause one.

    A fact pays if it has the redemption's kind, its collection or one of its item, its wallet, its
    reference, and at least its price (`redemption_payments`).
    """

    is_paid: bool
    relay: int | None


class ChainOffers(msgspec.Struct, frozen=True):
    """Indexed collections and items by id."""

    collections: Mapping[int | None, Offer]
    items: Mapping[int | None, Offer]

    def of(self, collection_id: int | None, item_id: int | None) -> Offer | None:
        """The offer of the id that is not None."""
        return self.collections.get(collection_id) or self.items.get(item_id)


async def lock_wallet(connection: Connection, wallet: Address) -> None:
    """Serialise new redemptions of this wallet until the transaction ends."""
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended('redemptions of ' || encode($1, 'hex'), 0))",
        wallet,
    )


async def find_joinable(
    connection: Connection, member: Member, perk_id: UUID
) -> SiteRedemption | None:
    """The redemption that a repeated request joins: open, or completed within the last minute.

    The redemption belongs to this very member: another member with the same wallet may be a
    stranger who has typed its owner's e-mail address, and gets no other member's code. A redemption
    without a stored member (an older version's) belongs to every member with the wallet.

    A redemption whose payment is lost is joined at any age, as its code is still to come; but not
    one whose contract is no longer indexed, because no fact would ever end the wait.

    A pending redemption is also joined if the member has another wallet now: it may be paid
    already, and only its member can get its code.
    """
    row = await connection.fetchrow(
        f"""
        SELECT *
          FROM (SELECT *
                  FROM site_redemptions
                 WHERE wallet = $1 AND brand_id = $2 AND perk_id = $3
                   AND (host IS NULL OR host = $4 AND site_user_id = $5)
                   AND (state = 'open' OR payment_lost_at IS NOT NULL
                        OR completed_at > clock_timestamp() - interval '60 seconds')
                 UNION ALL
                SELECT *
                  FROM site_redemptions
                 WHERE brand_id = $2 AND host = $4 AND site_user_id = $5 AND perk_id = $3
                   AND (state = 'open' OR payment_lost_at IS NOT NULL)
                   AND wallet <> $1) AS s
         WHERE state = 'open'
            OR state = 'done' AND (completed_at > clock_timestamp() - interval '60 seconds'
                                   OR payment_lost_at IS NOT NULL AND {OF_INDEXED_CONTRACT})
         ORDER BY created_at DESC
         LIMIT 1
        """,  # noqa: S608
        member.wallet,
        member.brand_id,
        perk_id,
        member.host,
        member.site_user_id,
    )
    return None if row is None else _redemption(row)


async def insert(connection: Connection, new: NewSiteRedemption) -> SiteRedemption | None:
    """Return None if another redemption has this confirmation code.

    The same transaction then stores the pots that pay (`spending.write_charge`).
    """
    row = await connection.fetchrow(
        """
        INSERT INTO site_redemptions (id, brand_id, wallet, perk_id, name, category, collection_id,
                                      item_id, price, confirmation_code)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)
            ON CONFLICT (confirmation_code) DO NOTHING
     RETURNING *
        """,
        new.id,
        new.brand,
        new.wallet,
        new.perk_id,
        new.name,
        new.category,
        None if new.collection_id is None else Decimal(new.collection_id),
        None if new.item_id is None else Decimal(new.item_id),
        Decimal(new.price),
        new.confirmation_code,
    )
    return None if row is None else _redemption(row)


async def by_id(connection: Connection, redemption: UUID) -> SiteRedemption:
    """The redemption must exist; none is ever deleted."""
    row = await connection.fetchrow("SELECT * FROM site_redemptions WHERE id = $1", redemption)
    return _redemption(row)


async def list_abandoned(
    connection: Connection, brand: Address, wallet: Address
) -> Sequence[SiteRedemption]:
    """Open redemptions that are not paid, and whose process died or whose revert is final by now.

    A process counts as dead ten minutes after it has begun the redemption. A paid redemption
    stays open until its user asks for the code.
    """
    rows = await connection.fetch(
        f"""
        SELECT s.*
          FROM site_redemptions s
         WHERE wallet = $1 AND brand_id = $2 AND state = 'open'
           AND (created_at < clock_timestamp() - interval '10 minutes'
                OR EXISTS (SELECT
                             FROM relays r
                             JOIN transactions t ON t.id = r.transaction_id
                            WHERE {RELAY_OF_REDEMPTION}
                              AND t.state = 'reverted'))
        """,  # noqa: S608
        wallet,
        brand,
    )
    redemptions = [_redemption(row) for row in rows]
    return [
        redemption
        for redemption in redemptions
        if not (await read_progress(connection, redemption)).is_paid
    ]


async def read_progress(
    connection: Connection, redemption: NewSiteRedemption
) -> RedemptionProgress:
    """The relay is found by its fingerprint.

    Callers of /relay choose idempotency keys freely, and could use the redemption's key for another
    kind of call.
    """
    row = await connection.fetchrow(
        """
        SELECT EXISTS (SELECT FROM site_redemption_payments WHERE redemption_id = $4) AS is_paid,
               coalesce(
                 (SELECT id FROM relays
                   WHERE user_address = $1 AND idempotency_key = $2 AND fingerprint = $3),
                 (SELECT id FROM relays WHERE user_address = $1 AND window_start IS NOT NULL
                                          AND fingerprint = $3 LIMIT 1)) AS relay
        """,
        redemption.wallet,
        redemption.idempotency_key,
        redemption.fingerprint,
        redemption.id,
    )
    return RedemptionProgress(row["is_paid"], row["relay"])


async def fail(connection: Connection, redemption: NewSiteRedemption, failure: str) -> bool:
    """Fail the redemption in a transaction; returns False if it may still be paid, or is paid.

    A transaction that has reverted may still pay until that is final: a reorg can let it succeed,
    and a redemption that began anew meanwhile would pay a second time.

    A failed relay takes the idempotency key, so that another process that is about to send a relay
    for the redemption finds the key used.
    """
    await relays.lock_users(connection, [redemption.wallet])
    is_alive = await connection.fetchval(
        """
        SELECT EXISTS (
               SELECT FROM relays r
                 LEFT JOIN transactions t ON t.id = r.transaction_id
                WHERE r.user_address = $1 AND r.window_start IS NOT NULL AND r.fingerprint = $2
                  AND (r.state IN ('queued', 'sent') OR t.state = 'mined' OR t.succeeded))
            OR EXISTS (SELECT FROM site_redemption_payments WHERE redemption_id = $3)
        """,
        redemption.wallet,
        redemption.fingerprint,
        redemption.id,
    )
    if is_alive:
        return False
    await connection.execute(
        """
        INSERT INTO relays (user_address, to_address, data, function, serialized_per_user,
                            idempotency_key, fingerprint, gas_limit, max_cost_wei, state, failure)
        VALUES ($1, '', '', 'none', false, $2, $3, 0, 0, 'failed', $4)
            ON CONFLICT (user_address, idempotency_key) WHERE idempotency_key IS NOT NULL DO NOTHING
        """,
        redemption.wallet,
        redemption.idempotency_key,
        redemption.fingerprint,
        failure,
    )
    await connection.execute(
        """
        UPDATE site_redemptions SET state = 'failed', failure = $2
         WHERE id = $1 AND state = 'open'
        """,
        redemption.id,
        failure,
    )
    return True


async def is_reverted(connection: Connection, redemption: NewSiteRedemption) -> bool:
    """Whether the redemption's transaction is mined and has reverted; that may not be final."""
    reverted: bool = await connection.fetchval(
        """
        SELECT EXISTS (
               SELECT FROM relays r
                 JOIN transactions t ON t.id = r.transaction_id
                WHERE r.user_address = $1 AND r.window_start IS NOT NULL AND r.fingerprint = $2
                  AND r.state = 'mined' AND NOT t.succeeded)
           AND NOT EXISTS (SELECT FROM site_redemption_payments WHERE redemption_id = $3)
        """,
        redemption.wallet,
        redemption.fingerprint,
        redemption.id,
    )
    return reverted


async def read_offers(
    connection: Connection, collection_ids: Sequence[int], item_ids: Sequence[int]
) -> ChainOffers:
    """The collections and items that are on chain."""
    collections = await connection.fetch(
        """
        SELECT collection_id AS id, brand, price, is_active, max_per_user, requires_signature,
               CASE WHEN max_supply > 0 THEN greatest(max_supply - minted, 0) END AS available
          FROM collections
         WHERE collection_id = ANY($1::bigint[])
        """,
        collection_ids,
    )
    items = await connection.fetch(
        """
        SELECT item_id AS id, brand, price, is_active, 0 AS max_per_user,
               false AS requires_signature, greatest(stock - sold, 0) AS available
          FROM items
         WHERE item_id = ANY($1::numeric[])
        """,
        list(map(Decimal, item_ids)),
    )
    return ChainOffers(
        {int(row["id"]): _offer(row) for row in collections},
        {int(row["id"]): _offer(row) for row in items},
    )


def _offer(row: asyncpg.Record) -> Offer:
    return Offer(
        brand=Address(row["brand"]),
        price=int(row["price"]),
        is_active=row["is_active"],
        left=row["available"],
        max_per_user=row["max_per_user"] or None,
        needs_signature=row["requires_signature"],
    )


def _redemption(row: asyncpg.Record) -> SiteRedemption:
    collection_id, item_id = row["collection_id"], row["item_id"]
    return SiteRedemption(
        id=row["id"],
        brand=Address(row["brand_id"]),
        wallet=Address(row["wallet"]),
        perk_id=row["perk_id"],
        name=row["name"],
        category=row["category"],
        collection_id=None if collection_id is None else int(collection_id),
        item_id=None if item_id is None else int(item_id),
        price=int(row["price"]),
        confirmation_code=row["confirmation_code"],
        state=RedemptionState(row["state"]),
        failure=row["failure"],
        is_payment_lost=row["payment_lost_at"] is not None,
    )
