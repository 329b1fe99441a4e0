"""Checkouts, payment mints and the provider's events: real PostgreSQL, the sandbox's identity
provider, and a payment provider behind HTTP that the real client speaks to.
"""

import asyncio
import contextlib
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any
from uuid import UUID

import pytest
import pytest_asyncio
from stripe import HTTPClient
from structlog.testing import capture_logs

from ltzd import telemetry
from ltzd.actions.event_handler.hash_waiter import MintHashWaiters
from ltzd.actions.mint_capacity import MintCapacity
from ltzd.actions.payments import CheckoutRequest, MintedPayment, Payments
from ltzd.dev.sandbox import Sandbox
from ltzd.dev.sandbox.faults import Fault
from ltzd.errors import (
    BrandUnknown,
    DatabaseUnavailable,
    IdempotencyKeyReused,
    IdentityUnavailable,
    InvalidFields,
    LtzdError,
    MintPending,
    PaymentRefused,
    PaymentsUnavailable,
    RateLimited,
)
from ltzd.providers.checkouts import PaymentProviderAccess
from ltzd.providers.identity.client import IdentityClient
from ltzd.rules.payments.sessions import NO_BRAND
from ltzd.store import payments
from ltzd.store.brands import configurations as brands
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.database import Pool, open_pool, session, transaction
from ltzd.store.payments import RecordedPayment
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.store.wakeups import REWARDS, WEBHOOKS, WakeupHub
from ltzd.values import LTZ, Hash32, address_of, checksummed
from tests.support.chain.fake_node import CHAIN_ID, LTZ_AT, FakeNode
from tests.support.chain.fake_pool import a_fake_pool
from tests.support.clocks import ManualClock
from tests.support.rows.core import BRAND, a_hash, a_wallet, running, value
from tests.support.services.payment_provider import (
    SIGNING_SECRET,
    WALLET_TEXT,
    FakePayments,
    a_dispute,
    a_failed_refund,
    a_refund,
    a_refunded_charge,
    a_session_event,
    an_event,
    metadata,
    payment_provider,
    signed,
)
from tests.support.services.postgres import Databases
from tests.support.surfaces.event_action import NO_NODE, SEALER, a_brand, a_handler
from tests.support.surfaces.event_action import a_request as an_event_request
from tests.support.waiting import until

BRAND_TEXT = "0x" + BRAND.hex()
MINT = a_hash("mint")
HOOK = "https://hooks.example/ltz"
ASYNC = "checkout.session.async_payment_succeeded"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HTTPClient, "INITIAL_DELAY", 0.01)


@pytest_asyncio.fixture
async def shop() -> AsyncIterator[FakePayments]:
    async with payment_provider() as fake:
        yield fake


class World:
    """The action in one process, with its database, node and payment provider."""

    def __init__(self, url: str, pool: Pool, node: FakeNode, wakeups: WakeupHub) -> None:
        self.url = url
        self.pool = pool
        self.node = node
        self.wakeups = wakeups
        self.brand_cache = BrandCache()
        self.hashes = MintHashWaiters(pool, wakeups)
        self.clock = ManualClock()
        self.is_minting = True
        self.rewards, self.webhooks = wakeups.subscribe(REWARDS), wakeups.subscribe(WEBHOOKS)
        self.payments: Payments

    async def brand(self, **changes: Any) -> None:
        async with transaction(self.pool) as connection:
            await brands.apply(connection, a_brand(**changes), SEALER)
        await self.refresh()

    async def switch(self, column: str) -> None:
        """Sets this time stamp of the brand, as the operator's commands do."""
        await value(
            self.pool,
            f"UPDATE brands SET {column} = now(), revision = nextval('brand_revisions')",
        )
        await self.refresh()

    async def refresh(self) -> None:
        async with session(self.pool) as connection:
            await self.brand_cache.refresh(connection)

    async def lane(self) -> None:
        """Stands in for the mint lane: delivers a hash to each waiter that has a reward."""
        while True:
            await asyncio.sleep(0.01)
            for reward in self.hashes.awaited() if self.is_minting else ():
                if await value(self.pool, "SELECT true FROM rewards WHERE id = $1", reward):
                    self.hashes.deliver([reward], MINT)

    async def mint(self, session_id: str) -> MintedPayment:
        return await self.payments.mint(session_id)

    async def deliver(self, event: object, **signature: Any) -> None:
        await self.payments.process_event(*signed(event, **signature))


@asynccontextmanager
async def a_world(
    url: str,
    sandbox: Sandbox,
    shop: FakePayments | None,
    hash_wait_seconds: float = 3.0,
    **policy: Any,
) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        pool = await open_pool(url)
        stack.callback(pool.terminate)
        node, wakeups = FakeNode(), WakeupHub(url)
        node.mine()
        world = World(url, pool, node, wakeups)
        await world.brand(webhook_url=HOOK)
        identity = await stack.enter_async_context(IdentityClient(sandbox.identity_policy()))
        provider = None
        if shop is not None:
            provider = PaymentProviderAccess(shop.policy(**policy))
            await stack.enter_async_context(provider)
        world.payments = Payments(
            pool,
            wakeups,
            world.brand_cache,
            identity,
            world.hashes,
            provider,
            MintCapacity(pool, node.node, CHAIN_ID, LTZ_AT, world.clock),
            ErasedAddresses(SEALER),
            hash_wait_seconds=hash_wait_seconds,
        )
        await stack.enter_async_context(running(world.hashes.run(), world.lane()))
        yield world


