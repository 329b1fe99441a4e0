"""Charge redemptions on real rows and relay lanes, with a simulated chain."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import Any, cast
from uuid import uuid4

import pytest
import pytest_asyncio
from msgspec import structs

from ltzd.actions import perk_charges as module
from ltzd.actions.perk_charges import PerkCharges, RedeemedCharges, RedeemRequest, SignedCaller
from ltzd.actions.relayer.context import RelayContext
from ltzd.actions.relayer.wallets import RelayWallets
from ltzd.cache.rate_limits import RateLimits
from ltzd.chain.relayer.calls import RelayContracts
from ltzd.errors import (
    BudgetExhausted,
    CollectionNotFound,
    DatabaseUnavailable,
    HolderChanged,
    IdempotencyKeyReused,
    NoChargesRemaining,
    NodeUnavailable,
    OutcomeUnknown,
    RelayPending,
    SignatureRefused,
    TokenNotFound,
    TransactionFailed,
    Unavailable,
    ValidationFailed,
)
from ltzd.rules.operator.fees import FeePolicy
from ltzd.rules.operator.l1_costs import L1Costs
from ltzd.rules.relayer.gas_budgets import NO_BUDGETS, GasBudgets, brand_account
from ltzd.store import perk_charges as redemptions
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.database import Connection, Pool, open_pool, session, transaction
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.perk_charges import TokenCharges
from ltzd.store.relayer import gas_budgets
from ltzd.store.relayer.gas_budgets import GasChange
from ltzd.store.wakeups import RELAYS
from ltzd.values import Address, checksummed, hex_of
from tests.support.chain.counting_node import CountingClient
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, OTHERS_AT
from tests.support.chain.fake_pool import a_fake_pool
from tests.support.chain.mint_world import true
from tests.support.chain.perk_node import PerkNode
from tests.support.relays.lanes import OTHER_RELAYER, OTHER_USER, USER, RelayWorld
from tests.support.rows.books import reconcile
from tests.support.rows.core import BRAND, a_wallet, running, value
from tests.support.rows.notifications import announced
from tests.support.rows.perk_facts import token_of
from tests.support.waiting import until

TOKEN, OTHER_TOKEN = token_of(7, 1), token_of(7, 2)
OTHER_BRAND = a_wallet(0xC)
CHARGES = 3
SEALER = Sealer([b"\x05" * 32])
ROTATED = Sealer([b"\x06" * 32, b"\x05" * 32])
MANY = 40
FOR_GOOD = "exceeds block gas limit"


@dataclass
class Till:
    """The action of one process; each test starts its relay lanes."""

    node: PerkNode
    world: RelayWorld
    charges: PerkCharges
    context: RelayContext
    answers: list[RedeemedCharges] = field(default_factory=list)

    def request(self, **changes: Any) -> RedeemRequest:
        configuration: dict[str, Any] = {
            "brand": BRAND,
            "nonce": uuid4().hex,
            "collection_id": 7,
            "token_id": TOKEN,
            "amount": 1,
            "user": None,
            "reference": None,
            "idempotency_key": None,
            "fingerprint": b"\x01",
        }
        return RedeemRequest(**(configuration | changes))

    async def redeem(self, **changes: Any) -> RedeemedCharges:
        return await self.charges.redeem(self.request(**changes))

    def waiting(self, seconds: float) -> "Till":
        """The same with an action that waits so long for a transaction."""
        return replace(self, charges=charges_over(self.context, wait_seconds=seconds))

    def limited_to(self, total_wei: int = 0, brand_wei: int = 0) -> "Till":
        """The same with an action that has these gas budgets."""
        budgets = GasBudgets(total_wei=total_wei, brand_wei=brand_wei)
        return replace(self, charges=charges_over(self.context, budgets))

    async def rows(self) -> int:
        count: int = await value(self.world.observer, "SELECT count(*) FROM redemptions")
        return count

    async def is_written(self, count: int) -> None:
        async def is_reached() -> bool:
            return await self.rows() == count

        await until(is_reached)

    async def is_published(self, count: int) -> None:
        async def is_reached() -> bool:
            return len(self.node.pool) == count

        await until(is_reached)

    async def knows(self, used: int) -> None:
        """Waits until the index has this number of used charges."""

        async def is_reached() -> bool:
            token, _ = await self.charges.token(a_reader(), 7, TOKEN)
            return token.used == used

        await until(is_reached)


def a_reader(brand: Address = BRAND, nonce: str | None = None) -> SignedCaller:
    return SignedCaller(brand, nonce or uuid4().hex)


def charges_over(
    context: RelayContext,
    budgets: GasBudgets = NO_BUDGETS,
    wait_seconds: float = 60.0,
    sealer: Sealer = SEALER,
) -> PerkCharges:
    # The tests of the surface cover signatures and replays.
    signatures = cast("Any", None)
    return PerkCharges(
        context, BrandCache(), signatures, RateLimits(), sealer, budgets, wait_seconds=wait_seconds
    )


@pytest_asyncio.fixture
async def till(database_url: str, pool: Pool) -> AsyncIterator[Till]:
    """Two indexed tokens with three charges each; the node mines only on request."""
    node = PerkNode()
    node.mine()
    node.final_depth = 3
    world = RelayWorld(database_url, pool, pool, node)
    contracts = RelayContracts(CHAIN_ID, LTZ_AT, *OTHERS_AT)
    context = RelayContext.create(pool, world.wakeups, node.node, contracts, FeePolicy())
    charges = charges_over(context)
    follower = await world.follow()
    node.claim(BRAND, USER, TOKEN, OTHER_TOKEN, charges=CHARGES)
    async with running(follower.run(), context.waiters.run()):
        till = Till(node, world, charges, context)
        await until(lambda: value(pool, "SELECT count(*) FROM tokens"))
        yield till


# --- outcomes ---------------------------------------------------------------------------------


async def test_a_redemption_is_answered_when_it_is_mined(till: Till) -> None:
    till.node.mines_at_once = True
    async with till.world.relaying():
        redeemed = await till.redeem(amount=2, user=USER, reference="receipt")
    redemption = redeemed.redemption
    assert (redemption.holder, redemption.amount, redemption.remaining, redemption.max_charges) == (
        USER,
        2,
        1,
        CHARGES,
    )
    assert (redemption.succeeded, redeemed.already_processed) == (True, False)
    assert redemption.mined_at is not None
    assert till.node.left(TOKEN) == 1


async def test_other_processes_learn_of_a_redemption_after_its_commit(
    till: Till, database_url: str
) -> None:
    till.node.mines_at_once = True
    async with till.world.relaying(), announced(database_url, till.world.wakeups, RELAYS):
        await till.redeem()


async def test_a_redemption_asks_a_node_for_its_simulation_alone(till: Till) -> None:
    client = CountingClient(till.node)
    contracts = RelayContracts(CHAIN_ID, LTZ_AT, *OTHERS_AT)
    context = RelayContext.create(
        till.world.pool, till.world.wakeups, client.node, contracts, FeePolicy()
    )
    till.node.mines_at_once = True
    async with till.world.relaying(), running(context.waiters.run()):
        # The first redemption of a second reads the prices for all redemptions of the second.
        await context.simulator.fees()
        await context.simulator.l1_costs()
        client.questions.clear()
        await replace(till, charges=charges_over(context)).redeem(user=USER)
    assert dict(client.questions) == {"simulation": 1, "request": 1}


async def test_redemptions_in_flight_are_subtracted_from_the_charges(till: Till) -> None:
    async with till.world.relaying():
        requests = [asyncio.create_task(till.redeem()) for _ in range(CHARGES)]
        await till.is_written(CHARGES)
        with pytest.raises(NoChargesRemaining) as refused:
            await till.redeem()
        await till.is_published(CHARGES)
        till.node.mine()
        results = await asyncio.gather(*requests)
    assert sorted(result.redemption.remaining for result in results) == [0, 1, 2]
    assert refused.value.details["chargesRemaining"] == 0
    assert till.node.left(TOKEN) == 0


async def test_a_redemption_decided_on_stale_charges_is_decided_again_under_the_lock(
    till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other redemptions of the token were mined and indexed between the read and the lock."""
    till.node.mines_at_once = True
    real = redemptions.read_token_charges
    async with till.world.relaying():
        stale: list[TokenCharges | None] = []

        async def once_stale(connection: Connection, token_id: int) -> TokenCharges | None:
            return stale.pop() if stale else await real(connection, token_id)

        async with till.world.observer.acquire() as connection:
            stale.append(await real(cast("Connection", connection), TOKEN))
        await till.redeem(amount=2)
        await till.knows(used=2)
        monkeypatch.setattr(redemptions, "read_token_charges", once_stale)
        assert (await till.redeem()).redemption.remaining == 0
    assert till.node.left(TOKEN) == 0


