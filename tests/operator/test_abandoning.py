"""Transactions that nodes refuse for good: a self-transfer uses the nonce, the work is redone.

Decision 0021. The node of these tests refuses chosen calls with geth's messages.
"""

import itertools
from collections.abc import AsyncIterator, Callable

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd import telemetry
from ltzd.chain.contracts import ltz
from ltzd.rules.operator.fees import GWEI, FeePolicy
from ltzd.rules.relayer.calls import RelayStatus
from ltzd.store.database import Pool, transaction
from ltzd.store.wakeups import REWARDS
from ltzd.values import Address
from tests.support.chain.fake_node import ETHER, LTZ_AT, SentTransaction
from tests.support.chain.mint_world import PAUSES, POLICY, true
from tests.support.relays.lanes import RELAYER, RelayWorld, a_relay_world, row_states
from tests.support.rows.core import BRAND, MINTER, a_wallet, queue_reward, states, value
from tests.support.waiting import until

FOR_GOOD = "tx fee (1.20 ether) exceeds the configured cap (1.00 ether)"
ONLY_FOR_PRICE = replace(POLICY, replace_after_seconds=3600.0)
IMPATIENT = replace(ONLY_FOR_PRICE, pauses=replace(PAUSES, unexplained_refusal=0.3))


@pytest_asyncio.fixture
async def world(database_url: str, pool: Pool, observer: Pool) -> AsyncIterator[RelayWorld]:
    async with a_relay_world(database_url, pool, observer) as world:
        yield world


def refuse(world: RelayWorld, is_bad: Callable[[SentTransaction], bool]) -> None:
    """Makes the node refuse these calls for good at any price."""
    world.node.refuses = lambda sent: FOR_GOOD if is_bad(sent) else False


def refuse_nonce(world: RelayWorld, nonce: int) -> None:
    """Makes the node refuse the call with this nonce, but not its self-transfer."""
    refuse(world, lambda sent: sent.nonce == nonce and not sent.is_self_transfer)


async def self_transfer(world: RelayWorld) -> SentTransaction:
    """Waits for a self-transfer in the node's pool."""

    async def there() -> SentTransaction | None:
        return next((sent for sent in world.node.pool.values() if sent.is_self_transfer), None)

    transfer = await until(there)
    assert transfer is not None
    return transfer


def counted(name: str, **labels: str) -> float:
    return telemetry.REGISTRY.get_sample_value(f"ltzd_operator_{name}", labels) or 0.0


async def final(world: RelayWorld, *wanted: str) -> None:
    world.node.mine(4)
    await world.settled(*wanted)


async def all_minted_by_now(world: RelayWorld) -> bool:
    """Mines one more block, since requeued rewards may be signed only now."""
    world.node.mine()
    return await world.unminted() == 0


async def mint_once(world: RelayWorld) -> None:
    """Checks that each reward is minted once, with at most one call for each nonce."""
    await world.minted()
    assert set(world.node.minted().values()) == {1}
    assert sorted(world.node.minted()) == sorted(await world.references())
    for contents in world.node.nonces().values():
        assert len([call for call in contents if call[0] != MINTER.address]) <= 1


# --- a relay ----------------------------------------------------------------------------------


async def test_a_refused_relay_gives_up_its_nonce_and_delays_no_other(world: RelayWorld) -> None:
    alarms = counted("transactions_abandoned_total", kind="relay")
    refuse_nonce(world, 1)
    _, refused, _ = await world.ask(3)
    async with world.relaying(ONLY_FOR_PRICE):
        empty = await self_transfer(world)
        assert empty.nonce == 1
        await world.settled("published", "published", "published")
        await world.ask()
        await world.settled(*["published"] * 4)
        world.node.mine()
        await world.relays_are("mined", "sent", "mined", "mined")

        pending = await world.progress(refused)
        assert (pending.status, pending.block_number) == (RelayStatus.PENDING, None)
        await final(world, "confirmed", "cancelled", "confirmed", "confirmed")
        failed = await world.progress(refused)
        assert (failed.status, failed.is_cancelled) == (RelayStatus.FAILED, True)
        assert failed.transaction_hash == empty.hash
    assert await row_states(world.observer) == ["mined"] * 4
    assert world.node.executed().total() == 3
    assert counted("transactions_abandoned_total", kind="relay") == alarms + 1