@pytest_asyncio.fixture
async def world(database_url: str, sandbox: Sandbox, shop: FakePayments) -> AsyncIterator[World]:
    async with a_world(database_url, sandbox, shop) as world:
        yield world


@pytest_asyncio.fixture(scope="module")
async def shared_world(
    databases: Databases, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[tuple[World, FakePayments]]:
    sandbox = Sandbox(tmp_path_factory.mktemp("sandbox"), 0, NO_NODE, None)
    await sandbox.start()
    async with (
        databases.fresh() as url,
        payment_provider() as fake,
        a_world(url, sandbox, fake) as world,
    ):
        yield world, fake
    await sandbox.stop()


@pytest.fixture
def idle(shared_world: tuple[World, FakePayments]) -> tuple[World, FakePayments]:
    """A world shared by parametrised tests that leave no rows."""
    world, fake = shared_world
    vars(fake).update(vars(FakePayments(fake.base)))
    return world, fake


Idle = tuple[World, FakePayments]


def an_order(email: str = "ann@shop.example", **changes: Any) -> CheckoutRequest:
    fields: dict[str, Any] = {
        "brand_id": BRAND,
        "usd_cents": 500,
        "success_url": "https://shop.example/thanks?s={CHECKOUT_SESSION_ID}&a=1",
        "cancel_url": "https://shop.example/cart",
    }
    return CheckoutRequest(email=email, **fields | changes)


def counted(counter: Any, **labels: str) -> float:
    return float(counter.labels(**labels)._value.get())


async def rewards(world: World) -> list[tuple[Any, ...]]:
    async with session(world.pool) as connection:
        rows = await connection.fetch("SELECT id, kind, brand_id, wallet, ltz FROM rewards")
    return [tuple(row) for row in rows]


async def seen_minted(world: World, hash_: Hash32) -> None:
    await value(
        world.pool,
        """
        UPDATE rewards
           SET mint_transaction_hash = $1, mint_block_hash = $1, mint_block_number = 1, seq = 1
        """,
        hash_,
    )


# --- checkout -----------------------------------------------------------------------------------


async def test_a_checkout_opens_a_session_with_the_buyer_and_the_ltz_in_its_metadata(
    world: World, shop: FakePayments, sandbox: Sandbox
) -> None:
    opened = await world.payments.open_checkout(an_order())

    assert opened.id in shop.sessions
    assert opened.url == f"{shop.base}/pay/{opened.id}"
    wallet = checksummed(await value(world.pool, "SELECT wallet FROM users"))
    (form,) = shop.forms
    fields = {
        "wallet": wallet,
        "usd_amount": "5.00",
        "ltz_amount": "5000",
        "brand_id": BRAND_TEXT,
    }
    assert form == {
        "mode": "payment",
        "adaptive_pricing[enabled]": "false",
        "line_items[0][quantity]": "1",
        "line_items[0][price_data][currency]": "usd",
        "line_items[0][price_data][unit_amount]": "500",
        "line_items[0][price_data][product_data][name]": "5000 LTZ",
        "customer_email": "ann@shop.example",
        "success_url": "https://shop.example/thanks?s={CHECKOUT_SESSION_ID}&a=1",
        "cancel_url": "https://shop.example/cart",
        **{f"metadata[{name}]": text for name, text in fields.items()},
        **{f"payment_intent_data[metadata][{name}]": text for name, text in fields.items()},
    }
    assert shop.headers[0]["Authorization"].startswith("Bearer sk_test_")


async def test_a_checkout_session_is_minted_once_it_is_paid(
    world: World, shop: FakePayments
) -> None:
    opened = await world.payments.open_checkout(an_order(usd_cents=99_999_999))
    with pytest.raises(PaymentRefused, match="Payment not completed"):
        await world.mint(opened.id)
    shop.pay(opened.id)

    minted = await world.mint(opened.id)

    assert minted.payment.ltz == 999_999_990
    assert minted.payment.brand_id == BRAND
    assert minted.payment.wallet == await value(world.pool, "SELECT wallet FROM users")


async def test_a_user_known_from_a_purchase_is_not_a_new_user_of_a_later_event(
    world: World, database_url: str, sandbox: Sandbox
) -> None:
    await world.payments.open_checkout(an_order("Ann@Shop.example"))
    wallet = await value(world.pool, "SELECT wallet FROM users")

    async with a_handler(database_url, sandbox) as handler:
        event = await handler.record(an_event_request("ann@shop.example"))

    assert (event.wallet_created, event.wallet) == (False, wallet)


async def test_a_known_user_needs_no_identity_provider(world: World, sandbox: Sandbox) -> None:
    await world.payments.open_checkout(an_order())
    sandbox.faults.order("identity", Fault(times=1_000, status=503))

    await world.payments.open_checkout(an_order("ANN@shop.example"))
    with pytest.raises(IdentityUnavailable):
        await world.payments.open_checkout(an_order("bob@shop.example"))


async def test_the_brands_limit_of_new_wallets_holds(world: World, sandbox: Sandbox) -> None:
    await world.brand(max_new_wallets_per_hour=2)
    orders = [an_order(f"u{number}@shop.example") for number in range(8)]

    outcomes = await asyncio.gather(
        *map(world.payments.open_checkout, orders), return_exceptions=True
    )

    kinds = Counter(type(outcome).__name__ for outcome in outcomes)
    assert kinds == {"CheckoutPage": 2, "RateLimited": 6}
    assert await value(world.pool, "SELECT count(*) FROM users") == 2
    sandbox.faults.order("identity", Fault(times=1_000, status=503))
    with pytest.raises(RateLimited) as refused:
        await world.payments.open_checkout(an_order("more@shop.example"))
    assert refused.value.details["limit"] == 2
    known = next(
        order for order, outcome in zip(orders, outcomes, strict=True) if not is_error(outcome)
    )
    await world.payments.open_checkout(known)


def is_error(outcome: object) -> bool:
    return isinstance(outcome, BaseException)


async def test_an_unknown_or_disabled_brand_sells_nothing(
    world: World, shop: FakePayments, sandbox: Sandbox
) -> None:
    sandbox.faults.order("identity", Fault(times=1_000, status=503))
    with pytest.raises(BrandUnknown):
        await world.payments.open_checkout(an_order(brand_id=a_wallet(9)))
    await world.switch("disabled_at")
    with pytest.raises(BrandUnknown):
        await world.payments.open_checkout(an_order())
    assert shop.forms == []


async def test_without_a_payment_provider_checkouts_mints_and_events_are_refused(
    database_url: str, sandbox: Sandbox
) -> None:
    async with a_world(database_url, sandbox, None) as world:
        for asking in (
            world.payments.open_checkout(an_order()),
            world.mint("cs_1"),
            world.deliver(a_session_event("cs_1")),
        ):
            with pytest.raises(PaymentsUnavailable):
                await asking
        assert await value(world.pool, "SELECT count(*) FROM users") == 0


@pytest.mark.parametrize("fault", [500, 503, 429, 401, 402, 403])
async def test_a_failing_provider_is_unavailable_and_the_error_holds_no_address(
    idle: Idle, fault: int
) -> None:
    world, shop = idle
    shop.faults = [fault] * 3
    with capture_logs() as logs, pytest.raises(PaymentsUnavailable) as refused:
        await world.payments.open_checkout(an_order())
    assert "shop.example" not in str(logs) + str(refused.value)
    assert logs[0]["status"] == fault


async def test_repeats_of_one_request_open_one_session(world: World, shop: FakePayments) -> None:
    shop.faults = [500, 409]
    opened = await world.payments.open_checkout(an_order())

    assert len({headers["Idempotency-Key"] for headers in shop.headers}) == 1
    assert len(shop.headers) == 3
    assert list(shop.sessions) == [opened.id]
    assert await world.payments.open_checkout(an_order()) != opened, (
        "a changed request opens another session"
    )
    assert not any("X-Stripe-Client-Telemetry" in headers for headers in shop.headers)


async def test_a_provider_that_does_not_answer_times_out(
    database_url: str, sandbox: Sandbox, shop: FakePayments
) -> None:
    async with a_world(database_url, sandbox, shop, attempt_seconds=0.05) as world:
        shop.faults = ["silence", "silence"]
        assert (await world.payments.open_checkout(an_order())).id in shop.sessions
        shop.faults = ["silence"] * 3
        with pytest.raises(PaymentsUnavailable):
            await world.mint("cs_1")
    async with a_world(database_url, sandbox, shop, timeout_seconds=0.1) as world:
        shop.faults = ["silence"]
        with pytest.raises(PaymentsUnavailable):
            await world.mint("cs_1")


async def test_an_unreachable_provider_is_unavailable(
    database_url: str, sandbox: Sandbox, shop: FakePayments
) -> None:
    shop.base = "http://127.0.0.1:1"
    async with a_world(database_url, sandbox, shop) as world:
        with pytest.raises(PaymentsUnavailable):
            await world.mint("cs_1")


@pytest.mark.parametrize(
    "answer", [b"", b"<html>", b"[]", b"null", b'"x"', b"{}", b'{"id": 5}', b"[" * 60_000, b"\xff"]
)
async def test_a_malformed_answer_makes_the_provider_unavailable(idle: Idle, answer: bytes) -> None:
    world, shop = idle
    shop.raw_answer = answer
    with pytest.raises(PaymentsUnavailable):
        await world.payments.open_checkout(an_order())
    with pytest.raises(PaymentsUnavailable):
        await world.mint("cs_1")


@pytest.mark.parametrize(
    ("param", "field"),
    [
        ("success_url", "successUrl"),
        ("cancel_url", "cancelUrl"),
        ("customer_email", "userEmail"),
        ("line_items[0][price_data][unit_amount]", "amount"),
    ],
)
async def test_a_field_that_the_provider_refuses_is_reported(
    idle: Idle, param: str, field: str
) -> None:
    world, shop = idle
    shop.creation_error = {"param": param, "message": "ann@shop.example is no good"}
    with pytest.raises(InvalidFields) as refused:
        await world.payments.open_checkout(an_order())
    assert refused.value.details["errors"] == [f"{field}: the payment provider refuses it"]


async def test_a_provider_error_about_ltzds_own_parameters_is_not_a_validation_error(
    world: World, shop: FakePayments
) -> None:
    shop.creation_error = {"param": "mode", "message": "no"}
    with pytest.raises(PaymentsUnavailable):
        await world.payments.open_checkout(an_order())


async def test_an_idempotency_key_opens_one_session_for_each_brand(
    world: World, shop: FakePayments
) -> None:
    first = await world.payments.open_checkout(an_order(idempotency_key="order 7"))
    again = await world.payments.open_checkout(an_order(idempotency_key="order 7"))
    other = await world.payments.open_checkout(an_order(idempotency_key="order 8"))
    with pytest.raises(IdempotencyKeyReused):
        await world.payments.open_checkout(an_order(idempotency_key="order 7", usd_cents=600))
    async with transaction(world.pool) as connection:
        await brands.apply(connection, a_brand(id="0x" + "cd" * 20), SEALER)
    await world.refresh()
    foreign = an_order(idempotency_key="order 7", brand_id=address_of("0x" + "cd" * 20))

    assert first == again
    assert len({first.id, other.id, (await world.payments.open_checkout(foreign)).id}) == 3
    assert not any("order" in headers["Idempotency-Key"] for headers in shop.headers)


async def a_minter(world: World, number: int = 1) -> None:
    await value(
        world.pool,
        "INSERT INTO lanes (chain_id, wallet, kind, next_nonce) VALUES ($1, $2, 'mint', 0)",
        CHAIN_ID,
        a_wallet(number),
    )


async def test_a_purchase_above_the_mint_limits_maximum_is_refused(
    world: World, sandbox: Sandbox
) -> None:
    world.node.mint_capacity = 5_009 * LTZ
    await world.payments.open_checkout(an_order(usd_cents=99_999_999))
    assert await value(world.pool, "SELECT count(*) FROM users") == 1, "there is no mint lane yet"
    await a_minter(world)
    world.clock.now += 60

    sandbox.faults.order("identity", Fault(times=1_000, status=503))
    with pytest.raises(InvalidFields, match="Validation failed") as refused:
        await world.payments.open_checkout(an_order("bob@shop.example", usd_cents=501))
    assert refused.value.details["errors"] == [
        "amount: buys more LTZ than can be minted at once; at most 500 cents"
    ]
    await world.payments.open_checkout(an_order(usd_cents=500))


async def test_one_nodes_low_mint_limit_refuses_no_checkout(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_minter(world)
    liar = world.node.sibling()
    liar.mint_capacity = 4_999 * LTZ
    async with a_fake_pool(liar, world.node) as nodes:
        nodes.prefer(0)
        capacity = MintCapacity(world.pool, nodes.node("http"), CHAIN_ID, LTZ_AT, world.clock)
        monkeypatch.setattr(world.payments, "_capacity", capacity)
        await world.payments.open_checkout(an_order(usd_cents=500))


async def test_an_unavailable_or_slow_node_stops_no_checkout_and_is_rarely_asked(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await a_minter(world)
    at = [0.0]
    capacity = MintCapacity(
        world.pool, world.node.node, CHAIN_ID, LTZ_AT, lambda: at[0], timeout_seconds=0.05
    )
    world.node.mint_capacity = 7 * LTZ
    world.node.is_down = True
    assert await capacity.whole_ltz() is None
    world.node.is_down = False
    assert await capacity.whole_ltz() is None, "a failure is cached for a while"
    at[0] += 5.0
    assert await asyncio.gather(*(capacity.whole_ltz() for _ in range(5))) == [7] * 5
    world.node.mint_capacity = 8 * LTZ
    assert await capacity.whole_ltz() == 7
    at[0] += 60.0
    assert await capacity.whole_ltz() == 8

    async def hang(*_: object) -> Any:
        await asyncio.Event().wait()

    monkeypatch.setattr(world.node.node, "views", hang)
    at[0] += 60.0
    assert await capacity.whole_ltz() == 8, "the last known limit applies"


# --- payment-mint -------------------------------------------------------------------------------


async def test_a_paid_session_is_minted_once_and_repeated_requests_get_the_same_answer(
    world: World, shop: FakePayments
) -> None:
    session_id = shop.make()
    first = await world.mint(session_id)
    assert world.rewards._is_set.is_set(), "the mint lane of this process is woken"
    shop.faults = [500] * 100
    again = await world.mint(session_id)

    assert (first.already_processed, again.already_processed) == (False, True)
    assert (first.payment, first.transaction_hash) == (again.payment, again.transaction_hash)
    assert first.transaction_hash == MINT
    assert shop.retrieved == [session_id], "a known session needs no provider request"
    reward = payments.reward_id(session_id)
    wallet = address_of(WALLET_TEXT)
    assert await rewards(world) == [(reward, 2, NO_BRAND, wallet, 5_000)]


REFUSED: list[tuple[str, Mapping[str, object], str]] = [
    ("unpaid", {"payment_status": "unpaid", "status": "open"}, "Payment not completed"),
    (
        "expired",
        {"payment_status": "unpaid", "status": "expired"},
        "Payment not completed: the checkout session has expired",
    ),
    (
        "free",
        {"payment_status": "no_payment_required"},
        "Payment not completed: the session required none",
    ),
    ("mode", {"mode": "subscription"}, "The checkout session is not a payment"),
    ("currency", {"currency": "eur"}, "Invalid currency: only usd can be minted"),
    ("no wallet", {"metadata": metadata(wallet=None)}, "Invalid wallet address in metadata"),
    ("zero", {"metadata": metadata(wallet="0x" + "0" * 40)}, "Invalid wallet address in metadata"),
    ("no metadata", {"metadata": None}, "Invalid wallet address in metadata"),
    ("numbers", {"metadata": metadata() | {"wallet": 5}}, "Invalid wallet address in metadata"),
    (
        "amount",
        {"metadata": metadata(usd_amount="five")},
        "Invalid amount: usd_amount and ltz_amount must be decimal numbers",
    ),
    (
        "mismatch",
        {"metadata": metadata(ltz_amount="50000")},
        "Amount mismatch: ltz_amount is not usd_amount times 1000",
    ),
    ("total", {"amount_total": 499}, "Amount mismatch: the session's total is not usd_amount"),
]


@pytest.mark.parametrize(("changes", "message"), [r[1:] for r in REFUSED], ids=lambda _: "")
async def test_a_session_that_cannot_be_minted_is_refused_with_the_reason(
    idle: Idle, changes: dict[str, Any], message: str
) -> None:
    world, shop = idle
    session_id = shop.make(**changes)
    with pytest.raises(PaymentRefused) as refused:
        await world.mint(session_id)
    assert refused.value.message == message
    assert await rewards(world) == []


async def test_an_unknown_session_is_refused(world: World) -> None:
    with pytest.raises(PaymentRefused, match="Checkout session not found"):
        await world.mint("cs_test_nobody")


async def test_a_session_with_another_id_than_the_requested_one_is_refused(
    world: World, shop: FakePayments
) -> None:
    """Otherwise one paid session could be minted under any number of ids."""
    paid = shop.make()
    shop.sessions["cs_other"] = shop.sessions[paid]
    with pytest.raises(PaymentsUnavailable):
        await world.mint("cs_other")
    assert await rewards(world) == []


@pytest.mark.parametrize(
    ("brand", "booked"),
    [(BRAND_TEXT, BRAND), ("0x" + "fe" * 20, NO_BRAND), ("demo", NO_BRAND), (None, NO_BRAND)],
)
async def test_a_payment_is_booked_to_the_brand_in_its_metadata_if_that_exists(
    world: World, shop: FakePayments, brand: str | None, booked: bytes
) -> None:
    minted = await world.mint(shop.make(metadata=metadata(brand_id=brand)))
    assert minted.payment.brand_id == booked
    assert [row[2] for row in await rewards(world)] == [booked]


async def test_a_disabled_brands_payments_are_minted(world: World, shop: FakePayments) -> None:
    await world.switch("disabled_at")
    minted = await world.mint(shop.make(metadata=metadata(brand_id=BRAND_TEXT)))
    assert minted.payment.brand_id == BRAND


async def test_a_paused_brands_payments_are_recorded_and_wait(
    world: World, shop: FakePayments
) -> None:
    await world.switch("paused_at")
    session_id = shop.make(metadata=metadata(brand_id=BRAND_TEXT))
    for _ in range(2):
        async with asyncio.timeout(20):
            with pytest.raises(MintPending):
                await world.mint(session_id)
    assert len(await rewards(world)) == 1
    assert world.hashes.awaited() == []


async def test_a_mint_without_a_hash_in_time_is_pending_and_completes_later(
    database_url: str, sandbox: Sandbox, shop: FakePayments
) -> None:
    async with a_world(database_url, sandbox, shop, hash_wait_seconds=0.05) as world:
        world.is_minting = False
        session_id = shop.make()
        for _ in range(2):
            with pytest.raises(MintPending):
                await world.mint(session_id)
        await seen_minted(world, a_hash("late"))

        later = await world.mint(session_id)

        assert (later.already_processed, later.transaction_hash) == (True, a_hash("late"))
        assert len(await rewards(world)) == 1


async def test_a_session_that_was_refunded_before_its_mint_is_not_minted(
    world: World, shop: FakePayments
) -> None:
    at_provider, told_before = shop.make(), shop.make()
    shop.refund(at_provider, 500)
    await world.deliver(a_refund(f"pi_{told_before[-1]}"))

    for session_id in (at_provider, told_before):
        with pytest.raises(PaymentRefused, match="The payment was refunded"):
            await world.mint(session_id)
    assert await rewards(world) == []


async def test_a_partial_refund_does_not_stop_the_mint(world: World, shop: FakePayments) -> None:
    session_id = shop.make()
    shop.refund(session_id, 499)
    assert (await world.mint(session_id)).payment.ltz == 5_000


# --- events -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["checkout.session.completed", ASYNC])
async def test_an_event_of_a_paid_session_is_minted_without_waiting(
    world: World, shop: FakePayments, kind: str
) -> None:
    world.is_minting = False
    session_id = shop.make()
    async with asyncio.timeout(20):
        await world.deliver(a_session_event(session_id, kind))
        await world.deliver(a_session_event(session_id, kind))
    assert len(await rewards(world)) == 1
    world.is_minting = True
    assert (await world.mint(session_id)).already_processed


async def test_mints_that_hang_hold_up_no_payment_that_the_provider_announces(
    database_url: str, sandbox: Sandbox, shop: FakePayments
) -> None:
    """Anybody may name sessions, more of them than the provider's SDK has connections."""
    patience = {"attempt_seconds": 60.0, "timeout_seconds": 60.0}
    async with a_world(database_url, sandbox, shop, **patience) as world:
        paid = shop.make()
        shop.faults = ["silence"] * 100
        mints = [asyncio.create_task(world.mint(f"cs_test_x{number}")) for number in range(100)]

        async def hang() -> bool:
            return not shop.faults

        await until(hang)
        await world.deliver(a_session_event(paid))
        assert len(await rewards(world)) == 1
        for mint in mints:
            mint.cancel()
        await asyncio.wait(mints)


async def test_fifty_concurrent_requests_and_events_in_two_processes_mint_once(
    world: World, database_url: str, sandbox: Sandbox, shop: FakePayments
) -> None:
    session_id = shop.make()
    async with a_world(database_url, sandbox, shop) as other:
        doors: list[Awaitable[MintedPayment | None]] = []
        for number in range(50):
            process = (world, other)[number % 2]
            by_event = number % 5 == 0
            event = a_session_event(session_id)
            doors.append(process.deliver(event) if by_event else process.mint(session_id))
        answers = await asyncio.gather(*doors)

    minted = [answer for answer in answers if answer is not None]
    assert len(minted) == 40
    assert sum(not answer.already_processed for answer in minted) <= 1
    assert {(answer.payment, answer.transaction_hash) for answer in minted} == {
        (minted[0].payment, MINT)
    }
    assert len(await rewards(world)) == 1
    assert await value(world.pool, "SELECT count(*) FROM payments") == 1


async def test_of_fifty_concurrent_mint_requests_one_reports_a_new_mint(
    world: World, shop: FakePayments
) -> None:
    session_id = shop.make()
    answers = await asyncio.gather(*(world.mint(session_id) for _ in range(50)))
    assert sum(not answer.already_processed for answer in answers) == 1
    assert len(await rewards(world)) == 1
    assert world.hashes.awaited() == []


async def test_a_cancelled_caller_does_not_cancel_the_hash_of_the_others(
    world: World, shop: FakePayments
) -> None:
    world.is_minting = False
    session_id = shop.make()
    await world.deliver(a_session_event(session_id))
    reward = payments.reward_id(session_id)
    hasty, patient = (asyncio.create_task(world.hashes.wait(reward, 5.0)) for _ in range(2))
    await until(lambda: any_of(world.hashes.awaited()))
    hasty.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await hasty
    world.is_minting = True
    assert await patient == MINT


async def any_of(things: Sequence[UUID]) -> bool:
    return bool(things)


@pytest.mark.parametrize("had_happened", [True, False], ids=["committed", "not committed"])
async def test_a_process_that_dies_before_its_answer_mints_once_after_a_retry(
    world: World, shop: FakePayments, monkeypatch: pytest.MonkeyPatch, had_happened: bool
) -> None:
    session_id = shop.make()
    announce = Payments._announce

    def die(*_: object) -> None:
        raise DatabaseUnavailable("The database was lost")

    async def lost(*_: object) -> RecordedPayment:
        raise DatabaseUnavailable("The database was lost")

    with monkeypatch.context() as patched:
        if had_happened:
            patched.setattr(Payments, "_announce", die)
        else:
            patched.setattr(payments, "record", lost)
        with pytest.raises(DatabaseUnavailable):
            await world.mint(session_id)

    assert Payments._announce is announce
    again = await world.mint(session_id)
    assert again.already_processed is had_happened
    assert len(await rewards(world)) == 1


@pytest.mark.parametrize(
    "event",
    [
        a_session_event("cs_test_1", payment_status="unpaid"),
        an_event("payment_intent.succeeded", {"id": "pi_1", "amount": 500, "metadata": metadata()}),
        an_event("checkout.session.expired", {"id": "cs_test_1", "payment_status": "paid"}),
        an_event("customer.created", {"id": "cus_1"}),
    ],
    ids=["unpaid", "intent", "expired", "other"],
)
async def test_other_events_have_no_effect(idle: Idle, event: object) -> None:
    world, shop = idle
    assert shop.make() == "cs_test_1"
    await world.deliver(event)
    assert await rewards(world) == []
    assert shop.retrieved == []


EVENT = a_session_event("cs_test_1")
Signed = tuple[bytes, str | None]

NOT_THE_PROVIDERS: dict[str, Callable[[bytes, str], Signed]] = {
    "another secret": lambda *_: signed(EVENT, secret="whsec_other"),
    "too old": lambda *_: signed(EVENT, age_seconds=302),
    "of the future": lambda *_: signed(EVENT, age_seconds=-330),
    "no header": lambda raw, _: (raw, None),
    "an empty header": lambda raw, _: (raw, ""),
    "nonsense": lambda raw, _: (raw, "t=x,v1=y"),
    "no time": lambda raw, _: (raw, "v1=" + "0" * 64),
    "no signature": lambda raw, _: (raw, "t=1"),
    "a long time": lambda raw, _: (raw, f"t={'9' * 5_000},v1=00"),
    "no ASCII": lambda raw, _: (raw, "t=1,v1=\u00fc\udcff"),
    "another body": lambda raw, header: (raw + b" ", header),
    "no text": lambda _, header: (b"\xff", header),
    "another scheme": lambda raw, header: (raw, header.replace("v1=", "v0=")),
    "another time": lambda raw, header: (raw, header.replace("t=", "t=1")),
}


@pytest.mark.parametrize("forge", NOT_THE_PROVIDERS.values(), ids=NOT_THE_PROVIDERS)
async def test_an_event_without_a_recent_valid_signature_is_refused(
    idle: Idle, forge: Callable[[bytes, str], Signed]
) -> None:
    world, shop = idle
    shop.make()
    with pytest.raises(PaymentRefused, match=r"^Stripe-Signature: "):
        await world.payments.process_event(*forge(*signed(EVENT)))
    assert await rewards(world) == []


@pytest.mark.parametrize(
    "rubbish",
    [
        *("", "x", "[" * 60_000, "NaN", "5", "[]", '{"type": "checkout.session.completed"}'),
        {"data": {"object": {"id": "cs_test_1"}}},
        a_session_event(""),
        a_session_event("cs_test_1\x00"),
        a_refund("pi_1", amount="5"),
    ],
    ids=lambda rubbish: str(rubbish)[:30],
)
async def test_a_signed_but_malformed_event_is_refused(idle: Idle, rubbish: object) -> None:
    world, _ = idle
    with pytest.raises(PaymentRefused, match=r"^The event is malformed: "):
        await world.deliver(rubbish)


@pytest.mark.parametrize("age", [290, -290])
async def test_clocks_may_differ_by_five_minutes(
    world: World, shop: FakePayments, age: float
) -> None:
    await world.deliver(a_session_event(shop.make()), age_seconds=age)
    assert len(await rewards(world)) == 1


async def test_an_event_signed_with_two_secrets_is_accepted(
    world: World, shop: FakePayments
) -> None:
    """The provider signs with both secrets during a rotation."""
    raw, header = signed(a_session_event(shop.make()))
    at, good = header.split(",")
    await world.payments.process_event(raw, f"{at},v1={'0' * 64},{good},v0=1")
    assert len(await rewards(world)) == 1


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"metadata": {}}, "wallet"),
        ({"amount_total": 5}, "amount_mismatch"),
        ({"payment_status": "unpaid"}, "not_completed"),
        ({"id": "gone"}, "not_found"),
    ],
)
async def test_a_payment_that_cannot_be_minted_is_logged_as_an_error_and_acknowledged(
    idle: Idle, changes: dict[str, Any], reason: str
) -> None:
    world, shop = idle
    session_id = shop.make(**changes)
    if reason == "not_found":
        del shop.sessions[session_id]
    before = counted(telemetry.PAYMENTS_NOT_MINTED, reason=reason)
    with capture_logs() as logs:
        await world.deliver(a_session_event(session_id))

    assert counted(telemetry.PAYMENTS_NOT_MINTED, reason=reason) == before + 1
    (line,) = [line for line in logs if line["log_level"] == "error"]
    assert (line["event"], line["session"], line["reason"]) == (
        "payment.not_minted",
        session_id,
        reason,
    )