async def test_a_tokens_redemptions_stay_ordered_with_two_relay_wallets(
    database_url: str, till: Till
) -> None:
    token = token_of(8, 1)
    till.node.claim(BRAND, USER, token, charges=MANY)
    await until(lambda: value(till.world.observer, "SELECT count(*) = 3 FROM tokens"))
    till.node.mines_at_once = True
    async with till.world.relaying(), till.world.relaying(signer=OTHER_RELAYER):
        results = await asyncio.gather(
            *(till.redeem(collection_id=8, token_id=token) for _ in range(MANY))
        )
    assert sorted(result.redemption.remaining for result in results) == list(range(MANY))
    assert till.node.left(token) == 0


async def test_a_redemption_that_is_not_mined_in_time_is_pending_and_found_by_its_key(
    till: Till,
) -> None:
    async with till.world.relaying():
        pending = await till.waiting(0.5).redeem(idempotency_key="till-1-0001")
        await till.is_published(1)
        till.node.mine()
        again = await till.redeem(idempotency_key="till-1-0001")
    assert (pending.redemption.succeeded, pending.redemption.mined_at) == (None, None)
    assert pending.redemption.transaction_hash is not None
    assert (again.already_processed, again.redemption.succeeded) == (True, True)
    assert again.redemption.id == pending.redemption.id
    assert await till.rows() == 1


