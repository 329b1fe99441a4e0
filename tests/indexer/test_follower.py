"""The store holds what the node's chain holds, through reorgs and faults of the node."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs
from structlog.testing import capture_logs

from ltzd import telemetry
from ltzd.errors import Broken, LaneLost, NodeUnavailable
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import IndexerPolicy
from ltzd.store.database import Pool, session
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import ChainIdentity, Cursor
from ltzd.store.operator import transactions
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import BLOCKS, WakeupHub
from ltzd.values import LTZ, ZERO_ADDRESS, Address, reward_reference
from tests.support.chain.fake_node import (
    CHAIN_ID,
    CONTRACTS,
    FakeNode,
    Log,
    minted_log,
    transfer_log,
)
from tests.support.rows.core import (
    a_lane,
    a_wallet,
    an_attempt,
    an_intent,
    follow,
    queue_reward,
    running,
    value,
)
from tests.support.waiting import until

ANN, BOB = a_wallet(1), a_wallet(2)
NEAR = IndexerPolicy(poll_seconds=0.01, head_blocks=1_000, term_pause_seconds=0.02)
"""Reads whole blocks, as near the head."""
IMPATIENT = structs.replace(NEAR, second_check_seconds=0.0)
"""Lets the second read of a lower head count at once."""
CERTAIN = structs.replace(NEAR, broken_after_seconds=0.0)
"""Believes a single node that denies final blocks at its third answer."""
FAR = IndexerPolicy(poll_seconds=0.01, head_blocks=2, range_blocks=20)
"""Reads final blocks by ranges."""


def given_to(wallet: Address, amount: int) -> Log:
    return transfer_log(ZERO_ADDRESS, wallet, amount)


@dataclass
class IndexedChain:
    """A follower that a test runs step by step."""

    pool: Pool
    url: str
    node: FakeNode
    chain: ChainIdentity
    policy: IndexerPolicy = NEAR
    wakeups: WakeupHub = field(default_factory=lambda: WakeupHub(""))

    def __post_init__(self) -> None:
        self.follower = Follower(
            self.pool,
            Leases(self.url),
            self.node.node,
            self.chain,
            CONTRACTS,
            self.wakeups,
            self.policy,
        )

    async def begin(self) -> "IndexedChain":
        async with session(self.pool) as connection:
            self.follower._epoch = await chains.begin_term(connection, CHAIN_ID)
        return self

    async def another(self, policy: IndexerPolicy | None = None) -> "IndexedChain":
        """A follower that begins a term of its own: a restart, or another process."""
        return await replace(self, policy=policy or self.policy).begin()

    async def step(self) -> bool:
        return await self.follower.step()

    async def catch_up(self, most: int = 200) -> None:
        for _ in range(most):
            if not await self.step() and (await self.cursor()).hash == self.node.head.hash:
                return
        raise AssertionError("the follower does not arrive")

    async def cursor(self) -> Cursor:
        async with session(self.pool) as connection:
            return await chains.cursor(connection, CHAIN_ID)

    async def balances(self) -> dict[Address, int]:
        async with session(self.pool) as connection:
            rows = await connection.fetch("SELECT wallet, amount FROM balances WHERE amount <> 0")
        return {Address(row["wallet"]): int(row["amount"]) for row in rows}


def balances_on_chain(node: FakeNode) -> dict[Address, int]:
    balances: Counter[Address] = Counter()
    for block in node.blocks:
        for _, log in block.logs():
            if len(log.data) == 32 and log.topics[0] == given_to(ANN, 1).topics[0]:
                amount = int.from_bytes(log.data, "big")
                balances[Address(log.topics[1][12:])] -= amount
                balances[Address(log.topics[2][12:])] += amount
    return {wallet: held for wallet, held in balances.items() if held and wallet != ZERO_ADDRESS}


@pytest.fixture
async def node() -> FakeNode:
    return FakeNode()


@pytest.fixture
async def following(pool: Pool, database_url: str, node: FakeNode) -> IndexedChain:
    chain = await follow(pool, node)
    return await IndexedChain(pool, database_url, node, chain).begin()


async def test_transfers_become_balances(following: IndexedChain, node: FakeNode) -> None:
    node.mine(logs=[given_to(ANN, 10)])
    node.mine(3)
    node.mine(logs=[transfer_log(ANN, BOB, 4), transfer_log(BOB, ZERO_ADDRESS, 1)])
    await following.catch_up()

    assert await following.balances() == {ANN: 6, BOB: 3}
    assert (await following.cursor()).number == 5
    assert await value(following.pool, "SELECT count(*) FROM blocks") == 6


def _foreign_mints() -> float:
    return telemetry.REGISTRY.get_sample_value("ltzd_indexer_foreign_mints_total") or 0.0


async def test_a_mint_marks_its_reward_as_minted(following: IndexedChain, node: FakeNode) -> None:
    async with session(following.pool) as connection:
        reward: UUID = await queue_reward(connection, ANN, 7)
    lane = await a_lane(following.pool)
    async with session(following.pool) as connection:
        await transactions.store_signed(
            connection, lane, an_intent(0, [reward]), an_attempt("mint")
        )
    foreign = minted_log(ANN, reward_reference(UUID(int=5), 1, 99), 7 * LTZ)
    node.mine(logs=[foreign, minted_log(ANN, reward_reference(reward, 1, 0), 7 * LTZ)])
    before = _foreign_mints()
    await following.catch_up()

    assert _foreign_mints() == before + 1
    assert await value(following.pool, "SELECT mint_block_hash FROM rewards") == node.head.hash
    assert await value(following.pool, "SELECT count(*) FROM mints") == 2


async def test_waiters_for_blocks_are_notified(following: IndexedChain, node: FakeNode) -> None:
    wakeup = following.wakeups.subscribe(BLOCKS)
    node.mine()
    await following.catch_up()
    async with asyncio.timeout(20):
        await wakeup.wait(30)


async def test_an_empty_answer_for_logs_is_rechecked(
    following: IndexedChain, node: FakeNode
) -> None:
    node.mine(logs=[given_to(ANN, 10)])
    node.empty_answers = 1
    await following.catch_up()

    assert await following.balances() == {ANN: 10}
    assert node.call_counts["eth_getBlockReceipts"] == 0, "the logs by block hash were enough"


async def test_receipts_decide_about_an_empty_answer_for_logs(
    following: IndexedChain, node: FakeNode
) -> None:
    node.mine(logs=[given_to(ANN, 10)])
    node.empty_answers = 1
    node.is_blind_by_hash = True
    await following.catch_up()

    assert await following.balances() == {ANN: 10}


async def test_a_block_whose_bloom_excludes_the_contracts_is_not_rechecked(
    following: IndexedChain, node: FakeNode
) -> None:
    node.mine(3)
    await following.catch_up()

    assert node.call_counts["eth_getLogs"] == 1


async def test_logs_of_another_branch_are_not_committed(
    following: IndexedChain, node: FakeNode
) -> None:
    """The chain changes between the headers of a batch and its logs."""
    node.mine(logs=[given_to(ANN, 10)])

    def swap() -> None:
        node.forget_blocks(1)
        node.mine(logs=[given_to(BOB, 20)])

    node.before["eth_getLogs"] = swap
    assert not await following.step()
    assert (await following.cursor()).number == 0
    assert await following.balances() == {}

    await following.catch_up()
    assert await following.balances() == {BOB: 20}


async def test_headers_whose_logs_are_on_a_lost_branch_are_not_committed(
    following: IndexedChain, node: FakeNode
) -> None:
    node.mine(logs=[given_to(ANN, 10)])

    def swap() -> None:
        node.forget_blocks(1)
        node.mine()

    node.before["eth_getLogs"] = swap
    with pytest.raises(NodeUnavailable, match="unknown block"):
        await following.step()
    assert (await following.cursor()).number == 0

    await following.catch_up()
    assert await following.balances() == {}


async def test_headers_of_two_branches_are_not_committed(
    following: IndexedChain, node: FakeNode
) -> None:
    node.mine(4, logs=[given_to(ANN, 10)])
    calls = 0
    real = node._methods["eth_getBlockByNumber"]

    def third_comes_from_another_branch(tag: str, full: bool) -> object:
        nonlocal calls
        calls += 1
        if calls == 6:  # head, finalized, the cursor, blocks 1 and 2, now block 3
            node.reorg(3)
        return real(tag, full)

    node._methods["eth_getBlockByNumber"] = third_comes_from_another_branch
    assert not await following.step()
    assert (await following.cursor()).number == 0
    await following.catch_up()
    assert await following.balances() == balances_on_chain(node)


async def test_a_node_that_contradicts_itself_about_a_parent_is_read_again_later(
    following: IndexedChain, node: FakeNode
) -> None:
    node.mine(1, logs=[given_to(ANN, 10)])
    await following.catch_up()
    before = await following.cursor()
    node.mine(2)
    real = node._methods["eth_getBlockByNumber"]

    def with_another_parent(tag: str, full: bool) -> object:
        block = real(tag, full)
        return block | {"parentHash": "0x" + "77" * 32} if tag == "0x2" else block

    node._methods["eth_getBlockByNumber"] = with_another_parent
    assert not await following.step(), "the node was asked again at once"
    assert await following.cursor() == before

    node._methods["eth_getBlockByNumber"] = real
    await following.catch_up()
    assert await following.balances() == balances_on_chain(node)


async def test_a_range_of_an_abandoned_branch_is_not_committed(
    following: IndexedChain, node: FakeNode
) -> None:
    far = await following.another(FAR)
    node.final_depth = 0
    node.mine(10, logs=[given_to(ANN, 10)])

    def swap() -> None:
        """Swaps after the answer to the logs and before the answer to the headers."""

        def swap_now() -> None:
            node.forget_blocks(10)
            node.mine(10, logs=[given_to(BOB, 20)])

        node.before["eth_getBlockByNumber"] = swap_now

    node.before["eth_getLogs"] = swap
    assert not await far.step()
    assert (await far.cursor()).number == 0
    await far.catch_up()
    assert await far.balances() == {BOB: 20}


async def test_a_swapped_tip_at_the_same_height_is_a_reorg(
    following: IndexedChain, node: FakeNode
) -> None:
    node.mine(3, logs=[given_to(ANN, 10)])
    node.mine(logs=[transfer_log(ANN, BOB, 10)])
    await following.catch_up()
    assert await following.balances() == {BOB: 10}

    node.forget_blocks(1)
    node.mine(logs=[transfer_log(ANN, BOB, 3)])
    await following.catch_up()

    assert await following.balances() == {ANN: 7, BOB: 3}
    assert await value(following.pool, "SELECT count(*) FROM blocks") == 5


@pytest.mark.parametrize("depth", [1, 3, 30])
async def test_a_reorg_is_undone_down_to_the_fork(
    following: IndexedChain, node: FakeNode, depth: int
) -> None:
    following = await following.another(structs.replace(NEAR, fork_search_blocks=4))
    node.mine(logs=[given_to(ANN, 100)])
    for _ in range(40):
        node.mine(logs=[transfer_log(ANN, BOB, 1)])
    await following.catch_up()

    node.reorg(depth)
    await following.catch_up()

    assert await following.balances() == {ANN: 60 + depth, BOB: 40 - depth}
    assert (await following.cursor()).hash == node.head.hash


async def test_a_head_that_is_lower_for_a_moment_is_a_stale_node(
    following: IndexedChain, node: FakeNode
) -> None:
    node.mine(5, logs=[given_to(ANN, 10)])
    await following.catch_up()
    before = await following.cursor()

    node.lag = 3
    for _ in range(5):
        assert not await following.step()
    assert await following.cursor() == before
    assert await following.balances() == {ANN: 10}

    node.lag = 0
    node.mine()
    await following.catch_up()
    assert await value(following.pool, "SELECT count(*) FROM blocks") == 7


async def test_a_head_that_stays_lower_is_a_reorg_at_the_second_read(
    following: IndexedChain, node: FakeNode
) -> None:
    following = await following.another(IMPATIENT)
    node.mine(3, logs=[given_to(ANN, 10)])
    node.mine(2, logs=[transfer_log(ANN, BOB, 10)])
    await following.catch_up()

    node.forget_blocks(2)
    assert not await following.step()
    assert (await following.cursor()).number == 5, "the first read proves nothing"
    await following.step()

    assert (await following.cursor()).hash == node.head.hash
    assert await following.balances() == {ANN: 10}


async def test_a_lower_head_that_recovers_is_not_counted(
    following: IndexedChain, node: FakeNode
) -> None:
    """A lower head, a recovered head and a lower head again count as two first reads."""
    following = await following.another(IMPATIENT)
    node.mine(5)
    await following.catch_up()
    before = await following.cursor()
    for _ in range(3):
        node.lag = 2
        await following.step()
        node.lag = 0
        await following.step()
    assert await following.cursor() == before


async def test_a_reorg_below_finality_is_followed_if_the_policy_allows_it(
    following: IndexedChain, node: FakeNode
) -> None:
    deep = await following.another(structs.replace(NEAR, follows_deep_reorgs=True))
    node.final_depth = 1
    node.mine(10, logs=[given_to(ANN, 10)])
    await deep.catch_up()
    assert (await deep.cursor()).final_number == 9

    node.reorg(10)
    await deep.catch_up()
    assert await deep.balances() == {}


async def test_otherwise_a_reorg_below_finality_stops_the_follower_and_changes_nothing(
    following: IndexedChain, node: FakeNode
) -> None:
    following = await following.another(CERTAIN)
    node.final_depth = 3
    node.mine(10, logs=[given_to(ANN, 10)])
    await following.catch_up()
    before = await following.cursor()

    node.reorg(4)
    for _ in range(2):
        with pytest.raises(NodeUnavailable, match="says one node"):
            await following.step()
    with pytest.raises(Broken, match="below the final block 7"):
        await following.step()

    assert await following.cursor() == before
    assert await following.balances() == {ANN: 10}


async def test_a_range_that_the_node_finds_too_large_is_halved(
    following: IndexedChain, node: FakeNode
) -> None:
    far = await following.another(FAR)
    node.final_depth = 0
    node.longest_range = 3
    for number in range(60):
        node.mine(logs=[given_to(a_wallet(number % 7 + 1), number)])
    await far.catch_up()

    assert await far.balances() == balances_on_chain(node)
    assert await value(far.pool, "SELECT count(*) FROM transfers") == 60


@pytest.mark.parametrize("policy", [FAR, NEAR], ids=["far", "near"])
async def test_a_block_whose_logs_are_refused_is_read_from_its_receipts(
    following: IndexedChain, node: FakeNode, policy: IndexerPolicy
) -> None:
    far = await following.another(policy)
    node.final_depth = 0
    node.longest_range = 0
    for number in range(6):
        node.mine(logs=[given_to(a_wallet(number + 1), number)])
    await far.catch_up()

    assert await far.balances() == balances_on_chain(node)
    assert await value(far.pool, "SELECT count(*) FROM transfers") == 6


async def test_far_from_the_head_only_blocks_with_facts_are_kept(
    following: IndexedChain, node: FakeNode
) -> None:
    far = await following.another(FAR)
    node.final_depth = 0
    node.mine(7)
    node.mine(12, logs=[given_to(ANN, 10)])
    node.mine(1)
    assert not await far.step()

    assert (await far.cursor()).number == 20
    async with session(far.pool) as connection:
        rows = await connection.fetch("SELECT number FROM blocks ORDER BY number")
    assert [row["number"] for row in rows] == [0, 8, 20]

    node.reorg(5)
    deep = await far.another(structs.replace(FAR, follows_deep_reorgs=True))
    await deep.catch_up()
    assert await deep.balances() == {ANN: 10}


async def test_a_restart_resumes_at_the_cursor(following: IndexedChain, node: FakeNode) -> None:
    node.mine(5, logs=[given_to(ANN, 10)])
    await following.catch_up()
    node.mine(logs=[given_to(ANN, 1)])
    node.call_counts.clear()

    again = await following.another()
    await again.catch_up()

    assert await again.balances() == {ANN: 11}
    assert node.call_counts["eth_getLogs"] == 1
    assert node.call_counts["eth_getBlockByNumber"] <= 10


async def test_a_follower_whose_term_has_ended_writes_nothing(
    following: IndexedChain, node: FakeNode
) -> None:
    newer = await following.another()
    node.mine(logs=[given_to(ANN, 10)])
    with pytest.raises(LaneLost):
        await following.step()
    assert await following.balances() == {}
    await newer.catch_up()

    node.reorg(1)
    with pytest.raises(LaneLost):
        await following.step()
    assert await following.balances() == {ANN: 10}


async def test_finality_is_the_nodes_if_it_reports_one(
    following: IndexedChain, node: FakeNode
) -> None:
    node.final_depth = 4
    node.mine(10)
    await following.catch_up()
    await following.step()
    assert (await following.cursor()).final_number == 6


async def test_without_the_nodes_finality_a_depth_and_a_time_decide(
    following: IndexedChain, node: FakeNode
) -> None:
    own = await following.another(structs.replace(NEAR, final_depth=4, final_seconds=0.0))
    node.final_depth = None
    node.mine(10)
    await own.catch_up()
    await own.step()
    assert (await own.cursor()).final_number == 6

    slow = await following.another(structs.replace(NEAR, final_depth=1, final_seconds=3600.0))
    await slow.step()
    assert (await slow.cursor()).final_number == 6


# --- whole terms ------------------------------------------------------------------------------


async def test_one_of_two_followers_serves_and_the_other_takes_over(
    following: IndexedChain, node: FakeNode
) -> None:
    first, other = following.follower, (await following.another()).follower
    async with running(first.run(), other.run()):

        async def arrived() -> bool:
            return (await following.cursor()).hash == node.head.hash

        async def one_serves() -> bool:
            return first.is_serving != other.is_serving

        for _ in range(4):
            node.mine(logs=[given_to(ANN, 1)])
            await until(arrived)
            await until(one_serves)
            await value(
                following.pool,
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity "
                "WHERE application_name LIKE 'ltzd leases' AND datname = current_database()",
            )
        node.mine(logs=[given_to(ANN, 1)])
        await until(arrived)
    assert await following.balances() == {ANN: 5}


async def test_a_node_is_followed_again_after_an_outage(
    following: IndexedChain, node: FakeNode
) -> None:
    with capture_logs() as logs:
        async with running(following.follower.run()):
            await _follow_through_an_outage(following, node)
    assert await following.balances() == {ANN: 2}
    lines = [line["event"] for line in logs]
    # The lease is not taken again and again meanwhile, and nothing is told twice.
    assert lines == [
        *("lease.taken", "indexer.serving", "indexer.term_over"),
        *("lease.taken", "indexer.serves_again"),
    ]
    assert logs[-1]["failures"] >= 5


async def test_a_follower_that_is_told_to_end_while_its_term_ends_follows_no_further(
    following: IndexedChain, node: FakeNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A silent database, for one, lets the audit take its time to end after the node has failed."""
    is_ending, may_end = asyncio.Event(), asyncio.Event()

    async def ends_slowly(_epoch: int) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            is_ending.set()
            await may_end.wait()

    monkeypatch.setattr(following.follower._audit, "run", ends_slowly)
    run = asyncio.create_task(following.follower.run())

    async def serves() -> bool:
        return following.follower.is_serving

    await until(serves)
    node.is_down = True
    await is_ending.wait()
    run.cancel()
    may_end.set()
    done, _ = await asyncio.wait({run}, timeout=20.0)
    run.cancel()
    assert done == {run}
    assert run.cancelled()


