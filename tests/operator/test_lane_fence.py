"""A lane signs nothing while its database may not know all that its wallet has done."""

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from msgspec.structs import replace

from ltzd.chain.deployment import agreement
from ltzd.chain.signing import Signer, UnsignedTransaction
from ltzd.errors import NodeUnavailable, Refused
from ltzd.operator.mints.claims import RewardClaims
from ltzd.operator.policy import COMPARING, FOREIGN_USE
from ltzd.rules.operator.fees import GWEI
from ltzd.store.database import open_pool, session
from ltzd.store.operator import restore
from ltzd.values import LTZ, checksummed, reward_reference
from tests.support.chain.fake_node import CHAIN_ID, OTHERS_AT, FakeNode, minted_log, transfer_log
from tests.support.chain.mint_world import PAUSES, POLICY, World, stop_of, true
from tests.support.rows.core import MINTER, a_wallet, running, states, value
from tests.support.services.postgres import Databases
from tests.support.waiting import until

ADOPTING = replace(POLICY, adopts_wallets=True)
COMPARING_LONG = replace(POLICY, pauses=replace(PAUSES, comparing=5.0))


def publish_foreign(node: FakeNode, nonce: int, wallet: Signer = MINTER) -> None:
    """Puts a transaction into the pool that the wallet's key has signed elsewhere."""
    call = UnsignedTransaction(
        CHAIN_ID, nonce, GWEI, 9 * GWEI, 60_000, OTHERS_AT[0], 0, b"\xf0", False
    )
    node.publish_elsewhere(wallet.sign(call).raw)


@asynccontextmanager
async def a_second_world(databases: Databases, node: FakeNode) -> AsyncIterator[World]:
    """Another database that follows the same chain."""
    async with databases.fresh() as url:
        pool = await open_pool(url)
        other = World(url, pool, pool, node)
        async with running((await other.follow()).run()):
            yield other
        pool.terminate()


async def next_nonce(world: World) -> int | None:
    nonce: int | None = await value(world.observer, "SELECT next_nonce FROM lanes")
    return nonce


# --- the beginning of a term -----------------------------------------------------------------


async def test_a_database_that_does_not_know_a_used_wallet_is_refused_until_it_is_adopted(
    world: World,
) -> None:
    for _ in range(3):
        world.node.use_nonce(MINTER)
    world.node.mines_at_once = True
    await world.queue()
    async with world.lane() as lane:
        reason = await stop_of(lane)
        assert "which has used 3 nonces on chain" in reason
        assert f"run `ltzd lane adopt {checksummed(MINTER.address)}`" in reason
        assert await next_nonce(world) is None
        assert not world.node.arrived
    await world.adopt()
    async with world.serving():
        await world.minted()
    assert world.node.nonces().keys() == {3}


async def test_a_wallet_whose_first_transactions_are_pending_is_refused(world: World) -> None:
    publish_foreign(world.node, 0)
    async with world.lane() as lane:
        assert "1 more wait in a node's pool" in await stop_of(lane)
    await world.adopt()
    assert await next_nonce(world) == 1


async def test_a_copy_of_the_database_is_refused_while_what_it_lacks_is_pending(
    world: World,
) -> None:
    """A copy of the files has the same timeline, so that only the pool tells."""
    async with world.serving():
        pass
    publish_foreign(world.node, 0)
    await world.queue()
    async with world.lane() as lane:
        assert "has signed 1 nonces on chain, the database knows 0" in await stop_of(lane)
    assert await states(world.observer) == []


async def test_a_fresh_wallet_starts_at_once_and_is_taken_over_at_once(world: World) -> None:
    world.node.mines_at_once = True
    await world.queue()
    async with world.serving():
        await world.minted()
    await world.queue()
    async with world.serving():
        await world.minted()
    assert world.node.nonces().keys() == {0, 1}


async def test_a_dev_chains_wallet_with_a_history_is_adopted_by_itself(world: World) -> None:
    for _ in range(3):
        world.node.use_nonce(MINTER)
    world.node.mines_at_once = True
    await world.queue()
    async with world.serving(ADOPTING):
        await world.minted()
    assert world.node.nonces().keys() == {3}