async def test_an_event_of_a_refunded_session_logs_no_error(
    world: World, shop: FakePayments
) -> None:
    session_id = shop.make()
    shop.refund(session_id, 500)
    with capture_logs() as logs:
        await world.deliver(a_session_event(session_id))
    assert {line["log_level"] for line in logs} == {"warning"}
    assert await rewards(world) == []


async def test_while_the_provider_is_unavailable_events_are_refused_for_redelivery(
    world: World, shop: FakePayments
) -> None:
    session_id = shop.make()
    shop.faults = [500] * 3
    with pytest.raises(PaymentsUnavailable):
        await world.deliver(a_session_event(session_id))
    await world.deliver(a_session_event(session_id))
    assert len(await rewards(world)) == 1


# --- refunds and disputes -----------------------------------------------------------------------

Reversals = list[tuple[str, str | None, int]]


async def reversals(world: World) -> Reversals:
    async with session(world.pool) as connection:
        rows = await connection.fetch(
            "SELECT kind, session_id, usd_cents FROM payment_reversals ORDER BY created_at"
        )
    return [tuple(row) for row in rows]


async def subjects(world: World) -> set[tuple[bytes, str, UUID]]:
    async with session(world.pool) as connection:
        rows = await connection.fetch("SELECT brand_id, kind, subject FROM webhooks")
    return {tuple(row) for row in rows}