async def test_a_redemption_that_no_node_accepted_has_no_hash_and_is_found_by_its_key(
    till: Till,
) -> None:
    till.node.refuses = lambda _sent: True
    async with till.world.relaying():
        with pytest.raises(RelayPending):
            await till.waiting(0.5).redeem(idempotency_key="till-1-0001")
        till.node.refuses = lambda _sent: False
        till.node.mines_at_once = True
        again = await till.redeem(idempotency_key="till-1-0001")
    assert (again.already_processed, again.redemption.succeeded) == (True, True)
    assert await till.rows() == 1


async def test_a_redemption_that_the_network_refuses_fails_when_final_and_the_next_succeeds(
    till: Till,
) -> None:
    till.node.refuses = lambda sent: FOR_GOOD if sent.data else False
    async with till.world.relaying():
        refused = asyncio.create_task(till.redeem(amount=2, idempotency_key="till-1-0001"))
        await until(lambda: _is_waiting(till))
        till.node.refuses = lambda _sent: False
        till.node.mine(2)
        await till.world.settled("mined")
        assert not refused.done()
        till.node.mine(4)
        with pytest.raises(TransactionFailed, match="the network refused the transaction"):
            await refused
        with pytest.raises(TransactionFailed, match="the network refused the transaction"):
            await till.redeem(amount=2, idempotency_key="till-1-0001")
        till.node.mines_at_once = True
        done = await till.redeem(amount=3)
    assert done.redemption.remaining == 0, "the failed redemption used no charges"


async def _is_waiting(till: Till) -> bool:
    return bool(till.node.pool)


async def test_a_redemption_that_no_lane_sends_in_time_is_withdrawn(
    till: Till,
) -> None:
    """The lane died a moment ago and still counts as serving."""
    async with till.world.relaying():
        pass
    with pytest.raises(Unavailable):
        await till.waiting(0.2).redeem(idempotency_key="till-1-0001")
    assert await till.rows() == 0
    assert await spent_by_brand(till) == 0
    till.node.mines_at_once = True
    async with till.world.relaying():
        redeemed = await till.redeem(idempotency_key="till-1-0001")
    assert (redeemed.already_processed, redeemed.redemption.remaining) == (False, 2)


