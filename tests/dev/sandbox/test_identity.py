"""The sandbox's identity provider over HTTP, as its vendor documents it."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from eth_account import Account
from eth_account.messages import encode_typed_data

from ltzd.dev.sandbox import Sandbox
from ltzd.dev.sandbox.identity.wallet_rpc import app_signer
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
        self._sandbox = sandbox.url
        self._base = policy.base_url
        self._app_id = policy.app_id
        self.signer = app_signer(sandbox._credentials())
        self.answered: Mapping[str, str] = {}
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
            self.answered = response.headers
            return response.status, await response.json()

    async def control(self, path: str, **body: object) -> tuple[int, Json]:
        async with self._session.post(self._sandbox + path, json=body) as response:
            return response.status, await response.json()

    async def rpc(
        self,
        wallet_id: str,
        body: Json,
        *,
        sent: Json | None = None,
        key: ec.EllipticCurvePrivateKey | None = None,
        idempotency_key: str | None = None,
    ) -> tuple[int, Json]:
        """Signs `body`; sends `sent` if it is given."""
        path = f"/v1/wallets/{wallet_id}/rpc"
        extra = {"privy-idempotency-key": idempotency_key} if idempotency_key else {}
        payload = {
            "version": 1,
            "method": "POST",
            "url": self._base + path,
            "body": body,
            "headers": {"privy-app-id": self._app_id, **extra},
        }
        text = json.dumps(payload, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        signature = (key or self.signer.key).sign(text.encode(), ec.ECDSA(hashes.SHA256()))
        authorization = base64.b64encode(signature).decode()
        headers = {**extra, "privy-authorization-signature": authorization}
        return await self("POST", path, sent or body, **headers)

    async def make(self, *accounts: object, wallets: list[Json] | None = None) -> Json:
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


async def test_an_import_that_gives_a_users_address_as_its_own_is_a_conflict_told_in_text(
    api: Api,
) -> None:
    user = await api.make(ACCOUNT)

    status, body = await api("POST", "/v1/users", {"linked_accounts": [GOOGLE]})

    assert (status, list(body)) == (422, ["error"])
    assert body["error"].endswith(user["id"])
    _, shown = await api("GET", f"/v1/users/{user['id']}")
    assert shown == user, "the account was linked to the user whose address it gave"


async def test_ids_tell_accounts_apart_by_their_letter_case_and_names_do_not(api: Api) -> None:
    user = await api.make({"type": "tiktok_oauth", "subject": "aB", "username": "ann"})
    other = await api.make({"type": "tiktok_oauth", "subject": "Ab", "username": "ann"})
    assert user["id"] != other["id"]

    user = await api.make({**DISCORD, "username": "Ann.B"})
    assert await api("POST", "/v1/users/discord/username", {"username": "aNN.b"}) == (200, user)


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


async def test_more_new_users_than_the_limit_are_refused_until_it_is_lifted(
    sandbox: Sandbox, api: Api
) -> None:
    await api.control("/doors/identity-limit", usersPerMinute=2)
    bodies = [{"linked_accounts": [{**ACCOUNT, "address": f"{n}@a.example"}]} for n in range(3)]

    outcomes = [await api("POST", "/v1/users", body) for body in bodies]

    assert [status for status, _ in outcomes] == [200, 200, 429]
    assert outcomes[2][1]["code"] == "too_many_requests"
    assert 0 < int(api.answered["Retry-After"]) <= 60
    assert (await api("GET", "/v1/users"))[0] == 200, "only making users is limited"
    await api.control("/doors/identity-limit", usersPerMinute=0)
    assert (await api("POST", "/v1/users", bodies[2]))[0] == 200


@pytest.mark.parametrize("most", [-1, 1.5, "240", None])
async def test_a_limit_that_is_none_is_refused(api: Api, most: object) -> None:
    assert (await api.control("/doors/identity-limit", usersPerMinute=most))[0] == 400


# --- log-ins -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("provider", "account_id"),
    [
        ("discord", "1" * 18),
        ("twitter", "9"),
        ("github", "583231"),
        ("google", "107"),
        ("telegram", "77"),
        ("spotify", "Ann31"),
        ("instagram", "5"),
        ("tiktok", "f9dce9a7-01bf"),
    ],
)
async def test_a_log_in_with_an_account_is_its_owners_and_makes_one_if_need_be(
    api: Api, provider: str, account_id: str
) -> None:
    order = {"provider": provider, "id": account_id}

    _, first = await api.control("/doors/identity-token", **order)
    _, again = await api.control("/doors/identity-token", **order)

    names = ("subject", "walletAddress", "privateKey")
    assert [first[name] for name in names] == [again[name] for name in names]
    _, user = await api("GET", f"/v1/users/{first['subject']}")
    account, wallet = user["linked_accounts"]
    assert account_id in account.values()
    assert wallet["address"] == first["walletAddress"]


async def test_what_a_log_in_links_is_its_users_and_nobody_elses(api: Api) -> None:
    order = {"provider": "discord", "id": "1" * 18}
    _, shell = await api.control("/doors/identity-token", email="ann@shop.example")

    for _ in range(2):
        _, given = await api.control(
            "/doors/identity-token", **order, links=[{"email": "Ann@shop.example"}]
        )
        _, left = await api("GET", f"/v1/users/{shell['subject']}")
        _, user = await api("GET", f"/v1/users/{given['subject']}")

        assert [row["type"] for row in left["linked_accounts"]] == ["wallet"]
        kinds = [row["type"] for row in user["linked_accounts"]]
        assert kinds == ["discord_oauth", "email", "wallet"]
    _, user = await api("POST", "/v1/users/email/address", {"address": "ann@shop.example"})
    assert user["id"] == given["subject"]


async def test_an_identity_token_lists_every_account_of_its_user(api: Api) -> None:
    picture = "https://pictures.example/ann"
    twitter = {"type": "twitter_oauth", "subject": "9", "name": "Ann", "username": "ann_b"}
    user = await api.make(ACCOUNT, DISCORD, GOOGLE, {**twitter, "profile_picture_url": picture})

    _, given = await api.control("/doors/identity-token", provider="discord", id=DISCORD["subject"])

    assert given["subject"] == user["id"]
    claims = jwt.decode(given["identityToken"], options={"verify_signature": False})
    rows = json.loads(claims["linked_accounts"])
    assert [row["type"] for row in rows] == [
        "email",
        "discord_oauth",
        "google_oauth",
        "twitter_oauth",
        "wallet",
    ]
    assert rows[3]["pfp"] == picture


@pytest.mark.parametrize(
    ("order", "field"),
    [
        ({}, "email"),
        ({"provider": "discord"}, "id"),
        ({"id": "1"}, "provider"),
        ({"provider": "myspace", "id": "1"}, "provider"),
        ({"provider": "discord", "id": "1"}, "id"),
        ({"provider": "discord", "id": 1}, "id"),
        ({"provider": "discord", "id": "1" * 18, "email": EMAIL}, "email"),
    ],
    ids=range(7),
)
async def test_a_log_in_of_nobody_is_refused_by_field(api: Api, order: Json, field: str) -> None:
    status, answer = await api.control("/doors/identity-token", **order)

    assert (status, answer["field"]) == (400, field)


# --- wallet RPC ----------------------------------------------------------------------------------

TYPED_DATA: Json = {
    "types": {
        "EIP712Domain": [{"name": "name", "type": "string"}],
        "Mail": [{"name": "contents", "type": "string"}, {"name": "value", "type": "uint256"}],
    },
    "domain": {"name": "A"},
    "message": {"contents": "café", "value": str(2**255)},
    "primary_type": "Mail",
}
ASKED: Json = {"method": "eth_signTypedData_v4", "params": {"typed_data": TYPED_DATA}}


async def a_wallet_of_ours(api: Api) -> Json:
    """The wallet object of a user whose wallet has the app's signer."""
    order: Json = {"chain_type": "ethereum", "additional_signers": [{"signer_id": api.signer.id}]}
    user = await api.make(ACCOUNT, wallets=[order])
    return wallets_of(user)[0]


