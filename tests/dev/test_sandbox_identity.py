"""The sandbox's identity provider, spoken to over HTTP as its vendor documents it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ltzd.dev.sandbox import Sandbox
from ltzd.values import address_of, checksummed

EMAIL = "ann@shop.example"
ACCOUNT = {"type": "email", "address": EMAIL}
ETHEREUM = [{"chain_type": "ethereum"}]
GOOGLE = {"type": "google_oauth", "subject": "107", "email": EMAIL, "name": "Ann"}
DISCORD = {"type": "discord_oauth", "subject": "12345678901234567", "username": "ann.b"}

Json = dict[str, Any]


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    sandbox = Sandbox(tmp_path, 0, "http://127.0.0.1:1", None)
    await sandbox.start()
    yield sandbox
    await sandbox.stop()


@pytest.fixture
async def api(sandbox: Sandbox) -> AsyncIterator["Api"]:
    async with aiohttp.ClientSession() as session:
        yield Api(session, sandbox)


class Api:
    def __init__(self, session: aiohttp.ClientSession, sandbox: Sandbox) -> None:
        policy = sandbox.identity_policy()
        self._session = session
        self._base = policy.base_url
        self.headers = {
            "Authorization": aiohttp.encode_basic_auth(policy.app_id, policy.app_secret),
            "privy-app-id": policy.app_id,
        }

    async def __call__(
        self, method: str, path: str, body: object = None, **headers: str
    ) -> tuple[int, Json]:
        async with self._session.request(
            method,
            self._base + path,
            json=body,
            headers={**self.headers, **{k.replace("_", "-"): v for k, v in headers.items()}},
        ) as response:
            return response.status, await response.json()

    async def make(self, *accounts: object, wallets: list[dict[str, str]] | None = None) -> Json:
        body = {
            "linked_accounts": list(accounts),
            "wallets": ETHEREUM if wallets is None else wallets,
        }
        status, user = await self("POST", "/v1/users", body)
        assert status == 200
        return user


def wallets_of(user: Json) -> list[Json]:
    return [account for account in user["linked_accounts"] if account["type"] == "wallet"]


async def test_a_made_user_is_shown_as_the_vendor_shows_it(api: Api) -> None:
    user = await api.make(ACCOUNT)

    email, wallet = user["linked_accounts"]
    assert email["address"] == EMAIL
    assert wallet["address"] == checksummed(address_of(wallet["address"]))
    assert (wallet["connector_type"], wallet["wallet_client_type"]) == ("embedded", "privy")
    assert (wallet["chain_type"], wallet["wallet_index"]) == ("ethereum", 0)
    assert user["is_guest"] is False
    assert "private_key" not in str(user)


async def test_a_user_is_found_by_id_by_address_and_in_the_list(api: Api) -> None:
    user = await api.make(ACCOUNT)

    assert await api("GET", f"/v1/users/{user['id']}") == (200, user)
    body = {"address": EMAIL.upper()}
    assert await api("POST", "/v1/users/email/address", body) == (200, user)
    assert await api("GET", "/v1/users?limit=5&email=ignored") == (
        200,
        {"data": [user], "next_cursor": None},
    )


@pytest.mark.parametrize(
    ("account", "path", "body"),
    [
        (DISCORD, "discord/username", {"username": "ann.b"}),
        (
            {"type": "github_oauth", "subject": "1", "username": "ann-b"},
            "github/username",
            {"username": "Ann-B"},
        ),
        (
            {"type": "twitter_oauth", "subject": "9", "name": "Ann", "username": "ann_b"},
            "twitter/subject",
            {"subject": "9"},
        ),
        (
            {"type": "telegram", "telegram_user_id": "77"},
            "telegram/telegram_user_id",
            {"telegram_user_id": "77"},
        ),
        ({"type": "spotify_oauth", "subject": "sp"}, "spotify/subject", {"subject": "sp"}),
        (
            {"type": "instagram_oauth", "subject": "5", "username": "ann.b"},
            "instagram/username",
            {"username": "ann.b"},
        ),
        ({"type": "phone", "number": "+15551234567"}, "phone/number", {"number": "+15551234567"}),
        (
            {"type": "custom_auth", "custom_user_id": "u1"},
            "custom_auth/id",
            {"custom_user_id": "u1"},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
async def test_each_account_has_the_look_up_that_the_vendor_has(
    api: Api, account: Json, path: str, body: Json
) -> None:
    user = await api.make(account)

    assert await api("POST", f"/v1/users/{path}", body) == (200, user)


async def test_a_user_is_found_by_wallet(api: Api) -> None:
    user = await api.make(ACCOUNT)

    body = {"address": wallets_of(user)[0]["address"].lower()}

    assert await api("POST", "/v1/users/wallet/address", body) == (200, user)


@pytest.mark.parametrize("provider", ["google/subject", "tiktok/username", "google/email"])
async def test_there_is_no_look_up_that_the_vendor_lacks(api: Api, provider: str) -> None:
    status, _ = await api("POST", f"/v1/users/{provider}", {"subject": "107"})

    assert status in {404, 405}


async def test_an_unknown_user_is_a_404(api: Api) -> None:
    status, body = await api("POST", "/v1/users/email/address", {"address": EMAIL})
    assert (status, "error" in body) == (404, True)
    assert (await api("GET", "/v1/users/did:privy:nobody"))[0] == 404
    assert (await api("POST", "/v1/users/did:privy:nobody/wallets", {"wallets": ETHEREUM}))[
        0
    ] == 404


async def test_making_a_user_again_answers_the_one_that_is_there(api: Api) -> None:
    assert await api.make(ACCOUNT) == await api.make({**ACCOUNT, "address": EMAIL.upper()})


async def test_accounts_split_over_users_are_a_conflict_that_names_one(api: Api) -> None:
    user = await api.make(ACCOUNT)

    status, body = await api("POST", "/v1/users", {"linked_accounts": [ACCOUNT, GOOGLE]})

    assert (status, body["cause"]) == (422, user["id"])
    assert user["id"] in body["error"]


async def test_of_creations_at_once_one_succeeds_and_the_rest_hear_of_the_conflict(
    api: Api,
) -> None:
    body = {"linked_accounts": [ACCOUNT], "wallets": ETHEREUM}

    outcomes = await asyncio.gather(*(api("POST", "/v1/users", body) for _ in range(10)))

    assert {status for status, _ in outcomes} <= {200, 422}
    assert len({answer.get("id") or answer["cause"] for _, answer in outcomes}) == 1


async def test_a_repeated_creation_of_a_wallet_makes_a_second_one(api: Api) -> None:
    path = f"/v1/users/{(await api.make(ACCOUNT))['id']}/wallets"

    _, user = await api("POST", path, {"wallets": ETHEREUM})

    assert [wallet["wallet_index"] for wallet in wallets_of(user)] == [0, 1]


async def test_a_repeated_creation_with_the_same_key_makes_one_wallet(api: Api) -> None:
    path = f"/v1/users/{(await api.make(ACCOUNT, wallets=[]))['id']}/wallets"

    first = await api("POST", path, {"wallets": ETHEREUM}, privy_idempotency_key="k")
    second = await api("POST", path, {"wallets": ETHEREUM}, privy_idempotency_key="k")

    assert first == second
    assert len(wallets_of(second[1])) == 1


async def test_the_list_is_read_page_by_page_without_gap_or_repetition(api: Api) -> None:
    made = [(await api.make({**ACCOUNT, "address": f"{n}@a.example"}))["id"] for n in range(5)]

    seen, query = [], "?limit=2"
    while True:
        _, page = await api("GET", f"/v1/users{query}")
        seen += [user["id"] for user in page["data"]]
        if page["next_cursor"] is None:
            break
        query = f"?limit=2&cursor={page['next_cursor']}"

    assert seen == made


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/v1/users", [], "body"),
        ("/v1/users", {}, "linked_accounts"),
        ("/v1/users", {"linked_accounts": []}, "linked_accounts"),
        ("/v1/users", {"linked_accounts": ["x"]}, "linked_accounts.0"),
        ("/v1/users", {"linked_accounts": [{"type": "myspace"}]}, "linked_accounts.0.type"),
        ("/v1/users", {"linked_accounts": [{"type": "email"}]}, "linked_accounts.0.address"),
        (
            "/v1/users",
            {"linked_accounts": [ACCOUNT, {**DISCORD, "subject": "123"}]},
            "linked_accounts.1.subject",
        ),
        (
            "/v1/users",
            {"linked_accounts": [{"type": "google_oauth", "subject": "1"}]},
            "linked_accounts.0.email",
        ),
        ("/v1/users", {"linked_accounts": [ACCOUNT, ACCOUNT]}, "linked_accounts"),
        ("/v1/users", {"linked_accounts": [ACCOUNT], "wallets": "x"}, "wallets"),
        ("/v1/users", {"linked_accounts": [ACCOUNT], "wallets": [{}]}, "wallets.0.chain_type"),
        (
            "/v1/users",
            {"linked_accounts": [ACCOUNT], "custom_metadata": {"a": []}},
            "custom_metadata.a",
        ),
        ("/v1/users/email/address", {"address": 7}, "address"),
    ],
    ids=range(13),
)
async def test_a_bad_field_is_named(api: Api, path: str, body: object, field: str) -> None:
    status, answer = await api("POST", path, body)

    assert (status, answer["field"], answer["code"]) == (400, field, "invalid_data")
    assert answer["error"].startswith(field)


@pytest.mark.parametrize("query", ["limit=0", "limit=101", "limit=x", "limit=%C2%B2", "cursor=x"])
async def test_a_bad_page_is_refused(api: Api, query: str) -> None:
    status, answer = await api("GET", f"/v1/users?{query}")

    assert (status, answer["field"]) == (400, query.partition("=")[0])


async def test_wrong_credentials_are_refused_in_the_vendors_words(api: Api) -> None:
    right = api.headers
    api.headers = {**right, "Authorization": aiohttp.encode_basic_auth("app", "wrong")}
    status, body = await api("GET", "/v1/users")
    assert (status, body["code"]) == (401, "invalid_credentials")

    api.headers = {"privy-app-id": right["privy-app-id"]}
    status, body = await api("GET", "/v1/users")
    assert (status, body["code"]) == (401, "missing_or_invalid_token")

    api.headers = {"Authorization": right["Authorization"]}
    status, body = await api("GET", "/v1/users")
    assert (status, body["code"]) == (403, "missing_or_invalid_privy_app_id")
