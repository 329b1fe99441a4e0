"""Retired and stolen wallets: a lane without their key sees their work through."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import pytest
from msgspec.structs import replace

from ltzd.chain.node.node import Node
from ltzd.chain.signing import Signer
from ltzd.operator.mints.lane import MintLane
from ltzd.operator.policy import InProcessHooks, LanePolicy, MintTarget
from ltzd.operator.retired.lane import NOT_SENT_BY_RETIRED, RetiredLane
from ltzd.rules.operator.fees import GWEI
from ltzd.rules.relayer.calls import RelayStatus
from ltzd.store.database import session
from ltzd.store.operator import wallets
from ltzd.store.operator.leases import Leases
from ltzd.values import LTZ
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, minted_log, transfer_log
from tests.support.chain.fake_pool import a_fake_pool
from tests.support.chain.mint_world import PAUSES, POLICY, stop_of, true
from tests.support.relays.lanes import (
    OTHER_RELAYER,
    OTHER_USER,
    RELAYER,
    USER,
    RelayWorld,
    row_states,
)
from tests.support.rows.core import MINTER, running, states, value
from tests.support.rows.processes import report_standby
from tests.support.waiting import until

OTHER_MINTER = Signer(b"\x77" * 32)
IMPATIENT = replace(POLICY, pauses=replace(PAUSES, key_gone=0.2))


def retired_lane(
    world: RelayWorld,
    signer: Signer,
    kind: str,
    policy: LanePolicy = POLICY,
    node: Node | None = None,
) -> RetiredLane:
    return RetiredLane(
        world.pool,
        Leases(world.url),
        node or world.node.node,
        signer.address,
        kind,
        MintTarget(CHAIN_ID, LTZ_AT),
        world.wakeups,
        policy,
    )


@asynccontextmanager
async def watching(
    world: RelayWorld,
    signer: Signer,
    kind: str,
    policy: LanePolicy = POLICY,
    node: Node | None = None,
) -> AsyncIterator[RetiredLane]:
    """Runs the lane, which may end by itself, and cancels it at the end of the block."""
    lane = retired_lane(world, signer, kind, policy, node)
    task = asyncio.create_task(lane.run())
    try:
        await until(lambda: true(lane.is_serving or lane.is_finished))
        yield lane
        assert lane.is_finished or not task.done()
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def minting(world: RelayWorld, signer: Signer = OTHER_MINTER) -> AsyncIterator[MintLane]:
    lane = MintLane(
        world.pool,
        Leases(world.url),
        world.node.node,
        signer,
        MintTarget(CHAIN_ID, LTZ_AT),
        world.wakeups,
        POLICY,
        InProcessHooks(),
    )
    async with running(lane.run()):
        yield lane


async def finished(lane: RetiredLane, world: RelayWorld) -> None:
    """Mines until the lane has ended."""

    async def ended() -> bool:
        world.node.mine()
        return lane.is_finished

    await until(ended, 60.0)


async def signed_mints(world: RelayWorld, count: int) -> None:
    """Lets the mint wallet sign that many mints, of which none is mined."""
    async with world.serving():
        for number in range(count):
            await world.queue(2)
            await world.settled(*["published"] * (number + 1))


async def signed_relays(world: RelayWorld, count: int) -> list[int]:
    async with world.relaying():
        ids = await world.ask(count)
        await world.settled(*["published"] * count)
    return ids


async def all_minted(world: RelayWorld) -> bool:
    world.node.mine()
    return await world.unminted() == 0


async def minted_once(world: RelayWorld) -> None:
    await until(lambda: all_minted(world), 60.0)
    assert set(world.node.minted().values()) == {1}
    assert sorted(world.node.minted()) == sorted(await world.references())


async def test_a_watch_without_a_node_is_left_to_a_process_that_has_one(world: RelayWorld) -> None:
    """A process tells of no lane for a retired wallet that it could watch."""
    await signed_mints(world, 1)
    way = world.node.sibling()
    async with watching(world, MINTER, "mint", node=way.node):
        way.is_down = True
        new = retired_lane(world, MINTER, "mint")
        async with running(new.run()):

            async def serves() -> bool:
                await report_standby(world.observer)
                return new.is_serving

            await until(serves, 60.0)


def without_bytes(world: RelayWorld) -> None:
    """The nodes have lost everything that was published."""
    world.node.pool.clear()


# --- a retired wallet that nobody else has ------------------------------------------------------


async def test_what_a_retired_wallet_signed_is_published_again_and_seen_through(
    world: RelayWorld,
) -> None:
    await signed_mints(world, 3)
    without_bytes(world)
    async with watching(world, MINTER, "mint") as lane:
        await until(lambda: true(len(world.node.pool) == 3))
        world.node.mine(5)
        await finished(lane, world)
    assert await states(world.observer) == ["confirmed"] * 3
    await world.each_minted_once()


async def test_relays_of_a_retired_wallet_are_mined_and_its_lane_ends(world: RelayWorld) -> None:
    await signed_relays(world, 4)
    without_bytes(world)
    async with watching(world, RELAYER, "relay") as lane:
        await until(lambda: true(len(world.node.pool) == 4))
        await finished(lane, world)
    assert await row_states(world.observer) == ["mined"] * 4
    await world.executed_in_order()


async def test_a_retired_wallet_without_open_transactions_ends_at_once(world: RelayWorld) -> None:
    async with watching(world, RELAYER, "relay") as lane:
        await until(lambda: true(lane.is_finished))


async def test_a_reorg_below_a_retired_wallets_mint_publishes_its_bytes_again(
    world: RelayWorld,
) -> None:
    world.node.final_depth = 50
    await signed_mints(world, 1)
    world.node.mine(2)
    async with watching(world, MINTER, "mint") as lane:
        await world.settled("mined")
        world.node.reorg(2, forgets_transactions=True)
        await until(lambda: true(len(world.node.pool) == 1))
        world.node.final_depth = 3
        await finished(lane, world)
    await world.each_minted_once()


async def test_a_second_process_watches_on_after_the_first_is_killed(world: RelayWorld) -> None:
    await signed_mints(world, 2)
    without_bytes(world)
    async with watching(world, MINTER, "mint"):
        await until(lambda: true(len(world.node.pool) == 2))
    without_bytes(world)
    async with watching(world, MINTER, "mint") as lane:
        await finished(lane, world)
    await world.each_minted_once()


async def test_nothing_is_signed_for_a_retired_wallet_however_dear_gas_becomes(
    world: RelayWorld,
) -> None:
    await signed_mints(world, 1)
    before = set(world.node.arrived)
    world.node.base_fee = 90 * GWEI
    async with watching(world, MINTER, "mint") as lane:
        await world.queue(3)
        world.node.mine(4)
        await world.some_polls()
        assert set(world.node.arrived) == before
        world.node.base_fee = GWEI
        await finished(lane, world)
    assert await states(world.observer) == ["confirmed"]


async def test_a_retired_wallet_is_not_shown_as_served_and_tells_its_reason(
    world: RelayWorld,
) -> None:
    await signed_relays(world, 1)
    world.node.base_fee = 90 * GWEI
    async with watching(world, RELAYER, "relay", IMPATIENT) as lane:
        await until(lambda: is_paused_for(world, "retired"))
        async with session(world.observer) as connection:
            assert await wallets.list_served(connection, CHAIN_ID, "relay") == []
        await until(lambda: is_paused_for(world, "key_gone"))
        world.node.base_fee = GWEI
        await finished(lane, world)


async def is_paused_for(world: RelayWorld, reason: str) -> bool:
    wanted: bool = await value(
        world.observer, "SELECT coalesce(bool_or(paused_for = $1), false) FROM lanes", reason
    )
    return wanted


# --- the thief ----------------------------------------------------------------------------------


async def test_mints_displaced_by_a_thief_are_minted_once_by_another_wallet(
    world: RelayWorld,
) -> None:
    await signed_mints(world, 3)
    without_bytes(world)
    world.node.refuses = lambda sent: sent.sender == MINTER.address
    for _ in range(5):
        world.node.use_nonce(MINTER)
    async with watching(world, MINTER, "mint") as lane:
        await finished(lane, world)
        assert await states(world.observer) == ["displaced"] * 3
    async with minting(world):
        await minted_once(world)


async def test_displaced_relays_fail_and_later_ones_of_the_wallet_succeed(
    world: RelayWorld,
) -> None:
    first, second = await signed_relays(world, 2)
    call, later = (world.node.pool[hash_] for hash_ in list(world.node.pool))
    world.node.pool.clear()
    world.node.use_nonce(RELAYER)
    assert (call.nonce, later.nonce) == (0, 1)
    async with watching(world, RELAYER, "relay") as lane:
        await finished(lane, world)
    failed, done = await world.progress(first), await world.progress(second)
    assert (failed.status, failed.block_number) == (RelayStatus.FAILED, None)
    assert done.status is RelayStatus.FINAL
    assert world.node.executed()[call.data] == 0
    assert world.node.executed()[later.data] == 1


async def test_relays_that_name_the_retired_wallet_fail_and_leave_others(
    world: RelayWorld,
) -> None:
    await signed_relays(world, 1)
    (bound,) = await world.ask(wallet=RELAYER.address)
    (free,) = await world.ask(user=OTHER_USER)
    async with watching(world, RELAYER, "relay") as lane:
        await finished(lane, world)
    assert await row_states(world.observer) == ["mined", "failed", "queued"]
    assert (await world.progress(bound)).reason == NOT_SENT_BY_RETIRED
    async with world.relaying(signer=OTHER_RELAYER):
        await until(lambda: is_mined(world, free))


async def is_mined(world: RelayWorld, relay: int) -> bool:
    world.node.mine()
    progress: Any = await world.progress(relay)
    return progress.status in {RelayStatus.CONFIRMED, RelayStatus.FINAL}


async def test_a_nonce_that_nobody_uses_keeps_its_relay_pending(world: RelayWorld) -> None:
    """Nothing proves that its bytes are never mined, so the relay is neither failed nor redone."""
    (relay,) = await signed_relays(world, 1)
    world.node.refuses = lambda _sent: "tx fee (1.20 ether) exceeds the configured cap"
    without_bytes(world)
    async with watching(world, RELAYER, "relay", IMPATIENT) as lane:
        world.node.mine(6)
        await until(lambda: is_paused_for(world, "key_gone"))
        assert (await world.progress(relay)).status is RelayStatus.PENDING
        world.node.refuses = lambda _sent: False
        await finished(lane, world)
    assert (await world.progress(relay)).status is RelayStatus.FINAL


# --- a role that is gone -----------------------------------------------------------------------


async def test_mints_are_redone_once_the_role_is_gone_at_a_final_block(world: RelayWorld) -> None:
    await signed_mints(world, 3)
    without_bytes(world)
    world.node.refuses = lambda sent: sent.sender == MINTER.address
    world.node.revoked_minters.add(MINTER.address)
    async with watching(world, MINTER, "mint") as lane:
        world.node.mine()
        await world.some_polls()
        assert await states(world.observer) == ["published"] * 3, "the block is not final"
        seqs = await value(world.observer, "SELECT array_agg(seq ORDER BY position) FROM rewards")
        await finished(lane, world)
        assert await states(world.observer) == ["voided"] * 3
    async with minting(world):
        await minted_once(world)
    again = await value(world.observer, "SELECT array_agg(seq ORDER BY position) FROM rewards")
    assert again == seqs, "a reward lost its reference"


@pytest.mark.parametrize("comes_first", ["old bytes", "new mint"])
async def test_old_bytes_that_are_mined_after_all_mint_no_reward_twice(
    world: RelayWorld, comes_first: str
) -> None:
    """The role is granted again after the rewards were queued again."""
    await signed_mints(world, 2)
    old = dict(world.node.pool)
    without_bytes(world)
    world.node.refuses = lambda sent: sent.sender == MINTER.address
    world.node.revoked_minters.add(MINTER.address)
    async with watching(world, MINTER, "mint") as lane:
        await finished(lane, world)
    world.node.revoked_minters.clear()
    if comes_first == "old bytes":
        world.node.pool.update(old)
        world.node.mine()
        async with minting(world):
            await minted_once(world)
    else:
        async with minting(world):
            await minted_once(world)
            world.node.pool.update(old)
            world.node.mine(8)
            await minted_once(world)
    assert sum(world.node.minted().values()) == 4


async def test_old_bytes_in_the_same_block_as_the_new_mint_mint_nothing_twice(
    world: RelayWorld,
) -> None:
    await signed_mints(world, 1)
    old = dict(world.node.pool)
    without_bytes(world)
    world.node.refuses = lambda sent: sent.sender == MINTER.address
    world.node.revoked_minters.add(MINTER.address)
    async with watching(world, MINTER, "mint") as lane:
        await finished(lane, world)
    world.node.revoked_minters.clear()
    async with minting(world):
        await world.settled("voided", "published")
        world.node.pool.update(old)
        await minted_once(world)
        world.node.mine(6)
        await world.settled("voided", "confirmed")


async def test_a_role_that_is_lost_in_a_block_that_a_reorg_removes_proves_nothing(
    world: RelayWorld,
) -> None:
    world.node.final_depth = 6
    await signed_mints(world, 1)
    world.node.base_fee = 90 * GWEI
    world.node.mine(3)
    world.node.revoked_minters.add(MINTER.address)
    world.node.mine()
    async with watching(world, MINTER, "mint") as lane:
        await world.some_polls()
        world.node.revoked_minters.clear()
        world.node.reorg(2)
        world.node.mine(8)
        await world.some_polls()
        assert await states(world.observer) == ["published"]
        world.node.base_fee = GWEI
        await finished(lane, world)
    assert await states(world.observer) == ["confirmed"]
    await world.each_minted_once()


async def test_a_mint_limit_of_zero_counts_as_a_lost_role(world: RelayWorld) -> None:
    await signed_mints(world, 1)
    world.node.refuses = lambda sent: sent.sender == MINTER.address
    without_bytes(world)
    capacity, world.node.mint_capacity = world.node.mint_capacity, 0
    async with watching(world, MINTER, "mint") as lane:
        await finished(lane, world)
    assert await states(world.observer) == ["voided"]
    world.node.mint_capacity = capacity
    async with minting(world):
        await minted_once(world)


async def test_a_wallet_whose_mints_were_voided_signs_no_more(world: RelayWorld) -> None:
    """Its unused nonces would hold up whatever it signs."""
    await signed_mints(world, 1)
    without_bytes(world)
    world.node.refuses = lambda sent: sent.sender == MINTER.address
    world.node.revoked_minters.add(MINTER.address)
    async with watching(world, MINTER, "mint") as lane:
        await finished(lane, world)
    async with world.lane() as again:
        assert "add another wallet" in await stop_of(again)


async def test_a_lost_role_voids_no_relay(world: RelayWorld) -> None:
    await signed_relays(world, 1)
    world.node.revoked_minters.add(RELAYER.address)
    async with watching(world, RELAYER, "relay") as lane:
        await finished(lane, world)
    assert await states(world.observer) == ["confirmed"]


async def test_users_of_other_wallets_are_served_while_a_wallet_is_watched(
    world: RelayWorld,
) -> None:
    await signed_relays(world, 1)
    world.node.refuses = lambda sent: sent.sender == RELAYER.address
    without_bytes(world)
    async with watching(world, RELAYER, "relay"), world.relaying(signer=OTHER_RELAYER):
        (relay,) = await world.ask(user=OTHER_USER)
        await until(lambda: is_mined(world, relay))
    assert USER != OTHER_USER


async def test_kills_at_any_time_redo_each_mint_once(world: RelayWorld) -> None:
    """Before, between and after the verdicts; another process continues each time."""
    await signed_mints(world, 5)
    without_bytes(world)
    world.node.refuses = lambda sent: sent.sender == MINTER.address
    world.node.use_nonce(MINTER)
    world.node.use_nonce(MINTER)
    for polls in range(10):
        if polls == 4:
            world.node.revoked_minters.add(MINTER.address)
        lane = retired_lane(world, MINTER, "mint")
        task = asyncio.create_task(lane.run())
        blocks = world.node.call_counts["eth_getBlockByNumber"] + 3 * polls
        await until(partial(asked_for, world, blocks))
        world.node.mine()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    async with watching(world, MINTER, "mint") as lane, minting(world):
        await finished(lane, world)
        await minted_once(world)


async def asked_for(world: RelayWorld, blocks: int) -> bool:
    return world.node.call_counts["eth_getBlockByNumber"] >= blocks


# --- references that a thief uses ---------------------------------------------------------------


async def steal_references(world: RelayWorld, *seqs: int) -> None:
    """A thief mints to itself, under references that ltzd has given out."""
    thief = b"\xee" * 20
    logs = []
    for seq in seqs:
        reference = b"\xee" * 24 + seq.to_bytes(8, "big")
        logs += [transfer_log(bytes(20), thief, LTZ), minted_log(thief, reference, LTZ)]
    block = world.node.mine(logs=logs, takes_pool=False)
    block.used.update(dict.fromkeys(seqs, b"\xee" * 32))


async def rewards_minted_once(world: RelayWorld) -> None:
    await until(lambda: all_minted(world), 60.0)
    ours = [ref for ref in world.node.minted().elements() if ref[:24] != b"\xee" * 24]
    assert sorted(ours) == sorted(await world.references())


async def test_rewards_whose_references_a_thief_used_are_minted_under_new_ones(
    world: RelayWorld,
) -> None:
    async with minting(world) as lane:
        await until(lambda: true(lane.is_ready))
        ids = await world.queue(3)
        await world.settled("published")
        seqs = await value(world.observer, "SELECT array_agg(seq ORDER BY position) FROM rewards")
        await steal_references(world, seqs[0], seqs[2])
        world.node.mine()
        await world.settled("mined")
        await until(lambda: renewed(world, 2))
        await rewards_minted_once(world)
        assert lane.stopped is None
    again = await value(world.observer, "SELECT array_agg(seq ORDER BY position) FROM rewards")
    assert again[1] == seqs[1]
    assert set(again).isdisjoint({seqs[0], seqs[2]})
    assert len(ids) == len(set(again)) == 3


async def renewed(world: RelayWorld, count: int) -> bool:
    """Mines a block, and tells whether so many rewards are queued, or signed, again."""
    world.node.mine(takes_pool=False)
    confirmed = (await states(world.observer)).count("confirmed")
    waiting = await value(
        world.observer, "SELECT count(*) FROM rewards WHERE mint_block_hash IS NULL"
    )
    return confirmed == 1 and waiting == count


async def test_a_single_reward_whose_reference_a_thief_used_is_minted_under_a_new_one(
    world: RelayWorld,
) -> None:
    async with minting(world) as lane:
        await until(lambda: true(lane.is_ready))
        await world.queue(1)
        await world.settled("published")
        seq = await value(world.observer, "SELECT seq FROM rewards")
        await steal_references(world, seq)
        await rewards_minted_once(world)
        assert await value(world.observer, "SELECT seq FROM rewards") != seq


async def test_a_thief_that_signs_mints_and_steals_references_changes_no_reward(
    world: RelayWorld,
) -> None:
    """Displaced transactions, stolen references, a revoked role and a new wallet at once."""
    await signed_mints(world, 4)
    calls = sorted(world.node.pool.values(), key=lambda sent: sent.nonce)
    without_bytes(world)
    world.node.use_nonce(MINTER)
    await steal_references(world, 2, 5)
    world.node.refuses = lambda sent: sent.sender == MINTER.address and sent.nonce > 1
    world.node.pool[calls[1].hash] = calls[1]
    world.node.mine()
    world.node.revoked_minters.add(MINTER.address)
    async with watching(world, MINTER, "mint") as lane, minting(world):
        await finished(lane, world)
        await rewards_minted_once(world)
    ended = await value(
        world.observer,
        "SELECT array_agg(state ORDER BY nonce) FROM transactions WHERE wallet = $1",
        MINTER.address,
    )
    assert ended[0] in {"displaced", "voided"}, "whichever is proven first"
    assert ended[1:] == ["confirmed", "voided", "voided"]


# --- two nodes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("lying", [0, 1])
async def test_one_node_that_denies_the_role_voids_nothing(world: RelayWorld, lying: int) -> None:
    await signed_mints(world, 1)
    world.node.base_fee = 90 * GWEI
    nodes = [world.node, world.node.sibling()]
    nodes[lying].revoked_minters.add(MINTER.address)
    async with (
        a_fake_pool(*nodes) as pool,
        watching(world, MINTER, "mint", node=pool.node()) as lane,
    ):
        world.node.mine(8)
        await world.some_polls()
        assert await states(world.observer) == ["published"]
        for node in nodes:
            node.revoked_minters.add(MINTER.address)
        await until(lambda: is_voided(world))
        await until(lambda: true(lane.is_finished))


@pytest.mark.parametrize("lying", [0, 1, 2])
async def test_one_node_of_three_that_claims_the_role_keeps_no_mint_from_being_redone(
    world: RelayWorld, lying: int
) -> None:
    await signed_mints(world, 1)
    nodes = [world.node, world.node.sibling(), world.node.sibling()]
    for number, node in enumerate(nodes):
        node.base_fee = 90 * GWEI
        if number != lying:
            node.revoked_minters.add(MINTER.address)
    async with (
        a_fake_pool(*nodes) as pool,
        watching(world, MINTER, "mint", node=pool.node()) as lane,
    ):
        pool.prefer(0)
        await until(lambda: is_voided(world))
        await until(lambda: true(lane.is_finished))


async def is_voided(world: RelayWorld) -> bool:
    world.node.mine()
    return await states(world.observer) == ["voided"]
