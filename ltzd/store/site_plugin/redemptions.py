"""Perks that site sessions redeem, from the moment before anything is signed.

A redemption is begun under its wallet's lock. Its relay bears its id in the idempotency key, which
is remembered for a day, and in the fingerprint, which stays; its fact on chain in the reference.
Prices are LTZ's smallest unit.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from uuid import UUID

import asyncpg

from ltzd.rules.site_plugin.redemptions import Offer
from ltzd.store.database import Connection
from ltzd.store.relayer import relays
from ltzd.store.site_plugin.members import Member
from ltzd.values import Address


class RedemptionState(Enum):
    OPEN = "open"
    DONE = "done"
    """It is on chain, and the user was told its code."""
    FAILED = "failed"
    REVERSED = "reversed"
    """It was done, and a reorganisation has taken its payment back for good."""


@dataclass(frozen=True, slots=True)
class NewSiteRedemption:
    """Of a collection or an item: the other id is None."""

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


@dataclass(frozen=True, slots=True)
class SiteRedemption(NewSiteRedemption):
    """`failure` is what its user is told of one that failed. `is_payment_lost`: a reorganisation
    has taken the payment of a redemption back, and the payment may come again."""

    state: RedemptionState = RedemptionState.OPEN
    failure: str | None = None
    is_payment_lost: bool = False


@dataclass(frozen=True, slots=True)
class RedemptionProgress:
    """How far a redemption came: a fact that pays it, or the relay that will make one.

    A fact pays if it is of the redemption's kind, of its collection or one of its item, by its
    wallet, with its reference and at least its price (`redemption_payments`).
    """

    is_paid: bool
    relay: int | None


@dataclass(frozen=True, slots=True)
class ChainOffers:
    """What the index has of the collections and items asked for."""

    collections: Mapping[int | None, Offer]
    items: Mapping[int | None, Offer]

    def of(self, collection_id: int | None, item_id: int | None) -> Offer | None:
        """One of the ids is None."""
        return self.collections.get(collection_id) or self.items.get(item_id)


async def lock_wallet(connection: Connection, wallet: Address) -> None:
    """Until the transaction ends nobody else begins a redemption of this wallet's."""
    await connection.execute(
        "SELECT pg_advisory_xact_lock(hashtextextended('redemptions of ' || encode($1, 'hex'), 0))",
        wallet,
    )


async def find_joinable(
    connection: Connection, member: Member, perk_id: UUID
) -> SiteRedemption | None:
    """The redemption that asking again means: one that is open, or was answered a minute ago.

    Of this very member: another one with the same wallet may be a stranger who has typed its
    owner's e-mail address, and is told nobody else's code. A redemption of a version that wrote
    down no member is anybody's who has the wallet.
    """
    row = await connection.fetchrow(
        """
        SELECT *
          FROM site_redemptions
         WHERE wallet = $1 AND brand_id = $2 AND perk_id = $3
           AND (host IS NULL OR host = $4 AND site_user_id = $5)
           AND (state = 'open'
                OR state = 'done' AND (completed_at > clock_timestamp() - interval '60 seconds'
                                       OR payment_lost_at IS NOT NULL))
         ORDER BY created_at DESC
         LIMIT 1
        """,
        member.wallet,
        member.brand_id,
        perk_id,
        member.host,
        member.site_user_id,
    )
    return None if row is None else _redemption(row)


async def insert(connection: Connection, new: NewSiteRedemption) -> SiteRedemption | None:
    """None if another redemption has this code already. Who pays it with what, the same transaction
    writes next (`site_spending.charge`)."""
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
    """Of one that was begun: none is ever deleted."""
    row = await connection.fetchrow("SELECT * FROM site_redemptions WHERE id = $1", redemption)
    return _redemption(row)


async def list_abandoned(
    connection: Connection, brand: Address, wallet: Address
) -> Sequence[SiteRedemption]:
    """Those that somebody began ten minutes ago and came to nothing: he must have died.

    One that is on chain stays open until its user comes for the code; it is paid for.
    """
    rows = await connection.fetch(
        """
        SELECT s.*
          FROM site_redemptions s
         WHERE wallet = $1 AND brand_id = $2 AND state = 'open'
           AND created_at < clock_timestamp() - interval '10 minutes'
        """,
        wallet,
        brand,
    )
    redemptions = [_redemption(row) for row in rows]
    return [each for each in redemptions if not (await read_progress(connection, each)).is_paid]


async def read_progress(connection: Connection, one: NewSiteRedemption) -> RedemptionProgress:
    """The relay is known by its fingerprint: a caller of /relay chooses idempotency keys freely,
    and could give the redemption's key to a call of another kind."""
    row = await connection.fetchrow(
        """
        SELECT EXISTS (SELECT FROM site_redemption_payments WHERE redemption_id = $4) AS is_paid,
               coalesce(
                 (SELECT id FROM relays
                   WHERE user_address = $1 AND idempotency_key = $2 AND fingerprint = $3),
                 (SELECT id FROM relays WHERE user_address = $1 AND window_start IS NOT NULL
                                          AND fingerprint = $3 LIMIT 1)) AS relay
        """,
        one.wallet,
        one.idempotency_key,
        one.fingerprint,
        one.id,
    )
    return RedemptionProgress(row["is_paid"], row["relay"])


async def fail(connection: Connection, one: NewSiteRedemption, failure: str) -> bool:
    """In a transaction: nothing will ever be sent for it. False if something was, and may come,
    or if a fact pays it.

    The key is used up by a relay that failed before anybody sent it, so that another process that
    is about to send one finds it there.
    """
    await relays.lock_users(connection, [one.wallet])
    is_alive = await connection.fetchval(
        """
        SELECT EXISTS (
               SELECT FROM relays r
                 LEFT JOIN transactions t ON t.id = r.transaction_id
                WHERE r.user_address = $1 AND r.window_start IS NOT NULL AND r.fingerprint = $2
                  AND (r.state IN ('queued', 'sent') OR t.succeeded))
            OR EXISTS (SELECT FROM site_redemption_payments WHERE redemption_id = $3)
        """,
        one.wallet,
        one.fingerprint,
        one.id,
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
        one.wallet,
        one.idempotency_key,
        one.fingerprint,
        failure,
    )
    await connection.execute(
        """
        UPDATE site_redemptions SET state = 'failed', failure = $2
         WHERE id = $1 AND state = 'open'
        """,
        one.id,
        failure,
    )
    return True


async def read_offers(
    connection: Connection, collection_ids: Sequence[int], item_ids: Sequence[int]
) -> ChainOffers:
    """Those of them that are on chain."""
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
