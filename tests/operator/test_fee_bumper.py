"""A stuck mint is replaced under the fee cap, and is still minted once."""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from ltzd import telemetry
from ltzd.rules.operator.fees import GWEI, FeePolicy
from ltzd.store.operator.transactions import store_attempt
from tests.support.chain.fake_node import SentTransaction
from tests.support.chain.mint_world import POLICY, World, true
from tests.support.rows.core import MINTER, states, value
from tests.support.waiting import until

CAP = FeePolicy().cap
IMPATIENT = replace(POLICY, replace_after_seconds=0.1, replace_after_blocks=3)
ONLY_FOR_PRICE = replace(POLICY, replace_after_seconds=3600.0)


async def published_at(world: World, base_fee: int, count: int = 1) -> SentTransaction:
    """Publishes mints signed at this base fee; returns the pool's transactions."""
    world.node.base_fee = base_fee
    world.node.mine()
    await world.some_polls()
    await world.queue(count)
    await world.settled("published")
    return world.node.sent()[-1]


async def attempts(world: World) -> int:
    count: int = await value(world.observer, "SELECT count(*) FROM attempts")
    return count


async def attempted(world: World, count: int) -> None:
    async def there() -> bool:
        return await attempts(world) == count

    await until(there)


async def in_the_pool(
    world: World, is_wanted: Callable[[SentTransaction], bool]
) -> SentTransaction:
    async def there() -> SentTransaction | None:
        return next(filter(is_wanted, world.node.pool.values()), None)

    sent = await until(there)
    assert sent is not None
    return sent


def prices(world: World) -> set[int]:
    return {sent.max_fee_per_gas for sent in world.node.pool.values()}


async def repeated(world: World, times: int = 3) -> None:
    """Waits until the lane has published this many more times."""
    before = len(world.node.arrived)
    await until(lambda: true(len(world.node.arrived) >= before + times))


def paused_for(reason: str) -> float:
    shown = telemetry.REGISTRY.get_sample_value(
        "ltzd_operator_lanes_paused", {"kind": "mint", "reason": reason}
    )
    return shown or 0.0


def count_replaced(reason: str) -> float:
    shown = telemetry.REGISTRY.get_sample_value(
        "ltzd_operator_transactions_replaced_total", {"kind": "mint", "reason": reason}
    )
    return shown or 0.0


# --- when and by how much ---------------------------------------------------------------------


async def test_a_mint_that_cannot_pay_the_base_fee_is_replaced_once_and_minted_once(
    world: World,
) -> None:
    counted = count_replaced("base_fee")
    async with world.serving(ONLY_FOR_PRICE):
        old = await published_at(world, GWEI)
        world.node.base_fee = 20 * GWEI
        world.node.mine()
        new = await in_the_pool(world, lambda sent: sent.hash != old.hash)
        await world.some_polls()
        assert await attempts(world) == 2
        assert list(world.node.pool.values()) == [new]
        assert (new.nonce, new.call) == (old.nonce, old.call)
        assert new.max_fee_per_gas == 2 * 20 * GWEI + world.node.tip
        assert new.tip * 10 >= old.tip * 11

        world.node.mine()
        await world.minted()
        await world.settled("mined")
    assert count_replaced("base_fee") == counted + 1
    await world.each_minted_once()


async def test_callers_get_the_newest_published_hash(world: World) -> None:
    async with world.serving(ONLY_FOR_PRICE):
        old = await published_at(world, GWEI)
        world.node.base_fee = 20 * GWEI
        world.node.mine()
        new = await in_the_pool(world, lambda sent: sent.hash != old.hash)
        await until(lambda: true(any(hash_ == new.hash for _, hash_ in world.published)))
    # On a slow machine the old bytes go out a second time before they are replaced.
    assert list(dict.fromkeys(hash_ for _, hash_ in world.published)) == [old.hash, new.hash]