async def test_a_wallet_signs_for_the_signer_it_was_made_with(api: Api) -> None:
    wallet = await a_wallet_of_ours(api)

    status, answer = await api.rpc(wallet["id"], ASKED)

    assert (status, answer["method"]) == (200, "eth_signTypedData_v4")
    assert answer["data"]["encoding"] == "hex"
    full = {**TYPED_DATA, "primaryType": "Mail"}
    message = encode_typed_data(full_message=full)
    signature = answer["data"]["signature"]
    assert Account.recover_message(message, signature=signature) == wallet["address"]


async def test_nobody_else_signs(api: Api) -> None:
    wallet = await a_wallet_of_ours(api)
    bare = wallets_of(await api.make(DISCORD))[0]

    assert await api("POST", f"/v1/wallets/{wallet['id']}/rpc", ASKED) == (
        401,
        {
            "error": "No valid authorization keys or user signing keys available",
            "code": "no_valid_user_session_keys",
        },
    )
    assert (await api.rpc(bare["id"], ASKED))[1]["code"] == "no_valid_user_session_keys"
    other = ec.generate_private_key(ec.SECP256R1())
    _, answer = await api.rpc(wallet["id"], ASKED, key=other)
    assert answer["code"] == "zero_correct_authorization_signatures"
    _, answer = await api.rpc(wallet["id"], ASKED, sent={**ASKED, "more": 1})
    assert answer["code"] == "zero_correct_authorization_signatures"
    path = f"/v1/wallets/{wallet['id']}/rpc"
    _, answer = await api("POST", path, ASKED, privy_authorization_signature="%%%")
    assert answer["code"] == "zero_correct_authorization_signatures"