async def test_a_brand_learns_that_a_redemption_may_be_sent_if_its_commit_was_not_answered(
    till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any other 503 says that nothing was redeemed, and the brand takes another charge."""

    @asynccontextmanager
    async def transaction_without_answer(pool: Pool) -> AsyncIterator[Connection]:
        async with transaction(pool) as connection:
            yield connection
        raise DatabaseUnavailable("The database was lost")

    till.node.mines_at_once = True
    async with till.world.relaying():
        with monkeypatch.context() as patch:
            patch.setattr(module, "transaction", transaction_without_answer)
            with pytest.raises(OutcomeUnknown):
                await till.redeem(idempotency_key="till-1-0001")
        redeemed = await till.redeem(idempotency_key="till-1-0001")
    assert (redeemed.already_processed, redeemed.redemption.remaining) == (True, 2)
    assert till.node.left(TOKEN) == 2


async def test_a_redemption_that_gets_no_connection_is_answered_as_one_that_will_never_be_sent(
    till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A till without an idempotency key could not tell whether to repeat it."""

    @asynccontextmanager
    async def transaction_in_a_crowd(_pool: Pool) -> AsyncIterator[Connection]:
        crowded = await open_pool(till.world.url, size=1, open_at_start=1, wait_seconds=0.01)
        try:
            async with session(crowded), transaction(crowded) as connection:
                yield connection
        finally:
            crowded.terminate()

    monkeypatch.setattr(module, "transaction", transaction_in_a_crowd)
    async with till.world.relaying():
        with pytest.raises(DatabaseUnavailable, match="No database connection became free"):
            await till.redeem()
    assert await till.rows() == 0


async def test_a_brand_learns_that_a_redemption_may_be_sent_if_the_database_is_lost_at_the_deadline(
    till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lose(*_: object) -> None:
        raise ConnectionResetError

    async with till.world.relaying():
        with monkeypatch.context() as patch:
            patch.setattr(redemptions, "by_id", lose)
            with pytest.raises(OutcomeUnknown):
                await till.waiting(0.2).redeem(idempotency_key="till-1-0001")
        await till.is_published(1)
        till.node.mine()
        redeemed = await till.redeem(idempotency_key="till-1-0001")
    assert (redeemed.already_processed, redeemed.redemption.remaining) == (True, 2)
    assert till.node.left(TOKEN) == 2


async def test_with_a_withdrawn_redemption_go_those_that_counted_on_it(till: Till) -> None:
    """The later one names the charges left after the first: the chain would refuse it."""
    async with till.world.relaying():
        pass
    first = asyncio.create_task(till.waiting(3.0).redeem())
    await till.is_written(1)
    later = asyncio.create_task(till.waiting(600).redeem(idempotency_key="till-1-0002"))
    other = asyncio.create_task(till.redeem(token_id=OTHER_TOKEN))
    await till.is_written(3)
    with pytest.raises(Unavailable):
        await first
    till.node.mines_at_once = True
    async with till.world.relaying():
        assert (await other).redemption.remaining == 2, "another token's redemption is sent"
        with pytest.raises(Unavailable):
            await asyncio.wait_for(later, 30)
        again = await till.redeem(idempotency_key="till-1-0002")
    assert (again.already_processed, again.redemption.remaining) == (False, 2)
    assert till.node.left(TOKEN) == 2


async def test_a_lapsed_redemption_whose_process_died_keeps_no_charges(till: Till) -> None:
    """No lane sends it any more, and no process has deleted it yet."""
    async with till.world.relaying():
        pass
    dying = asyncio.create_task(till.redeem(amount=2))
    await till.is_written(1)
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    await till.world.observer.execute("UPDATE relays SET created_at = now() - interval '10 min'")
    till.node.mines_at_once = True
    async with till.world.relaying():
        redeemed = await till.redeem()
    assert redeemed.redemption.remaining == 2


async def test_a_lapsed_redemption_of_a_dead_wallet_binds_no_later_one_to_it(till: Till) -> None:
    async with till.world.relaying():
        pass
    dying = asyncio.create_task(till.redeem())
    await till.is_written(1)
    dying.cancel()
    await asyncio.gather(dying, return_exceptions=True)
    await till.world.observer.execute("UPDATE relays SET created_at = now() - interval '10 min'")
    await till.world.observer.execute("UPDATE lanes SET served_at = now() - interval '10 min'")
    till.node.mines_at_once = True
    wallets = RelayWallets(till.context.pool, CHAIN_ID)
    restarted = charges_over(structs.replace(till.context, wallets=wallets), wait_seconds=5)
    async with till.world.relaying(signer=OTHER_RELAYER):
        assert (await restarted.redeem(till.request())).redemption.remaining == 2


async def test_without_a_served_relay_wallet_nothing_is_written(till: Till) -> None:
    with pytest.raises(Unavailable):
        await till.redeem()
    assert await till.rows() == 0


# --- the day's gas ----------------------------------------------------------------------------


A_SESSION_WAITS = """
SELECT EXISTS (SELECT FROM pg_stat_activity
                WHERE datname = current_database() AND wait_event_type = 'Lock')
"""


async def spent_today(till: Till) -> int:
    async with session(till.world.observer) as connection:
        return (await gas_budgets.spent(connection, [])).total_wei


async def spent_by_brand(till: Till) -> int:
    account = brand_account(BRAND)
    async with session(till.world.observer) as connection:
        return (await gas_budgets.spent(connection, [account])).by_identity[account]


async def test_a_redemption_counts_towards_the_total_budget_at_its_maximum_and_then_its_cost(
    till: Till,
) -> None:
    async with till.world.relaying():
        asking = asyncio.create_task(till.redeem())
        await till.is_published(1)
        worst = await spent_today(till)
        assert worst >= module.GAS_LIMIT
        till.node.mine()
        await asking
    assert 0 < await spent_today(till) < worst


async def test_a_rollups_price_of_data_comes_on_top_of_gas_limit_and_budget(
    till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of a rollup's nodes take the data's gas from a simulation, too."""
    fee, gas = 10**15, 200_000
    costs = L1Costs(
        fee_without_data=fee, fee_of_sample=fee, gas_without_data=gas, gas_of_sample=gas
    )

    async def l1_costs() -> L1Costs:
        return costs

    monkeypatch.setattr(till.context.simulator, "l1_costs", l1_costs)
    monkeypatch.setattr(till.node, "needed_gas", lambda _: gas + 56_000)
    async with till.world.relaying():
        asking = asyncio.create_task(till.redeem())
        await till.is_published(1)
        (sent,) = till.node.pool.values()
        assert sent.gas_limit == module.GAS_LIMIT + 2 * gas
        max_fee = await till.context.simulator.max_fee()
        assert await spent_today(till) == sent.gas_limit * max_fee + 2 * fee
        till.node.mine()
        await asking


async def test_with_the_total_gas_budget_spent_no_redemption_is_written_until_tomorrow(
    till: Till,
) -> None:
    till.node.mines_at_once = True
    async with till.world.relaying():
        key = {"idempotency_key": "till-1-0001"}
        done = await till.redeem(**key)
        till = till.limited_to(await spent_today(till))
        with pytest.raises(ValidationFailed) as refused:
            await till.redeem()
        assert refused.value.details["reason"] == "total_gas_budget_exhausted"
        again = await till.redeem(**key)
        assert (again.redemption.id, again.already_processed) == (done.redemption.id, True)
    assert await till.rows() == 1


async def test_a_brand_redeems_until_its_gas_budget_does_not_cover_another_redemption(
    till: Till,
) -> None:
    till.node.mines_at_once = True
    async with till.world.relaying():
        await till.redeem()
        spent = await spent_by_brand(till)
        assert spent == await spent_today(till)
        spender = till.limited_to(brand_wei=spent)
        with pytest.raises(BudgetExhausted) as refused:
            await spender.redeem()
        assert refused.value.details["reason"] == "brand_gas_budget_exhausted"
        assert await till.rows() == 1
        worst = module.GAS_LIMIT * await till.context.simulator.max_fee()
        with pytest.raises(BudgetExhausted):
            await till.limited_to(brand_wei=spent + worst - 1).redeem()
        await till.limited_to(brand_wei=spent + worst).redeem()
    assert await spent_by_brand(till) > spent


async def test_redemptions_of_one_brand_wait_for_each_others_gas(till: Till) -> None:
    account = brand_account(BRAND)
    async with till.world.relaying():
        till = till.limited_to(brand_wei=10**18)
        async with transaction(till.world.observer) as other:
            await gas_budgets.lock_identities(other, [account])
            asking = asyncio.create_task(till.redeem())
            await until(lambda: value(till.world.observer, A_SESSION_WAITS))
            today = await other.fetchval("SELECT (now() AT TIME ZONE 'UTC')::date")
            await gas_budgets.count(other, [GasChange(today, account, 10**18)])
        with pytest.raises(BudgetExhausted):
            await asking


@pytest.mark.parametrize("budget", ["total_wei", "brand_wei"])
async def test_concurrent_redemptions_do_not_exceed_a_budget(till: Till, budget: str) -> None:
    refusal = ValidationFailed if budget == "total_wei" else BudgetExhausted
    async with till.world.relaying():
        asking = asyncio.create_task(till.redeem())
        await till.is_published(1)
        worst = await spent_today(till)
        till = till.limited_to(**{budget: 2 * worst})
        others = [
            asyncio.create_task(till.redeem(token_id=token))
            for token in (TOKEN, OTHER_TOKEN)
            for _ in range(2)
        ]
        await until(lambda: true(sum(task.done() for task in others) == 3))
        till.node.mines_at_once = True
        till.node.mine()
        answers = await asyncio.gather(asking, *others, return_exceptions=True)
    refused = [answer for answer in answers if isinstance(answer, refusal)]
    assert len(refused) == 3
    assert await till.rows() == 2


# --- tokens that change hands -----------------------------------------------------------------


def named(refusal: HolderChanged) -> tuple[object, object]:
    """The token and its holder, as a refusal by the index names them."""
    return refusal.details["tokenId"], refusal.details["holder"]


async def test_a_sale_that_is_not_indexed_yet_is_detected_by_the_simulation(till: Till) -> None:
    till.node.holders[TOKEN] = OTHER_USER
    async with till.world.relaying():
        with pytest.raises(HolderChanged) as refused:
            await till.redeem(user=USER)
    assert (await till.rows(), till.node.sent()) == (0, [])
    assert named(refused.value) == (str(TOKEN), checksummed(OTHER_USER))


async def test_a_false_sale_of_one_of_three_nodes_refuses_no_redemption(till: Till) -> None:
    liar, honest = till.node.sibling(), till.node.sibling()
    for node in (liar, honest):
        assert isinstance(node, PerkNode)
        node.charges, node.holders = till.node.charges, dict(till.node.holders)
        node.holders[TOKEN] = OTHER_USER if node is liar else USER
    till.node.mines_at_once = True
    async with a_fake_pool(liar, till.node, honest) as pool:
        contracts = RelayContracts(CHAIN_ID, LTZ_AT, *OTHERS_AT)
        context = RelayContext.create(
            till.world.pool, till.world.wakeups, pool.node("http"), contracts, FeePolicy()
        )
        async with till.world.relaying(), running(context.waiters.run()):
            await replace(till, charges=charges_over(context)).redeem(user=USER)
        assert pool.contradictions() == [{"simulation"}, set(), set()]


async def test_a_sale_during_a_redemption_is_reported_to_every_repeated_request(
    till: Till,
) -> None:
    async with till.world.relaying():
        request = asyncio.create_task(till.redeem(idempotency_key="till-1-0001"))
        await till.is_published(1)
        till.node.holders[TOKEN] = OTHER_USER
        till.node.mine()
        with pytest.raises(HolderChanged) as refused:
            await request
        with pytest.raises(HolderChanged) as repeated:
            await till.redeem(idempotency_key="till-1-0001")
    assert len(till.node.sent()) == 1
    for refusal in (refused.value, repeated.value):
        assert named(refusal) == (str(TOKEN), checksummed(OTHER_USER))
    assert till.node.left(TOKEN) == CHARGES


# --- each once --------------------------------------------------------------------------------


async def test_a_refused_request_uses_up_its_nonce(till: Till) -> None:
    refused = till.request(amount=CHARGES + 1)
    with pytest.raises(NoChargesRemaining):
        await till.charges.redeem(refused)
    with pytest.raises(SignatureRefused):
        await till.charges.redeem(refused)
    async with till.world.relaying():
        with pytest.raises(SignatureRefused):
            await till.redeem(nonce=refused.nonce)


async def test_a_request_that_failed_temporarily_can_be_repeated_unchanged(till: Till) -> None:
    till.node.mines_at_once = True
    request = till.request()
    async with till.world.relaying():
        till.node.is_down = True
        with pytest.raises(NodeUnavailable):
            await till.charges.redeem(request)
        till.node.is_down = False
        assert (await till.charges.redeem(request)).redemption.remaining == 2
        with pytest.raises(SignatureRefused):
            await till.charges.redeem(request)
    assert till.node.left(TOKEN) == 2


async def test_of_concurrent_requests_with_one_key_one_is_written_and_all_get_its_result(
    till: Till,
) -> None:
    till.node.mines_at_once = True
    async with till.world.relaying():
        results = await asyncio.gather(
            *(till.redeem(idempotency_key="till-1-0001") for _ in range(10))
        )
    assert sorted(result.already_processed for result in results) == [False] + [True] * 9
    assert len({result.redemption.id for result in results}) == 1
    assert till.node.left(TOKEN) == 2


# --- rows that a restore has lost ---------------------------------------------------------------

KEY = {"idempotency_key": "till-1-0001"}


async def lose_rows(till: Till) -> None:
    """As a restore does that lacks the last commits; the index follows the chain again."""
    async with transaction(till.world.observer) as connection:
        for table in ("redemptions", "relays", "attempts", "transactions"):
            await connection.execute(f"DELETE FROM {table}")
        await connection.execute("UPDATE lanes SET served_at = now() - interval '10 min'")


async def test_a_redemption_whose_rows_are_lost_is_answered_from_the_chain(till: Till) -> None:
    till.node.mines_at_once = True
    async with till.world.relaying():
        first = await till.redeem(**KEY, amount=CHARGES)
        await till.knows(used=CHARGES)
    await lose_rows(till)
    again = await till.redeem(**KEY, amount=CHARGES)
    assert again.already_processed
    assert again.redemption.mined_at is not None
    seen = {"mined_at": None}
    kept = structs.asdict(structs.replace(first.redemption, **seen))
    assert structs.asdict(structs.replace(again.redemption, **seen)).items() <= kept.items()
    assert await till.rows() == 0


@pytest.mark.parametrize("changes", [{"amount": 2}, {"user": OTHER_USER}])
async def test_another_request_under_the_key_of_lost_rows_is_refused(
    till: Till, changes: dict[str, Any]
) -> None:
    till.node.mines_at_once = True
    async with till.world.relaying():
        await till.redeem(**KEY)
        await till.knows(used=1)
    await lose_rows(till)
    with pytest.raises(IdempotencyKeyReused):
        await till.redeem(**KEY, **changes)
    assert (await till.redeem(**KEY, user=USER)).already_processed


async def test_lost_rows_are_found_on_the_chain_after_a_rotation_of_the_master_key(
    till: Till,
) -> None:
    till.node.mines_at_once = True
    async with till.world.relaying():
        first = await till.redeem(**KEY)
        await till.knows(used=1)
    await lose_rows(till)
    charges = charges_over(till.context, sealer=ROTATED)
    again = await charges.redeem(till.request(**KEY))
    assert again.redemption.id == first.redemption.id


@pytest.mark.parametrize("sealer", [SEALER, ROTATED], ids=["same key", "rotated"])
async def test_a_pending_redemption_whose_rows_are_lost_redeems_once_and_is_the_outcome(
    till: Till, sealer: Sealer
) -> None:
    """The contract refuses the second one, which names as many charges left as the first."""
    async with till.world.relaying():
        dying = asyncio.create_task(till.redeem(**KEY))
        await till.is_published(1)
        dying.cancel()
        await asyncio.gather(dying, return_exceptions=True)
    await lose_rows(till)
    wallets = RelayWallets(till.context.pool, CHAIN_ID)
    till = replace(
        till, charges=charges_over(structs.replace(till.context, wallets=wallets), sealer=sealer)
    )
    async with till.world.relaying(signer=OTHER_RELAYER):
        asking = asyncio.create_task(till.redeem(**KEY))
        await till.is_published(2)
        till.node.mine()
        await till.knows(used=1)
        till.node.mine()
        redeemed = await asking
        again = await till.redeem(**KEY)
    assert redeemed.redemption.succeeded
    assert (again.redemption.transaction_hash, again.already_processed) == (
        redeemed.redemption.transaction_hash,
        True,
    )
    assert till.node.left(TOKEN) == 2


# --- the books --------------------------------------------------------------------------------


async def reconciled(till: Till, brand: Address | None = None) -> dict[str, str]:
    """The first row of each kind."""
    async with session(till.world.observer) as connection:
        differing = await reconcile(connection, 20, brand)
    return {each.kind: each.rows[0].id for each in differing}


async def redeem_for_good(till: Till) -> RedeemedCharges:
    """Returns once the redemption's transaction is final and indexed."""
    till.node.mines_at_once = True
    async with till.world.relaying():
        redeemed = await till.redeem(**KEY)
        till.node.mine()
        for _ in range(3):
            till.node.mine()
        final = "SELECT state = 'confirmed' FROM transactions"
        await until(lambda: value(till.world.observer, final))
        await till.knows(used=1)
    return redeemed


@pytest.mark.parametrize(
    "elsewhere", ["contracts = ARRAY[]::bytea[]", "cursor_number = 1"], ids=["replaced", "rebuilt"]
)
async def test_the_books_agree_about_a_redemption_and_miss_its_fact(
    till: Till, elsewhere: str
) -> None:
    """The index has no facts of a contract that was replaced, or above a rebuild."""
    redeemed = await redeem_for_good(till)
    assert await reconciled(till) == {}
    await till.world.observer.execute("DELETE FROM charge_redemptions")
    lacking = {"charge_without_fact": str(redeemed.redemption.id)}
    assert await reconciled(till) == lacking
    assert await reconciled(till, OTHER_BRAND) == {}
    await till.world.observer.execute(f"UPDATE chains SET {elsewhere}")
    assert await reconciled(till) == {}


async def test_the_books_tell_of_a_charge_that_no_redemption_explains(till: Till) -> None:
    redeemed = await redeem_for_good(till)
    await lose_rows(till)
    assert redeemed.redemption.transaction_hash is not None
    foreign = {"foreign_charge": f"{hex_of(redeemed.redemption.transaction_hash)} 0"}
    assert await reconciled(till) == await reconciled(till, BRAND) == foreign
    assert await reconciled(till, OTHER_BRAND) == {}


async def test_the_books_tell_of_a_redemption_that_failed_and_is_on_chain(till: Till) -> None:
    redeemed = await redeem_for_good(till)
    await till.world.observer.execute(
        "UPDATE transactions SET state = 'reverted', succeeded = false"
    )
    failed = {"failed_charge_on_chain": str(redeemed.redemption.id)}
    assert await reconciled(till) == failed
    assert await reconciled(till, OTHER_BRAND) == {}


# --- each once --------------------------------------------------------------------------------


async def test_of_concurrent_redemptions_of_two_tokens_with_one_key_one_is_refused(
    till: Till, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither finds the other's key: each waits for the lock of its own token alone."""
    real, together = redemptions.insert, asyncio.Barrier(2)

    async def at_once(*arguments: Any) -> int:
        await together.wait()
        return await real(*arguments)

    monkeypatch.setattr(redemptions, "insert", at_once)
    till.node.mines_at_once = True
    key = {"idempotency_key": "till-1-0001"}
    async with till.world.relaying():
        results = await asyncio.gather(
            till.redeem(**key),
            till.redeem(**key, token_id=OTHER_TOKEN, fingerprint=b"\x02"),
            return_exceptions=True,
        )
    assert {type(result) for result in results} == {RedeemedCharges, IdempotencyKeyReused}
    assert await till.rows() == 1
    assert till.node.left(TOKEN) + till.node.left(OTHER_TOKEN) == 2 * CHARGES - 1


async def test_a_key_with_other_content_is_refused(till: Till) -> None:
    till.node.mines_at_once = True
    async with till.world.relaying():
        await till.redeem(idempotency_key="till-1-0001")
        for changes in (
            {"fingerprint": b"\x02"},
            {"fingerprint": b"\x03", "token_id": OTHER_TOKEN},
        ):
            with pytest.raises(IdempotencyKeyReused):
                await till.redeem(idempotency_key="till-1-0001", **changes)
    assert await till.rows() == 1


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"brand": OTHER_BRAND}, ValidationFailed),
        ({"collection_id": 9}, CollectionNotFound),
        ({"collection_id": 2**200}, CollectionNotFound),
        ({"token_id": token_of(7, 9)}, TokenNotFound),
        ({"token_id": token_of(9, 1)}, TokenNotFound),
        ({"token_id": 2**255}, TokenNotFound),
        ({"user": OTHER_USER}, HolderChanged),
        ({"amount": CHARGES + 1}, NoChargesRemaining),
    ],
    ids=str,
)
async def test_a_token_that_the_brand_cannot_redeem_is_refused_with_the_specific_error(
    till: Till, changes: dict[str, Any], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await till.redeem(**changes)
    assert await till.rows() == 0


# --- lists ------------------------------------------------------------------------------------


async def test_a_page_is_cached_until_the_next_block(till: Till) -> None:
    page = await till.charges.holders(a_reader(), 7, 0, 5)
    assert ([each.id for each in page.tokens], page.total) == ([TOKEN, OTHER_TOKEN], 2)
    assert await till.charges.holders(a_reader(), 7, 0, 5) is page
    assert (await till.charges.holders(a_reader(), 7, TOKEN, 5)).tokens == page.tokens[1:]
    till.node.claim(BRAND, OTHER_USER, token_of(7, 3), charges=CHARGES)

    async def shows_three() -> bool:
        page = await till.charges.holders(a_reader(), 7, 0, 5)
        return (len(page.tokens), page.total) == (3, 3)

    await until(shows_three)


async def test_a_page_beyond_the_last_token_still_has_the_total(till: Till) -> None:
    page = await till.charges.holders(a_reader(), 7, OTHER_TOKEN, 5)
    assert (list(page.tokens), page.total) == ([], 2)


async def test_a_nonce_is_valid_for_one_read_of_any_kind(till: Till) -> None:
    reader = a_reader()
    await till.charges.token(reader, 7, TOKEN)
    for reading in (till.charges.token(reader, 7, TOKEN), till.charges.holders(reader, 7, 0, 5)):
        with pytest.raises(SignatureRefused):
            await reading
    with pytest.raises(SignatureRefused):
        await till.charges.spend(reader)


async def test_a_read_without_a_result_uses_up_its_nonce(till: Till) -> None:
    reader = a_reader()
    with pytest.raises(TokenNotFound):
        await till.charges.token(reader, 7, token_of(7, 99))
    with pytest.raises(SignatureRefused):
        await till.charges.token(reader, 7, TOKEN)


async def test_a_cached_page_is_shown_only_to_its_brand(till: Till) -> None:
    await till.charges.holders(a_reader(), 7, 0, 5)
    with pytest.raises(ValidationFailed):
        await till.charges.holders(a_reader(OTHER_BRAND), 7, 0, 5)
