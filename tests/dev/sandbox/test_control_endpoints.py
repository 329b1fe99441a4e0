"""The control endpoints for tokens and faults, and access to the sandbox."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import jwt
import pytest
from aiohttp import web
from aiohttp.test_utils import make_mocked_request
from eth_account import Account

from ltzd.dev.sandbox import Sandbox
from ltzd.dev.sandbox.access import error_middleware
from ltzd.providers.identity.client import IdentityClient
from ltzd.values import address_of
from tests.support.waiting import Stopwatch, until

EMAIL = "ann@shop.example"

Json = dict[str, Any]
Post = Callable[[str, object], Awaitable[tuple[int, Json]]]


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    sandbox = Sandbox(tmp_path, 0, "http://127.0.0.1:1", None)
    await sandbox.start()
    yield sandbox
    await sandbox.stop()


@pytest.fixture
async def session() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as session:
        yield session


@pytest.fixture
def post(sandbox: Sandbox, session: aiohttp.ClientSession) -> Post:
    async def send(endpoint: str, body: object) -> tuple[int, Json]:
        async with session.post(sandbox.control_endpoints()[endpoint], json=body) as response:
            return response.status, await response.json()

    return send


@pytest.fixture
async def verify(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> Callable[[str], dict[str, Any]]:
    """Verifies a token as the vendor's documentation prescribes."""
    async with session.get(sandbox.control_endpoints()["jwksUrl"]) as response:
        keys = {key["kid"]: jwt.PyJWK(key) for key in (await response.json())["keys"]}

    def decode(token: str) -> dict[str, Any]:
        header = jwt.get_unverified_header(token)
        assert (header["alg"], header["typ"]) == ("ES256", "JWT")
        return jwt.decode(
            token,
            keys[header["kid"]],
            algorithms=["ES256"],
            audience=sandbox.identity_policy().app_id,
            issuer="privy.io",
            leeway=5,
            options={"require": ["exp", "iat", "iss", "aud", "sub"]},
        )

    return decode


async def test_the_token_endpoint_and_the_client_give_one_wallet(
    sandbox: Sandbox, post: Post
) -> None:
    _, given = await post("identityTokenUrl", {"email": EMAIL})

    async with IdentityClient(sandbox.identity_policy()) as client:
        user = await client.wallet_of_email(EMAIL.upper())

    assert (user.subject, user.wallet) == (given["subject"], address_of(given["walletAddress"]))
    assert Account.from_key(given["privateKey"]).address == given["walletAddress"]


async def test_the_token_endpoint_opens_for_a_user_whom_the_client_made(
    sandbox: Sandbox, post: Post
) -> None:
    async with IdentityClient(sandbox.identity_policy()) as client:
        user = await client.wallet_of_email(EMAIL)

    _, given = await post("identityTokenUrl", {"email": EMAIL})

    assert address_of(given["walletAddress"]) == user.wallet


async def test_an_access_token_verifies_and_carries_a_session_and_no_accounts(
    post: Post, verify: Callable[[str], dict[str, Any]]
) -> None:
    _, given = await post("identityTokenUrl", {"email": EMAIL})

    claims = verify(given["accessToken"])

    assert claims["sub"] == given["subject"]
    assert claims["sid"]
    assert claims["exp"] - claims["iat"] == 3600
    assert "linked_accounts" not in claims


async def test_an_identity_token_verifies_and_carries_the_wallet(
    post: Post, verify: Callable[[str], dict[str, Any]]
) -> None:
    _, given = await post("identityTokenUrl", {"email": EMAIL})

    claims = verify(given["identityToken"])
    email, wallet = json.loads(claims["linked_accounts"])

    assert email == {"type": "email", "address": EMAIL, "lv": email["lv"]}
    assert (wallet["address"], wallet["chain_type"]) == (given["walletAddress"], "ethereum")
    assert claims["cr"].isdigit()
    assert claims["custom_metadata"] == "{}"
    assert "sid" not in claims


@pytest.mark.parametrize(("keeps_old", "published"), [(True, 2), (False, 1)])
async def test_after_a_rotation_another_key_signs_and_the_set_tells_of_it(
    sandbox: Sandbox,
    session: aiohttp.ClientSession,
    post: Post,
    keeps_old: bool,
    published: int,
) -> None:
    _, before = await post("identityTokenUrl", {"email": EMAIL})

    sandbox.rotate_signing_key(keeps_old=keeps_old)

    _, after = await post("identityTokenUrl", {"email": EMAIL})
    async with session.get(sandbox.control_endpoints()["jwksUrl"]) as response:
        keys = {key["kid"]: jwt.PyJWK(key) for key in (await response.json())["keys"]}
    assert len(keys) == published
    assert (key_id(before["accessToken"]) in keys) == keeps_old
    key = keys[key_id(after["accessToken"])]
    assert jwt.decode(after["accessToken"], key, audience=sandbox.identity_policy().app_id)