async def test_an_adopted_wallet_signs_once_what_was_pending_is_mined(world: World) -> None:
    publish_foreign(world.node, 0)
    publish_foreign(world.node, 1)
    await world.queue()
    await world.adopt()
    async with world.lane() as lane:
        await until(lambda: true(lane.pause.reason == COMPARING))
        await world.some_polls()
        assert not world.node.arrived
        world.node.mine()
        await until(lambda: true(bool(world.node.arrived)))
        world.node.mine()
        await world.minted()
    assert world.node.nonces().keys() == {2}


# --- foreign use while a lane runs -----------------------------------------------------------


async def test_two_databases_with_one_wallet_stop_loudly_and_lose_no_reward(
    world: World, databases: Databases
) -> None:
    """Both begin with a fresh wallet. The one that is overtaken stops; once its wallet is its own
    again, all of its rewards are minted."""
    async with a_second_world(databases, world.node) as other:
        async with world.serving() as first, other.serving() as second:
            ids = await world.queue(30)
            await world.settled("published")
            world.node.pool, others = {}, world.node.pool
            await other.queue(30)
            await other.settled("published")
            world.node.pool = others
            world.node.mine()
            await world.minted()
            await until(lambda: true(second.stopped is not None))
            reason = str(second.stopped)
            assert "Something else signs with the key" in reason
            assert f"run `ltzd lane adopt {checksummed(MINTER.address)}`" in reason
            assert first.stopped is None
            before = len(world.node.arrived)
            other_ids = await other.queue(30)
            await other.some_polls()
            assert {sent.nonce for sent in world.node.sent()[before:]} <= {0}
            world.node.mine(3)
            await other.settled("displaced")
        world.node.mines_at_once = True
        await other.adopt()
        await other.restore()
        async with other.serving():
            await other.minted()
        assert len(ids) == 30
        assert len(other_ids) == 30
        await each_reward_minted_once(world, other)


async def each_reward_minted_once(*worlds: World) -> None:
    minted = Counter(UUID(bytes=reference[:16]) for reference in worlds[0].node.minted().elements())
    known: set[UUID] = set()
    for world in worlds:
        async with session(world.observer) as connection:
            known |= {row["id"] for row in await connection.fetch("SELECT id FROM rewards")}
    assert minted == Counter(known)


async def test_a_lane_that_is_closed_while_it_claims_rewards_signs_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = RewardClaims.take

    async def closing(claims: RewardClaims, at_least: int, most: int) -> Any:
        claimed = await take(claims, at_least, most)
        if claimed:
            world.node.use_nonce(MINTER)
            await until(lambda: true(lane.stopped is not None))
        return claimed

    # Before the lane looks for rewards: a look that is under way would claim the reward.
    monkeypatch.setattr(RewardClaims, "take", closing)
    async with world.serving() as lane:
        await world.queue()
        await until(lambda: true(lane.stopped is not None))
        await world.some_polls()
        assert not world.node.arrived
        assert await value(world.observer, "SELECT count(*) FROM transactions") == 0


async def test_an_idle_lane_notices_a_foreign_transaction_before_it_signs(world: World) -> None:
    async with world.serving() as lane:
        world.node.use_nonce(MINTER)
        await until(lambda: true(lane.stopped is not None))
        assert "has used 1 nonces on chain, and the lane has signed 0" in str(lane.stopped)
        await world.queue()
        await world.some_polls()
        assert not world.node.arrived
        assert lane.pause.reason == FOREIGN_USE
        world.node.mines_at_once = True
        await world.adopt()
        await world.minted()
        assert lane.stopped is None
    assert world.node.nonces().keys() == {1}


async def test_a_node_that_takes_its_claim_back_opens_the_lane_again(world: World) -> None:
    world.node.mines_at_once = True
    async with world.serving() as lane:
        world.node.false_nonce = 5
        await until(lambda: true(lane.stopped is not None))
        world.node.false_nonce = None
        await until(lambda: true(lane.stopped is None))
        await world.queue()
        await world.minted()


