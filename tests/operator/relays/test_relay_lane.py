"""Each relay has one nonce, execution and outcome, despite faults of node and database."""

import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest
from msgspec import structs
from msgspec.structs import replace
from structlog.testing import capture_logs

from ltzd.chain.node.rpc import RpcError
from ltzd.chain.signing import Signer
from ltzd.operator import settlement
from ltzd.operator.policy import LanePolicy
from ltzd.operator.relays.signer import RelaySigner
from ltzd.rules.operator.fees import GWEI, FeePolicy, Fees, fees_for
from ltzd.rules.relayer.calls import RelayStatus
from ltzd.store.database import session
from ltzd.store.operator import wallets
from ltzd.store.relayer import relays
from ltzd.store.relayer.claims import ClaimedRelay
from ltzd.values import Address
from tests.support.chain.fake_node import CHAIN_ID, ETHER, SentTransaction
from tests.support.chain.mint_world import PAUSES, POLICY, true
from tests.support.relays.lanes import (
    OTHER_RELAYER,
    OTHER_USER,
    PERKS,
    RELAYER,
    USER,
    RelayWorld,
    a_plan,
    a_relay,
    row_states,
    write,
)
from tests.support.rows.core import MINTER, a_wallet, states, value
from tests.support.waiting import until

GAS_USED = 50_000
"""Of everything that the node mines."""
PATIENT = replace(POLICY, repeat_seconds=10.0, replace_after_seconds=10.0)
"""Long enough that no bytes go out a second time."""


async def found_by(world: RelayWorld, sent: SentTransaction, user: Address = USER) -> int | None:
    async with session(world.observer) as connection:
        relay = await relays.by_hash(connection, sent.hash, [user])
    return None if relay is None else relay.id


async def indexed(world: RelayWorld, number: int) -> bool:
    return bool(await value(world.observer, f"SELECT cursor_number >= {number} FROM chains"))


async def working(world: RelayWorld) -> list[Address]:
    async with session(world.observer) as connection:
        served = await wallets.list_served(connection, CHAIN_ID, "relay")
    return [each.wallet for each in served]


# --- relays without faults --------------------------------------------------------------------


async def test_the_log_names_the_relay_of_each_transaction(world: RelayWorld) -> None:
    with capture_logs() as logs:
        async with world.relaying():
            (relay,) = await world.ask()
            await world.settled("published")
    id_ = await value(world.observer, "SELECT id FROM transactions")
    (line,) = [line for line in logs if line["event"] == "relays.signed"]
    assert line["relays_transactions_nonces"] == [(relay, id_, 0)]


