"""An event with its reward, transaction, attempts and mint, for `ltzd event show`.

Rarely read, so its joins are not optimised. E-mail address and user identifier are left out.
"""

from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec

from ltzd.store.brands.patience import PATIENCE_SECONDS
from ltzd.store.database import Connection
from ltzd.store.operator import transaction_views
from ltzd.store.operator.transaction_views import AttemptView
from ltzd.values import Address, Hash32, Reference, reward_reference


class TransactionFacts(msgspec.Struct, frozen=True):
    """The intent that carries the reward now; `attempts` are oldest first."""

    id: int
    chain_id: int
    wallet: Address
    nonce: int
    state: str
    block_number: int | None
    created_at: datetime
    mined_at: datetime | None
    settled_at: datetime | None
    attempts: tuple[AttemptView, ...]


class MintFacts(msgspec.Struct, frozen=True):
    block_number: int
    block_hash: Hash32
    transaction_hash: Hash32
    is_final: bool


class RewardOfEvent(msgspec.Struct, frozen=True):
    """`seq` is None until the first batch that took it.

    `failed_at` is None again after a failed reward was requeued; `failure` stays.
    """

    id: UUID
    kind: int
    seq: int | None
    failed_at: datetime | None
    failure: str | None

    @property
    def reference(self) -> Reference | None:
        return None if self.seq is None else reward_reference(self.id, self.kind, self.seq)


class EventHistory(msgspec.Struct, frozen=True):
    """`reward` is None for an event worth 0 LTZ, `brand_name` for a brand that is gone."""

    id: UUID
    brand_id: Address
    brand_name: str | None
    is_brand_paused: bool
    patience_seconds: int
    event_type: str
    source: str | None
    domain: str
    ltz: int
    wallet: Address
    created_at: datetime
    reward: RewardOfEvent | None
    transaction: TransactionFacts | None
    mint: MintFacts | None

    @property
    def status(self) -> str:
        """The status that `GET /service-api/events/{eventId}` returns for it."""
        if self.reward is None or (self.mint is not None and self.mint.is_final):
            return "final"
        if self.mint is not None:
            return "minted"
        if self.reward.failed_at is not None:
            return "failed"
        attempts = () if self.transaction is None else self.transaction.attempts
        mints = [attempt for attempt in attempts if not attempt.is_self_transfer]
        return "published" if any(mint.published_at for mint in mints) else "queued"


async def history_of(connection: Connection, event_id: UUID) -> EventHistory | None:
    """Return None for an unknown event. All rows are read at one moment."""
    async with connection.transaction(isolation="repeatable_read", readonly=True):
        row = await connection.fetchrow(
            f"""
            SELECT e.id, e.brand_id, b.name AS brand_name,
                   coalesce(b.paused_at IS NOT NULL, false) AS is_brand_paused,
                   {PATIENCE_SECONDS} AS patience_seconds,
                   e.event_type, e.source, e.domain, e.ltz, coalesce(r.wallet, u.wallet) AS wallet,
                   e.created_at, r.id AS reward_id, r.kind, r.seq, r.failed_at, r.failure,
                   r.mint_block_number, r.mint_block_hash, r.mint_transaction_hash,
                   coalesce(r.mint_block_number <= (SELECT final_number FROM chains), false)
                     AS is_final,
                   t.id AS transaction_id, t.chain_id, t.wallet AS signer, t.nonce, t.state,
                   t.block_number, t.created_at AS intended_at, t.mined_at, t.settled_at
              FROM events e
              JOIN users u ON u.id = e.user_id
              LEFT JOIN brands b ON b.id = e.brand_id
              LEFT JOIN rewards r ON r.id = e.id
              LEFT JOIN transactions t ON t.id = r.transaction_id
             WHERE e.id = $1
            """,  # noqa: S608
            event_id,
        )
        if row is None:
            return None
        attempts = await transaction_views.attempts_of(connection, row["transaction_id"])
        return _history(row, attempts)


def _history(row: asyncpg.Record, attempts: tuple[AttemptView, ...]) -> EventHistory:
    return EventHistory(
        id=row["id"],
        brand_id=Address(row["brand_id"]),
        brand_name=row["brand_name"],
        is_brand_paused=row["is_brand_paused"],
        patience_seconds=row["patience_seconds"],
        event_type=row["event_type"],
        source=row["source"],
        domain=row["domain"],
        ltz=row["ltz"],
        wallet=Address(row["wallet"]),
        created_at=row["created_at"],
        reward=_reward(row),
        transaction=_transaction(row, attempts),
        mint=_mint(row),
    )


def _reward(row: asyncpg.Record) -> RewardOfEvent | None:
    if row["reward_id"] is None:
        return None
    return RewardOfEvent(
        row["reward_id"], row["kind"], row["seq"], row["failed_at"], row["failure"]
    )


def _transaction(row: asyncpg.Record, attempts: tuple[AttemptView, ...]) -> TransactionFacts | None:
    if row["transaction_id"] is None:
        return None
    return TransactionFacts(
        id=row["transaction_id"],
        chain_id=row["chain_id"],
        wallet=Address(row["signer"]),
        nonce=row["nonce"],
        state=row["state"],
        block_number=row["block_number"],
        created_at=row["intended_at"],
        mined_at=row["mined_at"],
        settled_at=row["settled_at"],
        attempts=attempts,
    )


def _mint(row: asyncpg.Record) -> MintFacts | None:
    if row["mint_block_hash"] is None:
        return None
    return MintFacts(
        row["mint_block_number"],
        Hash32(row["mint_block_hash"]),
        Hash32(row["mint_transaction_hash"]),
        row["is_final"],
    )