async def test_a_stopped_lane_is_silent_once_another_one_serves_its_wallet(world: World) -> None:
    brief = replace(POLICY, pauses=replace(PAUSES, standby=0.05, after_stop=0.02))
    world.node.use_nonce(MINTER)
    async with world.lane(brief) as first, world.lane(brief) as second:
        await stop_of(first)
        await stop_of(second)
        await world.adopt()
        await until(lambda: true([first.stopped, second.stopped] == [None, None]))
        await until(lambda: true(first.is_ready != second.is_ready))
        assert [first.stopped, second.stopped] == [None, None]


async def test_a_lane_stays_closed_in_its_next_term(world: World) -> None:
    async with world.serving() as lane:
        world.node.use_nonce(MINTER)
        await until(lambda: true(lane.stopped is not None))
    async with world.lane() as lane:
        assert "has used 1 nonces on chain" in await stop_of(lane)
        assert not lane.is_ready


# --- a promoted replica, a restored backup ---------------------------------------------------


async def pretend_promotion(world: World) -> None:
    await value(world.observer, "UPDATE lanes SET timeline = 'another server' RETURNING 1")


async def test_after_a_promotion_that_lost_nothing_the_lane_signs_after_a_while(
    world: World,
) -> None:
    world.node.mines_at_once = True
    async with world.serving():
        pass
    await pretend_promotion(world)
    await world.queue()
    async with world.lane() as lane:
        await until(lambda: true(lane.pause.reason == COMPARING))
        assert not world.node.arrived
        await world.minted()
        assert lane.pause.reason is None
    assert await value(world.observer, "SELECT timeline LIKE 'system % timeline %' FROM lanes")


async def test_after_a_promotion_a_pending_transaction_that_the_database_lost_stops_the_lane(
    world: World,
) -> None:
    async with world.serving():
        pass
    await pretend_promotion(world)
    await world.queue()
    async with world.lane(COMPARING_LONG) as lane:
        await until(lambda: true(lane.pause.reason == COMPARING))
        publish_foreign(world.node, 0)
        reason = await stop_of(lane)
        assert "it has lost its last commits" in reason
        assert "`ltzd restore check`" in reason
    assert await states(world.observer) == []


async def test_a_foreign_use_that_shows_during_the_comparison_keeps_the_lane_closed(
    world: World,
) -> None:
    """The nonce of a stored transaction is used by bytes that the database lacks."""
    await world.queue()
    async with world.serving():
        await world.settled("published")
    await pretend_promotion(world)
    world.node.use_nonce(MINTER)
    await world.queue()
    async with world.lane(replace(POLICY, pauses=replace(PAUSES, comparing=2.0))) as lane:
        await until(lambda: true(lane.pause.reason == FOREIGN_USE))
        await until(lambda: is_compared(world))
        await world.some_polls()
        assert lane.pause.reason == FOREIGN_USE
        assert not lane.is_ready
    assert await next_nonce(world) == 1


async def is_compared(world: World) -> bool:
    """Whether the lane's row names this server again."""
    return bool(await value(world.observer, "SELECT timeline <> 'another server' FROM lanes"))


async def test_a_lost_mint_is_linked_to_its_reward_before_anything_is_signed(
    world: World,
) -> None:
    """The database goes back to before the signing; the mint is mined, and minted once."""
    ids = await world.queue(3)
    async with world.serving():
        await world.settled("published")
    await world.lose_the_last_commits()
    world.node.mine()
    async with world.lane() as lane:
        assert "the database is an old copy" in await stop_of(lane)
    applied = await world.restore()
    assert [nonce for _, nonce in applied.resumed] == [1]
    assert applied.raised_to == 256
    world.node.mines_at_once = True
    more = await world.queue(2)
    async with world.serving():
        await world.minted()
    assert world.node.minted() == Counter(await world.references())
    assert len(await world.references()) == len(ids) + len(more)


async def test_a_lost_mint_that_is_still_pending_is_minted_once(world: World) -> None:
    """The lane waits for the pending transaction, and for the index to link its mints."""
    await world.queue(3)
    async with world.serving():
        await world.settled("published")
    await world.lose_the_last_commits()
    await pretend_promotion(world)
    async with world.lane() as lane:
        await stop_of(lane)
    await world.restore()
    async with world.lane() as lane:
        await until(lambda: true(lane.pause.reason == COMPARING))
        await world.some_polls()
        assert await states(world.observer) == []
        world.node.mine()
        await world.minted()
    assert world.node.minted() == Counter(await world.references())


