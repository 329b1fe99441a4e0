"""A reorg is one commit: readers see the old branch or the new one, and nothing in between.

A node that was wiped, is syncing, or was started as another chain undoes nothing.
"""

from dataclasses import replace

import pytest
from msgspec import structs

from ltzd.errors import Broken, IndexStopped, NodeUnavailable
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.store.database import Pool, session
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import Cursor
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub
from ltzd.values import ZERO_ADDRESS
from tests.support.chain.fake_node import (
    CHAIN_ID,
    CONTRACTS,
    FakeNode,
    Log,
    token_moved_log,
    transfer_log,
)
from tests.support.rows.core import a_hash, a_wallet, follow
from tests.support.rows.index_readers import IndexReader, IndexState

ANN, BOB = a_wallet(1), a_wallet(2)
POLICY = IndexerPolicy(poll_seconds=0.01)
DEEPEST = 64


def given(amount: int) -> Log:
    return transfer_log(ZERO_ADDRESS, ANN, amount)


class Followed:
    """A follower of one fake node, with a clock that only the test moves."""

    def __init__(self, pool: Pool, node: FakeNode, follower: Follower, now: list[float]) -> None:
        self.pool = pool
        self.node = node
        self.follower = follower
        self._now = now

    async def step(self, after: float = 0.0) -> bool:
        self._now[0] += after
        return await self.follower.step()

    async def arrive(self) -> None:
        for _ in range(100):
            if not await self.step() and (await self.cursor()).hash == self.node.head.hash:
                return
        raise AssertionError("the follower does not arrive")

    async def cursor(self) -> Cursor:
        async with session(self.pool) as connection:
            return await chains.cursor(connection, CHAIN_ID)

    def mined(self, amount: int = 1, count: int = 1) -> None:
        for _ in range(count):
            self.node.mine(logs=[given(amount)])

    def expected(self) -> IndexState:
        """The state that a reader sees once the head is indexed; every transfer goes to ANN."""
        amounts = [
            int.from_bytes(log.data, "big") for block in self.node.blocks for _, log in block.logs()
        ]
        tip = self.node.head.number, bytes(self.node.head.hash)
        return IndexState(tip, tip, sum(amounts), len(amounts))


class FollowerFactory:
    """Makes followers of a chain; the last one made has the term."""

    def __init__(self, pool: Pool, url: str, node: FakeNode) -> None:
        self._pool, self._url, self._node = pool, url, node

    async def begin(self, policy: IndexerPolicy = POLICY) -> Followed:
        now = [0.0]
        follower = Follower(
            self._pool,
            Leases(self._url),
            self._node.node,
            await follow(self._pool, self._node),
            CONTRACTS,
            WakeupHub(""),
            policy,
            clock=lambda: now[0],
        )
        await follower.begin_term()
        return Followed(self._pool, self._node, follower, now)


@pytest.fixture
def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
def following(pool: Pool, database_url: str, node: FakeNode) -> FollowerFactory:
    return FollowerFactory(pool, database_url, node)


# --- one commit -------------------------------------------------------------------------------


async def test_a_reader_sees_the_old_branch_or_the_new_one(
    following: FollowerFactory, node: FakeNode, pool: Pool
) -> None:
    """Reorgs of 1 to 64 blocks, to a branch of equal length or one block more."""
    followed = await following.begin()
    followed.mined(1, DEEPEST + 5)
    await followed.arrive()
    for depth in range(1, DEEPEST + 1):
        before = followed.expected()
        reader = IndexReader(pool)
        async with reader.polling():
            node.forget_blocks(depth, forgets_transactions=True)
            followed.mined(depth % 7 + 2, depth + depth % 2)
            await followed.arrive()
        assert reader.seen <= {before, followed.expected()}, f"a gap at depth {depth}"
        assert await reader.read() == followed.expected()


async def test_a_branch_without_blocks_is_undone_down_to_its_head(
    following: FollowerFactory, node: FakeNode, pool: Pool
) -> None:
    followed = await following.begin()
    followed.mined(1, 9)
    await followed.arrive()
    node.forget_blocks(4)
    await followed.step()
    await followed.step(2.5)

    assert await IndexReader(pool).read() == followed.expected()


async def test_a_branch_that_one_commit_cannot_hold_is_written_in_parts(
    following: FollowerFactory, node: FakeNode, pool: Pool
) -> None:
    followed = await following.begin(structs.replace(POLICY, head_blocks=4, branch_blocks=8))
    followed.mined(1, 30)
    await followed.arrive()
    node.forget_blocks(20)
    followed.mined(3, 20)
    await followed.step()
    assert (await followed.cursor()).number == 18

    await followed.arrive()
    assert await IndexReader(pool).read() == followed.expected()


