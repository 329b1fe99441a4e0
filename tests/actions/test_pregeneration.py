"""Pregenerated wallets, with a real database and the sandbox's identity vendor.

A fake stands in for the OAuth providers' account look-ups.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from msgspec.structs import fields, replace
from structlog.testing import capture_logs

from ltzd import telemetry
from ltzd.actions.pregeneration import PER_DAY, PER_MINUTE, Pregeneration, PregenerationRequest
from ltzd.actions.request_signatures import RequestSignatures
from ltzd.actions.users.custodial_wallets import CustodialWallets
from ltzd.cache.rate_limits import RateLimit, RateLimits, RateLimitStatus
from ltzd.concurrency.single_flight import SingleFlight
from ltzd.dev.sandbox import Sandbox
from ltzd.dev.sandbox.faults import Fault
from ltzd.errors import (
    AccountRefused,
    BrandUnknown,
    DatabaseUnavailable,
    IdentityUnavailable,
    RateLimited,
    SignatureRefused,
    Unavailable,
)
from ltzd.providers.identity.client import IdentityClient
from ltzd.providers.identity.users import IdentityUser
from ltzd.providers.oauth.answers import AccountVerification, cannot_check, missing
from ltzd.rules.oauth.accounts import PROVIDERS, OAuthAccount, OAuthProvider
from ltzd.rules.oauth.ids import example_id
from ltzd.rules.request_signatures import SignedRequest, signature
from ltzd.store.brands import configurations as brands
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands import records as brand_records
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.database import Pool, open_pool, session, transaction
from ltzd.store.users import pregenerations
from ltzd.store.users.pregenerations import RecordedPregeneration
from ltzd.values import Address, hex_of
from tests.support.rows.core import BRAND, a_wallet, value
from tests.support.services.redis import a_redis
from tests.support.surfaces.event_action import SEALER, a_brand
from tests.support.waiting import until

RIVAL = a_wallet(0xC)
ID = "175928847299117063"
ADA = OAuthAccount("discord", ID, "ada.l")
MANY = 100_000
OUTCOMES = ("created", "found", "refused", "limited", "unavailable")


@dataclass
class AccountsAtProviders:
    """Cannot check any account unless `answers` has an entry for it.

    While `gate` is not set, no request is answered.
    """

    answers: dict[tuple[str, str], AccountVerification] = field(default_factory=dict)
    requests: list[OAuthAccount] = field(default_factory=list)
    parties: list[Hashable] = field(default_factory=list)
    gate: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        self.gate.set()

    async def is_asked(self) -> bool:
        return bool(self.requests)

    async def verify(self, account: OAuthAccount, party: Hashable = None) -> AccountVerification:
        self.requests.append(account)
        self.parties.append(party)
        await self.gate.wait()
        return self.answers.get((account.provider, account.user_id)) or cannot_check(
            "not configured"
        )


@dataclass
class Process:
    """One process with its own pool, identity client and caches."""

    pool: Pool
    brand_cache: BrandCache
    identity: IdentityClient
    accounts: AccountsAtProviders
    pregeneration: Pregeneration

    async def ask(
        self,
        account: OAuthAccount = ADA,
        brand: Address = BRAND,
        metadata: Mapping[str, Any] | None = None,
        *,
        is_signed: bool = False,
    ) -> RecordedPregeneration:
        request = PregenerationRequest(brand, account, metadata, is_signed)
        return await self.pregeneration.pregenerate(request)


@asynccontextmanager
async def a_process(
    url: str, sandbox: Sandbox, limits: RateLimits | None = None, **brand_limits: RateLimit
) -> AsyncIterator[Process]:
    async with AsyncExitStack() as stack:
        pool = await open_pool(url)
        stack.callback(pool.terminate)
        brand_cache, accounts = BrandCache(), AccountsAtProviders()
        async with transaction(pool) as connection:
            for brand in (BRAND, RIVAL):
                configured = a_brand(
                    id="0x" + brand.hex(), domains=(f"{brand.hex()[-2:]}.example",)
                )
                await brands.apply(connection, configured, SEALER)
            await brand_cache.refresh(connection)
        identity = await stack.enter_async_context(IdentityClient(sandbox.identity_policy()))
        action = Pregeneration(
            pool,
            brand_cache,
            identity,
            accounts,
            limits or RateLimits(),
            RequestSignatures(pool, SEALER, brand_cache),
            **brand_limits,
        )
        stack.push_async_callback(action.close)
        yield Process(pool, brand_cache, identity, accounts, action)


@pytest_asyncio.fixture
async def process(database_url: str, sandbox: Sandbox) -> AsyncIterator[Process]:
    async with a_process(database_url, sandbox) as process:
        yield process


async def vendors_users(sandbox: Sandbox) -> list[list[str]]:
    """Returns the wallets of each of the vendor's users."""
    policy = sandbox.identity_policy()
    headers = {
        "Authorization": aiohttp.encode_basic_auth(policy.app_id, policy.app_secret),
        "privy-app-id": policy.app_id,
    }
    async with (
        aiohttp.ClientSession(headers=headers) as client,
        client.get(f"{policy.base_url}/v1/users?limit=100") as answer,
    ):
        users = (await answer.json())["data"]
    return [
        [account["address"] for account in user["linked_accounts"] if account["type"] == "wallet"]
        for user in users
    ]