async def test_each_of_many_refused_relays_gives_up_its_nonce(world: RelayWorld) -> None:
    refuse(world, lambda sent: bool(sent.data) and sent.data[-1] % 2 == 0)
    await world.ask(6)
    async with world.relaying(ONLY_FOR_PRICE):
        await world.settled(*["published"] * 6)
        await final(world, *["cancelled", "confirmed"] * 3)
    assert [sent.nonce for sent in world.node.self_transfers()] == [0, 2, 4]
    assert world.node.executed().total() == 3


async def test_a_relay_that_is_refused_without_an_explanation_is_given_up_in_the_end(
    world: RelayWorld,
) -> None:
    """A provider's policy, for example, whose text nobody knows and which changes each time."""
    tries = itertools.count()
    world.node.refuses = lambda sent: (
        f"rejected by policy engine, case {next(tries)}"
        if sent.nonce == 1 and not sent.is_self_transfer
        else False
    )
    _, refused, _ = await world.ask(3)
    async with world.relaying(IMPATIENT):
        assert (await self_transfer(world)).nonce == 1
        await world.ask()
        await world.settled(*["published"] * 4)
        world.node.mine()
        await final(world, "confirmed", "cancelled", "confirmed", "confirmed")
        assert (await world.progress(refused)).status is RelayStatus.FAILED
    assert next(tries) > 2
    assert world.node.executed().total() == 3


async def test_a_node_that_refuses_everything_without_an_explanation_costs_one_relay(
    world: RelayWorld,
) -> None:
    """Its self-transfer is refused, too, so that the cause is not in the relay's bytes."""
    self_transfers: list[int] = []

    def refuses(sent: SentTransaction) -> str:
        if sent.is_self_transfer:
            self_transfers.append(sent.nonce)
        return "this service is degraded"

    world.node.refuses = refuses
    await world.ask(5)
    async with world.relaying(IMPATIENT):
        # Each try takes up to 0.05 s, so these outlast the lane's patience with the other relays.
        await until(lambda: true(len(self_transfers) > 30))
        world.node.refuses = lambda _sent: False
        await world.settled(*["published"] * 5)
        world.node.mine()
        await final(world, "cancelled", *["confirmed"] * 4)
    assert set(self_transfers) == {0}
    assert [sent.nonce for sent in world.node.self_transfers()] == [0]


async def test_a_full_pool_takes_no_nonce_from_any_relay(world: RelayWorld) -> None:
    world.node.refuses = lambda _sent: True
    await world.ask(3)
    async with world.relaying(IMPATIENT):
        await until(lambda: true(world.node.call_counts["eth_sendRawTransaction"] > 120))
        world.node.refuses = lambda _sent: False
        await world.settled(*["published"] * 3)
        world.node.mine()
        await final(world, *["confirmed"] * 3)
    assert not world.node.self_transfers()


async def test_an_abandoned_relay_that_is_mined_anyway_succeeds(world: RelayWorld) -> None:
    """Another node had accepted the relay's bytes."""
    refuse_nonce(world, 0)
    (relay,) = await world.ask()
    async with world.relaying(ONLY_FOR_PRICE):
        empty = await self_transfer(world)
        call = next(sent for sent in world.node.sent() if not sent.is_self_transfer)
        world.node.pool = {call.hash: call}
        world.node.mine()
        await world.relays_are("mined")
        done = await world.progress(relay)
        assert (done.status, done.transaction_hash) == (RelayStatus.CONFIRMED, call.hash)
        assert not done.is_cancelled
        await final(world, "confirmed")
    assert empty not in world.node.self_transfers()
    assert world.node.executed().total() == 1


async def test_a_published_relay_that_is_refused_later_gives_up_its_nonce(
    world: RelayWorld,
) -> None:
    """The self-transfer outbids the bytes that a node may still have."""
    (relay,) = await world.ask()
    async with world.relaying(ONLY_FOR_PRICE):
        await world.settled("published")
        (call,) = world.node.sent()
        world.node.pool.clear()
        refuse_nonce(world, 0)
        empty = await self_transfer(world)
        assert empty.max_fee_per_gas * 10 >= call.max_fee_per_gas * 11
        assert empty.tip * 10 >= call.tip * 11
        await final(world, "cancelled")
        assert (await world.progress(relay)).status is RelayStatus.FAILED


