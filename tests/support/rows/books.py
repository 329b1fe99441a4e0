"""Rows of consistent books, written as ltzd writes them, for tests that alter some of them.

The chain consists of rows only: `mine` writes the rows that the indexer writes for a block in which
transactions mint all of their rewards. `undo` takes blocks back like a reorganisation.
"""

from datetime import datetime
from uuid import UUID, uuid4

from msgspec.structs import replace

from ltzd.rules.books import Disagreement
from ltzd.rules.brands.configuration import Brand
from ltzd.rules.indexer.log_position import LogPosition
from ltzd.rules.indexer.mint_facts import RewardMinted, Transfer
from ltzd.store.books.readers import Readers
from ltzd.store.books.reconciliation import reconcile_all
from ltzd.store.brands import configurations as brands
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.indexer import chains
from ltzd.store.indexer import mint_facts as facts
from ltzd.store.indexer.chains import BlockRow, ChainIdentity
from ltzd.store.operator import lanes, rewards, transactions
from ltzd.store.operator.lanes import Lane
from ltzd.values import LTZ, ZERO_ADDRESS, Address, Hash32, reward_reference
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT
from tests.support.rows import reorgs
from tests.support.rows.core import (
    MINTER,
    a_hash,
    a_wallet,
    an_attempt,
    an_intent,
)

ONE = Brand(
    id="0x00000000000000000000000000000000000000a1",
    name="One",
    domains=("one.example",),
    webhook_url="https://one.example/hook",
)
TWO = Brand(id="0x00000000000000000000000000000000000000b2", name="Two", domains=("two.example",))

GENESIS = BlockRow(0, a_hash("block 0"), a_hash("nothing"), 1_700_000_000)
CHAIN = ChainIdentity(CHAIN_ID, GENESIS.hash, LTZ_AT, 1)