async def test_a_branch_of_too_many_facts_is_written_in_parts(
    following: FollowerFactory, node: FakeNode, pool: Pool
) -> None:
    followed = await following.begin(structs.replace(POLICY, head_blocks=2, branch_facts=10))
    followed.mined(1, 30)
    await followed.arrive()
    node.forget_blocks(20)
    for _ in range(20):
        node.mine(logs=[given(1)] * 3)
    await followed.step()
    assert (await followed.cursor()).number == 14

    await followed.arrive()
    assert await IndexReader(pool).read() == followed.expected()


async def test_a_branch_that_changes_while_it_is_read_is_not_written(
    following: FollowerFactory, node: FakeNode, pool: Pool
) -> None:
    followed = await following.begin(structs.replace(POLICY, head_blocks=2))
    followed.mined(1, 10)
    await followed.arrive()
    before = followed.expected()
    node.forget_blocks(6)
    followed.mined(2, 6)

    def swap() -> None:
        """Between the first part of the branch and the second one."""

        def swap_now() -> None:
            node.forget_blocks(6)
            followed.mined(3, 6)

        node.before["eth_getLogs"] = swap_now

    node.before["eth_getLogs"] = swap
    reader = IndexReader(pool)
    async with reader.polling():
        assert not await followed.step()
    assert reader.seen == {before}

    await followed.arrive()
    assert await reader.read() == followed.expected()


async def test_a_branch_that_is_shown_in_part_keeps_the_old_one_for_a_moment(
    following: FollowerFactory, node: FakeNode
) -> None:
    followed = await following.begin(structs.replace(POLICY, head_blocks=2))
    followed.mined(1, 10)
    await followed.arrive()
    before = await followed.cursor()
    node.forget_blocks(4)
    followed.mined(2, 4)
    real = node._methods["eth_getBlockByNumber"]
    node._methods["eth_getBlockByNumber"] = lambda tag, full: (
        None if tag == hex(10) else real(tag, full)
    )

    assert not await followed.step()
    assert not await followed.step(1.0)
    assert await followed.cursor() == before
    await followed.step(1.5)
    assert (await followed.cursor()).hash == node.blocks[8].hash


async def test_an_impossible_log_of_the_new_branch_keeps_the_old_one(
    following: FollowerFactory, node: FakeNode, pool: Pool
) -> None:
    followed = await following.begin()
    followed.mined(1, 5)
    await followed.arrive()
    before = followed.expected()
    node.forget_blocks(2)
    node.mine(2, logs=[token_moved_log(ZERO_ADDRESS, ANN, 2**200)])

    with pytest.raises(Broken):
        await followed.step()
    assert await IndexReader(pool).read() == before


async def test_an_undone_branch_that_returns_is_written_again(
    following: FollowerFactory, node: FakeNode, pool: Pool
) -> None:
    """The same block hashes come, go and come again."""
    followed = await following.begin()
    followed.mined(1, 10)
    await followed.arrive()
    first = list(node.blocks)
    node.forget_blocks(5)
    followed.mined(2, 5)
    second = list(node.blocks)
    for blocks in (second, first, second, first):
        node.blocks = list(blocks)
        await followed.arrive()
        assert await IndexReader(pool).read() == followed.expected()


# --- not a reorg ------------------------------------------------------------------------------


async def denied(followed: Followed, text: str, looks: int = 8) -> None:
    """The node is told to be wrong for two minutes, and nothing is undone."""
    before = await followed.cursor()
    for _ in range(looks):
        with pytest.raises(NodeUnavailable, match=text):
            await followed.step(15.0)
    assert await followed.cursor() == before


async def final_chain(following: FollowerFactory, node: FakeNode) -> Followed:
    """Block 17 of 20 is final."""
    node.final_depth = 3
    followed = await following.begin()
    followed.mined(1, 20)
    await followed.arrive()
    await followed.step()
    assert (await followed.cursor()).final_number == 17
    return followed