async def test_a_reorg_puts_a_refused_relay_back_to_pending(world: RelayWorld) -> None:
    world.node.final_depth = 50
    refuse_nonce(world, 0)
    (relay,) = await world.ask()
    async with world.relaying(ONLY_FOR_PRICE):
        await self_transfer(world)
        world.node.mine(2)
        await world.settled("mined")
        world.node.reorg(2, forgets_transactions=True)
        await world.settled("published")
        assert (await world.progress(relay)).status is RelayStatus.PENDING
        await self_transfer(world)
        world.node.mine(2)
        await world.settled("mined")
    assert world.node.executed().total() == 0


# --- a mint -----------------------------------------------------------------------------------


async def test_the_rewards_of_a_refused_mint_are_minted_once_its_nonce_is_final(
    world: RelayWorld,
) -> None:
    alarms = counted("transactions_abandoned_total", kind="mint")
    refuse_nonce(world, 0)
    async with world.serving(ONLY_FOR_PRICE):
        await world.queue(3)
        await self_transfer(world)
        await world.queue(2)
        await world.settled("published", "published")
        world.node.mine()
        await world.settled("mined", "mined")
        await until(lambda: _unminted(world, 3))
        await world.some_polls()
        assert await states(world.observer) == ["mined", "mined"], "a reorg could restore the mint"
        seqs = await value(world.observer, "SELECT array_agg(seq ORDER BY position) FROM rewards")

        await final(world, "cancelled", "confirmed", "published")
        world.node.mine()
        await mint_once(world)
        again = await value(world.observer, "SELECT array_agg(seq ORDER BY position) FROM rewards")
        assert again == seqs, "a reward lost its reference"
    assert counted("transactions_abandoned_total", kind="mint") == alarms + 1


async def _unminted(world: RelayWorld, count: int) -> bool:
    return await world.unminted() == count


async def test_callers_never_get_the_hash_of_a_self_transfer(world: RelayWorld) -> None:
    refuse_nonce(world, 0)
    async with world.serving(ONLY_FOR_PRICE):
        await world.queue(1)
        empty = await self_transfer(world)
        await world.settled("published")
        await world.some_polls()
        assert empty.hash not in [hash_ for _, hash_ in world.published]
        await final(world, "cancelled", "published")
        await until(lambda: true(bool(world.published)))
    assert empty.hash not in [hash_ for _, hash_ in world.published]


async def test_an_abandoned_mint_that_is_mined_anyway_is_not_minted_again(
    world: RelayWorld,
) -> None:
    refuse_nonce(world, 0)
    async with world.serving(ONLY_FOR_PRICE):
        await world.queue(3)
        await self_transfer(world)
        call = next(sent for sent in world.node.sent() if not sent.is_self_transfer)
        world.node.pool = {call.hash: call}
        world.node.mine()
        await mint_once(world)
        await final(world, "confirmed")
    assert world.node.minted().total() == 3


async def test_an_abandoned_mint_that_a_reorg_restores_is_minted_once(world: RelayWorld) -> None:
    """The self-transfer was mined on the old chain, and the mint is mined on the new one."""
    world.node.final_depth = 50
    refuse_nonce(world, 0)
    async with world.serving(ONLY_FOR_PRICE):
        await world.queue(3)
        await self_transfer(world)
        call = next(sent for sent in world.node.sent() if not sent.is_self_transfer)
        world.node.mine(2)
        await world.settled("mined")
        world.node.forget_blocks(2, forgets_transactions=True)
        world.node.pool = {call.hash: call}
        world.node.mine(3)
        await mint_once(world)
        await world.settled("mined")
    assert world.node.self_transfers() == []


async def test_a_batch_that_a_node_refuses_is_minted_in_smaller_batches(
    world: RelayWorld,
) -> None:
    """The case of a node that caps a transaction's fee, which a batch of a hundred exceeds."""
    most = ltz.mint_gas_limit(20)
    refuse(world, lambda sent: sent.gas_limit > most)
    async with world.serving(ONLY_FOR_PRICE):
        await world.queue(100)
        await until(lambda: all_minted_by_now(world), 60.0)
        await mint_once(world)
    sizes = {sent.gas_limit for sent in world.node.sent() if sent.to == LTZ_AT}
    assert max(sizes) == ltz.mint_gas_limit(100)
    assert {size for size in sizes if size <= most}


