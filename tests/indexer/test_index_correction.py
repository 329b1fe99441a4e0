"""Facts are corrected anywhere in the history, with everything that is derived from them."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from ltzd.errors import ImpossibleFact, IndexMoved, LaneLost
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.indexer.reading import BlockRange
from ltzd.store.database import Pool, session, transaction
from ltzd.store.indexer import chains, index_correction
from ltzd.store.indexer.fact_rows import TableCorrection
from ltzd.store.indexer.index_correction import IndexCorrection
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from ltzd.values import Hash32
from tests.support.chain.fake_node import CHAIN_ID, CONTRACTS
from tests.support.index_model.chain import REWARDS, ModelChain
from tests.support.index_model.node import LogFaultsNode
from tests.support.index_model.tables import DERIVED, FACTS, differences, insert_rewards
from tests.support.rows.core import follow

POLICY = IndexerPolicy(head_blocks=1_000, second_check_seconds=0.0)


class Indexed:
    """A model chain that is indexed, and the facts that were committed."""

    def __init__(self, pool: Pool, url: str, seed: int) -> None:
        node = LogFaultsNode()
        node.final_depth = 4
        self.pool = pool
        self.chain = ModelChain(node, seed)
        self._url = url
        self.facts: list[Any] = []
        self.blocks: list[chains.BlockRow] = []

    async def start(self, blocks: int = 60) -> "Indexed":
        await insert_rewards(self.pool, REWARDS)
        identity = await follow(self.pool, self.chain.node)
        hub, leases = WakeupHub(""), Leases(self._url)
        node = self.chain.node.node
        follower = Recording(self.pool, leases, node, identity, CONTRACTS, hub, POLICY)
        follower.seen = self
        await follower.begin_term()
        self.chain.mine(blocks)
        while await follower.step():
            pass
        assert await differences(self.pool, self.chain.states) == {}
        return self

    def correction(
        self, removed: Sequence[Any] = (), inserted: Sequence[Any] = ()
    ) -> IndexCorrection:
        contracts = []
        for contract in CONTRACTS:
            corrections = {
                table.name: TableCorrection(
                    [fact.position.order for fact in removed if isinstance(fact, table.kinds)],
                    [fact for fact in inserted if isinstance(fact, table.kinds)],
                )
                for table in contract.fact_tables
            }
            contracts.append((contract.correct, corrections))
        numbers = {fact.position.block_number for fact in inserted}
        return IndexCorrection(
            [block for block in self.blocks if block.number in numbers], contracts
        )

    async def apply(self, change: IndexCorrection, epoch: int | None = None) -> None:
        async with transaction(self.pool) as connection:
            await index_correction.apply(connection, CHAIN_ID, change, epoch=epoch)

    async def tables(self) -> dict[str, list[Any]]:
        async with session(self.pool) as connection:
            return {
                table: sorted(map(repr, await connection.fetch(f"SELECT * FROM {table}")))
                if table != "balances"
                else sorted(await connection.fetch("SELECT * FROM balances WHERE amount > 0"))
                for table in (*FACTS, *DERIVED, "earnings", "webhooks")
            }


class Recording(Follower):
    """Remembers the blocks and the facts that it has committed."""

    seen: Indexed

    async def _commit(
        self,
        cursor: chains.Cursor,
        block_range: BlockRange,
        head_number: int,
        fork: tuple[int, Hash32] | None = None,
    ) -> Any:
        self.seen.facts += [fact for _, facts in block_range.facts for fact in facts]
        self.seen.blocks += block_range.blocks
        return await super()._commit(cursor, block_range, head_number, fork)


@pytest.mark.parametrize("seed", range(3))
async def test_removed_facts_that_are_inserted_again_give_the_same_index(
    pool: Pool, database_url: str, seed: int
) -> None:
    indexed = await Indexed(pool, database_url, seed).start()
    before = await indexed.tables()
    chance = random.Random(seed)
    removed = 0
    for _ in range(8):
        facts = chance.sample(indexed.facts, chance.randint(1, 12))
        try:
            await indexed.apply(indexed.correction(removed=facts))
        except ImpossibleFact:
            assert await differences(pool, indexed.chain.states) == {}, "half a correction stayed"
            continue
        removed += len(facts)
        assert await differences(pool, indexed.chain.states) != {}
        for _ in range(2):  # safe to repeat
            await indexed.apply(indexed.correction(inserted=facts))
            assert await differences(pool, indexed.chain.states) == {}
    assert removed
    assert await indexed.tables() == before


@pytest.mark.parametrize("seed", range(2))
async def test_all_facts_can_go_and_come_back_in_one_mending(
    pool: Pool, database_url: str, seed: int
) -> None:
    indexed = await Indexed(pool, database_url, seed).start(30)
    await indexed.apply(indexed.correction(removed=indexed.facts))
    async with session(pool) as connection:
        for table in (*FACTS, "tokens", "collections", "items", "deals"):
            assert await connection.fetchval(f"SELECT count(*) FROM {table}") == 0, table
        assert not await connection.fetchval("SELECT count(*) FROM balances")

    await indexed.apply(indexed.correction(inserted=indexed.facts))
    assert await differences(pool, indexed.chain.states) == {}


async def test_a_block_that_is_not_indexed_any_more_is_not_mended(
    pool: Pool, database_url: str
) -> None:
    indexed = await Indexed(pool, database_url, 1).start()
    newest = max(indexed.facts, key=lambda fact: fact.position.block_number)
    async with session(pool) as connection:
        final = await connection.fetchval("SELECT final_number FROM chains")
        await connection.execute("UPDATE chains SET final_number = 0")
        await connection.execute(
            "DELETE FROM blocks WHERE number = $1", newest.position.block_number
        )
    with pytest.raises(IndexMoved):
        await indexed.apply(indexed.correction(inserted=[newest]))
    assert newest.position.block_number > final - 60


async def test_a_holder_of_an_earlier_term_mends_nothing(pool: Pool, database_url: str) -> None:
    indexed = await Indexed(pool, database_url, 2).start(20)
    with pytest.raises(LaneLost):
        await indexed.apply(indexed.correction(removed=indexed.facts), epoch=0)
    assert await differences(pool, indexed.chain.states) == {}