def key_id(token: str) -> str:
    return str(jwt.get_unverified_header(token)["kid"])


@pytest.mark.parametrize(
    ("order", "error"),
    [
        ({"claims": {"iss": "elsewhere"}}, jwt.InvalidIssuerError),
        ({"claims": {"iss": 7}}, jwt.InvalidTokenError),
        ({"claims": {"aud": "another app"}}, jwt.InvalidAudienceError),
        ({"claims": {"sub": None}}, jwt.MissingRequiredClaimError),
        ({"claims": {"exp": 1}}, jwt.ExpiredSignatureError),
        ({"expiresIn": -60}, jwt.ExpiredSignatureError),
    ],
    ids=str,
)
async def test_a_token_with_wrong_claims_is_really_signed_and_really_wrong(
    post: Post,
    verify: Callable[[str], dict[str, Any]],
    order: Json,
    error: type[Exception],
) -> None:
    status, given = await post("identityTokenUrl", {"email": EMAIL, **order})

    assert status == 200
    for name in ("accessToken", "identityToken"):
        with pytest.raises(error):
            verify(given[name])


@pytest.mark.parametrize(
    ("endpoint", "body", "field"),
    [
        ("identityTokenUrl", {}, "email"),
        ("identityTokenUrl", {"email": "ann"}, "email"),
        ("identityTokenUrl", {"email": "a b@c"}, "email"),
        ("identityTokenUrl", {"email": EMAIL, "expiresIn": "soon"}, "expiresIn"),
        ("identityTokenUrl", {"email": EMAIL, "expiresIn": 1e300}, "expiresIn"),
        ("identityTokenUrl", {"email": EMAIL, "claims": []}, "claims"),
        ("identityTokenUrl", {"email": EMAIL, "wallet": 1}, "wallet"),
        ("identityTokenUrl", {"email": EMAIL, "links": "bob"}, "links"),
        ("identityTokenUrl", {"email": EMAIL, "links": ["bob"]}, "links"),
        ("identityTokenUrl", {"email": EMAIL, "links": [{"email": "bob"}]}, "email"),
        ("identityTokenUrl", "ann", "body"),
        ("faultUrl", {"service": "weather", "status": 500, "times": 1}, "service"),
        ("faultUrl", {"status": 500, "times": 1}, "service"),
        ("faultUrl", {"service": "identity", "status": 500}, "times"),
        ("faultUrl", {"service": "identity", "status": 500, "times": -1}, "times"),
        ("faultUrl", {"service": "identity", "status": 500, "times": True}, "times"),
        ("faultUrl", {"service": "identity", "status": 200, "times": 1}, "status"),
        ("faultUrl", {"service": "identity", "delaySeconds": -1, "times": 1}, "delaySeconds"),
        ("faultUrl", {"service": "identity", "drop": "all", "times": 1}, "drop"),
        ("faultUrl", {"service": "identity", "drop": 1, "times": 1}, "drop"),
        ("faultUrl", {"service": "identity", "times": 1}, "delaySeconds"),
        ("faultUrl", {"service": "identity", "status": 500, "times": 1, "x": 1}, "x"),
    ],
)
async def test_a_bad_field_is_named(post: Post, endpoint: str, body: object, field: str) -> None:
    status, answer = await post(endpoint, body)

    assert (status, answer["field"]) == (400, field)


async def test_null_in_an_optional_field_is_absence(post: Post) -> None:
    user: dict[str, object] = {"email": EMAIL, "claims": None, "expiresIn": None}
    fault = {"service": "identity", "status": 500, "delaySeconds": None, "drop": None, "times": 0}

    assert (await post("identityTokenUrl", user))[0] == 200
    assert (await post("faultUrl", fault))[0] == 200


async def test_a_quoted_local_part_may_hold_spaces(sandbox: Sandbox, post: Post) -> None:
    status, answer = await post("identityTokenUrl", {"email": '"ada lovelace"@shop.example'})
    async with IdentityClient(sandbox.identity_policy()) as client:
        user = await client.wallet_of_email('"ada lovelace"@shop.example')

    assert status == 200
    assert address_of(answer["walletAddress"]) == user.wallet


async def test_malformed_json_is_named(sandbox: Sandbox, session: aiohttp.ClientSession) -> None:
    for content in (b"{", b"\xff", b"[" * 100_000, b'{"email": NaN}'):
        async with session.post(
            sandbox.control_endpoints()["identityTokenUrl"], data=content
        ) as response:
            assert (response.status, (await response.json())["field"]) == (400, "body")


async def test_as_many_requests_as_ordered_fail_and_then_all_is_normal(
    sandbox: Sandbox, post: Post, session: aiohttp.ClientSession
) -> None:
    await post("faultUrl", {"service": "identity", "status": 503, "times": 2})

    statuses = [await key_set_status(sandbox, session) for _ in range(4)]

    assert statuses == [503, 503, 200, 200]


