"""The hourly limit of new wallets under concurrent registrations."""

import asyncio
from collections.abc import Collection, Sequence

import pytest

from ltzd.actions.event_handler.batch_decision import RecordedEvent
from ltzd.actions.event_handler.record import EventHandler
from ltzd.actions.users.registration import UserRegistration
from ltzd.cache.rate_limits import RateLimit, RateLimitStatus
from ltzd.dev.sandbox import Sandbox
from ltzd.errors import RateLimited
from ltzd.providers.identity.client import IdentityUser
from ltzd.rules.brands.configuration import Brand, EventRule
from ltzd.store.brands import configurations as brands
from ltzd.store.database import Connection, Pool, transaction
from ltzd.store.users.users import User
from ltzd.values import Address
from tests.support.rows.core import value
from tests.support.surfaces.event_action import NO_LIMITS, SEALER, a_brand, a_handler, a_request
from tests.support.waiting import until

FULL, ROOMY = Address(b"\x0a" * 20), Address(b"\x0b" * 20)
RULE = EventRule(type="account_creation", reward=0, **NO_LIMITS)


def limited(brand_id: Address, wallets: int) -> Brand:
    return a_brand(RULE, id="0x" + brand_id.hex(), max_new_wallets_per_hour=wallets)


@pytest.mark.parametrize("order", [(ROOMY, FULL), (FULL, ROOMY)], ids=["roomy first", "full first"])
async def test_a_new_user_of_two_brands_is_answered_if_one_brand_reaches_its_limit_meanwhile(
    database_url: str,
    pool: Pool,
    sandbox: Sandbox,
    monkeypatch: pytest.MonkeyPatch,
    order: Sequence[Address],
) -> None:
    """Another process reaches the limit between the first check and the commit."""
    async with a_handler(database_url, sandbox, limited(FULL, 1)) as handler:
        await add_brand(handler, pool, limited(ROOMY, 5))
        wallet_of_email = handler._identity.wallet_of_email
        lookups, is_full = 0, asyncio.Event()

        async def slow(email: str, brand: Address) -> IdentityUser:
            nonlocal lookups
            lookups += 1
            if lookups == len(order):
                await fill(pool)
                is_full.set()
            await is_full.wait()
            user: IdentityUser = await wallet_of_email(email, brand)
            return user

        monkeypatch.setattr(handler._identity, "wallet_of_email", slow)
        async with asyncio.timeout(20):
            outcomes = await asyncio.gather(
                *(handler.record(a_request("new@shop.example", brand_id=brand)) for brand in order),
                return_exceptions=True,
            )
    by_brand = dict(zip(order, outcomes, strict=True))
    assert isinstance(by_brand[ROOMY], RecordedEvent)
    assert isinstance(by_brand[FULL], RecordedEvent | RateLimited)
    used = await value(pool, "SELECT used FROM brand_usage WHERE brand_id = $1", ROOMY)
    assert used == 1


async def add_brand(handler: EventHandler, pool: Pool, brand: Brand) -> None:
    async with transaction(pool) as connection:
        await brands.apply(connection, brand, SEALER)
    async with transaction(pool) as connection:
        await handler._brands.refresh(connection)


async def fill(pool: Pool) -> None:
    async with transaction(pool) as connection:
        await connection.execute(
            """
            INSERT INTO brand_usage (brand_id, kind, window_start, used, maximum)
            VALUES ($1, 'wallets_per_hour', date_trunc('hour', now(), 'UTC'), 1, 1)
                ON CONFLICT DO NOTHING
            """,
            FULL,
        )


