"""Rows of charge redemptions whose relays change states as by lanes and indexer."""

from dataclasses import dataclass, field
from typing import Any
from uuid import UUID, uuid4

from ltzd.rules.operator.transactions import Inclusion, State, Transaction
from ltzd.store import perk_charges as redemptions
from ltzd.store.database import Pool, session, transaction
from ltzd.store.operator import transactions
from ltzd.store.operator.lanes import Lane
from ltzd.store.operator.transactions import Attempt
from ltzd.store.perk_charges import NewChargeRedemption, StoredRedemption, TokenCharges
from ltzd.store.relayer import claims, relays
from ltzd.values import Address
from tests.support.chain.fake_node import OTHERS_AT
from tests.support.relays.lanes import RELAYER, a_relay_lane, store_signed
from tests.support.rows import perk_facts as perk_ledger
from tests.support.rows.core import BRAND, FEES, a_hash, a_wallet, save
from tests.support.rows.perk_facts import PerkLedger, token_of

COLLECTION = 7
TOKEN = token_of(COLLECTION, 1)
OTHER_TOKEN = token_of(COLLECTION, 2)
HOLDER = a_wallet(0xA1)
CHARGES = 60_000


def a_redemption(amount: int = 1, token: int = TOKEN, **changes: Any) -> NewChargeRedemption:
    values: dict[str, Any] = {
        "id": uuid4(),
        "brand": BRAND,
        "collection_id": token >> perk_ledger.SERIAL_BITS,
        "token_id": token,
        "holder": HOLDER,
        "amount": amount,
        "remaining_before": CHARGES,
        "max_charges": CHARGES,
        "reference": None,
        "idempotency_key": None,
        "fingerprint": b"\x01",
    }
    return NewChargeRedemption(**(values | changes))


@dataclass
class RedemptionRows:
    """Redemptions of one relay wallet's lane, and the blocks of a ledger."""

    pool: Pool
    ledger: PerkLedger
    lane: Lane
    nonce: int = 0
    relays: dict[UUID, int] = field(default_factory=dict)
    sent: dict[UUID, int] = field(default_factory=dict)
    """The ids of the redemptions' transactions."""

    async def write(
        self, new: NewChargeRedemption, wallet: Address | None = None
    ) -> NewChargeRedemption:
        async with transaction(self.pool) as connection:
            await redemptions.lock_token(connection, new.token_id)
            self.relays[new.id] = await redemptions.insert(
                connection, new, OTHERS_AT[0], new.id.bytes, 100_000, wallet
            )
        return new

    async def sign(self, new: NewChargeRedemption) -> None:
        """Signs the redemption's relay, ahead of those queued before it."""
        async with transaction(self.pool) as connection:
            queued = await claims.claim(connection, self.lane, 100)
            chosen = [relay for relay in queued if relay.id == self.relays[new.id]]
            (row,) = await store_signed(connection, self.lane, chosen, self.nonce)
        self.nonce += 1
        self.sent[new.id] = row.id

    async def taken(self, new: NewChargeRedemption) -> None:
        """Marks its transaction as accepted by a node."""
        async with session(self.pool) as connection:
            await transactions.mark_published(connection, [a_hash(f"{self.relays[new.id]}")])

    async def abandon(self, new: NewChargeRedemption) -> None:
        """Stores a self-transfer that takes the nonce of its permanently refused transaction."""
        empty = Attempt(a_hash(f"empty {new.id}"), b"", FEES, is_cancellation=True)
        async with session(self.pool) as connection:
            await transactions.store_attempt(connection, self.lane, self.sent[new.id], empty)

    async def move(
        self, new: NewChargeRedemption, was: State, to: State, ok: bool | None = None
    ) -> None:
        inclusion = None if ok is None else Inclusion(2, a_hash("block"), ok)
        async with transaction(self.pool) as connection:
            await save(connection, self.lane, self.sent[new.id], was, Transaction(to, inclusion))
            await relays.follow(connection, [self.sent[new.id]])

    async def index(self, new: NewChargeRedemption, remaining: int) -> int:
        """Writes a block with its fact and returns the block's number."""
        reference = new.id.bytes + bytes(16)
        fact = perk_ledger.redeemed(new.token_id, new.holder, reference, new.amount, remaining)
        return await self.ledger.block(fact)

    async def token_charges(self, token: int = TOKEN) -> TokenCharges:
        async with session(self.pool) as connection:
            stored = await redemptions.read_token_charges(connection, token)
        assert stored is not None
        return stored

    async def stored(self, new: NewChargeRedemption) -> StoredRedemption | None:
        async with session(self.pool) as connection:
            return await redemptions.by_id(connection, new.id)


async def redemption_rows(pool: Pool) -> RedemptionRows:
    """Creates two tokens with unused charges."""
    ledger = PerkLedger(pool)
    await ledger.block(
        perk_ledger.made(COLLECTION, BRAND, CHARGES),
        perk_ledger.claimed(TOKEN, HOLDER),
        perk_ledger.claimed(OTHER_TOKEN, HOLDER),
    )
    return RedemptionRows(pool, ledger, await a_relay_lane(pool, RELAYER))