async def test_a_drop_cuts_the_connection_without_an_answer(
    sandbox: Sandbox, post: Post, session: aiohttp.ClientSession
) -> None:
    await post("faultUrl", {"service": "identity", "drop": True, "times": 1})

    # A GET would be repeated by the HTTP client itself.
    with pytest.raises(aiohttp.ClientError):
        await session.post(sandbox.identity_policy().base_url + "/v1/users")
    assert await key_set_status(sandbox, session) == 200


async def test_a_delay_delays_and_stopping_does_not_wait_for_it(tmp_path: Path) -> None:
    sandbox = Sandbox(tmp_path, 0, "http://127.0.0.1:1", None)
    await sandbox.start()
    async with aiohttp.ClientSession() as session:
        order = {"service": "identity", "delaySeconds": 0.3, "times": 1}
        async with session.post(sandbox.control_endpoints()["faultUrl"], json=order):
            pass
        began = asyncio.get_running_loop().time()
        assert await key_set_status(sandbox, session) == 200
        assert asyncio.get_running_loop().time() - began >= 0.3

        async with session.post(
            sandbox.control_endpoints()["faultUrl"], json={**order, "delaySeconds": 600}
        ):
            pass
        waiting = asyncio.create_task(key_set_status(sandbox, session))
        await until(lambda: is_spent(sandbox))
        watch = Stopwatch()
        await sandbox.stop()
        assert watch.seconds() < 1
        with pytest.raises(aiohttp.ClientError):
            await waiting


async def test_a_caller_who_hangs_up_amid_a_body_is_no_error() -> None:
    async def reads_on(_request: web.Request) -> web.StreamResponse:
        raise ConnectionResetError("Connection lost")

    answer = await error_middleware(make_mocked_request("POST", "/endpoints/fault"), reads_on)

    assert answer.status == 200


async def test_faults_can_be_called_off_and_do_not_touch_the_endpoints(
    sandbox: Sandbox, post: Post, session: aiohttp.ClientSession
) -> None:
    await post("faultUrl", {"service": "identity", "status": 503, "times": 9})
    assert (await post("identityTokenUrl", {"email": EMAIL}))[0] == 200

    assert (await post("faultUrl", {"service": "identity", "times": 0}))[0] == 200
    assert await key_set_status(sandbox, session) == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost.evil.example:80"},
        {"Host": "10.0.0.1"},
        {"Host": ""},
        {"Origin": "https://evil.example"},
        {"Origin": "http://localhost.evil.example"},
        {"Origin": "null"},
        {"Origin": "file://127.0.0.1"},
    ],
    ids=str,
)
async def test_a_foreign_name_or_page_is_shut_out_everywhere(
    sandbox: Sandbox, session: aiohttp.ClientSession, headers: dict[str, str]
) -> None:
    for path in ("/", "/explorer/", "/endpoints/identity-token", "/identity/v1/users", "/nowhere"):
        for method in ("GET", "POST", "OPTIONS"):
            async with session.request(method, sandbox.url + path, headers=headers) as response:
                assert response.status == 403
                assert "Access-Control-Allow-Origin" not in response.headers


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "localhost"},
        {"Host": "LOCALHOST:8000"},
        {"Host": "[::1]:9"},
        {"Origin": "http://localhost:3000"},
        {"Origin": "http://127.0.0.1:8000"},
    ],
    ids=str,
)
async def test_loopback_names_and_pages_are_let_in(
    sandbox: Sandbox, session: aiohttp.ClientSession, headers: dict[str, str]
) -> None:
    async with session.get(sandbox.url + "/", headers=headers) as response:
        assert response.status == 200


async def test_the_root_page_lists_every_endpoint(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> None:
    async with session.get(sandbox.url + "/") as response:
        page = await response.text()

    assert all(url in page for url in sandbox.control_endpoints().values())
    assert sandbox.identity_policy().app_secret not in page


async def test_an_unknown_path_or_method_is_told_in_json(
    sandbox: Sandbox, session: aiohttp.ClientSession
) -> None:
    async with session.get(sandbox.url + "/nowhere") as response:
        assert (response.status, await response.json()) == (404, {"error": "Not Found"})
    async with session.get(sandbox.control_endpoints()["faultUrl"]) as response:
        assert (response.status, response.headers["Allow"]) == (405, "POST")
    async with session.post(
        sandbox.control_endpoints()["faultUrl"], data=b"x" * 300_000
    ) as response:
        assert (response.status, "error" in await response.json()) == (413, True)


async def key_set_status(sandbox: Sandbox, session: aiohttp.ClientSession) -> int:
    async with session.get(sandbox.control_endpoints()["jwksUrl"]) as response:
        return response.status


async def is_spent(sandbox: Sandbox) -> bool:
    return sandbox.faults.left("identity") == 0