async def test_concurrent_events_that_wait_for_the_rate_limit_do_not_exceed_the_wallet_limit(
    database_url: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Counting awaits Redis, so decisions made meanwhile must include registrations in progress."""
    brand = a_brand(RULE, max_new_wallets_per_hour=2, events_per_minute_per_ip=1000)
    async with a_handler(database_url, sandbox, brand) as handler:
        hit, wallet_of_email, made = handler._limits.hit, handler._identity.wallet_of_email, []

        async def slow_hit(limit: RateLimit, *key: str) -> RateLimitStatus:
            await asyncio.sleep(0.1)
            window: RateLimitStatus = await hit(limit, *key)
            return window

        async def counted(email: str, brand: Address) -> IdentityUser:
            made.append(email)
            user: IdentityUser = await wallet_of_email(email, brand)
            return user

        monkeypatch.setattr(handler._limits, "hit", slow_hit)
        monkeypatch.setattr(handler._identity, "wallet_of_email", counted)
        outcomes = await asyncio.gather(
            *(handler.record(a_request(f"{n}@shop.example")) for n in range(10)),
            return_exceptions=True,
        )
    assert sum(isinstance(outcome, RecordedEvent) for outcome in outcomes) == 2
    assert sum(isinstance(outcome, RateLimited) for outcome in outcomes) == 8
    assert len(made) == 2


async def test_an_event_is_not_refused_for_the_wallet_that_its_own_user_has_just_got(
    database_url: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another process creates the user after this one has not found it, and before the count."""
    events = (RULE, RULE.model_copy(update={"type": "form_submit"}))
    brand = a_brand(*events, max_new_wallets_per_hour=1)
    async with (
        a_handler(database_url, sandbox, brand) as handler,
        a_handler(database_url, sandbox, brand) as other,
    ):
        erased = handler._lookups._erased
        find_users, searches = erased.find_users, 0

        async def find_too_early(
            connection: Connection, email_keys: Collection[str]
        ) -> dict[str, User]:
            nonlocal searches
            searches += 1
            found_users: dict[str, User] = await find_users(connection, email_keys)
            if searches == 1:
                await other.record(a_request(event_type="form_submit"))
            return found_users

        monkeypatch.setattr(erased, "find_users", find_too_early)
        recorded = await handler.record(a_request())
        assert not recorded.wallet_created


async def test_a_user_is_found_whom_another_process_has_just_given_the_last_wallet_of_the_hour(
    database_url: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    brand = a_brand(RULE, max_new_wallets_per_hour=1)
    async with a_handler(database_url, sandbox, brand) as handler:
        erased = handler._lookups._erased
        find_user, searches = erased.find_user, 0

        async def find_too_early(connection: Connection, email_key: str) -> User | None:
            nonlocal searches
            searches += 1
            user: User | None = await find_user(connection, email_key)
            if searches == 1:
                await handler.record(a_request())
            return user

        monkeypatch.setattr(erased, "find_user", find_too_early)
        registration = UserRegistration(handler._pool, handler._identity, erased)
        user = await registration.user_of("ann@shop.example", brand)
        assert user.email_key == "ann@shop.example"
        with pytest.raises(RateLimited):
            await registration.user_of("ben@shop.example", brand)


async def test_the_wallet_of_a_caller_that_hangs_up_counts_towards_the_limit(
    database_url: str, pool: Pool, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The identity provider makes the wallet all the same."""
    async with a_handler(database_url, sandbox, limited(FULL, 1)) as handler:
        wallet_of_email = handler._identity.wallet_of_email
        is_asked = asyncio.Event()

        async def slow_at_first(email: str, brand: Address) -> IdentityUser:
            if not is_asked.is_set():
                is_asked.set()
                await asyncio.Event().wait()
            user: IdentityUser = await wallet_of_email(email, brand)
            return user

        monkeypatch.setattr(handler._identity, "wallet_of_email", slow_at_first)
        hanging_up = asyncio.create_task(
            handler.record(a_request("gone@shop.example", brand_id=FULL))
        )
        await is_asked.wait()
        hanging_up.cancel()
        await asyncio.wait({hanging_up})
        assert hanging_up.cancelled()
        with pytest.raises(RateLimited):
            await handler.record(a_request("second@shop.example", brand_id=FULL))

        async def counted() -> int | None:
            used: int | None = await value(
                pool, "SELECT sum(used)::int FROM brand_usage WHERE brand_id = $1", FULL
            )
            return used

        assert await until(counted) == 1
        with pytest.raises(RateLimited):
            await handler.record(a_request("third@shop.example", brand_id=FULL))
        recorded = await handler.record(a_request("gone@shop.example", brand_id=FULL))
        assert isinstance(recorded, RecordedEvent)


async def test_a_registration_goes_on_when_its_caller_hangs_up(
    database_url: str, pool: Pool, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_handler(database_url, sandbox, limited(FULL, 1)) as handler:
        registration = UserRegistration(pool, handler._identity, handler._lookups._erased)
        wallet_of_email = handler._identity.wallet_of_email
        is_asked, may_answer = asyncio.Event(), asyncio.Event()

        async def slow(email: str, brand: Address) -> IdentityUser:
            is_asked.set()
            await may_answer.wait()
            user: IdentityUser = await wallet_of_email(email, brand)
            return user

        monkeypatch.setattr(handler._identity, "wallet_of_email", slow)
        brand = limited(FULL, 1)
        hanging_up = asyncio.create_task(registration.user_of("gone@shop.example", brand))
        await is_asked.wait()
        hanging_up.cancel()
        await asyncio.wait({hanging_up})
        may_answer.set()

        async def counted() -> int | None:
            used: int | None = await value(
                pool, "SELECT sum(used)::int FROM brand_usage WHERE brand_id = $1", FULL
            )
            return used

        assert await until(counted) == 1