class BookRows:
    def __init__(self, db: Connection) -> None:
        self.db = db
        self.block = 0
        self._lane: Lane | None = None
        self._nonce = 0
        self._ltz = LTZ_AT
        self._salt = 0

    async def begin(
        self, sealer: Sealer, chain: ChainIdentity = CHAIN, genesis: BlockRow = GENESIS
    ) -> None:
        """Two brands, a chain at block 0, a lane."""
        for brand in (ONE, TWO):
            await brands.apply(self.db, brand, sealer)
        await chains.start_following(self.db, chain, genesis)
        self._ltz = chain.ltz
        await lanes.create_counter(self.db, chain.chain_id, chain.ltz, 0)
        self._lane = await lanes.begin_term(self.db, chain.chain_id, MINTER.address, "mint", 0)

    # --- grants -------------------------------------------------------------------------------

    async def event(
        self, brand: Brand = ONE, ltz: int = 100, event_type: str = "form_submit"
    ) -> UUID:
        id_, user = uuid4(), uuid4()
        wallet = a_wallet(user.int % 2**64)
        async with self.db.transaction():
            await self.db.execute(
                "INSERT INTO users (id, email_key, identity_subject, wallet) "
                "VALUES ($1, $2, 'x', $3)",
                user,
                f"{user}@mail.example",
                wallet,
            )
            await self.db.execute(
                "INSERT INTO events (id, brand_id, event_type, email, user_id, domain, ltz) "
                "VALUES ($1, $2, $3, $4, $5, 'one.example', $6)",
                id_,
                brand.address,
                event_type,
                f"{user}@mail.example",
                user,
                ltz,
            )
            if ltz:
                await self._reward(id_, 1, brand.address, ltz, wallet)
        return id_

    async def payment(self, brand: Address = ONE.address, cents: int = 1_250) -> UUID:
        """Returns the reward's id."""
        id_, wallet = uuid4(), a_wallet(7)
        async with self.db.transaction():
            await self.db.execute(
                "INSERT INTO payments (session_id, reward_id, brand_id, wallet, usd_cents, ltz, "
                "payment_intent_id) VALUES ($1, $2, $3, $4, $5, $6, 'pi_1')",
                f"cs_{id_.hex}",
                id_,
                brand,
                wallet,
                cents,
                cents * 10,
            )
            await self._reward(id_, 2, brand, cents * 10, wallet)
        return id_

    async def other(self, kind: int = 3, brand: Brand = ONE, ltz: int = 5) -> UUID:
        """Inserts a check-in (kind 3) or a milestone (kind 4) with its reward."""
        id_ = uuid4()
        await self._reward(id_, kind, brand.address, ltz, a_wallet(8))
        # Each row gets another day, since all rows have the same wallet.
        days = await self.db.fetchval("SELECT 1 + count(*) FROM rewards WHERE kind IN (3, 4)")
        values = (brand.address, a_wallet(8), days, ltz, id_)
        if kind == 3:
            await self.db.execute(
                """
                INSERT INTO check_ins (brand_id, wallet, day, streak, ltz, reward_id)
                VALUES ($1, $2, '2026-01-01'::date + $3::int, $3, $4, $5)
                """,
                *values,
            )
        else:
            await self.db.execute(
                """
                INSERT INTO milestone_claims (brand_id, wallet, days, ltz, reward_id)
                VALUES ($1, $2, $3, $4, $5)
                """,
                *values,
            )
        return id_

    async def _reward(
        self, id_: UUID, kind: int, brand: Address, ltz: int, wallet: Address
    ) -> None:
        await self.db.execute(
            "INSERT INTO rewards (id, kind, brand_id, wallet, ltz) VALUES ($1, $2, $3, $4, $5)",
            id_,
            kind,
            brand,
            wallet,
            ltz,
        )

    async def recorded(self, reward: UUID, at: datetime) -> None:
        """Sets the time at which all rows of the reward were recorded."""
        for table, key in (("rewards", "id"), ("events", "id"), ("payments", "reward_id")):
            await self.db.execute(
                f"UPDATE {table} SET created_at = $2 WHERE {key} = $1", reward, at
            )

    # --- progress -----------------------------------------------------------------------------

    async def sign(self, *rewards: UUID) -> int:
        """Signs a transaction with the rewards, each with its seq or a new one; returns its id."""
        assert self._lane is not None
        rows = await self.db.fetch("SELECT id, seq FROM rewards WHERE seq IS NOT NULL")
        had = {row["id"]: row["seq"] for row in rows}
        count = len(set(rewards) - had.keys())
        lane = self._lane
        before = await lanes.references(self.db, lane.chain_id, lane.wallet)
        if before.count < count:
            before = await lanes.take_word(self.db, lane, self._ltz, before)
        taken, after = before.take(count)
        fresh = iter(taken)
        seqs = [had[reward] if reward in had else next(fresh) for reward in rewards]
        intent = replace(
            an_intent(self._nonce, rewards),
            seqs=seqs,
            references=before,
            references_after=after,
        )
        self._salt += 1
        attempt = an_attempt(f"attempt {self._salt}")
        id_ = await transactions.store_signed(self.db, self._lane, intent, attempt)
        self._nonce += 1
        return id_

    async def requeue(self, transaction: int) -> None:
        """Requeues the rewards of a transaction that reverted on chain, past finality."""
        await rewards.requeue(self.db, transaction)

    async def publish(self, transaction: int) -> Hash32:
        hash_: Hash32 = await self.db.fetchval(
            "SELECT hash FROM attempts WHERE transaction_id = $1", transaction
        )
        await transactions.mark_published(self.db, [hash_])
        return hash_

    async def mine(self, *transactions_: int) -> int:
        """Adds a block in which the transactions mint their rewards; returns its number."""
        async with self.db.transaction():
            parent = await chains.cursor(self.db, CHAIN_ID)
            self._salt += 1
            self.block += 1
            block = a_hash(f"block {self.block} {self._salt}")
            row = BlockRow(self.block, block, parent.hash, 1_700_000_000 + self.block)
            await chains.insert_blocks(self.db, [row])
            await self._mint(block, transactions_)
            await self._move_cursor(self.block, block)
        return self.block

    async def _mint(self, block: Hash32, transactions_: tuple[int, ...]) -> None:
        rows = await self.db.fetch(
            """
            SELECT r.id, r.kind, r.seq, r.wallet, r.ltz, a.hash
              FROM rewards r
              JOIN attempts a USING (transaction_id)
             WHERE r.transaction_id = ANY($1::bigint[]) AND r.mint_block_hash IS NULL
             ORDER BY r.seq
            """,
            transactions_,
        )
        moved, minted = [], []
        for index, (id_, kind, seq, wallet, ltz, hash_) in enumerate(rows):
            reference = reward_reference(id_, kind, seq)
            place = (self.block, block)
            moved.append(
                Transfer(
                    LogPosition(*place, 2 * index, Hash32(hash_)), ZERO_ADDRESS, wallet, ltz * LTZ
                )
            )
            minted.append(
                RewardMinted(
                    LogPosition(*place, 2 * index + 1, Hash32(hash_)), wallet, reference, ltz * LTZ
                )
            )
        await facts.insert_transfers(self.db, moved)
        await facts.insert_mints(self.db, minted)

    async def minted(self, *rewards: UUID) -> int:
        """Signs, publishes and mines the rewards; returns the block's number."""
        transaction = await self.sign(*rewards)
        await self.publish(transaction)
        return await self.mine(transaction)

    async def undo(self, fork: int) -> None:
        async with self.db.transaction():
            await reorgs.undo_above(self.db, fork)
            hash_ = await self.db.fetchval("SELECT hash FROM blocks WHERE number = $1", fork)
            await self._move_cursor(fork, hash_)
        self.block = fork

    async def _move_cursor(self, number: int, hash_: Hash32) -> None:
        await self.db.execute(
            "UPDATE chains SET cursor_number = $1, cursor_hash = $2, head_number = $1",
            number,
            hash_,
        )

    async def burn(self, reward: UUID, units: int) -> None:
        """Burns units of the reward's wallet in the newest block."""
        wallet = await self.db.fetchval("SELECT wallet FROM rewards WHERE id = $1", reward)
        hash_ = await self.db.fetchval("SELECT cursor_hash FROM chains")
        self._salt += 1
        place = (self.block, hash_, 10_000 + self._salt, a_hash(f"burn {self._salt}"))
        async with self.db.transaction():
            burnt = Transfer(LogPosition(*place), Address(wallet), ZERO_ADDRESS, units)
            await facts.insert_transfers(self.db, [burnt])

    async def fail(self, reward: UUID) -> None:
        assert self._lane is not None
        assert await rewards.fail(self.db, self._lane, {reward: "LTZ says: no"}) == [reward]

    async def deliver(self, reward: UUID) -> None:
        """Marks the webhook of its mint as delivered."""
        await self.db.execute(
            """
            UPDATE webhooks SET state = 'delivered', attempts = 1, delivered_at = now()
             WHERE subject = $1 AND kind = 'ltz_distributed'
            """,
            reward,
        )


async def reconcile(
    connection: Connection, at_most: int, brand: Address | None = None
) -> list[Disagreement]:
    """Every kind of discrepancy that nobody has acknowledged, with up to `at_most` rows of each."""
    return (await reconcile_all(Readers([connection]), at_most, brand))[0]