async def test_the_refusal_of_a_small_mint_does_not_shrink_later_batches(
    world: RelayWorld,
) -> None:
    """One refusal must not make all later mints small."""
    refuse_nonce(world, 0)
    async with world.serving(ONLY_FOR_PRICE):
        await world.queue(1)
        await self_transfer(world)
        await world.queue(10)
        await world.settled("published", "published")
    mints = [sent for sent in world.node.sent() if sent.data]
    assert mints[-1].gas_limit == ltz.mint_gas_limit(10)


async def test_a_reward_that_nodes_always_refuse_is_separated_from_the_others(
    world: RelayWorld,
) -> None:
    marked = (7).to_bytes(20, "big")
    refuse(world, lambda sent: marked in sent.data)
    async with world.serving(ONLY_FOR_PRICE):
        await world.queue(40)

        async def all_others_minted() -> bool:
            world.node.mine()
            return await world.unminted() == 1

        await until(all_others_minted, 60.0)
    assert set(world.node.minted().values()) == {1}
    assert world.node.minted().total() == 39


@pytest.mark.parametrize("kind", [1, 2])
async def test_a_reward_that_nodes_neither_take_nor_simulate_stops_no_other(
    world: RelayWorld, kind: int
) -> None:
    """A filter of the nodes may refuse a call and its simulation. Payments are the first anyway;
    of other rewards each brand's oldest comes in turn."""
    filtered = a_wallet(0xF1)
    refuse(world, lambda sent: bytes(filtered) in sent.data)
    world.node.cannot_simulate = lambda data: bytes(filtered) in data
    async with world.serving(ONLY_FOR_PRICE):
        await queue_for(world, (filtered, BRAND, kind))
        await self_transfer(world)
        for brand in (BRAND_BEFORE, BRAND_BEHIND) * 2:
            await queue_for(world, (a_wallet(0xF2), brand, 1))

            async def all_others_minted() -> bool:
                world.node.mine()
                return await world.unminted() == 1

            await until(all_others_minted)
    assert world.node.minted().total() == 4


BRAND_BEFORE, BRAND_BEHIND = (Address(bytes([BRAND[0] + step]) * 20) for step in (-1, 1))


async def queue_for(world: RelayWorld, *new: tuple[Address, Address, int]) -> None:
    """Queues a reward for each wallet, brand and kind."""
    async with transaction(world.observer) as connection:
        for wallet, brand, kind in new:
            await queue_reward(connection, wallet, kind=kind, brand=brand)
    world.wakeups.notify(REWARDS)


# --- crashes between two steps ----------------------------------------------------------------


def connection_error(*_: object) -> None:
    """Raises the error of a broken connection."""
    raise ConnectionResetError("connection lost")


async def fail(*_: object) -> None:
    connection_error()


@pytest.mark.parametrize("kind", ["mint", "relay"])
@pytest.mark.parametrize(
    "step",
    [
        "before the self-transfer is stored",
        "after it is stored, before a node has it",
        "after a node has it, before that is written down",
        "after it is mined, before that is saved",
        "after it is final, before that is saved",
        "after all of it",
    ],
)
async def test_a_crash_between_any_two_steps_leads_to_one_outcome(
    world: RelayWorld, monkeypatch: pytest.MonkeyPatch, kind: str, step: str
) -> None:
    dying, serving = (
        (world.lane, world.serving) if kind == "mint" else (world.relay_lane, world.relaying)
    )
    refuse_nonce(world, 0)
    await (world.queue() if kind == "mint" else world.ask())
    with monkeypatch.context() as patch:
        match step:
            case "before the self-transfer is stored":
                patch.setattr("ltzd.store.operator.transactions.store_attempt", fail)
            case "after it is stored, before a node has it":
                patch.setattr(
                    world.node, "refuses", lambda sent: FOR_GOOD if is_call(sent) else "full"
                )
            case "after a node has it, before that is written down":
                patch.setattr("ltzd.store.operator.transactions.mark_published", fail)
        async with dying(ONLY_FOR_PRICE):
            await until(lambda: reached(world, step))
            if step.startswith("after it is mined"):
                patch.setattr("ltzd.store.operator.transactions.save", fail)
                world.node.mine()
                await world.some_polls()
            elif step.startswith(("after it is final", "after all")):
                world.node.mine()
                await world.settled("mined")
                if step.startswith("after it is final"):
                    patch.setattr("ltzd.store.operator.transactions.save", fail)
                world.node.mine(4)
                await world.some_polls()

    async with serving(ONLY_FOR_PRICE):
        await until(lambda: settled_first(world))
        if kind == "mint":
            await until(lambda: all_minted_by_now(world), 60.0)
            await mint_once(world)
        else:
            world.node.mine(2)
            await world.relays_are("mined")
            assert world.node.executed().total() == 0
    assert len(world.node.self_transfers()) == 1