async def test_an_unknown_wallet_is_a_404(api: Api) -> None:
    assert (await api.rpc("nobody", ASKED))[0] == 404


async def test_an_idempotency_key_is_for_one_request(api: Api) -> None:
    wallet = (await a_wallet_of_ours(api))["id"]
    other = {**ASKED, "params": {"typed_data": {**TYPED_DATA, "domain": {"name": "B"}}}}

    first = await api.rpc(wallet, ASKED, idempotency_key="k")

    assert await api.rpc(wallet, ASKED, idempotency_key="k") == first
    status, answer = await api.rpc(wallet, other, idempotency_key="k")
    assert (status, answer["field"]) == (400, "privy-idempotency-key")
    assert (await api.rpc(wallet, ASKED, idempotency_key="x" * 257))[0] == 400


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "method"),
        ({**ASKED, "method": "personal_sign"}, "method"),
        ({"method": ASKED["method"]}, "params"),
        ({"method": ASKED["method"], "params": {}}, "typed_data"),
        *(
            ({**ASKED, "params": {"typed_data": {**TYPED_DATA, name: None}}}, name)
            for name in ("types", "domain", "message", "primary_type")
        ),
        (
            {**ASKED, "params": {"typed_data": {**TYPED_DATA, "primary_type": "X"}}},
            "params.typed_data",
        ),
    ],
    ids=range(9),
)
async def test_a_request_that_cannot_be_signed_names_the_field(
    api: Api, body: Json, field: str
) -> None:
    status, answer = await api.rpc((await a_wallet_of_ours(api))["id"], body)

    assert (status, answer["field"]) == (400, field)


async def test_the_signer_and_its_wallets_survive_a_restart(tmp_path: Path) -> None:
    async def request(wallet: str | None) -> tuple[str, Json]:
        sandbox = Sandbox(tmp_path, 0, "http://127.0.0.1:1", None)
        await sandbox.start()
        try:
            async with aiohttp.ClientSession() as session:
                api = Api(session, sandbox)
                wallet = wallet or str((await a_wallet_of_ours(api))["id"])
                return wallet, (await api.rpc(wallet, ASKED))[1]
        finally:
            await sandbox.stop()

    wallet, before = await request(None)

    assert "data" in before
    assert (await request(wallet))[1] == before


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
            {
                "linked_accounts": [ACCOUNT],
                "wallets": [{"chain_type": "ethereum", "additional_signers": [{"signer": 1}]}],
            },
            "wallets.0.additional_signers",
        ),
        (
            "/v1/users",
            {"linked_accounts": [{**DISCORD, "subject": "\u0661" * 17}]},
            "linked_accounts.0.subject",
        ),
        (
            "/v1/users",
            {"linked_accounts": [ACCOUNT], "custom_metadata": {"a": []}},
            "custom_metadata.a",
        ),
        ("/v1/users/email/address", {"address": 7}, "address"),
    ],
    ids=range(15),
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