async def one_user_with_one_wallet(sandbox: Sandbox) -> bool:
    return [len(wallets) for wallets in await vendors_users(sandbox)] == [1]


def count_calls(sandbox: Sandbox) -> Callable[[], int]:
    """Counts identity requests from here on; the sandbox answers them."""
    sandbox.faults.order("identity", Fault(times=MANY, delay_seconds=0.001))
    return lambda: MANY - sandbox.faults.left("identity")


async def rows(pool: Pool) -> tuple[int, int, int]:
    """Returns the numbers of accounts, requests and users."""
    async with session(pool) as connection:
        return tuple(
            await connection.fetchrow(
                "SELECT (SELECT count(*) FROM pregenerations), "
                "(SELECT count(*) FROM pregeneration_requests), (SELECT count(*) FROM users)"
            )
        )


async def refusal(request: Awaitable[object]) -> dict[str, object]:
    with pytest.raises(AccountRefused) as refused:
        await request
    assert refused.value.message == "Invalid OAuth credentials"
    return refused.value.details


# --- one wallet for one account -----------------------------------------------------------------


async def test_a_new_account_gets_the_vendors_wallet_and_keeps_it(
    process: Process, sandbox: Sandbox
) -> None:
    first = await process.ask()
    assert first.created_new
    assert await process.ask() == replace(first, created_new=False)
    assert first.kept.wallet in await process.identity.wallets_of(first.kept.subject)
    assert await one_user_with_one_wallet(sandbox)
    assert await rows(process.pool) == (1, 2, 0)


async def test_an_account_with_a_row_is_answered_without_external_requests(
    process: Process, sandbox: Sandbox
) -> None:
    first = await process.ask()
    calls = count_calls(sandbox)
    process.accounts.requests.clear()
    again = await process.ask(replace(ADA, username="other.name"), metadata={"n": 2})
    assert again == replace(first, created_new=False)
    assert (calls(), process.accounts.requests) == (0, [])
    kept = "SELECT metadata FROM pregeneration_requests ORDER BY id DESC LIMIT 1"
    assert await value(process.pool, kept) == {"n": 2}


async def test_another_brand_gets_the_same_wallet_and_a_request_of_its_own(
    process: Process,
) -> None:
    first = await process.ask(metadata={"brand": 1})
    assert await process.ask(brand=RIVAL) == replace(first, created_new=False)
    async with session(process.pool) as connection:
        kept = await connection.fetch(
            "SELECT brand_id, created_new, metadata FROM pregeneration_requests ORDER BY id"
        )
    assert [tuple(row) for row in kept] == [(BRAND, True, {"brand": 1}), (RIVAL, False, None)]


async def test_every_provider_and_every_id_has_a_wallet_of_its_own(process: Process) -> None:
    facts = {"username": "adal", "name": "Ada", "email": "ada@example.com"}
    accounts = [OAuthAccount(name, example_id(name), **facts) for name in PROVIDERS]
    # A Google account's username is its e-mail address.
    accounts = [
        replace(account_, username=None) if account_.provider == "google" else account_
        for account_ in accounts
    ]
    accounts += [OAuthAccount("telegram", "5394817207"), OAuthAccount("twitter", ID, "adal")]
    wallets = [(await process.ask(account_)).kept.wallet for account_ in accounts]
    assert len(set(wallets)) == len(accounts)