def is_call(sent: SentTransaction) -> bool:
    return not sent.is_self_transfer


async def reached(world: RelayWorld, step: str) -> bool:
    if step.startswith("before"):
        return bool(world.node.arrived)
    if step.startswith("after it is stored"):
        return bool(await value(world.observer, "SELECT count(*) FROM attempts") == 2)
    return bool(world.node.pool)


async def settled_first(world: RelayWorld) -> bool:
    world.node.mine()
    return "cancelled" in await states(world.observer)


# --- obstacles to a self-transfer -------------------------------------------------------------


async def test_a_refused_self_transfer_pauses_its_lane_and_is_retried_with_growing_delays(
    world: RelayWorld,
) -> None:
    """The case of a wallet that the network has banned."""
    pauses = replace(PAUSES, longest_cancellation=0.4)
    refuse(world, lambda _sent: True)
    await world.ask()
    async with world.relaying(replace(ONLY_FOR_PRICE, pauses=pauses)):
        await until(lambda: true(sum(sent.is_self_transfer for sent in world.node.sent()) >= 2))
        await until(lambda: true(counted("lanes_paused", kind="relay", reason="refused") == 1))
        await world.ask()
        await world.some_polls()
        assert await states(world.observer) == ["signed"], (
            "later transactions would only wait behind the first"
        )
        assert await value(world.observer, "SELECT count(*) FROM attempts") == 2
        assert len(world.node.arrived) < 12, "the self-transfer is not retried at intervals"

        world.node.refuses = lambda _sent: False
        await world.settled("published", "published")
        await final(world, "cancelled", "confirmed")
    assert counted("lanes_paused", kind="relay", reason="refused") == 0
    assert await row_states(world.observer) == ["mined", "mined"]


async def test_above_the_cap_a_self_transfer_waits_until_fees_have_fallen(
    world: RelayWorld,
) -> None:
    async with world.relaying(ONLY_FOR_PRICE):

        def rise() -> None:
            world.node.base_fee = 200 * GWEI
            world.node.mine()

        world.node.before["eth_sendRawTransaction"] = rise
        world.node.refuses = lambda _sent: "txpool is full"
        await world.ask()
        await until(lambda: true(len(world.node.arrived) > 0))
        await world.some_polls()  # The lane has seen the fee when the relay is refused for good.
        refuse_nonce(world, 0)
        before = len(world.node.arrived)
        await until(lambda: true(len(world.node.arrived) > before))
        await until(lambda: true(counted("lanes_paused", kind="relay", reason="fees") == 1))
        await world.some_polls()
        assert not any(sent.is_self_transfer for sent in world.node.sent())
        world.node.base_fee = GWEI
        world.node.mine()
        await self_transfer(world)
        await final(world, "cancelled")


async def test_at_the_cap_a_self_transfer_pays_no_more_than_the_cap(world: RelayWorld) -> None:
    world.node.base_fee = 92 * GWEI
    world.node.mine()
    refuse_nonce(world, 0)
    await world.ask()
    async with world.relaying(ONLY_FOR_PRICE):
        empty = await self_transfer(world)
        assert empty.max_fee_per_gas == FeePolicy().cap
        await final(world, "cancelled")


async def test_a_stuck_self_transfer_is_replaced_and_mined_once(
    world: RelayWorld,
) -> None:
    refuse_nonce(world, 0)
    await world.ask()
    async with world.relaying(ONLY_FOR_PRICE):
        cheap = await self_transfer(world)
        world.node.base_fee = 20 * GWEI
        world.node.mine()

        async def is_replaced() -> bool:
            transfers = (sent for sent in world.node.pool.values() if sent.is_self_transfer)
            return any(sent.max_fee_per_gas > cheap.max_fee_per_gas for sent in transfers)

        await until(is_replaced)
        await final(world, "cancelled")
    assert len(world.node.self_transfers()) == 1
    assert world.node.executed().total() == 0