async def test_refunds_and_disputes_are_recorded_once_announced_and_logged_as_errors(
    world: World, shop: FakePayments
) -> None:
    session_id = shop.make(metadata=metadata(brand_id=BRAND_TEXT))
    await world.mint(session_id)
    before = counted(telemetry.PAYMENT_REVERSALS, kind="refund", payment="minted")
    with capture_logs() as logs:
        for _ in range(2):
            await world.deliver(a_refund("pi_1", 100, "re_1"))
            await world.deliver(a_refunded_charge("pi_1", 100))
            await world.deliver(a_refunded_charge("pi_1", 300))
            await world.deliver(a_refund("pi_1", 200, "re_2"))
            await world.deliver(a_dispute("pi_1", 500))

    assert await reversals(world) == [
        ("refund", session_id, 100),
        ("refund", session_id, 200),
        ("dispute", session_id, 500),
    ]
    assert counted(telemetry.PAYMENT_REVERSALS, kind="refund", payment="minted") == before + 2
    errors = [line for line in logs if line["log_level"] == "error"]
    assert [(line["event"], line["session"], line["usd_cents"]) for line in errors] == [
        ("payment.reversed", session_id, cents) for cents in (100, 200, 500)
    ]
    ids = await value(world.pool, "SELECT array_agg(id) FROM payment_reversals")
    assert await subjects(world) == {(BRAND, "payment_reversed", id_) for id_ in ids}
    assert world.webhooks._is_set.is_set()
    assert len(await rewards(world)) == 1, "no LTZ is taken back"