async def test_a_restored_lane_continues_where_it_can_if_lost_bytes_are_dropped(
    world: World,
) -> None:
    await world.queue(3)
    async with world.serving():
        await world.settled("published")
    await world.lose_the_last_commits()
    await world.restore()
    assert await next_nonce(world) == 1
    world.node.pool.clear()
    world.node.mines_at_once = True
    assert [nonce for _, nonce in (await world.restore()).resumed] == [0]
    async with world.serving():
        await world.minted()
    assert world.node.minted() == Counter(await world.references())


async def test_a_restore_that_is_repeated_changes_nothing(world: World) -> None:
    await world.queue(3)
    async with world.serving():
        await world.settled("published")
    await world.lose_the_last_commits()
    world.node.mine()
    await world.restore()
    again = await world.restore()
    assert (again.resumed, again.raised_to, again.linked, again.released) == ((), None, 0, 0)


async def test_a_restore_that_dies_between_two_parts_is_finished_by_the_next_one(
    world: World,
) -> None:
    """Nonces and references are moved in one commit; the index's mints are linked after it."""
    world.node.mines_at_once = True
    await world.queue(3)
    async with world.serving():
        await world.minted()
        world.node.mine(4)
        await world.settled("confirmed")
    await world.lose_the_last_commits()
    async with session(world.observer) as connection:
        await connection.execute(
            """
            UPDATE rewards SET mint_block_number = NULL, mint_block_hash = NULL,
                               mint_transaction_hash = NULL;
            CREATE FUNCTION die() RETURNS trigger LANGUAGE plpgsql
                AS $$ BEGIN RAISE EXCEPTION 'killed'; END $$;
            CREATE TRIGGER die BEFORE UPDATE ON rewards EXECUTE FUNCTION die();
            """
        )
    with pytest.raises(asyncpg.RaiseError, match="killed"):
        await world.restore()
    assert (await next_nonce(world), await world.unminted()) == (1, 3)
    async with session(world.observer) as connection:
        await connection.execute("DROP TRIGGER die ON rewards")
    done = await world.restore()
    assert (done.resumed, done.raised_to, done.linked) == ((), None, 3)
    assert await world.unminted() == 0
    more = await world.queue(2)
    async with world.serving():
        await world.minted()
    assert world.node.minted() == Counter(await world.references())
    assert len(await world.references()) == 3 + len(more)


async def test_a_gap_in_the_pool_holds_the_lane_back(world: World) -> None:
    async with world.serving():
        pass
    publish_foreign(world.node, 2)
    done = await world.restore()
    assert done.resumed == ()
    (lane,) = done.held_back
    assert "wait in a node's pool for nonce 0" in (lane.obstacle or "")
    assert await next_nonce(world) == 0
    with pytest.raises(Refused, match="wait in a node's pool for nonce 0"):
        await world.adopt()


@pytest.mark.parametrize("lag", [0, 1])
async def test_a_nonce_that_one_node_alone_shows_as_used_leaves_the_lane_as_it_is(
    world: World, lag: int
) -> None:
    """The lane would continue behind a hole, in which nothing is ever mined.

    A node that invents nonces invents a higher head, too.
    """
    async with world.serving():
        pass
    world.node.mine()
    nodes = [world.node, world.node.sibling(), world.node.sibling()]
    nodes[0].false_nonce = 7
    for honest in nodes[1:]:
        honest.lag = lag
    done = await world.restore(nodes)
    assert done.resumed == ()
    (lane,) = done.held_back
    assert "nodes disagree about the nonce" in (lane.obstacle or "")
    assert await next_nonce(world) == 0


async def index_reaches_the_head(world: World) -> None:
    async def is_there() -> bool:
        number = await value(world.observer, "SELECT cursor_number FROM chains")
        return bool(number == world.node.head.number)

    await until(is_there)