async def test_a_self_transfer_reserves_no_more_than_its_own_cost(world: RelayWorld) -> None:
    """The refused call or the self-transfer is mined, so only the greater cost is reserved."""
    refuse_nonce(world, 0)
    async with world.relaying(ONLY_FOR_PRICE):
        fee = 2 * GWEI + world.node.tip
        world.node.balance = 100_000 * fee
        world.node.mine()
        await world.some_polls()
        await world.ask()
        await self_transfer(world)
        shown = counted("reserved_wei", kind="relay")
        assert shown == 100_000 * fee
        world.node.balance = ETHER
        await final(world, "cancelled")


async def test_many_refusals_slow_the_lane_down_but_do_not_stop_it(
    world: RelayWorld,
) -> None:
    refuse(world, is_call)
    await world.ask(3)
    async with world.relaying(replace(ONLY_FOR_PRICE, max_in_flight=3)):
        await world.settled(*["published"] * 3)
        world.node.refuses = lambda _sent: False
        world.node.mine()
        await world.settled(*["mined"] * 3)
        await world.ask(2)
        await until(lambda: _is_mining(world, 2))
    assert world.node.executed().total() == 2


async def _is_mining(world: RelayWorld, count: int) -> bool:
    world.node.mine()
    return world.node.executed().total() == count


# --- calls that are not signed -----------------------------------------------------------------


async def test_a_relay_whose_gas_limit_nodes_refuse_is_never_signed(
    world: RelayWorld,
) -> None:
    """The lane checks each relay before it signs, also if it was checked before it was queued."""
    bad, good, too_much = await world.ask(3)
    await value(world.observer, "UPDATE relays SET gas_limit = 0 WHERE id = $1", bad)
    await value(world.observer, "UPDATE relays SET gas_limit = 30000001 WHERE id = $1", too_much)
    async with world.relaying():
        await world.relays_are("failed", "sent", "failed")
        await world.settled("published")
    assert [sent.nonce for sent in world.node.sent()] == [0]
    for relay, reason in ((bad, "below the 21040 that its data costs"), (too_much, "above the")):
        assert reason in (await world.progress(relay)).reason
    assert (await world.progress(good)).transaction_hash is not None


async def test_a_block_limit_below_a_full_batch_makes_batches_smaller(
    world: RelayWorld,
) -> None:
    world.node.block_gas_limit = ltz.mint_gas_limit(30)
    world.node.mine()
    async with world.serving(ONLY_FOR_PRICE):
        await world.queue(70)

        async def all_minted() -> bool:
            world.node.mine()
            return await world.unminted() == 0

        await until(all_minted)
        await world.each_minted_once()
    assert max(sent.gas_limit for sent in world.node.sent()) == world.node.block_gas_limit
    assert world.node.self_transfers() == []


async def test_a_block_limit_below_one_mint_pauses_the_lane_with_that_reason(
    world: RelayWorld,
) -> None:
    world.node.block_gas_limit = 100_000
    world.node.mine()
    async with world.serving(ONLY_FOR_PRICE):
        await world.queue(1)
        await until(
            lambda: true(counted("lanes_paused", kind="mint", reason="block_gas_limit") == 1)
        )
        assert await states(world.observer) == []
        world.node.block_gas_limit = 30_000_000
        world.node.mine()
        await world.settled("published")
    assert counted("lanes_paused", kind="mint", reason="block_gas_limit") == 0


async def test_a_transaction_above_a_lowered_block_limit_gives_up_its_nonce(
    world: RelayWorld,
) -> None:
    """The block gas limit has fallen below a waiting transaction's gas limit."""
    await world.ask()
    async with world.relaying(ONLY_FOR_PRICE):
        await world.settled("published")
        world.node.block_gas_limit, world.node.base_fee = 90_000, 20 * GWEI
        world.node.mine(takes_pool=False)
        await self_transfer(world)
        await final(world, "cancelled")
    assert RELAYER.address in {sent.to for sent in world.node.self_transfers()}