async def _follow_through_an_outage(following: IndexedChain, node: FakeNode) -> None:
    async def arrived() -> bool:
        return (await following.cursor()).hash == node.head.hash

    node.mine(logs=[given_to(ANN, 1)])
    await until(arrived)
    node.is_down = True

    async def waiting() -> bool:
        return not following.follower.is_serving and node.call_counts.total() >= calls_before + 10

    calls_before = node.call_counts.total()
    await until(waiting)
    node.mine(3, logs=[given_to(ANN, 1)])
    node.is_down = False
    await until(arrived)


# --- random faults ----------------------------------------------------------------------------

happenings = st.lists(
    st.one_of(
        st.tuples(st.just("mine"), st.integers(1, 3), st.integers(0, 3), st.integers(0, 3)),
        st.tuples(st.just("reorg"), st.integers(1, 6)),
        st.tuples(st.just("swap"), st.integers(1, 3)),
        st.tuples(st.just("lag"), st.integers(0, 4)),
        st.tuples(st.just("empty"), st.integers(1, 2)),
        st.tuples(st.just("omit"), st.integers(0, 3)),
        st.tuples(st.just("steps"), st.integers(1, 3)),
    ),
    max_size=25,
)


@given(happenings, st.sampled_from([NEAR, FAR]), st.sampled_from([0, 3, None]))
@settings(
    max_examples=40,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
async def test_under_random_faults_balances_follow_the_chain(
    pool: Pool,
    database_url: str,
    happened: list[tuple[str, int] | tuple[str, int, int, int]],
    policy: IndexerPolicy,
    final_depth: int | None,
) -> None:
    async with session(pool) as connection:
        await connection.execute("TRUNCATE transfers, mints, balances, blocks, chains")
    node = FakeNode()
    node.final_depth = final_depth
    deep = structs.replace(policy, follows_deep_reorgs=True, final_seconds=0.0, final_depth=2)
    following = await IndexedChain(pool, database_url, node, await follow(pool, node), deep).begin()
    omitted = 0
    node._methods["eth_getLogs"] = lambda where: [
        entry
        for entry in FakeNode._logs(node, where)
        if omitted == 0 or int(entry["blockNumber"], 16) % 4 != omitted
    ]
    for what, count, *wallets in happened:
        match what:
            case "mine":
                held = balances_on_chain(node).get(a_wallet(wallets[0]), 0)
                sender = a_wallet(wallets[0]) if wallets[0] else ZERO_ADDRESS
                amount = held // 2 if wallets[0] else 1_000
                node.mine(count, logs=[transfer_log(sender, a_wallet(wallets[1]), amount)])
            case "reorg":
                node.reorg(min(count, node.head.number))
            case "swap":
                depth = min(count, node.head.number)
                node.forget_blocks(depth)
                node.mine(depth, logs=[given_to(ANN, 7)] if depth else [])
            case "lag":
                node.lag = min(count, node.head.number)
            case "empty":
                node.empty_answers = count
            case "omit":
                omitted = count
            case "steps":
                for _ in range(count):
                    await following.step()
        node.lag = min(node.lag, node.head.number)
    node.lag = 0
    node.mine()
    await following.catch_up()

    assert await following.balances() == balances_on_chain(node)
    assert await value(pool, "SELECT count(*) FROM transfers") == sum(
        len(list(block.logs())) for block in node.blocks
    )
