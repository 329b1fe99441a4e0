"""Wallets of accounts at OAuth providers: their owners, and the users who never get them."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from msgspec import structs

from ltzd.dev.sandbox.faults import Fault
from ltzd.errors import AccountRefused, IdentityUnavailable
from ltzd.providers.identity.accounts import MAX_ACCOUNTS, account_query, accounts_in
from ltzd.providers.identity.client import IdentityClient
from ltzd.rules.oauth.accounts import OAuthAccount, OAuthProvider
from ltzd.values import address_of
from tests.support.clocks import ManualClock
from tests.support.services.identity import EMAIL, Provider, a_provider, served

DID = "did:privy:cann"
WALLET = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
QUICK: dict[str, Any] = {"first_pause_seconds": 0.01, "rate_limit_pause_seconds": 0.01}

DISCORD = OAuthAccount("discord", "175928847299117063", "ann.b")
GOOGLE = OAuthAccount("google", "107691234567890123456", name="Ann", email=EMAIL)
TIKTOK = OAuthAccount("tiktok", "f9dce9a7-01bf", "annb")
EVERY_KIND = (
    DISCORD,
    OAuthAccount("twitter", "9", "ann_b", "Ann"),
    OAuthAccount("github", "583231", "ann-b"),
    GOOGLE,
    OAuthAccount("telegram", "77"),
    OAuthAccount("spotify", "Ann31"),
    OAuthAccount("instagram", "17841400000000000", "ann.b_"),
    TIKTOK,
)


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[Provider]:
    async with a_provider(tmp_path) as provider:
        yield provider


@pytest.fixture
async def client(provider: Provider) -> AsyncIterator[IdentityClient]:
    async with IdentityClient(replace(provider.policy, **QUICK)) as client:
        yield client


def named(account: OAuthAccount) -> str:
    return account.provider


# --- owners -------------------------------------------------------------------------------------


@pytest.mark.parametrize("account", EVERY_KIND, ids=named)
async def test_an_account_gets_one_wallet_that_is_its_owners_when_he_logs_in(
    provider: Provider, client: IdentityClient, account: OAuthAccount
) -> None:
    user = await client.wallet_of_account(account)

    assert await client.wallet_of_account(account) == user
    given = await provider.log_in_with(account.provider, account.user_id)
    assert given["subject"] == user.subject
    assert address_of(given["walletAddress"]) == user.wallet
    assert len(await provider.users()) == 1


async def test_accounts_of_one_id_at_two_providers_have_two_wallets(
    client: IdentityClient,
) -> None:
    users = [
        await client.wallet_of_account(OAuthAccount(kind, "12345678901234567", "annb", "Ann"))
        for kind in ("discord", "twitter", "github", "telegram", "spotify", "instagram", "tiktok")
    ]

    assert len({user.wallet for user in users}) == len({user.subject for user in users}) == 7


async def test_ids_that_differ_in_letter_case_are_two_accounts(client: IdentityClient) -> None:
    first = await client.wallet_of_account(structs.replace(TIKTOK, user_id="aB-1"))

    assert await client.wallet_of_account(structs.replace(TIKTOK, user_id="Ab-1")) != first


async def test_an_account_that_somebody_linked_to_his_user_has_that_users_wallet(
    provider: Provider, client: IdentityClient
) -> None:
    email = {"type": "email", "address": EMAIL}
    telegram = {"type": "telegram", "telegram_user_id": "77"}
    user = await provider.make(email, telegram)

    assert (await client.wallet_of_account(OAuthAccount("telegram", "77"))).subject == user["id"]
    assert (await client.wallet_of_email(EMAIL)).subject == user["id"]


async def test_a_user_without_a_wallet_gets_exactly_one(
    provider: Provider, client: IdentityClient
) -> None:
    await provider.make({"type": "spotify_oauth", "subject": "Ann31"}, wallets=0)

    spotify = OAuthAccount("spotify", "Ann31")
    users = await asyncio.gather(*(client.wallet_of_account(spotify) for _ in range(10)))

    assert len(set(users)) == 1
    assert (await client.wallets_of(users[0].subject)) == (users[0].wallet,)


@pytest.mark.parametrize("account", [DISCORD, GOOGLE, TIKTOK], ids=named)
async def test_fifty_callers_share_one_question_and_processes_agree(
    provider: Provider, account: OAuthAccount
) -> None:
    clients = [IdentityClient(provider.policy) for _ in range(4)]
    provider.count_requests()

    users = await asyncio.gather(
        *(clients[number % 4].wallet_of_account(account) for number in range(50))
    )
    await asyncio.gather(*(client.close() for client in clients))

    assert len(set(users)) == 1
    assert provider.requests <= 4 * 3
    assert len(await provider.users()) == 1


async def test_one_callers_wrong_details_are_not_the_failure_of_another(
    provider: Provider, client: IdentityClient
) -> None:
    await client.wallet_of_email("victim@shop.example")
    wrong = structs.replace(GOOGLE, email="victim@shop.example")

    outcomes = await asyncio.gather(
        client.wallet_of_account(wrong), client.wallet_of_account(GOOGLE), return_exceptions=True
    )

    assert isinstance(outcomes[0], AccountRefused)
    assert not isinstance(outcomes[1], BaseException)


@pytest.mark.parametrize(
    "fault",
    [
        Fault(times=2, status=503),
        Fault(times=1, status=429, retry_after_seconds=0),
        Fault(times=2, drops_request=True),
        Fault(times=3, drops_reply=True),
    ],
    ids=str,
)
@pytest.mark.parametrize("account", [DISCORD, TIKTOK], ids=named)
async def test_a_passing_fault_makes_no_second_user_or_wallet(
    provider: Provider, client: IdentityClient, account: OAuthAccount, fault: Fault
) -> None:
    provider.sandbox.faults.order("identity", fault)

    user = await client.wallet_of_account(account)

    assert [listed["id"] for listed in await provider.users()] == [user.subject]
    assert await client.wallets_of(user.subject) == (user.wallet,)


async def test_the_providers_limit_is_waited_for_or_told(
    provider: Provider, client: IdentityClient
) -> None:
    await provider.limit_users(2)
    for number in range(2):
        await client.wallet_of_account(OAuthAccount("telegram", str(number)))

    # The provider names a minute, and no caller waits that long.
    with pytest.raises(IdentityUnavailable):
        await client.wallet_of_account(OAuthAccount("telegram", "2"))

    assert await client.wallet_of_account(OAuthAccount("telegram", "1")), "no new user, no limit"
    await provider.limit_users(0)
    assert await client.wallet_of_account(OAuthAccount("telegram", "2"))


# --- other users --------------------------------------------------------------------------------


async def test_another_users_email_address_never_joins_an_account_to_him(
    provider: Provider, client: IdentityClient
) -> None:
    victim = await client.wallet_of_email(EMAIL)

    with pytest.raises(AccountRefused, match="invalid OAuth credentials") as refusal:
        await client.wallet_of_account(GOOGLE)

    assert refusal.value.details == {"hint": "the account's details belong to another user"}
    assert await client.accounts_of(victim.subject) == ()
    assert await client.wallet_of_email(EMAIL) == victim


async def test_a_google_account_that_claims_an_address_first_does_not_get_its_rewards(
    client: IdentityClient,
) -> None:
    attacker = await client.wallet_of_account(GOOGLE)

    assert (await client.wallet_of_email(EMAIL)).wallet != attacker.wallet


@pytest.mark.parametrize("kind", ["discord", "github", "instagram"])
async def test_whoever_has_the_username_today_is_not_the_account(
    provider: Provider, client: IdentityClient, kind: OAuthProvider
) -> None:
    former = await client.wallet_of_account(OAuthAccount(kind, "12345678901234567", "annb"))

    heir = await client.wallet_of_account(OAuthAccount(kind, "76543210987654321", "annb"))

    assert heir.wallet != former.wallet
    renamed = OAuthAccount(kind, "12345678901234567", "ann-was" if kind == "github" else "annwas")
    assert await client.wallet_of_account(renamed) == former


def row(account: OAuthAccount, **other: object) -> dict[str, object]:
    key = "telegram_user_id" if account.provider == "telegram" else "subject"
    kind = "telegram" if account.provider == "telegram" else f"{account.provider}_oauth"
    return {"type": kind, key: account.user_id, **other}


def a_user(*rows: object) -> dict[str, object]:
    wallet = {
        "type": "wallet",
        "address": WALLET,
        "chain_type": "ethereum",
        "connector_type": "embedded",
        "wallet_client_type": "privy",
    }
    return {"id": DID, "linked_accounts": [*rows, wallet]}


SOUGHT = structs.replace(GOOGLE, user_id="aB107")
STRANGERS: Mapping[str, list[object]] = {
    "nobody's": [],
    "another id's": [row(structs.replace(SOUGHT, user_id="aB108"))],
    "another letter case's": [row(structs.replace(SOUGHT, user_id="Ab107"))],
    "another kind's": [row(OAuthAccount("spotify", SOUGHT.user_id))],
    "the address's": [{"type": "email", "address": EMAIL}],
    "nonsense": ["google_oauth", None, {"type": "google_oauth"}, {"type": ["google_oauth"]}],
    "a number's": [{"type": "google_oauth", "subject": 107}],
}


@pytest.mark.parametrize("answer", ["200", "cause", "text"])
@pytest.mark.parametrize("linked", STRANGERS.values(), ids=STRANGERS)
async def test_a_user_who_does_not_list_the_account_never_gets_it(
    provider: Provider, linked: list[object], answer: str
) -> None:
    bodies = {
        "200": web.json_response(a_user(*linked)).body,
        "cause": web.json_response({"error": "conflict", "cause": DID}).body,
        "text": web.json_response({"error": f"caused by an existing user: {DID}"}).body,
    }

    async def answered(request: web.Request) -> web.Response:
        if request.method == "GET":
            return web.json_response(a_user(*linked))
        status = 200 if answer == "200" else 422
        return web.Response(body=bodies[answer], status=status, content_type="application/json")

    async with served(answered, provider.policy) as policy, IdentityClient(policy) as client:
        with pytest.raises(AccountRefused):
            await client.wallet_of_account(SOUGHT)


async def test_the_providers_own_answer_for_the_account_counts_whatever_else_is_linked(
    provider: Provider,
) -> None:
    async def answered(_request: web.Request) -> web.Response:
        return web.json_response(a_user({"type": "email", "address": "b@c.example"}, row(GOOGLE)))

    async with served(answered, provider.policy) as policy, IdentityClient(policy) as client:
        assert (await client.wallet_of_account(GOOGLE)).subject == DID


@pytest.mark.parametrize(
    ("status", "body", "refused"),
    [
        (400, {"error": EMAIL, "code": "invalid_data"}, AccountRefused),
        (400, {"error": EMAIL, "code": "allowlist_rejected"}, AccountRefused),
        (422, {"error": EMAIL, "code": "linked_to_another_user"}, AccountRefused),
        (400, {"error": EMAIL, "code": "cannot_link_more_of_type"}, AccountRefused),
        (422, {"error": EMAIL}, IdentityUnavailable),
        (400, {"error": EMAIL, "code": "missing_or_invalid_privy_app_id"}, IdentityUnavailable),
        (401, {"error": EMAIL, "code": "invalid_credentials"}, IdentityUnavailable),
        (302, {}, IdentityUnavailable),
        (500, {}, IdentityUnavailable),
        (200, [], IdentityUnavailable),
    ],
    ids=range(10),
)
async def test_only_a_refusal_of_the_account_itself_is_the_callers_fault(
    provider: Provider, status: int, body: object, refused: type[Exception]
) -> None:
    async def answered(_request: web.Request) -> web.Response:
        return web.json_response(body, status=status)

    async with served(answered, provider.policy) as policy, IdentityClient(policy) as client:
        with pytest.raises(refused) as refusal:
            await client.wallet_of_account(GOOGLE)

    assert EMAIL not in repr(refusal.value) + str(getattr(refusal.value, "details", ""))


# --- refused before the provider is asked --------------------------------------------------------


@pytest.mark.parametrize(
    ("account", "field"),
    [
        (structs.replace(DISCORD, username=None), "username"),
        (structs.replace(DISCORD, username=""), "username"),
        (structs.replace(DISCORD, username="a"), "username"),
        (structs.replace(DISCORD, username="discord-staff"), "username"),
        (structs.replace(DISCORD, username="everyone"), "username"),
        (structs.replace(DISCORD, username="ann\n"), "username"),
        (structs.replace(DISCORD, username="\u0430nn"), "username"),
        (structs.replace(DISCORD, user_id="1234567890123456"), "oauth_user_id"),
        (structs.replace(DISCORD, user_id="١٧٥٩٢٨٨٤٧٢٩٩١١٧٠٦٣"), "oauth_user_id"),
        (structs.replace(DISCORD, user_id="175928847299117063\n"), "oauth_user_id"),
        (OAuthAccount("twitter", "9", "ann-b", "Ann"), "username"),
        (OAuthAccount("twitter", "9", "x" * 16, "Ann"), "username"),
        (OAuthAccount("github", "1"), "username"),
        (OAuthAccount("github", "1", "-ann"), "username"),
        (OAuthAccount("github", "1", "x" * 40), "username"),
        (OAuthAccount("github", "1", "ann\n"), "username"),
        (structs.replace(GOOGLE, email=None), "email"),
        (structs.replace(GOOGLE, email="ann"), "email"),
        (structs.replace(GOOGLE, email="ann@shop.example\r\nBcc: x"), "email"),
        (structs.replace(GOOGLE, name=None), "name"),
        (structs.replace(GOOGLE, name="Ann\ud800"), "name"),
        (structs.replace(GOOGLE, user_id=""), "oauth_user_id"),
        (OAuthAccount("telegram", "7 7"), "oauth_user_id"),
        (OAuthAccount("spotify", "x" * 256), "oauth_user_id"),
        (OAuthAccount("instagram", "5"), "username"),
        (OAuthAccount("instagram", "5", "here.ann"), "username"),
        (OAuthAccount("instagram", "5", "a"), "username"),
        (OAuthAccount("tiktok", "5", "ann_b"), "username"),
        (OAuthAccount("tiktok", "5", "ann.b"), "username"),
        (OAuthAccount("tiktok", "5", "tiktokann"), "username"),
        (structs.replace(DISCORD, username="hereford"), "username"),
    ],
    ids=str,
)
async def test_an_account_of_the_wrong_form_is_refused_without_asking(
    provider: Provider, client: IdentityClient, account: OAuthAccount, field: str
) -> None:
    provider.count_requests()

    with pytest.raises(AccountRefused, match=r"^invalid OAuth credentials$") as refusal:
        await client.wallet_of_account(account)

    hint = refusal.value.details["hint"]
    assert isinstance(hint, str)
    assert hint.startswith(field + ":")
    assert provider.requests == 0


@pytest.mark.parametrize("name", [None, "x" * 51, "a\0b"])
async def test_a_username_stands_in_for_a_name_that_twitters_accounts_need(
    client: IdentityClient, name: str | None
) -> None:
    assert await client.wallet_of_account(OAuthAccount("twitter", "9", "ann_b", name))


def test_a_refused_username_is_told_with_what_the_identity_provider_takes() -> None:
    with pytest.raises(AccountRefused) as refusal:
        account_query(OAuthAccount("tiktok", "723f24d7", "ada.l"))
    hint = str(refusal.value.details["hint"])
    assert "the identity provider takes 2 to 32 letters and digits, no dot and no _" in hint


# --- a user's accounts ---------------------------------------------------------------------------


async def test_one_question_tells_a_users_wallets_and_accounts(
    provider: Provider, client: IdentityClient
) -> None:
    user = await client.wallet_of_account(DISCORD)
    provider.count_requests()

    assert await client.accounts_of(user.subject) == (DISCORD,)
    assert await client.wallets_of(user.subject) == (user.wallet,)
    assert await client.accounts_of("did:privy:cnobody") == ()
    assert await client.accounts_of("../users") == ()
    assert provider.requests == 2


async def test_accounts_are_not_told_from_memory_once_it_is_a_minute_old(
    provider: Provider,
) -> None:
    ticks = ManualClock()
    policy = replace(provider.policy, max_attempts=1)
    async with IdentityClient(policy, ticks) as client:
        user = await client.wallet_of_account(DISCORD)
        await client.accounts_of(user.subject)
        provider.break_down()
        ticks.now += 59.9
        assert await client.accounts_of(user.subject) == (DISCORD,)
        ticks.now += 0.2

        for _ in range(3):
            with pytest.raises(IdentityUnavailable):
                await client.accounts_of(user.subject)
        assert provider.requests == 1
        assert await client.wallets_of(user.subject) == (user.wallet,)

        provider.count_requests()
        ticks.now += 3
        assert await client.accounts_of(user.subject) == (DISCORD,)


NO_KINDS: tuple[object, ...] = ("apple_oauth", None, [], "email", "wallet")


def test_accounts_are_read_from_full_and_short_rows_and_nothing_else_is_one() -> None:
    rows: list[object] = [
        row(DISCORD, username="ann.b", latest_verified_at=1),
        row(GOOGLE, email=EMAIL, name="Ann", lv=1),
        row(GOOGLE, email=EMAIL, name="Ann", lv=2),
        row(OAuthAccount("telegram", "77"), username=7),
        row(OAuthAccount("github", "1"), username="imported", latest_verified_at=None),
        row(OAuthAccount("twitter", "2"), lv=None),
        *(
            {"type": "spotify_oauth", "subject": subject}
            for subject in ("", 7, None, "a\nb", "a b")
        ),
        *({"type": kind, "subject": "1"} for kind in NO_KINDS),
        *("nonsense", None, 7, [], {}),
    ]

    assert accounts_in(rows) == (
        DISCORD,
        structs.replace(GOOGLE, email=None),
        OAuthAccount("telegram", "77"),
    )


def test_so_many_accounts_are_read_and_no_more() -> None:
    rows = [{"type": "spotify_oauth", "subject": str(number)} for number in range(1000)]

    assert len(accounts_in(rows)) == MAX_ACCOUNTS