async def test_a_mint_left_out_of_blocks_is_replaced_with_fees_a_tenth_higher(world: World) -> None:
    async with world.serving(IMPATIENT):
        old = await published_at(world, GWEI)
        await world.some_polls()
        world.node.mine(3, takes_pool=False)
        new = await in_the_pool(world, lambda sent: sent.hash != old.hash)
        await world.some_polls()
        assert await attempts(world) == 2, "no block was mined since"
        assert (new.nonce, new.call) == (old.nonce, old.call)
        assert 11 * old.max_fee_per_gas <= 10 * new.max_fee_per_gas <= 12 * old.max_fee_per_gas
        assert new.tip * 10 >= old.tip * 11
        world.node.mine()
        await world.minted()
    await world.each_minted_once()


async def test_without_blocks_nothing_is_replaced(world: World) -> None:
    async with world.serving(IMPATIENT):
        await published_at(world, GWEI)
        await repeated(world, 10)
        assert await attempts(world) == 1
    assert len(set(world.node.arrived)) == 1


async def test_blocks_do_not_count_against_bytes_that_no_node_has_taken(world: World) -> None:
    world.node.refuses = lambda _sent: True
    async with world.serving(IMPATIENT):
        await world.queue(1)
        await repeated(world)
        for _ in range(3):
            world.node.mine(3)
            await repeated(world)
            await world.some_polls()
        assert await attempts(world) == 1


async def test_fast_blocks_alone_replace_nothing(
    world: World,
) -> None:
    async with world.serving(ONLY_FOR_PRICE):
        await published_at(world, GWEI)
        world.node.mine(50, takes_pool=False)
        await world.some_polls()
        assert await attempts(world) == 1


async def test_only_the_oldest_transaction_counts_as_left_out(world: World) -> None:
    """The other transactions wait for the first, so their waiting time begins when it is mined."""
    async with world.serving(IMPATIENT):
        await world.queue(250)
        await world.settled("published", "published", "published")
        await world.some_polls()
        world.node.mine(3, takes_pool=False)
        await attempted(world, 4)
        await world.some_polls()
        assert await attempts(world) == 4
        assert len({sent.raw for sent in world.node.sent() if sent.nonce == 0}) == 2
        world.node.mine()
        await world.minted()
    await world.each_minted_once()