async def test_of_fifty_concurrent_requests_one_creates_the_wallet_and_all_get_it(
    process: Process, sandbox: Sandbox
) -> None:
    answers = await asyncio.gather(*(process.ask(metadata={"n": n}) for n in range(50)))
    assert Counter(answer.created_new for answer in answers) == {True: 1, False: 49}
    assert len({answer.kept for answer in answers}) == 1
    assert await one_user_with_one_wallet(sandbox)
    assert await rows(process.pool) == (1, 50, 0)


async def test_concurrent_requests_for_one_account_share_their_provider_requests(
    process: Process, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined, call = Counter[str](), SingleFlight.call

    def counted(flights: Any, key: Any, start: Any) -> Any:
        joined["requests"] += 1
        return call(flights, key, start)

    monkeypatch.setattr(SingleFlight, "call", counted)
    calls = count_calls(sandbox)
    process.accounts.gate.clear()
    requests = [asyncio.create_task(process.ask()) for _ in range(50)]

    async def everybody_found_no_row() -> bool:
        return joined["requests"] == 50

    await until(everybody_found_no_row)
    process.accounts.gate.set()
    answers = await asyncio.gather(*requests)
    assert Counter(answer.created_new for answer in answers) == {True: 1, False: 49}
    assert (len(process.accounts.requests), calls()) == (1, 2)


async def test_concurrent_requests_of_two_brands_in_two_processes_create_one_wallet(
    database_url: str, sandbox: Sandbox
) -> None:
    async with a_process(database_url, sandbox) as first, a_process(database_url, sandbox) as other:
        answers = await asyncio.gather(
            *(
                (first, other)[number % 2].ask(brand=(BRAND, RIVAL)[number // 2 % 2])
                for number in range(50)
            )
        )
        assert Counter(answer.created_new for answer in answers) == {True: 1, False: 49}
        assert len({answer.kept for answer in answers}) == 1
        assert await one_user_with_one_wallet(sandbox)
        assert await rows(first.pool) == (1, 50, 0)


async def test_brands_and_whoever_names_them_take_turns_at_the_providers(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Strangers who name a brand are another party than the brand that signs, at both suppliers."""
    parties: list[Hashable] = []
    ask = IdentityClient.wallet_of_account

    async def record_party(
        client: IdentityClient, account: OAuthAccount, party: Hashable = None
    ) -> IdentityUser:
        parties.append(party)
        return await ask(client, account, party)

    monkeypatch.setattr(IdentityClient, "wallet_of_account", record_party)
    await process.ask(OAuthAccount("telegram", "5394817201"), is_signed=True)
    await process.ask(OAuthAccount("telegram", "5394817202"))
    await process.ask(OAuthAccount("telegram", "5394817203"), RIVAL, is_signed=True)
    assert parties == process.accounts.parties
    assert len(set(parties)) == 3


async def test_concurrent_requests_for_different_accounts_get_a_wallet_each(
    process: Process, sandbox: Sandbox
) -> None:
    accounts = [OAuthAccount("telegram", str(5_394_817_206 + number)) for number in range(40)]
    answers = await asyncio.gather(
        *(process.ask(account_) for account_ in accounts for _ in range(2))
    )
    assert len({answer.kept.wallet for answer in answers}) == 40
    assert sum(answer.created_new for answer in answers) == 40
    assert [len(wallets) for wallets in await vendors_users(sandbox)] == [1] * 40


# --- crashes ------------------------------------------------------------------------------------


async def repeat_request(url: str, sandbox: Sandbox) -> RecordedPregeneration:
    """Repeats the request in a fresh process; the vendor must have one user with one wallet."""
    async with a_process(url, sandbox) as process:
        again = await process.ask()
        assert await one_user_with_one_wallet(sandbox)
        assert (await rows(process.pool))[0] == 1
        assert again.kept.wallet in await process.identity.wallets_of(again.kept.subject)
        return again


async def test_a_process_that_dies_before_the_vendor_request_leaves_nothing(
    process: Process, database_url: str, sandbox: Sandbox
) -> None:
    process.accounts.gate.clear()
    request = asyncio.create_task(process.ask())
    await until(process.accounts.is_asked)
    await process.pregeneration.close()
    with pytest.raises(Unavailable):
        await request
    assert (await vendors_users(sandbox), await rows(process.pool)) == ([], (0, 0, 0))
    assert (await repeat_request(database_url, sandbox)).created_new


async def test_after_a_death_between_vendor_and_row_a_retry_finds_the_same_wallet(
    process: Process, database_url: str, sandbox: Sandbox
) -> None:
    made = await process.identity.wallet_of_account(ADA)  # and no more
    assert await rows(process.pool) == (0, 0, 0)
    again = await repeat_request(database_url, sandbox)
    assert (again.kept.subject, again.kept.wallet) == (made.subject, made.wallet)
    assert again.created_new


async def test_a_database_lost_before_the_row_is_written_causes_no_second_wallet(
    process: Process, database_url: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def lost(*_: object) -> RecordedPregeneration:
        raise ConnectionResetError

    with monkeypatch.context() as patched:
        patched.setattr(pregenerations, "record", lost)
        with pytest.raises(DatabaseUnavailable):
            await process.ask()
    (wallets,) = await vendors_users(sandbox)
    again = await repeat_request(database_url, sandbox)
    assert again.created_new
    assert ["0x" + again.kept.wallet.hex()] == [wallet.lower() for wallet in wallets]


async def test_after_a_death_between_row_and_answer_a_retry_finds_the_wallet(
    process: Process, database_url: str, sandbox: Sandbox
) -> None:
    unheard = await process.ask()
    again = await repeat_request(database_url, sandbox)
    assert again == replace(unheard, created_new=False)


@pytest.mark.parametrize(
    "fault",
    [Fault(times=1, drops_reply=True), Fault(times=1, drops_request=True), Fault(1, status=503)],
    ids=["answer lost", "request lost", "refused"],
)
async def test_a_creation_that_fails_once_causes_no_second_wallet(
    process: Process, sandbox: Sandbox, fault: Fault
) -> None:
    # The vendor has no look-up of Google accounts: its first request creates the user.
    account = OAuthAccount("google", example_id("google"), name="Ada", email="ada@example.com")
    sandbox.faults.order("identity", fault)
    first = await process.ask(account)
    assert (first.created_new, sandbox.faults.left("identity")) == (True, 0)
    assert await process.ask(account) == replace(first, created_new=False)
    assert await one_user_with_one_wallet(sandbox)


async def test_a_vendors_user_without_a_wallet_gets_one(process: Process, sandbox: Sandbox) -> None:
    policy = sandbox.identity_policy()
    headers = {
        "Authorization": aiohttp.encode_basic_auth(policy.app_id, policy.app_secret),
        "privy-app-id": policy.app_id,
    }
    body = {"linked_accounts": [{"type": "telegram", "telegram_user_id": "5394817206"}]}
    async with (
        aiohttp.ClientSession(headers=headers) as client,
        client.post(f"{policy.base_url}/v1/users", json=body) as answer,
    ):
        assert answer.status == 200
    assert await vendors_users(sandbox) == [[]]
    account = OAuthAccount("telegram", "5394817206")
    answers = await asyncio.gather(*(process.ask(account) for _ in range(10)))
    assert len({answer.kept.wallet for answer in answers}) == 1
    assert await one_user_with_one_wallet(sandbox)


async def test_a_cancelled_caller_does_not_cancel_the_answers_of_the_others(
    process: Process, sandbox: Sandbox
) -> None:
    process.accounts.gate.clear()
    impatient, patient = (asyncio.create_task(process.ask()) for _ in range(2))
    await until(process.accounts.is_asked)
    impatient.cancel()
    process.accounts.gate.set()
    assert (await patient).created_new
    with pytest.raises(asyncio.CancelledError):
        await impatient
    assert await one_user_with_one_wallet(sandbox)


# --- the providers' answers ---------------------------------------------------------------------


async def test_an_account_that_its_provider_does_not_know_gets_no_wallet(
    process: Process, sandbox: Sandbox
) -> None:
    process.accounts.answers["discord", ID] = missing("It is a bot")
    assert await refusal(process.ask()) == {"hint": "It is a bot", "provider": "discord"}
    process.accounts.answers["discord", ID] = AccountVerification("missing")
    assert (await refusal(process.ask()))["hint"] == "Discord knows no account with this id"
    assert (await vendors_users(sandbox), await rows(process.pool)) == ([], (0, 0, 0))


async def test_a_provider_that_does_not_answer_neither_confirms_nor_denies_an_account(
    process: Process, sandbox: Sandbox
) -> None:
    process.accounts.answers["discord", ID] = AccountVerification("unavailable")
    with pytest.raises(Unavailable):
        await process.ask()
    assert (await vendors_users(sandbox), await rows(process.pool)) == ([], (0, 0, 0))
    process.accounts.answers["discord", ID] = AccountVerification("exists", "ada.l")
    assert (await process.ask()).created_new


@pytest.mark.parametrize(
    ("provider", "claimed", "known"),
    [
        ("discord", "ada.l", "ada.l"),
        ("discord", "@ada.l", "ada.l"),
        ("discord", "ada.l", "ada.l#0"),
        ("twitter", "AdaL", "adal"),
        ("twitter", "@adaL", "ADAL"),
        ("github", "Ada-L", "ada-l"),
        ("discord", None, "ada.l"),
    ],
)
async def test_usernames_are_compared_without_case_and_a_leading_at_sign(
    process: Process, provider: OAuthProvider, claimed: str | None, known: str
) -> None:
    account = OAuthAccount(provider, example_id(provider), claimed)
    process.accounts.answers[provider, account.user_id] = AccountVerification(
        "exists", known, "Ada L."
    )
    assert (await process.ask(account)).created_new


async def test_a_username_of_another_account_is_refused(process: Process, sandbox: Sandbox) -> None:
    process.accounts.answers["discord", ID] = AccountVerification("exists", "ada.l")
    for username in ("eve", "ada_l", "ada.l2", "@eve"):
        details = await refusal(process.ask(replace(ADA, username=username)))
        assert details == {
            "hint": "The account at Discord has another username",
            "provider": "discord",
        }
    assert (await vendors_users(sandbox), await rows(process.pool)) == ([], (0, 0, 0))


async def test_of_two_concurrent_requests_only_the_one_with_the_wrong_username_is_refused(
    process: Process, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    process.accounts.answers["discord", ID] = AccountVerification("exists", "ada.l")
    both, verify = asyncio.Barrier(2), process.accounts.verify

    async def verify_together(account: OAuthAccount, party: Hashable) -> AccountVerification:
        await both.wait()
        return await verify(account, party)

    monkeypatch.setattr(process.accounts, "verify", verify_together)
    right, wrong = await asyncio.gather(
        process.ask(), process.ask(replace(ADA, username="eve")), return_exceptions=True
    )
    assert isinstance(right, RecordedPregeneration)
    assert isinstance(wrong, AccountRefused)
    assert await one_user_with_one_wallet(sandbox)


async def test_facts_that_the_vendor_requires_are_read_from_the_provider(process: Process) -> None:
    twitter = OAuthAccount("twitter", "2244994945")
    process.accounts.answers["twitter", twitter.user_id] = AccountVerification(
        "exists", "adal", "Ada L."
    )
    assert (await process.ask(twitter)).created_new
    google = OAuthAccount("google", example_id("google"), email="ada@example.com")
    process.accounts.answers["google", google.user_id] = AccountVerification(
        "exists", name="Ada L."
    )
    assert (await process.ask(google)).created_new


async def test_a_twitter_account_that_cannot_be_looked_up_is_named_by_its_username(
    process: Process,
) -> None:
    assert (await process.ask(OAuthAccount("twitter", "2244994945", "@adal"))).created_new


@pytest.mark.parametrize(
    ("account", "hint"),
    [
        (OAuthAccount("google", example_id("google")), "metadata.email"),
        (OAuthAccount("google", example_id("google"), name="Ada"), "metadata.email"),
        (OAuthAccount("google", example_id("google"), email="ada@example.com"), "metadata.email"),
        (OAuthAccount("discord", ID), "oauth_username"),
        (OAuthAccount("tiktok", "723f24d7-e717-40f8-a2b6-cb8464cd23b4"), "oauth_username"),
        (OAuthAccount("tiktok", "723f24d7", "ada_l"), "no dot and no _"),
        (OAuthAccount("tiktok", "723f24d7", "ada.l"), "oauth_username"),
    ],
    ids=str,
)
async def test_a_missing_fact_that_the_vendor_requires_is_a_validation_error(
    process: Process, sandbox: Sandbox, account: OAuthAccount, hint: str
) -> None:
    details = await refusal(process.ask(account))
    assert hint in str(details["hint"])
    assert details["provider"] == account.provider
    assert (await vendors_users(sandbox), await rows(process.pool)) == ([], (0, 0, 0))


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_custodial_wallets_need_no_fact_besides_the_id(
    process: Process, provider: OAuthProvider
) -> None:
    """Facts that only the identity vendor needs are required only with that vendor."""
    wallets = CustodialWallets(process.pool, SEALER, "https://login.example/", ())
    action = Pregeneration(
        process.pool,
        process.brand_cache,
        wallets,
        process.accounts,
        RateLimits(),
        RequestSignatures(process.pool, SEALER, process.brand_cache),
    )
    account = OAuthAccount(provider, example_id(provider))
    assert (await action.pregenerate(PregenerationRequest(BRAND, account))).created_new
    await action.close()


async def test_an_unavailable_vendor_fails_the_request_and_nothing_is_stored(
    process: Process, sandbox: Sandbox
) -> None:
    sandbox.faults.order("identity", Fault(times=MANY, status=401))
    with pytest.raises(IdentityUnavailable):
        await process.ask()
    assert await rows(process.pool) == (0, 0, 0)


# --- attacks on identifiers ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "user_id"),
    [
        ("discord", "0" + ID[:-1]),
        ("telegram", "05394817206"),
        ("twitter", "02244994945"),
        ("github", "0583231"),
        ("instagram", "017841405793187218"),
        ("google", "0108204268033311374"),
        ("discord", "1" * 18),
        ("discord", "123456789012345678"),
        ("discord", "18446744073709551615"),
        ("twitter", "1234567890"),
        ("spotify", "test"),
        ("tiktok", "fake-user"),
    ],
)
async def test_obvious_fakes_and_second_names_of_one_account_get_no_wallet(
    process: Process, sandbox: Sandbox, provider: OAuthProvider, user_id: str
) -> None:
    calls = count_calls(sandbox)
    details = await refusal(process.ask(OAuthAccount(provider, user_id, "ada.l")))
    assert set(details) == {"hint", "provider"}
    assert (calls(), process.accounts.requests) == (0, [])
    assert await rows(process.pool) == (0, 0, 0)


@pytest.mark.parametrize(
    "username",
    [
        "\u0430da.l",
        "ada\u200bl",
        "ada\u202el",
        "\uff41da",
        "ad\u00e4",
        "a" * 33,
        "@@ada.l",
        "ada l",
        " ada",
        "ada'--",
        "everyone",
        "@",
        "x" * 10_000,
        "test",
    ],
    ids=ascii,
)
async def test_an_impossible_username_is_refused_before_any_external_request(
    process: Process, sandbox: Sandbox, username: str
) -> None:
    calls = count_calls(sandbox)
    details = await refusal(process.ask(replace(ADA, username=username)))
    assert len(username) < 5 or username not in str(details)
    assert (calls(), process.accounts.requests) == (0, [])


async def test_a_google_account_with_anothers_email_address_does_not_take_his_wallet(
    process: Process, sandbox: Sandbox
) -> None:
    ann = await process.identity.wallet_of_email("ann@shop.example")
    thief = OAuthAccount("google", example_id("google"), name="Eve", email="Ann@shop.example")
    details = await refusal(process.ask(thief))
    assert "ann@" not in str(details).lower()
    assert ann.subject not in str(details)
    assert await rows(process.pool) == (0, 0, 0)
    assert await process.identity.wallet_of_email("ann@shop.example") == ann
    assert await one_user_with_one_wallet(sandbox)


async def test_a_taken_over_username_does_not_give_its_former_owners_wallet(
    process: Process, sandbox: Sandbox
) -> None:
    owner = await process.ask()
    thief = OAuthAccount("discord", "308994132968210433", ADA.username)
    answer = await process.ask(thief)
    assert answer.kept.wallet != owner.kept.wallet
    assert (await process.ask()).kept == owner.kept


async def test_a_pregeneration_for_anothers_account_reveals_the_address_and_gives_no_access(
    process: Process, sandbox: Sandbox
) -> None:
    owner = await process.ask(metadata={"secret": "said"})
    stolen = await process.ask(brand=RIVAL, metadata={"mine": True})
    assert stolen == RecordedPregeneration(owner.kept, created_new=False)
    assert {each.name for each in fields(stolen.kept)} == {"subject", "wallet"}
    assert await rows(process.pool) == (1, 2, 0)
    assert await one_user_with_one_wallet(sandbox)


# --- brand, limits, metrics, logs ---------------------------------------------------------------


async def test_an_unknown_or_disabled_brand_is_refused_and_counts_nothing(
    process: Process,
) -> None:
    with pytest.raises(BrandUnknown):
        await process.pregeneration.admit(a_wallet(0xD))
    assert (await process.pregeneration.admit(BRAND)).remaining == PER_MINUTE.max_hits - 1
    async with transaction(process.pool) as connection:
        await brand_records.switch(connection, BRAND, "disabled", on=True)
        await process.brand_cache.refresh(connection)
    with pytest.raises(BrandUnknown):
        await process.pregeneration.admit(BRAND)


@pytest.mark.parametrize("in_redis", [False, True], ids=["memory", "redis"])
async def test_a_brand_has_a_hundred_requests_a_minute_apart_from_other_brands(
    database_url: str, sandbox: Sandbox, in_redis: bool
) -> None:
    assert (PER_MINUTE.max_hits, PER_MINUTE.seconds) == (100, 60)
    assert (PER_DAY.max_hits, PER_DAY.seconds) == (10_000, 86_400)
    async with AsyncExitStack() as stack:
        url = await stack.enter_async_context(a_redis()) if in_redis else None
        limits = await stack.enter_async_context(RateLimits(url, timeout_seconds=5.0))
        process = await stack.enter_async_context(a_process(database_url, sandbox, limits))
        for left in range(99, -1, -1):
            window = await process.pregeneration.admit(BRAND)
            assert (window.limit, window.remaining) == (100, left)
        with pytest.raises(RateLimited) as refused:
            await process.pregeneration.admit(BRAND)
        assert refused.value.details["limit"] == 100
        seconds = refused.value.details["retryAfterSeconds"]
        assert isinstance(seconds, int)
        assert 1 <= seconds <= 60
        assert (await process.pregeneration.admit(RIVAL)).remaining == 99


async def test_a_refusal_and_the_answers_before_it_name_one_end_of_the_minute(
    database_url: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends_at = time.time() + 30.4
    limits = RateLimits()

    async def spent(limit: RateLimit, *_key: str) -> RateLimitStatus:
        return RateLimitStatus(False, limit.max_hits, 0, ends_at)

    monkeypatch.setattr(limits, "hit", spent)
    async with a_process(database_url, sandbox, limits) as process:
        with pytest.raises(RateLimited) as refused:
            await process.pregeneration.admit(BRAND)
    assert refused.value.reset_at == ends_at


async def test_a_brand_that_used_up_its_daily_limit_is_refused(
    database_url: str, sandbox: Sandbox
) -> None:
    limit = RateLimit("pregenerate_day", 3, 86_400)
    async with a_process(database_url, sandbox, per_day=limit) as process:
        for _ in range(3):
            assert (await process.pregeneration.admit(BRAND)).limit == 100
        with pytest.raises(RateLimited) as refused:
            await process.pregeneration.admit(BRAND)
        assert refused.value.details["limit"] == 3
        assert "a day" in refused.value.message
        seconds = refused.value.details["retryAfterSeconds"]
        assert isinstance(seconds, int)
        assert 1 <= seconds <= 86_400, "the limit holds until the end of the UTC day"


async def test_the_daily_limit_is_counted_in_the_database_across_processes_and_restarts(
    database_url: str, sandbox: Sandbox
) -> None:
    """Fifty concurrent requests go to two processes without a common cache, then to a third."""
    limit = RateLimit("pregenerate_day", 30, 86_400)
    async with (
        a_process(database_url, sandbox, per_day=limit) as first,
        a_process(database_url, sandbox, per_day=limit) as other,
    ):
        answers = await asyncio.gather(
            *[(first, other)[n % 2].pregeneration.admit(BRAND) for n in range(50)],
            return_exceptions=True,
        )
    assert sum(isinstance(answer, RateLimited) for answer in answers) == 20
    async with a_process(database_url, sandbox, per_day=limit) as again:
        with pytest.raises(RateLimited):
            await again.pregeneration.admit(BRAND)
        assert (await again.pregeneration.admit(RIVAL)).limit == 100


async def a_signed_request(process: Process, nonce: str, key: str | None = None) -> SignedRequest:
    if key is None:
        async with session(process.pool) as connection:
            keys = await brand_keys.secrets_of(connection, BRAND, "security_key", SEALER)
        key = keys[0].text
    at, target, body = str(int(time.time())), b"/service-api/pregenerate-user", b"{}"
    made = signature(key, at, nonce, "POST", target, body)
    return SignedRequest(hex_of(BRAND), at, nonce, made, "POST", target, body)


async def test_unsigned_requests_do_not_use_up_the_limits_of_a_brands_signed_requests(
    database_url: str, sandbox: Sandbox
) -> None:
    """This holds for the minute's and the day's limit."""
    limit = RateLimit("pregenerate_day", 101, 86_400)
    async with a_process(database_url, sandbox, per_day=limit) as process:
        for _ in range(100):
            await process.pregeneration.admit(BRAND)
        with pytest.raises(RateLimited):
            await process.pregeneration.admit(BRAND)
        for number in range(100):
            signed = await a_signed_request(process, f"nonce-{number:016d}")
            assert (await process.pregeneration.admit(BRAND, signed)).remaining == 99 - number
        with pytest.raises(RateLimited):
            await process.pregeneration.admit(BRAND, await a_signed_request(process, "n" * 16))
        used = "SELECT array_agg(used ORDER BY kind) FROM brand_usage"
        assert await value(process.pool, used) == [100, 100]


async def test_an_invalid_or_replayed_signature_does_not_use_up_the_brands_limits(
    process: Process,
) -> None:
    good = await a_signed_request(process, "a" * 16)
    assert (await process.pregeneration.admit(BRAND, good)).remaining == 99
    wrong = await a_signed_request(process, "b" * 16, key="ltzsk_" + "0" * 40)
    for signed in (good, wrong):
        with pytest.raises(SignatureRefused):
            await process.pregeneration.admit(BRAND, signed)
    fresh = await a_signed_request(process, "c" * 16)
    assert (await process.pregeneration.admit(BRAND, fresh)).remaining == 98


async def test_a_request_refused_by_the_minute_limit_does_not_count_towards_the_daily_limit(
    database_url: str, sandbox: Sandbox
) -> None:
    limit = RateLimit("pregenerate_minute", 2, 60)
    async with a_process(database_url, sandbox, per_minute=limit) as process:
        for _ in range(2):
            await process.pregeneration.admit(BRAND)
        for _ in range(3):
            with pytest.raises(RateLimited):
                await process.pregeneration.admit(BRAND)
        assert await value(process.pool, "SELECT used FROM brand_usage") == 2


def counted() -> dict[str, float]:
    name = "ltzd_actions_pregenerations_total"
    return {
        outcome: telemetry.REGISTRY.get_sample_value(name, {"outcome": outcome}) or 0.0
        for outcome in OUTCOMES
    }


async def test_every_outcome_is_counted(
    process: Process, database_url: str, sandbox: Sandbox
) -> None:
    before = counted()
    await process.ask()
    await process.ask()
    await refusal(process.ask(replace(ADA, user_id="1" * 18)))
    with pytest.raises(BrandUnknown):
        await process.pregeneration.admit(a_wallet(0xD))
    process.accounts.answers["telegram", "5394817206"] = AccountVerification("unavailable")
    with pytest.raises(Unavailable):
        await process.ask(OAuthAccount("telegram", "5394817206"))
    limit = RateLimit("pregenerate_minute", 0, 60)
    async with a_process(database_url, sandbox, per_minute=limit) as limited:
        with pytest.raises(RateLimited):
            await limited.pregeneration.admit(BRAND)
    now = counted()
    assert {outcome: now[outcome] - before[outcome] for outcome in OUTCOMES} == {
        "created": 1,
        "found": 1,
        "refused": 2,
        "limited": 1,
        "unavailable": 1,
    }


async def test_the_log_reports_new_wallets_without_their_users(process: Process) -> None:
    with capture_logs() as logs:
        await process.ask(metadata={"secret": "said"})
        await process.ask()
        await refusal(process.ask(replace(ADA, user_id="308994132968210433", username="a b")))
    assert logs == [
        {
            "event": "pregeneration.created",
            "log_level": "info",
            "provider": "discord",
            "brand": "0x" + BRAND.hex(),
        }
    ]
    assert not any(secret in json.dumps(logs) for secret in (ID, "ada.l", "said"))
