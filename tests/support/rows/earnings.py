"""Rewards of brands to wallets, minted and undone as by the indexer."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date
from itertools import count
from uuid import UUID, uuid4

from ltzd.rules.indexer.log_position import LogPosition
from ltzd.rules.indexer.mint_facts import RewardMinted
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import mint_facts as facts
from ltzd.store.indexer.rebuild import orders, reconciling
from ltzd.values import LTZ, Address, reward_reference
from tests.support.rows import reorgs
from tests.support.rows.core import BRAND, a_hash

PAYMENT = 2
TODAY = date(2026, 3, 1)


@dataclass(frozen=True, slots=True)
class Earned:
    """A reward of a brand to a wallet."""

    wallet: Address
    ltz: int = 100
    kind: int = 1
    brand: Address = BRAND
    day: date = TODAY


@dataclass
class Earnings:
    """Blocks are numbered from 1; each mint has a block of its own unless mints are given
    together.
    """

    pool: Pool
    owed: dict[UUID, Earned] = field(default_factory=dict)
    _numbers: "count[int]" = field(default_factory=lambda: count(1))
    _seqs: dict[UUID, int] = field(default_factory=dict)

    async def owe(self, *earned: Earned) -> list[UUID]:
        ids = [uuid4() for _ in earned]
        for id_, reward in zip(ids, earned, strict=True):
            self.owed[id_] = reward
            self._seqs[id_] = next(self._numbers)
        async with session(self.pool) as connection:
            await connection.executemany(
                """
                INSERT INTO rewards (id, kind, brand_id, wallet, ltz, earned_on, seq)
                VALUES ($1, $2, $3, $4, $5, $6, $7)
                """,
                [
                    (
                        id_,
                        reward.kind,
                        reward.brand,
                        reward.wallet,
                        reward.ltz,
                        reward.day,
                        self._seqs[id_],
                    )
                    for id_, reward in zip(ids, earned, strict=True)
                ],
            )
        return ids

    async def earn(self, *earned: Earned, block: int = 1) -> list[UUID]:
        """Inserts the rewards and mints them in one block."""
        ids = await self.owe(*earned)
        assert await self.mint(block, *ids) == len(ids)
        return ids

    async def mint(self, block: int, *ids: UUID, branch: str = "") -> int:
        """Inserts the mints as the indexer does; returns how many belong to rewards."""
        mints = self.mints(block, ids, branch)
        async with transaction(self.pool) as connection:
            return await facts.insert_mints(connection, mints)

    def mints(self, block: int, ids: Sequence[UUID], branch: str = "") -> list[RewardMinted]:
        return [
            RewardMinted(
                LogPosition(
                    block, a_hash(f"block {block}{branch}"), index, a_hash(f"mint in {block}")
                ),
                self.owed[id_].wallet,
                reward_reference(id_, self.owed[id_].kind, self._seqs[id_]),
                self.owed[id_].ltz * LTZ,
            )
            for index, id_ in enumerate(ids, next(self._numbers) * 1_000)
        ]

    async def undo(self, fork: int) -> None:
        async with transaction(self.pool) as connection:
            await reorgs.undo_above(connection, fork)

    async def rebuild(self, blocks: Sequence[Sequence[UUID]], branch: str = "") -> None:
        """Swaps the mints for those of the blocks, as a rebuild does, and reconciles rewards."""
        mints = [
            mint for number, ids in enumerate(blocks, 1) for mint in self.mints(number, ids, branch)
        ]
        async with transaction(self.pool) as connection:
            await connection.execute("DELETE FROM mints")
            await connection.copy_records_to_table(
                "mints", columns=facts.MINTS.all_columns, records=map(facts.MINTS.row_of, mints)
            )
            rebuild_id = await connection.fetchval(
                "INSERT INTO rebuilds (reason, state) VALUES ('ordered', 'swapped') RETURNING id"
            )
        await reconcile(self.pool, rebuild_id)
        async with session(self.pool) as connection:
            await orders.end(connection, rebuild_id)


async def reconcile(pool: Pool, rebuild_id: int) -> None:
    for step in (reconciling.record_mints, reconciling.clear_lost_mints):
        more = True
        while more:
            async with transaction(pool) as connection:
                more = await step(connection, rebuild_id)