async def test_a_lane_that_is_closed_while_it_claims_relays_signs_none_and_gives_them_back(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = RelaySigner._claim
    async with world.relaying() as lane:

        async def closing(signer: RelaySigner, fees: Fees) -> list[ClaimedRelay]:
            claimed = await claim(signer, fees)
            if claimed:
                world.node.use_nonce(RELAYER)
                await until(lambda: true(lane.stopped is not None))
            return claimed

        async def is_given_back() -> bool:
            query = "SELECT state = 'queued' AND claimed_by IS NULL FROM relays"
            return lane.stopped is not None and await value(world.observer, query) is True

        monkeypatch.setattr(RelaySigner, "_claim", closing)
        await world.ask()
        await until(is_given_back)
        assert not world.node.arrived
        assert await value(world.observer, "SELECT count(*) FROM transactions") == 0


async def test_a_relay_is_signed_published_mined_and_final_and_its_cost_is_stored(
    world: RelayWorld,
) -> None:
    async with world.relaying():
        (relay,) = await world.ask()
        await world.settled("published")
        (sent,) = world.node.sent()
        assert await row_states(world.observer) == ["sent"]
        pending = await world.progress(relay)
        assert pending.status is RelayStatus.PENDING
        assert (pending.transaction_hash, pending.sender, pending.to) == (
            sent.hash,
            RELAYER.address,
            PERKS,
        )

        world.node.base_fee = 2 * GWEI
        block = world.node.mine()
        await world.relays_are("mined")
        mined = await world.progress(relay)
        assert mined == structs.replace(
            pending,
            status=RelayStatus.CONFIRMED,
            block_number=block.number,
            gas_used=GAS_USED,
            effective_gas_price=2 * GWEI,
        )

        world.node.mine(3)
        await world.settled("confirmed")
        assert await world.progress(relay) == structs.replace(mined, status=RelayStatus.FINAL)
    assert await row_states(world.observer) == ["mined"]
    await world.executed_in_order()


async def test_more_relays_that_become_final_than_one_look_settles_are_settled_in_one_round(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A round comes with each block alone: with one look, nine blocks would settle 18 relays."""
    monkeypatch.setattr(settlement, "_CHECKED_AT_ONCE", 2)
    monkeypatch.setattr(settlement, "_MOST_BATCHES", 20)
    await world.ask(20)
    await world.ask(20, OTHER_USER)
    async with world.relaying(replace(PATIENT, poll_seconds=60.0)):
        await until(lambda: true(len(world.node.pool) == 40))
        world.node.mine()
        await world.relays_are(*["mined"] * 40)
        for _ in range(8):
            head = world.node.mine().number
            await until(partial(indexed, world, head))
        await world.settled(*["confirmed"] * 40)


async def test_the_publication_of_a_relay_is_recorded_if_no_block_comes_soon(
    world: RelayWorld,
) -> None:
    pauses = replace(PAUSES, publication_record=0.2)
    async with world.relaying(replace(PATIENT, pauses=pauses)):
        await world.ask()
        await until(lambda: true(len(world.node.pool) == 1))
        world.node.mine()
        await world.relays_are("mined")
        await world.ask()
        await world.settled("mined", "published")
        world.node.mine()
        await world.settled("mined", "mined")
    recorded = "SELECT array_agg(published_at IS NOT NULL ORDER BY created_at) FROM attempts"
    assert await value(world.observer, recorded) == [False, True]


async def test_waiting_relays_are_published_in_one_request_in_the_order_of_rows(
    world: RelayWorld,
) -> None:
    world.node.mines_at_once = True
    await world.ask(20)
    await world.ask(20, OTHER_USER)
    async with world.relaying(PATIENT):
        await world.relays_are(*["mined"] * 40)
    assert world.node.together == [40]
    assert [sent.nonce for sent in world.node.sent()] == list(range(40))
    await world.executed_in_order()


async def test_transactions_in_flight_stay_within_the_limit(world: RelayWorld) -> None:
    await world.ask(7)
    async with world.relaying(replace(PATIENT, max_in_flight=3)):
        await world.relays_are(*["sent"] * 3, *["queued"] * 4)
        await world.some_polls()
        assert len(world.node.pool) == 3
        world.node.mine()
        await world.relays_are(*["mined"] * 3, *["sent"] * 3, "queued")
        world.node.mines_at_once = True
        world.node.mine()
        await world.relays_are(*["mined"] * 7)
    assert await value(world.observer, "SELECT epoch FROM lanes") == 1, (
        "the term lost count of its transactions in flight"
    )
    await world.executed_in_order()


# --- an unreliable node -----------------------------------------------------------------------


async def test_a_refusal_in_the_middle_of_a_batch_does_not_affect_the_others(
    world: RelayWorld,
) -> None:
    world.node.refuses = lambda sent: sent.nonce == 2
    await world.ask(5)
    async with world.relaying(PATIENT):
        await until(lambda: true(len(world.node.together) >= 3))
        await world.settled("published", "published", "signed", "published", "published")
        world.node.refuses = lambda _sent: False
        await world.settled(*["published"] * 5)
        world.node.mine()
        await world.relays_are(*["mined"] * 5)
    await world.executed_in_order()


@pytest.mark.parametrize("lost", [1, 2, 3])
async def test_a_lost_reply_never_spends_a_second_nonce(world: RelayWorld, lost: int) -> None:
    world.node.lost_replies = lost
    await world.ask(3)
    async with world.relaying():
        await world.settled(*["published"] * 3)
        world.node.mine()
        await world.relays_are(*["mined"] * 3)
    assert len(world.node.arrived) > 3
    await world.executed_in_order()


async def test_after_a_lost_reply_a_mined_relay_is_found_by_its_receipt(
    world: RelayWorld,
) -> None:
    world.node.mines_at_once = True
    world.node.lost_replies = 1
    await world.ask()
    async with world.relaying():
        await world.relays_are("mined")
    await world.executed_in_order()


async def test_a_lost_request_is_sent_again(world: RelayWorld) -> None:
    world.node.lost_requests = 3
    await world.ask(2)
    async with world.relaying():
        await world.settled("published", "published")
        world.node.mine()
        await world.relays_are("mined", "mined")
    await world.executed_in_order()


async def test_while_the_node_is_unreachable_nothing_is_signed(world: RelayWorld) -> None:
    world.node.mines_at_once = True
    async with world.relaying() as lane:
        world.node.is_down = True
        await until(lambda: true(not lane.is_ready))
        await world.ask(2)
        await world.some_polls()
        assert await row_states(world.observer) == ["queued", "queued"]
        world.node.is_down = False
        await world.relays_are("mined", "mined")
    await world.executed_in_order()


# --- crashes ----------------------------------------------------------------------------------


async def test_a_crash_between_signing_and_publishing_loses_nothing(world: RelayWorld) -> None:
    world.node.lost_requests = 1_000_000
    await world.ask(3)
    async with world.relaying():
        await world.settled(*["signed"] * 3)
    assert world.node.arrived == []
    stored = await world.stored_bytes()

    world.node.lost_requests = 0
    await world.ask()
    async with world.relaying():
        await world.settled(*["published"] * 4)
        world.node.mine()
        await world.relays_are(*["mined"] * 4)
    assert world.node.arrived[:3] == stored
    await world.executed_in_order()


async def test_a_crash_before_a_publication_is_stored_repeats_the_same_bytes(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise connection_error()

    await world.ask(2)
    with monkeypatch.context() as patch:
        patch.setattr("ltzd.store.operator.transactions.mark_published", fail)
        async with world.relay_lane():
            await until(lambda: true(len(world.node.arrived) >= 2))
    assert await states(world.observer) == ["signed", "signed"]

    async with world.relaying():
        await world.settled("published", "published")
        world.node.mine()
        await world.relays_are("mined", "mined")
    assert set(world.node.arrived) == set(await world.stored_bytes())
    await world.executed_in_order()


async def test_a_crash_before_a_receipt_is_stored_publishes_nothing_again(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    async def fail(*_: object) -> None:
        tried.append(True)
        raise connection_error()

    await world.ask(2)
    with monkeypatch.context() as patch:
        patch.setattr("ltzd.store.relayer.relays.follow", fail)
        async with world.relay_lane(PATIENT):
            await world.settled("published", "published")
            world.node.mine()
            await until(lambda: true(bool(tried)))
    assert await states(world.observer) == ["published", "published"], (
        "the receipt and the state are not one commit"
    )
    assert await row_states(world.observer) == ["sent", "sent"]

    async with world.relaying():
        await world.relays_are("mined", "mined")
    await world.executed_in_order()


def connection_error() -> OSError:
    """Returns the error of a broken connection."""
    return ConnectionResetError("gone")


async def test_mints_mined_while_no_lane_served_are_found(world: RelayWorld) -> None:
    (relay,) = await world.ask()
    async with world.relaying():
        await world.settled("published")
    world.node.mine(5)
    async with world.relaying():
        await world.settled("confirmed")
    assert (await world.progress(relay)).status is RelayStatus.FINAL
    await world.executed_in_order()


async def test_a_database_that_drops_connections_costs_time_only(world: RelayWorld) -> None:
    world.node.mines_at_once = True
    async with world.relay_lane():
        for _ in range(6):
            await world.ask(3)
            await world.kill("ltzd%")
            await world.ask(3)
        await world.relays_are(*["mined"] * 36)
    await world.executed_in_order()


async def test_one_of_two_lanes_of_a_wallet_serves_and_the_other_takes_over(
    world: RelayWorld,
) -> None:
    world.node.mines_at_once = True
    async with world.relay_lane() as first, world.relay_lane() as second:
        for terms in range(1, 4):
            await until(lambda: true(first.is_ready != second.is_ready))
            await world.ask(3)
            await world.kill("ltzd leases")
            await world.ask(3)
            await until(partial(has_had_more_terms, world, terms))
            await until(lambda: all_sent(world))
        await world.relays_are(*["mined"] * 18)
    await world.executed_in_order()


async def has_had_more_terms(world: RelayWorld, terms: int) -> bool:
    epoch: int = await value(world.observer, "SELECT epoch FROM lanes")
    return epoch > terms


async def all_sent(world: RelayWorld) -> bool:
    return "queued" not in await row_states(world.observer)


# --- reorgs, reverts, foreign transactions --------------------------------------------------


async def test_a_node_that_still_indexes_old_transactions_confirms_new_ones(
    world: RelayWorld,
) -> None:
    """geth answers so for a transaction that is in no block, while its index is incomplete."""
    async with world.relaying(PATIENT):
        await world.ask(2)
        await world.settled("published", "published")
        _, pending = world.node.sent()
        world.node.forged_receipts[pending.hash] = RpcError(
            -32000, "transaction indexing is in progress"
        )
        del world.node.pool[pending.hash]
        world.node.mine()
        await world.relays_are("mined", "sent")

        del world.node.forged_receipts[pending.hash]
        world.node.pool[pending.hash] = pending
        world.node.mine()
        await world.relays_are("mined", "mined")
    await world.executed_in_order()


@pytest.mark.parametrize("forgets", [False, True], ids=["in the pool", "forgotten"])
async def test_a_relay_dropped_by_a_reorg_is_pending_until_it_is_mined_again(
    world: RelayWorld, forgets: bool
) -> None:
    world.node.final_depth = 50
    (relay, _) = await world.ask(2)
    async with world.relaying():
        await world.settled("published", "published")
        world.node.mine(2)
        await world.relays_are("mined", "mined")

        world.node.reorg(2, forgets_transactions=forgets)
        await world.relays_are("sent", "sent")
        dropped = await world.progress(relay)
        assert dropped.status is RelayStatus.PENDING
        assert (dropped.block_number, dropped.gas_used) == (None, None)

        await until(lambda: true(len(world.node.pool) == 2))
        block = world.node.mine()
        await world.relays_are("mined", "mined")
        assert (await world.progress(relay)).block_number == block.number
    assert set(world.node.arrived) == set(await world.stored_bytes())
    await world.executed_in_order()


async def test_a_final_relay_dropped_by_a_reorg_is_mined_again(
    world: RelayWorld,
) -> None:
    world.node.final_depth = 1
    await world.ask()
    async with world.relaying():
        await world.settled("published")
        world.node.mine(4)
        await world.settled("confirmed")
        world.node.reorg(4, forgets_transactions=True)
        await world.relays_are("sent")
        await until(lambda: true(bool(world.node.pool)))
        world.node.mine()
        await world.relays_are("mined")
    await world.executed_in_order()


async def test_a_reverted_relay_fails_and_is_not_published_again(world: RelayWorld) -> None:
    world.node.fails = lambda data: data[-1] == 0
    failing, passing = await world.ask(2)
    async with world.relaying():
        await world.settled("published", "published")
        block = world.node.mine()
        await world.relays_are("mined", "mined")
        failed = await world.progress(failing)
        assert (failed.status, failed.block_number) == (RelayStatus.FAILED, block.number)
        assert failed.gas_used == GAS_USED
        assert (await world.progress(passing)).status is RelayStatus.CONFIRMED

        world.node.mine(3)
        await world.settled("reverted", "confirmed")
        assert await world.progress(failing) == failed
        await world.some_polls()
    assert len(set(world.node.arrived)) == 2
    await world.executed_in_order()


@pytest.mark.parametrize("fails_again", [False, True])
async def test_a_reverted_relay_below_finality_is_published_again_after_a_reorg(
    world: RelayWorld, fails_again: bool
) -> None:
    """Otherwise its nonce would stay unused, and no later transaction could be mined."""
    world.node.final_depth = 1
    world.node.fails = lambda data: data[-1] == 0
    failing, _ = await world.ask(2)
    async with world.relaying():
        await world.settled("published", "published")
        world.node.mine(4)
        await world.settled("reverted", "confirmed")

        world.node.fails = lambda data: fails_again and data[-1] == 0
        world.node.reorg(4, forgets_transactions=True)
        await world.settled("published", "published")
        await until(lambda: true(len(world.node.pool) == 2))
        world.node.mine(4)
        await world.settled("reverted" if fails_again else "confirmed", "confirmed")
        status = (await world.progress(failing)).status
        assert status is (RelayStatus.FAILED if fails_again else RelayStatus.FINAL)
    assert len(set(world.node.arrived)) == 2
    await world.executed_in_order()


async def test_a_nonce_used_elsewhere_fails_its_relay_only(
    world: RelayWorld,
) -> None:
    world.node.lost_requests = 1_000_000
    taken, *_ = await world.ask(3)
    async with world.relaying() as lane:
        await world.settled(*["signed"] * 3)
        world.node.use_nonce(RELAYER)
        world.node.lost_requests = 0
        await world.some_polls()
        assert await row_states(world.observer) == ["sent"] * 3, (
            "a reorg may still remove that block"
        )

        world.node.mine(3)
        await world.settled("displaced", "mined", "mined")
        await world.relays_are("mined", "mined", "mined")
        failed = await world.progress(taken)
        assert (failed.status, failed.block_number) == (RelayStatus.FAILED, None)
        await world.ask()
        await until(lambda: true(lane.stopped is not None))
        await world.adopt(RELAYER.address, "relay")
        await world.settled("displaced", "mined", "mined", "published")
        world.node.mine()
        await world.relays_are(*["mined"] * 4)
    assert world.node.executed().total() == 3
    assert taken not in [await found_by(world, sent) for sent in world.node.pool.values()]


async def test_a_wallet_that_was_used_elsewhere_stops_the_lane_at_its_start(
    world: RelayWorld,
) -> None:
    async with world.relaying():
        pass
    world.node.use_nonce(RELAYER)
    await world.ask()
    async with world.relay_lane() as lane:
        await until(lambda: true(lane.stopped is not None))
        assert "The relay wallet has used 1 nonces" in str(lane.stopped)
    assert await row_states(world.observer) == ["queued"]


# --- fees and funds ---------------------------------------------------------------------------


async def test_above_the_fee_cap_nothing_is_signed_and_all_relays_can_be_revoked(
    world: RelayWorld,
) -> None:
    policy = replace(PATIENT, fees=FeePolicy(cap=50 * GWEI, min_tip=GWEI))
    world.node.base_fee = 60 * GWEI
    world.node.mine()
    async with world.relay_lane(policy) as lane:
        await until(lambda: true(lane.is_serving))
        withdrawn, _ = await world.ask(2)
        await world.some_polls()
        assert await states(world.observer) == []
        assert not lane.is_ready
        async with session(world.pool) as connection:
            assert await relays.withdraw(connection, withdrawn)

        world.node.base_fee = 5 * GWEI
        world.node.mine()
        await world.settled("published")
        world.node.mine()
        await world.relays_are("mined")
    assert [sent.nonce for sent in world.node.sent()] == [0]
    await world.executed_in_order()


async def test_fees_that_fall_without_a_block_are_noticed(world: RelayWorld) -> None:
    """A chain that mines on demand mines no block while nothing is published."""
    world.node.base_fee = 300 * GWEI
    world.node.mine()
    async with world.relay_lane() as lane:
        await until(lambda: true(lane.is_serving))
        await world.ask(1)
        await world.some_polls()
        assert await states(world.observer) == []
        world.node.base_fee = GWEI
        await world.settled("published")


async def test_funds_that_arrive_without_a_block_are_noticed(world: RelayWorld) -> None:
    world.node.balance = 1
    async with world.relay_lane() as lane:
        await until(lambda: true(lane.is_serving))
        await world.ask(1)
        await world.some_polls()
        assert await states(world.observer) == []
        world.node.balance = 10**21
        await world.settled("published")


async def test_a_replaced_relay_is_found_by_both_hashes_and_shows_the_mined_one(
    world: RelayWorld,
) -> None:
    async with world.relaying():
        (relay,) = await world.ask()
        await world.settled("published")
        world.node.base_fee = 20 * GWEI
        world.node.mine(takes_pool=False)
        await until(lambda: true(len(set(world.node.arrived)) >= 2))
        cheap, dear = {sent.hash: sent for sent in world.node.sent()}.values()
        assert (cheap.call, cheap.nonce) == (dear.call, dear.nonce)
        assert cheap.max_fee_per_gas < dear.max_fee_per_gas

        async def shows_the_dear_one() -> bool:
            shown: bool = (await world.progress(relay)).transaction_hash == dear.hash
            return shown

        await until(shows_the_dear_one)
        assert [await found_by(world, sent) for sent in (cheap, dear)] == [relay, relay]

        world.node.pool = {cheap.hash: cheap}
        world.node.base_fee = GWEI
        world.node.mine()
        await world.relays_are("mined")
        assert (await world.progress(relay)).transaction_hash == cheap.hash
        assert [await found_by(world, sent) for sent in (cheap, dear)] == [relay, relay]
        assert await found_by(world, cheap, OTHER_USER) is None
    await world.executed_in_order()


async def test_if_the_balance_is_too_low_for_all_relays_the_first_that_fit_are_signed(
    world: RelayWorld,
) -> None:
    gas_price = await world.node.node.gas_price(await newest(world))
    fees = fees_for(gas_price, POLICY.fees)
    assert fees is not None
    world.node.balance = 5 * 100_000 * fees.max_fee_per_gas // 2
    await world.ask(4)
    async with world.relaying(PATIENT):
        await world.settled("published", "published")
        await world.some_polls()
        await world.relays_are("sent", "sent", "queued", "queued")

        world.node.balance = ETHER
        world.node.mine()
        await world.relays_are("mined", "mined", "sent", "sent")
        await until(lambda: true(len(world.node.pool) == 2))
        world.node.mine()
        await world.relays_are(*["mined"] * 4)
    await world.executed_in_order()


async def test_a_relay_that_the_balance_does_not_cover_delays_no_other_users(
    world: RelayWorld,
) -> None:
    """Its user's later relay waits behind it: relays of one user keep their order."""
    fees = fees_for(await world.node.node.gas_price(await newest(world)), POLICY.fees)
    assert fees is not None
    world.node.balance = 5 * 100_000 * fees.max_fee_per_gas // 2
    big = structs.replace(a_relay(a_plan(b"\x01", USER)), gas_limit=1_000_000)
    await write(world.pool, big)
    await world.ask(1, USER)
    await world.ask(1, OTHER_USER)
    async with world.relaying(PATIENT):
        await world.settled("published")
        await world.some_polls()
        await world.relays_are("queued", "queued", "sent")

        world.node.balance = ETHER
        world.node.mine()
        await world.relays_are("sent", "sent", "mined")


async def test_no_number_of_relays_that_the_balance_does_not_cover_delays_other_users(
    world: RelayWorld,
) -> None:
    """They are more than the lane may have in flight, and their users' later ones are, too."""
    fees = fees_for(await world.node.node.gas_price(await newest(world)), POLICY.fees)
    assert fees is not None
    world.node.balance = 5 * 100_000 * fees.max_fee_per_gas // 2
    for user in (USER, a_wallet(0xA3)):
        big = structs.replace(a_relay(a_plan(b"\x01", user)), gas_limit=1_000_000)
        await write(world.pool, big)
        await world.ask(3, user)
    await world.ask(1, OTHER_USER)
    async with world.relaying(replace(PATIENT, max_in_flight=4)) as lane:
        await world.settled("published")
        await world.some_polls()
        await world.relays_are(*["queued"] * 8, "sent")
        assert lane.pause.reason == "funds"

        world.node.balance = ETHER
        world.node.mine()
        await world.relays_are(*["sent"] * 4, *["queued"] * 4, "mined")


async def newest(world: RelayWorld) -> Any:
    return await world.node.node.block("latest")


# --- several lanes ----------------------------------------------------------------------------


async def test_two_wallets_share_the_queue_and_send_the_relays_that_name_them(
    world: RelayWorld,
) -> None:
    world.node.mines_at_once = True
    limited = LanePolicy(poll_seconds=0.02, max_in_flight=5, pauses=PAUSES)
    async with world.relaying(limited), world.relaying(limited, OTHER_RELAYER):
        pinned: dict[int, Signer] = {}
        for signer in (RELAYER, OTHER_RELAYER) * 3:
            await world.ask(4)
            (relay,) = await world.ask(wallet=signer.address)
            pinned[relay] = signer
        await world.relays_are(*["mined"] * 30)
    for relay, signer in pinned.items():
        assert (await world.progress(relay)).sender == signer.address
    assert world.node.executed().total() == len(world.node.executed()) == 30
    assert {sent.sender for sent in world.node.sent()} == {RELAYER.address, OTHER_RELAYER.address}


async def test_a_relay_that_names_a_wallet_without_lane_waits_and_delays_no_other(
    world: RelayWorld,
) -> None:
    async with world.relaying():
        await world.ask(wallet=OTHER_RELAYER.address)
        await world.ask()
        await world.relays_are("queued", "sent")
        await world.some_polls()
        assert await row_states(world.observer) == ["queued", "sent"]


async def test_mints_and_relays_of_one_database_do_not_disturb_each_other(
    world: RelayWorld,
) -> None:
    world.node.mines_at_once = True
    async with world.serving(), world.relaying():
        for _ in range(3):
            await world.queue(5)
            await world.ask(5)
        await world.minted()
        await world.relays_are(*["mined"] * 15)
        senders = {sent.sender: sent.to for sent in world.node.sent()}
    assert senders.keys() == {MINTER.address, RELAYER.address}
    assert senders[RELAYER.address] == PERKS
    assert world.node.minted().total() == len(world.node.minted()) == 15
    assert set(world.node.executed().values()) == {1}


async def test_the_rows_show_the_served_relay_wallets(world: RelayWorld) -> None:
    assert await working(world) == []
    async with world.serving(), world.relaying(), world.relaying(signer=OTHER_RELAYER):
        both = sorted([RELAYER.address, OTHER_RELAYER.address])
        await until(lambda: shown(world, both))
        await world.ask(wallet=both[1])
        await world.settled("published")
        assert await working(world) == both[::-1], "the busiest wallet is not the first"
    await value(world.observer, "UPDATE lanes SET served_at = now() - interval '61 seconds'")
    assert await working(world) == []


async def shown(world: RelayWorld, wallets: list[Address]) -> bool:
    return await working(world) == wallets


# --- random faults ----------------------------------------------------------------------------


class Trouble:
    """Random faults. A relay is either revoked or published, never both."""

    def __init__(self, world: RelayWorld, chance: random.Random) -> None:
        self._world = world
        self._node = world.node
        self._chance = chance
        self._kinds: list[Callable[[], Awaitable[None]]] = [
            *[self._relays] * 4,
            *[self._blocks] * 3,
            self._a_revocation,
            self._lost_publications,
            self._a_reorg,
            self._a_dropped_pool,
            self._dead_connections,
            self._an_unreachable_node,
            self._other_fees,
            self._a_node_that_refuses,
        ]

    async def strike(self) -> None:
        await self._chance.choice(self._kinds)()
        await value(self._world.observer, "SELECT pg_sleep($1)", self._chance.random() / 25)

    def end(self) -> None:
        self._node.is_down = self._node.refuses_cheap = False
        self._node.base_fee = GWEI
        self._node.lost_replies = self._node.lost_requests = 0
        self._node.refuses = lambda _sent: False

    async def _relays(self) -> None:
        await self._world.ask(self._chance.randint(1, 9), self._chance.choice([USER, OTHER_USER]))

    async def _blocks(self) -> None:
        self._node.mine(self._chance.randint(1, 3))

    async def _a_revocation(self) -> None:
        (relay,) = await self._world.ask()
        async with session(self._world.observer) as connection:
            await relays.withdraw(connection, relay)

    async def _lost_publications(self) -> None:
        self._node.lost_replies = self._chance.randint(0, 3)
        self._node.lost_requests = self._chance.randint(0, 3)

    async def _a_reorg(self) -> None:
        depth = min(self._chance.randint(1, 6), self._node.head.number - 1)
        self._node.reorg(depth, forgets_transactions=self._chance.random() < 0.5)

    async def _a_dropped_pool(self) -> None:
        self._node.pool.clear()

    async def _dead_connections(self) -> None:
        await self._world.kill(self._chance.choice(["ltzd%", "ltzd leases", "ltzd"]))

    async def _an_unreachable_node(self) -> None:
        self._node.is_down = not self._node.is_down

    async def _other_fees(self) -> None:
        self._node.base_fee = self._chance.choice([1, 1, 5, 20, 90, 150]) * GWEI

    async def _a_node_that_refuses(self) -> None:
        refused = self._chance.randint(0, 40)
        self._node.refuses = lambda sent: sent.nonce == refused
        self._node.refuses_cheap = not self._node.refuses_cheap


@pytest.mark.parametrize("seed", [1, None])
async def test_under_random_faults_each_relay_is_executed_once(
    world: RelayWorld, seed: int | None
) -> None:
    seed = random.randrange(10**9) if seed is None else seed
    print(f"seed {seed}")
    world.node.final_depth = 8
    trouble = Trouble(world, random.Random(seed))
    async with world.relay_lane(), world.relay_lane():
        for _ in range(50):
            await trouble.strike()
        trouble.end()

        async def all_mined() -> bool:
            world.node.mine()
            return set(await row_states(world.observer)) == {"mined"}

        await until(all_mined, 60.0)
    assert all(sent.max_fee_per_gas <= FeePolicy().cap for sent in world.node.sent())
    await world.executed_in_order()


class TroubleWithRefusals(Trouble):
    """Random faults, with nodes that refuse some calls for good; each node refuses other calls."""

    def __init__(self, world: RelayWorld, chance: random.Random) -> None:
        super().__init__(world, chance)
        self._kinds += [self._a_node_that_refuses_for_good] * 3

    async def _a_node_that_refuses_for_good(self) -> None:
        refused = self._chance.randint(0, 4)

        def refuses(sent: SentTransaction) -> bool | str:
            is_bad = not sent.is_self_transfer and sent.nonce % 5 == refused
            return "oversized data" if is_bad else False

        self._node.refuses = refuses


@pytest.mark.parametrize("seed", [1, None])
async def test_under_random_refusals_each_relay_is_executed_once_or_gives_up_its_nonce(
    world: RelayWorld, seed: int | None
) -> None:
    seed = random.randrange(10**9) if seed is None else seed
    print(f"seed {seed}")
    world.node.final_depth = 8
    trouble = TroubleWithRefusals(world, random.Random(seed))
    async with world.relay_lane(), world.relay_lane():
        for _ in range(50):
            await trouble.strike()
        trouble.end()

        async def all_over() -> bool:
            world.node.mine()
            return set(await row_states(world.observer)) == {"mined"}

        await until(all_over, 30.0)
    async with session(world.observer) as connection:
        rows = await connection.fetch(
            "SELECT r.data, t.state = 'cancelled' AS is_given_up FROM relays r "
            "JOIN transactions t ON t.id = r.transaction_id"
        )
    executed = world.node.executed()
    assert {row["data"]: executed[row["data"]] for row in rows} == {
        row["data"]: int(not row["is_given_up"]) for row in rows
    }
    assert all(sent.max_fee_per_gas <= FeePolicy().cap for sent in world.node.sent())
    for contents in world.node.nonces().values():
        assert len([call for call in contents if call[0] == PERKS]) <= 1