async def test_all_transactions_below_the_base_fee_are_replaced_in_the_order_of_nonces(
    world: World,
) -> None:
    policy = replace(ONLY_FOR_PRICE, max_in_flight=64)
    async with world.serving(policy):
        for _ in range(20):
            await world.queue(1)
            await until(lambda: true(bool(world.node.pool)))
        await until(lambda: _all_signed(world))
        before = len(await states(world.observer))
        assert before > 1
        first = len(world.node.arrived)
        world.node.base_fee = 20 * GWEI
        world.node.mine()
        await until(lambda: _all_pay(world, 20 * GWEI))
        world.node.mine()
        await world.minted()
    replaced = [sent.nonce for sent in world.node.sent()[first:] if sent.max_fee_per_gas > CAP // 4]
    once = list(dict.fromkeys(replaced))
    assert once == sorted(once)
    await world.each_minted_once()


async def _all_signed(world: World) -> bool:
    """A reward that is signed later has the new fees from the start."""
    waiting = "SELECT count(*) FROM rewards WHERE transaction_id IS NULL"
    return bool(await value(world.observer, waiting) == 0)


async def _all_pay(world: World, base_fee: int) -> bool:
    return all(sent.max_fee_per_gas >= base_fee for sent in world.node.pool.values())


# --- the cap ----------------------------------------------------------------------------------


async def test_if_the_cap_forbids_a_replacement_the_same_bytes_are_published_until_fees_fall(
    world: World,
) -> None:
    async with world.serving(ONLY_FOR_PRICE) as lane:
        old = await published_at(world, 91 * GWEI)
        assert old.max_fee_per_gas > CAP * 10 // 11
        world.node.base_fee = 95 * GWEI
        world.node.mine()
        await repeated(world)
        await until(lambda: true(paused_for("fees") == 1))
        await world.queue(2)
        await world.some_polls()
        assert set(world.node.arrived) == {old.raw}
        assert await states(world.observer) == ["published"], (
            "later transactions would only wait behind the first"
        )
        assert lane.stopped is None

        world.node.base_fee = 30 * GWEI
        world.node.mine()
        await world.settled("mined", "published")
        world.node.mine()
        await world.minted()
    assert paused_for("fees") == 0
    assert {sent.raw for sent in world.node.sent() if sent.nonce == 0} == {old.raw}
    await world.each_minted_once()


async def test_while_fees_are_over_the_cap_a_published_mint_keeps_its_price(world: World) -> None:
    """A price a tenth higher would not suffice either, and would limit later replacements."""
    async with world.serving(ONLY_FOR_PRICE):
        old = await published_at(world, GWEI)
        world.node.base_fee = 150 * GWEI
        world.node.mine()
        await repeated(world)
        assert set(world.node.arrived) == {old.raw}

        world.node.base_fee = 60 * GWEI
        world.node.mine()
        await in_the_pool(world, lambda sent: 60 * GWEI < sent.max_fee_per_gas <= CAP)
        world.node.mine()
        await world.minted()
    await world.each_minted_once()


async def test_nothing_above_the_fee_cap_is_ever_signed(world: World) -> None:
    async with world.serving(IMPATIENT):
        await published_at(world, GWEI)
        for base_fee in (3, 9, 27, 81, 99, 100, 101, 300, 99, 95, 90):
            world.node.base_fee = base_fee * GWEI
            world.node.mine(3, takes_pool=False)
            await repeated(world, 2)
        stored = await value(world.observer, "SELECT max(max_fee_per_gas) FROM attempts")
        assert stored <= CAP
        world.node.base_fee = GWEI
        world.node.mine()
        await world.minted()
    assert max(sent.max_fee_per_gas for sent in world.node.sent()) <= CAP
    await world.each_minted_once()


# --- a node that refuses the price ------------------------------------------------------------


async def test_a_price_refused_as_below_the_base_fee_is_replaced_at_once(
    world: World,
) -> None:
    """The base fee rose after the lane had read it, before the publication."""
    world.node.refuses_cheap = True
    async with world.serving(replace(ONLY_FOR_PRICE, repeat_seconds=3600.0)):

        def rise() -> None:
            world.node.base_fee = 20 * GWEI

        world.node.before["eth_sendRawTransaction"] = rise
        await world.queue(1)
        await in_the_pool(world, lambda sent: sent.max_fee_per_gas > 20 * GWEI)
        world.node.mine()
        await world.minted()
    assert await attempts(world) == 2
    await world.each_minted_once()


async def test_a_price_refused_above_the_base_fee_rises_by_a_tenth_at_intervals(
    world: World,
) -> None:
    """The case of a node whose pool holds a transaction with the same nonce and higher fees."""
    world.node.refusal = "replacement transaction underpriced"
    async with world.serving(ONLY_FOR_PRICE):
        await world.queue(1)
        await attempted(world, 4)
        await world.queue(1)
        await world.some_polls()
        assert await states(world.observer) == ["signed"], (
            "later transactions would only wait behind the first"
        )
        world.node.refusal = None
        await in_the_pool(world, lambda sent: sent.nonce == 0)
        await world.settled("published", "published")
        world.node.mine()
        await world.minted()
    prices = [sent.max_fee_per_gas for sent in world.node.sent() if sent.nonce == 0]
    assert prices == sorted(prices)
    await world.each_minted_once()


async def test_a_price_refused_above_the_base_fee_does_not_rise_with_each_block(
    world: World,
) -> None:
    world.node.refusal = "replacement transaction underpriced"
    async with world.serving(replace(ONLY_FOR_PRICE, repeat_seconds=3600.0)):
        await world.queue(1)
        await until(lambda: true(paused_for("fees") == 1))
        for _ in range(3):
            world.node.mine()
            await world.some_polls()
        assert await attempts(world) == 1


async def test_a_node_that_refuses_every_price_does_not_block_the_lane(world: World) -> None:
    """At the cap the same bytes are published repeatedly, until the node takes them."""
    policy = replace(ONLY_FOR_PRICE, fees=FeePolicy(cap=3 * GWEI), repeat_seconds=0.03)
    world.node.refusal = "transaction underpriced"
    async with world.serving(policy):
        await world.queue(1)
        await until(lambda: true(paused_for("fees") == 1))
        await repeated(world, 10)
        dearest = world.node.sent()[-1]
        assert dearest.max_fee_per_gas * 11 > 3 * GWEI * 10
        await repeated(world, 3)
        assert world.node.sent()[-1] == dearest

        world.node.refusal = None
        await in_the_pool(world, lambda sent: sent == dearest)
        await until(lambda: true(paused_for("fees") == 0))
        world.node.mine()
        await world.minted()
    await world.each_minted_once()


async def test_bytes_refused_above_the_cap_are_mined_unchanged_once_fees_fall(
    world: World,
) -> None:
    world.node.refuses_cheap = True
    async with world.serving(ONLY_FOR_PRICE):
        old = await published_at(world, 20 * GWEI)
        world.node.pool.clear()
        world.node.base_fee = 150 * GWEI
        world.node.mine()
        await until(lambda: true(paused_for("fees") == 1))
        await repeated(world)

        world.node.base_fee = 15 * GWEI
        world.node.mine(3)
        await in_the_pool(world, lambda sent: sent == old)
        world.node.mine()
        await world.minted()
    assert await attempts(world) == 1
    await world.each_minted_once()


# --- crashes, other attempts, reorgs ----------------------------------------------------------


async def test_a_crash_between_storing_and_publishing_publishes_the_stored_replacement(
    world: World,
) -> None:
    async with world.serving(ONLY_FOR_PRICE):
        old = await published_at(world, GWEI)
        world.node.lost_requests = 1_000_000
        world.node.base_fee = 20 * GWEI
        world.node.mine()
        await attempted(world, 2)
    assert set(world.node.arrived) == {old.raw}
    newest = await value(world.observer, "SELECT raw FROM attempts ORDER BY max_fee_per_gas DESC")

    world.node.lost_requests = 0
    async with world.serving(ONLY_FOR_PRICE):
        await in_the_pool(world, lambda sent: sent.raw == newest)
        world.node.mine()
        await world.minted()
    assert await attempts(world) == 2
    await world.each_minted_once()


async def test_a_lane_whose_term_has_ended_replaces_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process took the lane while the replacement was being signed."""

    async def too_late(connection: object, *arguments: object) -> None:
        monkeypatch.setattr("ltzd.store.operator.transactions.store_attempt", store_attempt)
        await value(world.observer, "UPDATE lanes SET epoch = epoch + 1 RETURNING epoch")
        await store_attempt(connection, *arguments)  # type: ignore[arg-type]

    async with world.serving(ONLY_FOR_PRICE):
        await published_at(world, GWEI)
        monkeypatch.setattr("ltzd.store.operator.transactions.store_attempt", too_late)
        world.node.base_fee = 20 * GWEI
        world.node.mine()
        await until(lambda: _epoch(world, 3))
        await in_the_pool(world, lambda sent: sent.max_fee_per_gas > 20 * GWEI)
        assert await attempts(world) == 2, "the replacement is not the next term's"
        world.node.mine()
        await world.minted()
    await world.each_minted_once()


async def _epoch(world: World, at_least: int) -> bool:
    return bool(await value(world.observer, "SELECT epoch FROM lanes") >= at_least)


async def test_the_old_attempt_may_be_mined_after_its_replacement_was_published(
    world: World,
) -> None:
    """Another node had the earlier attempt, and mined it."""
    async with world.serving(ONLY_FOR_PRICE):
        old = await published_at(world, GWEI)
        world.node.base_fee = 20 * GWEI
        world.node.mine()
        new = await in_the_pool(world, lambda sent: sent.hash != old.hash)
        world.node.pool = {old.hash: old}
        world.node.base_fee = GWEI
        world.node.mine()
        await world.minted()
        await world.settled("mined")
        world.node.mine(3)
        await world.settled("confirmed")
    mined = await value(world.observer, "SELECT mint_transaction_hash FROM rewards")
    assert mined == old.hash != new.hash
    await world.each_minted_once()


@pytest.mark.parametrize("returns", ["old", "new", "neither"])
async def test_a_reorg_between_attempts_mints_once(world: World, returns: str) -> None:
    world.node.final_depth = 50
    async with world.serving(ONLY_FOR_PRICE):
        old = await published_at(world, GWEI)
        world.node.base_fee = 20 * GWEI
        world.node.mine()
        new = await in_the_pool(world, lambda sent: sent.hash != old.hash)
        world.node.mine()
        await world.settled("mined")

        world.node.base_fee = GWEI
        world.node.forget_blocks(1, forgets_transactions=True)
        world.node.mine(2, takes_pool=False)
        await world.settled("published")
        if returns != "neither":
            sent = old if returns == "old" else new
            world.node.pool = {sent.hash: sent}
        await in_the_pool(world, lambda _sent: True)
        world.node.mine()
        world.node.mine()
        await world.settled("mined")
        await world.minted()
    await world.each_minted_once()


# --- funds ------------------------------------------------------------------------------------


async def test_a_replacement_that_the_balance_cannot_cover_waits_for_funds(
    world: World,
) -> None:
    async with world.serving(ONLY_FOR_PRICE):
        old = await published_at(world, GWEI)
        world.node.balance = 10 * old.gas_limit * old.max_fee_per_gas
        world.node.base_fee = 20 * GWEI
        world.node.mine()
        await until(lambda: true(paused_for("funds") == 1))
        await repeated(world)
        assert await attempts(world) == 1

        world.node.balance *= 1000
        await in_the_pool(world, lambda sent: sent.hash != old.hash)
        await until(lambda: true(paused_for("funds") == 0))
        world.node.mine()
        await world.minted()
    await world.each_minted_once()


async def test_the_maximum_cost_of_a_replacement_is_reserved(world: World) -> None:
    async with world.serving(ONLY_FOR_PRICE):
        old = await published_at(world, GWEI)
        world.node.base_fee = 20 * GWEI
        world.node.mine()
        new = await in_the_pool(world, lambda sent: sent.hash != old.hash)
        shown = telemetry.REGISTRY.get_sample_value("ltzd_operator_reserved_wei", {"kind": "mint"})
        assert shown == new.gas_limit * new.max_fee_per_gas


async def test_replacements_that_are_signed_together_never_cost_more_than_the_balance(
    world: World,
) -> None:
    dearer = 2 * 20 * GWEI + world.node.tip
    async with world.serving(ONLY_FOR_PRICE):
        first = await published_at(world, GWEI)
        await world.queue()
        await world.settled("published", "published")
        old = {sent.nonce: sent for sent in world.node.pool.values()}
        second = old[first.nonce + 1]
        world.node.balances[MINTER.address] = first.gas_limit * dearer + second.gas_limit * (
            dearer - 1
        )
        world.node.base_fee = 20 * GWEI
        world.node.mine(takes_pool=False)
        await until(lambda: true(paused_for("funds") == 1))
        await world.some_polls()
        assert await attempts(world) == 3
        world.node.balances[MINTER.address] += second.gas_limit
        await until(lambda: true(prices(world) == {dearer}))
        world.node.mine()
        await world.minted()
    await world.each_minted_once()