async def a_lane_past_dropped_bytes(world: World) -> None:
    """A restore has moved the lane past a pending transaction, which its node has dropped since."""
    await world.queue(3)
    async with world.serving():
        await world.settled("published")
    await world.lose_the_last_commits()
    await world.restore()
    world.node.pool.clear()
    assert await next_nonce(world) == 1


async def test_no_nonce_is_lowered_while_a_node_of_the_settings_is_silent(world: World) -> None:
    await a_lane_past_dropped_bytes(world)
    silent = world.node.sibling()
    silent.is_down = True
    done = await world.restore([world.node, silent])
    assert (done.resumed, await next_nonce(world)) == ((), 1)
    (lane,) = done.held_back
    assert "did not answer, and may know later ones: node 1." in (lane.obstacle or "")
    assert (await world.restore(silent=["away"])).resumed == ()
    silent.is_down = False
    assert [nonce for _, nonce in (await world.restore([world.node, silent])).resumed] == [0]


async def test_nothing_is_compared_with_nodes_that_are_behind_the_index(world: World) -> None:
    """Their nonces and references look free, and the database seems to know more than the chain."""
    await a_lane_past_dropped_bytes(world)
    world.node.use_nonce(MINTER)
    await index_reaches_the_head(world)
    world.node.lag = 1
    with pytest.raises(NodeUnavailable, match="The nodes are behind: the index has read block"):
        await world.restore()
    with pytest.raises(NodeUnavailable, match="The nodes are behind"):
        await world.adopt()
    assert await next_nonce(world) == 1


async def test_references_are_read_from_a_node_that_has_reached_the_index(world: World) -> None:
    await world.queue(3)
    async with world.serving():
        await world.settled("published")
    world.node.mine()
    await world.minted()
    await index_reaches_the_head(world)
    await world.lose_the_last_commits()
    behind = world.node.sibling()
    behind.lag = 1
    done = await world.restore([behind, world.node])
    assert [nonce for _, nonce in done.resumed] == [1]
    assert done.raised_to == 256


@pytest.mark.parametrize("liar", [0, 1])
async def test_references_that_one_of_two_nodes_invents_raise_no_counter(
    world: World, liar: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lying node could invent so many that none is left."""
    monkeypatch.setattr(agreement, "_LAG_SECONDS", 0.1)
    async with world.serving():
        pass
    nodes = [world.node, world.node.sibling()]
    nodes[liar].false_references = True
    contradiction = "node 0 and node 1 contradict each other about the references"
    with pytest.raises(NodeUnavailable, match=contradiction):
        await world.restore(nodes)


async def test_a_server_that_hides_its_timeline_is_known_by_its_start(world: World) -> None:
    async with session(world.observer) as connection, connection.transaction():
        await connection.execute("CREATE ROLE plain_user")
        await connection.execute("REVOKE EXECUTE ON FUNCTION pg_current_wal_lsn() FROM PUBLIC")
        await connection.execute("SET LOCAL ROLE plain_user")
        history = await restore.database_history(connection)
        await connection.execute("RESET ROLE")
        await connection.execute("GRANT EXECUTE ON FUNCTION pg_current_wal_lsn() TO PUBLIC")
        await connection.execute("DROP ROLE plain_user")
    assert history.startswith("server started ")


async def test_a_reward_whose_reference_another_database_has_used_is_minted_under_a_new_one(
    world: World,
) -> None:
    await world.queue(2)
    async with world.serving():
        await world.settled("published")
    world.node.pool.clear()
    foreign = reward_reference(uuid4(), 1, 0)
    logs = [transfer_log(bytes(20), a_wallet(7), LTZ), minted_log(a_wallet(7), foreign, LTZ)]
    world.node.mine(logs=logs, takes_pool=False)
    world.node.head.used[0] = foreign
    assert (await world.restore()).released == 0, "a reorg may still remove that mint"
    world.node.mine(4)
    await until(lambda: final_reaches(world, 2))
    assert (await world.restore()).released == 1
    world.node.mines_at_once = True
    async with world.serving():
        await world.minted()
    assert world.node.minted() == Counter([foreign, *await world.references()])


async def final_reaches(world: World, number: int) -> bool:
    return bool(await value(world.observer, "SELECT final_number >= $1 FROM chains", number))