async def test_a_process_that_dies_after_a_reversals_commit_has_told_the_operator(
    world: World, shop: FakePayments, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The provider's repetition of the event finds the reversal recorded, and reports nothing."""
    session_id = shop.make(metadata=metadata(brand_id=BRAND_TEXT))
    await world.mint(session_id)

    class Dead(BaseException):
        pass

    @asynccontextmanager
    async def transaction_of_a_dying_process(pool: Pool) -> AsyncIterator[Any]:
        async with transaction(pool) as connection:
            yield connection
        raise Dead

    monkeypatch.setattr("ltzd.actions.payments.transaction", transaction_of_a_dying_process)
    with capture_logs() as logs, pytest.raises(Dead):
        await world.deliver(a_refund("pi_1", 100, "re_1"))

    assert await reversals(world) == [("refund", session_id, 100)]
    assert [line["event"] for line in logs if line["log_level"] == "error"] == ["payment.reversed"]


async def test_a_refund_that_fails_is_reported_to_the_operator(
    world: World, shop: FakePayments
) -> None:
    session_id = shop.make(metadata=metadata(brand_id=BRAND_TEXT))
    await world.mint(session_id)
    await world.deliver(a_refund("pi_1", status="pending"))
    before = counted(telemetry.PAYMENT_REVERSALS, kind="failed_refund", payment="minted")
    with capture_logs() as logs:
        await world.deliver(a_failed_refund("pi_1"))
        await world.deliver(a_failed_refund("pi_2"))

    errors = [line for line in logs if line["log_level"] == "error"]
    assert [(line["event"], line["session"], line["usd_cents"]) for line in errors] == [
        ("payment.refund_failed", session_id, 500),
        ("payment.refund_failed", None, 500),
    ]
    assert counted(telemetry.PAYMENT_REVERSALS, kind="failed_refund", payment="minted") == (
        before + 1
    )
    assert await reversals(world) == [("refund", session_id, 500)]


async def test_a_reversal_before_its_payment_is_announced_together_with_it(
    world: World, shop: FakePayments
) -> None:
    session_id = shop.make(metadata=metadata(brand_id=BRAND_TEXT))
    with capture_logs() as logs:
        await world.deliver(a_refund("pi_1", 100))
        await world.deliver(a_dispute("pi_1"))
    assert {line["log_level"] for line in logs} == {"warning"}, (
        "the payment may belong to another program"
    )
    assert (await subjects(world), world.webhooks._is_set.is_set()) == (set(), False)

    with capture_logs() as logs:
        await world.deliver(a_session_event(session_id))

    assert sum(line["log_level"] == "error" for line in logs) == 2
    assert {row[1] for row in await reversals(world)} == {session_id}
    assert len(await subjects(world)) == 2
    assert world.webhooks._is_set.is_set()


async def test_concurrent_events_about_one_refund_count_once(
    world: World, shop: FakePayments
) -> None:
    session_id = shop.make()
    provider_events: list[object] = [
        a_refund("pi_1"),
        a_refunded_charge("pi_1"),
        a_session_event(session_id),
    ]
    # A session that was refunded before its mint is not minted.
    await asyncio.gather(*(world.deliver(event) for event in provider_events * 10))
    assert [(kind, cents) for kind, _, cents in await reversals(world)] == [("refund", 500)]
    assert len(await rewards(world)) in {0, 1}


# --- logs, metrics, hashes ----------------------------------------------------------------------


async def test_no_log_or_repr_holds_a_secret(
    world: World, shop: FakePayments, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    with capture_logs() as logs:
        opened = await world.payments.open_checkout(an_order())
        shop.pay(opened.id)
        await world.deliver(a_session_event(opened.id))
    logged = json.dumps(logs, default=str) + caplog.text
    for secret in ("ann@", "ann%40", "sk_test", SIGNING_SECRET):
        assert secret not in logged
    assert "sk_test" not in repr(shop.policy())
    assert SIGNING_SECRET not in repr(shop.policy())


Act = Callable[[World, FakePayments], Awaitable[object]]


@pytest.mark.parametrize(
    ("outcome", "act"),
    [
        ("recorded", lambda world, shop: world.mint(shop.make())),
        ("refused", lambda world, _: world.mint("cs_none")),
        ("recorded", lambda world, shop: world.deliver(a_session_event(shop.make()))),
        ("unavailable", lambda world, shop: shop.faults.extend([500] * 3) or world.mint("cs_1")),
    ],
)
async def test_mints_are_counted_by_outcome(
    world: World, shop: FakePayments, outcome: str, act: Act
) -> None:
    before = counted(telemetry.PAYMENTS, outcome=outcome)
    with contextlib.suppress(LtzdError):
        await act(world, shop)
    assert counted(telemetry.PAYMENTS, outcome=outcome) == before + 1


async def test_mint_hashes_follow_the_current_canonical_chain(
    world: World, shop: FakePayments
) -> None:
    session_id = shop.make()
    assert (await world.mint(session_id)).transaction_hash == MINT
    other = Hash32(b"\x07" * 32)
    await seen_minted(world, other)
    assert (await world.mint(session_id)).transaction_hash == other