async def test_a_wiped_node_is_behind_and_followed_again_once_it_is_back(
    following: FollowerFactory, node: FakeNode, pool: Pool
) -> None:
    followed = await final_chain(following, node)
    all_blocks = list(node.blocks)
    node.blocks = all_blocks[:1]
    # The first look opens the dispute; later ones have lasted long enough.
    await followed.step()
    await denied(followed, "behind the final block 17: it is syncing")
    node.blocks = all_blocks[:12]
    await denied(followed, "it is syncing", 2)

    node.blocks = all_blocks
    followed.mined(1, 2)
    await followed.arrive()
    assert await IndexReader(pool).read() == followed.expected()


async def test_below_finality_one_block_tells_a_syncing_node_from_another_branch(
    following: FollowerFactory, node: FakeNode
) -> None:
    followed = await final_chain(following, node)
    node.reorg(18, forgets_transactions=True)
    del node.blocks[10:]
    tags: list[str] = []
    real = node._methods["eth_getBlockByNumber"]

    def recording(tag: str, full: bool) -> object:
        tags.append(tag)
        return real(tag, full)

    node._methods["eth_getBlockByNumber"] = recording

    await followed.step()
    await denied(followed, "below the final block 17, says one node", 2)

    heights = {int(tag, 16) for tag in tags if tag.startswith("0x")}
    assert {height for height in heights if 0 < height < 17} == {9}, "the node's head"


async def test_a_node_that_says_it_is_syncing_undoes_nothing(
    following: FollowerFactory, node: FakeNode, pool: Pool
) -> None:
    followed = await following.begin()
    followed.mined(1, 20)
    await followed.arrive()
    before = followed.expected()
    all_blocks = list(node.blocks)
    node.is_syncing = True
    del node.blocks[15:]
    for _ in range(10):
        await followed.step(2.5)
    assert await IndexReader(pool).read() == before

    node.blocks, node.is_syncing = all_blocks, False
    followed.mined(1)
    await followed.arrive()
    assert await IndexReader(pool).read() == followed.expected()


async def test_a_node_that_grows_along_the_indexed_blocks_undoes_nothing(
    following: FollowerFactory, node: FakeNode, pool: Pool
) -> None:
    """A node that syncs again and does not say so: a block more at each look."""
    followed = await following.begin()
    followed.mined(1, 20)
    await followed.arrive()
    before = followed.expected()
    for lag in range(9, -1, -1):
        node.lag = lag
        await followed.step(1.5)
        assert await IndexReader(pool).read() == before


@pytest.mark.parametrize("follows_deep", [False, True], ids=["production", "dev"])
@pytest.mark.parametrize("height", [0, 30])
async def test_a_node_started_as_another_chain_undoes_nothing(
    following: FollowerFactory, node: FakeNode, height: int, *, follows_deep: bool
) -> None:
    """As anvil does when it is started again: another genesis, at block 0 or higher."""
    followed = await following.begin(
        structs.replace(POLICY, follows_deep_reorgs=follows_deep, broken_after_seconds=0.0)
    )
    followed.mined(1, 20)
    await followed.arrive()
    node.mine(10)
    node.blocks = [
        replace(
            block,
            hash=a_hash(f"other {block.number}"),
            parent_hash=a_hash(f"other {block.number - 1}"),
        )
        for block in node.blocks[: height + 1]
    ]
    await denied(followed, "follows another chain: its genesis is", 5)


async def test_a_deep_reorg_says_what_to_run(following: FollowerFactory, node: FakeNode) -> None:
    followed = await final_chain(following, node)
    node.reorg(4)
    with pytest.raises(NodeUnavailable, match="says one node"):
        await followed.step()
    with pytest.raises(NodeUnavailable, match="says one node"):
        await followed.step(40.0)
    with pytest.raises(IndexStopped, match=r"below the final block 17.*Run: ltzd index rebuild"):
        await followed.step(40.0)


async def test_a_reorg_down_to_the_final_block_is_followed(
    following: FollowerFactory, node: FakeNode, pool: Pool
) -> None:
    followed = await final_chain(following, node)
    node.forget_blocks(3)
    followed.mined(5, 3)
    await followed.arrive()
    assert await IndexReader(pool).read() == followed.expected()


async def test_a_dev_chain_that_begins_again_at_its_first_block_is_followed(
    following: FollowerFactory, node: FakeNode, pool: Pool
) -> None:
    followed = await following.begin(structs.replace(POLICY, follows_deep_reorgs=True))
    node.final_depth = 0
    followed.mined(1, 20)
    await followed.arrive()
    await followed.step()
    node.blocks = node.blocks[:1]
    followed.mined(7, 3)
    await followed.arrive()

    assert await IndexReader(pool).read() == followed.expected()
