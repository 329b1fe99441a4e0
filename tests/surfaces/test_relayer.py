"""/relay over HTTP: the order of its checks, its fields, error bodies, headers and responses."""

import asyncio
import json
import math
import sys
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd.errors import (
    ClaimLimitReached,
    ContractNotWhitelisted,
    DatabaseUnavailable,
    IdempotencyKeyReused,
    IdentityUnavailable,
    LtzdError,
    NodeUnavailable,
    OutcomeUnknown,
    RateLimited,
    RelayPending,
    TransactionFailed,
    Unavailable,
    ValidationFailed,
)
from ltzd.http.relayer.errors import RelayerError
from ltzd.http.relayer.handlers import BODY_LIMIT
from ltzd.http.relayer.models import RelayResponse, fingerprint
from ltzd.http.requests.client_address import Proxies
from ltzd.http.requests.fields import MAX_DATA_BYTES
from ltzd.http.services import HttpPolicy
from ltzd.rules.relayer.calls import RelayRequest, RelayStatus, SignedPermit
from ltzd.rules.relayer.gas_budgets import identity_exhausted, total_exhausted
from ltzd.values import address_of, checksummed
from tests.support.surfaces.http_surface import (
    CHECKSUMMED_WALLET,
    OPERATOR,
    OTHER_TOKEN,
    TOKEN,
    WALLET,
    RunningSurfaces,
    a_surface,
)
from tests.support.surfaces.json_response import WINDOW, CodedResponse

PAGE = "https://shop.example"
CONTRACT = "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB"
UNKNOWN = "0x" + "00" * 32


@pytest_asyncio.fixture(scope="module")
async def running() -> AsyncIterator[RunningSurfaces]:
    async with a_surface() as surface:
        yield surface


@pytest.fixture
def surface(running: RunningSurfaces) -> RunningSurfaces:
    running.reset_relays()
    return running


@dataclass(frozen=True)
class RelayerResponse(CodedResponse):
    @property
    def window(self) -> tuple[int, int]:
        """The limit that is shown, and what is left of it."""
        limit, remaining, reset = (int(self.headers[name]) for name in WINDOW)
        assert reset >= time.time() - 1
        return limit, remaining


def a_call(**changes: object) -> dict[str, object]:
    """A valid body. A field of `...` is left out."""
    fields: dict[str, object] = {
        "to": CONTRACT,
        "data": "0x01ab",
        "userAddress": CHECKSUMMED_WALLET,
    }
    fields |= changes
    return {name: value for name, value in fields.items() if value is not ...}


def a_permit(**changes: object) -> dict[str, object]:
    fields: dict[str, object] = {
        "owner": CHECKSUMMED_WALLET,
        "spender": CONTRACT,
        "value": "1000000000000000000",
        "deadline": 1_800_000_000,
        "v": 28,
        "r": "0x" + "0a" * 32,
        "s": "0x" + "0b" * 32,
    } | changes
    return {name: value for name, value in fields.items() if value is not ...}


async def ask(
    surface: RunningSurfaces,
    method: str,
    path: str,
    payload: object = None,
    headers: Mapping[str, str | None] | None = None,
) -> RelayerResponse:
    """Send `payload` as JSON, bytes unchanged. A header of None is not sent."""
    sent = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    given = {name: value for name, value in (sent | dict(headers or {})).items() if value}
    raw = payload if isinstance(payload, bytes) or payload is None else json.dumps(payload).encode()
    async with surface.client.request(method, surface.url + path, data=raw, headers=given) as reply:
        got = await reply.read()
        answer = RelayerResponse(reply.status, json.loads(got) if got else None, reply.headers)
    if method != "OPTIONS":
        assert answer.window
    if method not in {"OPTIONS", "HEAD"}:
        is_told = reply.status in {200, 202}
        (RelayResponse if is_told else RelayerError).model_validate(answer.body)
    return answer


async def post(
    surface: RunningSurfaces, payload: object = None, **headers: str | None
) -> RelayerResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await ask(surface, "POST", "/relay", a_call() if payload is None else payload, named)


async def say(surface: RunningSurfaces, raw: bytes) -> bytes:
    """Send bytes to the server's port. Returns everything it sends until it closes."""
    port = int(surface.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(raw)
        return await asyncio.wait_for(reader.read(), 20)
    finally:
        writer.close()
        await writer.wait_closed()


# --- answers ------------------------------------------------------------------------------------


async def test_a_confirmed_relay_is_200_with_every_field_of_the_specification() -> None:
    policy = HttpPolicy(explorer_url="https://explorer.example")
    async with a_surface(policy) as surface:
        answer = await post(surface)
    (transaction,) = surface.relays.sent
    assert answer.status == 200
    assert answer.headers["Content-Type"] == "application/json"
    assert answer.body == {
        "success": True,
        "transactionHash": "0x" + transaction.hex(),
        "gasUsed": "183402",
        "effectiveGasPrice": "1000000000",
        "blockNumber": 7,
        "from": checksummed(OPERATOR),
        "to": CONTRACT,
        "status": "confirmed",
        "explorerUrl": f"https://explorer.example/tx/0x{transaction.hex()}",
    }
    assert answer.window == (35, 34)


async def test_without_an_explorer_there_is_no_address_of_it(surface: RunningSurfaces) -> None:
    assert "explorerUrl" not in (await post(surface)).body


async def test_what_is_not_mined_in_time_is_202_with_the_same_keys(
    surface: RunningSurfaces,
) -> None:
    confirmed = await post(surface)
    surface.relays.status = RelayStatus.PENDING
    pending = await post(surface)
    assert pending.status == 202
    assert set(pending.body) == set(confirmed.body)
    assert (pending.body["success"], pending.body["status"]) == (True, "pending")
    assert [pending.body[name] for name in ("gasUsed", "effectiveGasPrice", "blockNumber")] == [
        None
    ] * 3


async def test_a_replay_of_what_is_final_says_confirmed_as_the_first_answer_did(
    surface: RunningSurfaces,
) -> None:
    first = await post(surface, Idempotency_Key="k")
    surface.relays.becomes(RelayStatus.FINAL)
    again = await post(surface, Idempotency_Key="k")
    assert (again.status, again.body) == (200, first.body)
    assert again.window == (35, 34)


@pytest.mark.parametrize("status", list(RelayStatus))
async def test_a_relay_can_be_looked_up_whatever_became_of_it(
    surface: RunningSurfaces, status: RelayStatus
) -> None:
    sent = await post(surface)
    reason = "Error: too late" if status is RelayStatus.FAILED else None
    surface.relays.becomes(status, reason)
    path = f"/relay/{sent.body['transactionHash']}"
    answer = await ask(surface, "GET", path)
    has_failed = status is RelayStatus.FAILED
    assert answer.status == 200
    assert (answer.body["success"], answer.body["status"]) == (not has_failed, status.value)
    assert answer.body.get("reason") == reason
    assert ("reason" in answer.body) is has_failed
    assert answer.window == (35, 34)
    upper = await ask(surface, "GET", path[:9] + path[9:].upper())
    assert upper.body == answer.body

    head = await ask(surface, "HEAD", path)
    assert (head.status, head.body, head.window) == (200, None, (35, 34))


@pytest.mark.parametrize(
    "name",
    [
        UNKNOWN,
        UNKNOWN[2:],
        UNKNOWN + "00",
        UNKNOWN[:-1],
        UNKNOWN[:-1] + "g",
        "0X" + UNKNOWN[2:],
        "x",
        "%00",
        "%ff",
        "..%2f",
        "a" * 5_000,
    ],
)
async def test_an_unknown_relay_and_a_malformed_hash_are_the_same_404(
    surface: RunningSurfaces, name: str
) -> None:
    answer = await ask(surface, "GET", f"/relay/{name}")
    assert answer.status == 404
    assert answer.body == {"error": "Relay not found", "code": "NOT_FOUND"}


async def test_another_users_relay_is_not_there(surface: RunningSurfaces) -> None:
    sent = await post(surface)
    other = {"Authorization": f"Bearer {OTHER_TOKEN}"}
    path = f"/relay/{sent.body['transactionHash']}"
    assert (await ask(surface, "GET", path, headers=other)).status == 404


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "status", "body"),
    [
        (
            ValidationFailed("Fees are over the cap", gasPriceGwei=101, maxGwei=100),
            403,
            {
                "error": "Fees are over the cap",
                "code": "VALIDATION_FAILED",
                "details": {"gasPriceGwei": 101, "maxGwei": 100},
            },
        ),
        (
            ContractNotWhitelisted("Contract not whitelisted", contract="0x1", allowed=["0x2"]),
            403,
            {
                "error": "Contract not whitelisted",
                "code": "CONTRACT_NOT_WHITELISTED",
                "details": {"contract": "0x1", "allowed": ["0x2"]},
            },
        ),
        (
            ClaimLimitReached("Claim limit reached", collectionId=7, currentClaims=2, maxPerUser=2),
            409,
            {
                "error": "Claim limit reached",
                "code": "CLAIM_LIMIT_REACHED",
                "details": {"collectionId": 7, "currentClaims": 2, "maxPerUser": 2},
            },
        ),
        (
            IdempotencyKeyReused("Another body"),
            409,
            {"error": "Another body", "code": "IDEMPOTENCY_KEY_REUSED"},
        ),
        (
            RateLimited("Too many transactions", limit=35, retryAfterSeconds=90),
            429,
            {
                "error": "Too many transactions",
                "code": "RATE_LIMIT_EXCEEDED",
                "details": {"limit": 35, "retryAfterSeconds": 90},
            },
        ),
        (
            identity_exhausted(3_600),
            429,
            {
                "error": "The gas budget of this user is spent for today",
                "code": "RATE_LIMIT_EXCEEDED",
                "details": {
                    "limit": 35,
                    "reason": "gas_budget_exhausted",
                    "retryAfterSeconds": 3_600,
                },
            },
        ),
        (
            total_exhausted(3_600),
            403,
            {
                "error": "The operator's gas budget for today is spent: try again tomorrow",
                "code": "VALIDATION_FAILED",
                "details": {"reason": "total_gas_budget_exhausted", "retryAfterSeconds": 3_600},
            },
        ),
        (
            TransactionFailed("Transaction failed", reason="PerkSoldOut(7)"),
            500,
            {
                "error": "Transaction failed",
                "code": "TRANSACTION_FAILED",
                "details": {"reason": "PerkSoldOut(7)"},
            },
        ),
        (
            NodeUnavailable("http://node.internal"),
            503,
            {"error": "Blockchain node unavailable", "code": "NODE_UNAVAILABLE"},
        ),
        (
            DatabaseUnavailable("at db.internal"),
            503,
            {"error": "Database unavailable", "code": "DATABASE_UNAVAILABLE"},
        ),
        (
            OutcomeUnknown("0x12"),
            503,
            {
                "error": "The transaction may have been sent, or may still be sent; repeat the "
                "request with the same idempotency key",
                "code": "OUTCOME_UNKNOWN",
            },
        ),
        (
            RelayPending("nonce 7 of 0x12"),
            503,
            {
                "error": "The transaction is signed, but no node has accepted it yet; repeat the "
                "request with the same idempotency key",
                "code": "RELAY_PENDING",
            },
        ),
        (
            ValueError("unforeseen"),
            500,
            {"error": "Internal server error", "code": "INTERNAL_ERROR"},
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else "",
)
async def test_each_refusal_of_the_action_has_its_status_code_and_body(
    surface: RunningSurfaces, refusal: Exception, status: int, body: object
) -> None:
    surface.relays.refusal = refusal
    answer = await post(surface)
    assert (answer.status, answer.body) == (status, body)
    assert answer.window[0] == 35
    details = refusal.details if isinstance(refusal, LtzdError) else {}
    may_be_sent = isinstance(refusal, RelayPending | OutcomeUnknown)
    ends_by_itself = 5 if isinstance(refusal, Unavailable) else details.get("retryAfterSeconds")
    wait = 10 if may_be_sent else ends_by_itself
    assert answer.headers.get("Retry-After") == (None if wait is None else str(wait))


async def test_a_spent_hour_says_when_it_ends(surface: RunningSurfaces) -> None:
    for left in range(34, -1, -1):
        assert (await post(surface)).window == (35, left)
    answer = await post(surface)
    assert answer.status == 429
    assert answer.window == (35, 0)
    assert answer.headers["Retry-After"] == "60"
    assert int(answer.headers["X-RateLimit-Reset"]) == math.ceil(surface.relays.reset_at)
    assert len(surface.relays.sent) == 35


async def test_a_relay_that_no_node_has_taken_is_worth_asking_for_again(
    surface: RunningSurfaces,
) -> None:
    surface.relays.refusal = RelayPending("")
    answer = await post(surface)
    assert (answer.status, answer.headers["Retry-After"]) == (503, "10")


async def test_an_identity_provider_that_is_away_is_no_bad_token(surface: RunningSurfaces) -> None:
    surface.relays.provider = IdentityUnavailable("http://idp.internal")
    answer = await post(surface)
    assert answer.status == 500
    assert answer.body == {
        "error": "Identity provider unavailable",
        "code": "IDENTITY_UNAVAILABLE",
    }
    assert answer.window[0] == 100


async def test_another_users_wallet_is_403(surface: RunningSurfaces) -> None:
    answer = await post(surface, a_call(userAddress="0x" + "11" * 20))
    assert (answer.status, answer.body["code"]) == (403, "VALIDATION_FAILED")
    assert surface.relays.requests == []


@pytest.mark.parametrize("absent", [..., None])
@pytest.mark.parametrize(
    "names", [["to"], ["data"], ["userAddress"], ["to", "userAddress"], ["to", "data"]]
)
async def test_every_missing_field_is_named(
    surface: RunningSurfaces, names: list[str], absent: object
) -> None:
    fields = dict.fromkeys(names, absent) | {"value": 5}
    answer = await post(surface, a_call(**fields))
    assert answer.status == 400
    assert answer.body == {
        "error": f"Missing required fields: {', '.join(names)}",
        "code": "MISSING_FIELDS",
        "details": {"missing": names},
    }


async def test_what_is_asked_first_is_refused_first(surface: RunningSurfaces) -> None:
    """A request has every fault, and each step removes the first."""
    body: Any = b"{"
    headers: dict[str, str | None] = {"Origin": "https://evil.example", "Authorization": None}
    relays = surface.relays
    relays.refusal = ClaimLimitReached("no", collectionId=1, currentClaims=1, maxPerUser=1)
    seen = []

    async def ask_again() -> None:
        answer = await ask(surface, "POST", "/relay", body, headers)
        seen.append((answer.status, answer.body["code"], answer.window[0]))

    await ask_again()
    headers["Origin"] = PAGE
    await ask_again()
    body = {"to": 5, "value": "x"}
    await ask_again()
    headers["Authorization"] = "Bearer stranger"
    await ask_again()
    assert relays.calls == ["user_of"]
    headers["Authorization"] = f"Bearer {OTHER_TOKEN}"
    await ask_again()
    body = a_call(value="x")
    await ask_again()
    assert "begin" not in relays.calls
    body = a_call()
    await ask_again()
    assert "submit" not in relays.calls
    headers["Authorization"] = f"Bearer {TOKEN}"
    await ask_again()
    relays.refusal = None
    answer = await ask(surface, "POST", "/relay", body, headers)
    assert answer.status == 200
    assert seen == [
        (403, "VALIDATION_FAILED", 100),
        (400, "INVALID_BODY", 100),
        (401, "UNAUTHORIZED", 100),
        (401, "UNAUTHORIZED", 100),
        (400, "MISSING_FIELDS", 100),
        (400, "INVALID_FIELDS", 100),
        (403, "VALIDATION_FAILED", 100),
        (409, "CLAIM_LIMIT_REACHED", 35),
    ]


async def test_a_look_up_asks_for_the_token_before_the_hash(surface: RunningSurfaces) -> None:
    nobody = {"Authorization": None}
    evil = nobody | {"Origin": "null"}
    assert (await ask(surface, "GET", "/relay/x", headers=evil)).status == 403
    assert (await ask(surface, "GET", "/relay/x", headers=nobody)).status == 401
    assert (await ask(surface, "GET", "/relay/x")).status == 404


# --- token --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        TOKEN,
        f"Basic {TOKEN}",
        f"Token {TOKEN}",
        f"Bearer{TOKEN}",
        f"Bearer {TOKEN} {TOKEN}",
        f"Bearer {TOKEN},Bearer {TOKEN}",
        f"Bearer\t{TOKEN}",
        f'Bearer "{TOKEN}"',
        f"Bearer {TOKEN}\u00e9",
        "Bearer " + "a" * 20_000,
        "Bearer wrong",
    ],
)
async def test_a_missing_or_malformed_token_is_401(
    surface: RunningSurfaces, header: str | None
) -> None:
    for method, path in (("POST", "/relay"), ("GET", f"/relay/{UNKNOWN}")):
        body = a_call() if method == "POST" else None
        answer = await ask(surface, method, path, body, {"Authorization": header})
        assert (answer.status, answer.body["code"]) == (401, "UNAUTHORIZED")
        assert set(answer.body) == {"error", "code"}
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert answer.window[0] == 100
    assert surface.relays.requests == []


async def test_two_tokens_are_none(surface: RunningSurfaces) -> None:
    line = f"Authorization: Bearer {TOKEN}\r\n".encode()
    received = await say(
        surface,
        b"GET /relay/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + line + line + b"\r\n",
    )
    assert received.startswith(b"HTTP/1.1 401 ")


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER", "bEARER ", "Bearer  "])
async def test_the_schemes_letter_case_and_spaces_do_not_matter(
    surface: RunningSurfaces, scheme: str
) -> None:
    assert (await post(surface, Authorization=f"{scheme} {TOKEN}")).status == 200


async def test_a_head_that_no_token_needs_is_431_in_the_envelope(surface: RunningSurfaces) -> None:
    for path in (b"/relay", b"/relay/" + UNKNOWN.encode()):
        token = b"Authorization: Bearer " + b"a" * 33_000
        received = await say(
            surface, b"GET " + path + b" HTTP/1.1\r\nHost: x\r\n" + token + b"\r\n\r\n"
        )
        assert received.startswith(b"HTTP/1.1 431 ")
        assert b'{"error":"Request headers too large","code":"HEADERS_TOO_LARGE"}' in received
        assert b"X-RateLimit-Limit: 100\r\n" in received
    assert (await ask(surface, "GET", "/relay/x")).window == (100, 97)


# --- Origin -------------------------------------------------------------------------------------

GRANTED = [None, PAGE, "https://www.shop.example", "https://shop.example:8443"]
FOREIGN = [
    "null",
    "https://evil.example",
    "http://shop.example",
    "https://shop.example.evil.example",
    "https://shop.example/",
    "*",
    "\u00e9",
]


@pytest.mark.parametrize("origin", GRANTED)
async def test_a_brands_page_may_relay_and_so_may_what_is_no_page(
    surface: RunningSurfaces, origin: str | None
) -> None:
    answer = await post(surface, Origin=origin)
    assert answer.status == 200
    assert answer.headers.get("Access-Control-Allow-Origin") == origin


@pytest.mark.parametrize("origin", FOREIGN)
async def test_a_foreign_page_is_refused_and_its_preflight_answered(
    surface: RunningSurfaces, origin: str
) -> None:
    sent = await post(surface)
    for method, path in (("POST", "/relay"), ("GET", f"/relay/{sent.body['transactionHash']}")):
        body = a_call() if method == "POST" else None
        answer = await ask(surface, method, path, body, {"Origin": origin})
        assert answer.status == 403
        assert answer.body == {"error": "Origin not allowed", "code": "VALIDATION_FAILED"}
        assert "Access-Control-Allow-Origin" not in answer.headers
        preflight = await ask(surface, "OPTIONS", path, headers={"Origin": origin})
        assert preflight.status == 204
        assert "Access-Control-Allow-Origin" not in preflight.headers
    assert len(surface.relays.sent) == 1


@pytest.mark.parametrize("second", [b"https://evil.example", b""])
async def test_a_foreign_origin_beside_a_good_one_is_refused(
    surface: RunningSurfaces, second: bytes
) -> None:
    origins = b"Origin: https://shop.example\r\nOrigin: " + second + b"\r\n"
    head = b"GET /relay/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" + origins + b"\r\n"
    assert (await say(surface, head)).startswith(b"HTTP/1.1 403 ")


async def test_a_page_may_read_the_refusals_and_their_windows(surface: RunningSurfaces) -> None:
    answer = await post(surface, b"{", Origin=PAGE)
    assert answer.headers["Access-Control-Allow-Origin"] == PAGE
    for name in (*WINDOW, "Retry-After"):
        assert name in answer.headers["Access-Control-Expose-Headers"]


# --- the address's limit ------------------------------------------------------------------------


async def test_every_kind_of_request_counts_once_and_shows_the_window(
    surface: RunningSurfaces,
) -> None:
    calls: list[tuple[str, str, object, int]] = [
        ("POST", "/relay", b"{", 400),
        ("POST", "/relay", b"x" * (BODY_LIMIT + 1), 413),
        ("POST", "/relay", {}, 400),
        ("GET", "/relay", None, 405),
        ("DELETE", "/relay", None, 405),
        ("GET", "/relay/", None, 405),
        ("GET", "/relay/x", None, 404),
        ("HEAD", "/relay/x", None, 404),
        ("POST", f"/relay/{UNKNOWN}", {}, 405),
        ("GET", "/relay/a/b", None, 404),
    ]
    for left, (method, path, body, status) in enumerate(calls):
        answer = await ask(surface, method, path, body)
        assert (answer.status, answer.window) == (status, (100, 99 - left)), path


@pytest.mark.parametrize(
    ("target", "hosts", "status"),
    [
        (b"http://shop.example/relay/x", b"Host: shop.example\r\n", b"401"),
        (b"/relay/x?a=b", b"Host: x\r\n", b"401"),
        (b"/relay/x", b"Host: x\r\nHost: y\r\n", b"400"),
        (b"/relay/x", b"Host x\r\n", b"400"),
        (b"/relay/\xff", b"Host: x\r\n", b"400"),
        (b"/relay", b"Host: x\r\nContent-Length: 1\r\nExpect: tea\r\n", b"417"),
    ],
)
async def test_odd_heads_count_too(
    surface: RunningSurfaces, target: bytes, hosts: bytes, status: bytes
) -> None:
    head = b"GET " + target + b" HTTP/1.1\r\n" + hosts + b"Connection: close\r\n\r\n"
    received = await say(surface, head)
    assert received.startswith(b"HTTP/1.1 " + status)
    assert b"X-RateLimit-Remaining: 99\r\n" in received
    assert (await ask(surface, "GET", "/relay/x")).window == (100, 98)


async def test_behind_a_proxy_each_client_has_its_own_window() -> None:
    policy = HttpPolicy(proxies=Proxies(1, (ip_network("127.0.0.0/8"),)))
    async with a_surface(policy) as surface:
        for client, left in (("192.0.2.1", 99), ("192.0.2.2", 99), ("192.0.2.1", 98)):
            answer = await ask(surface, "GET", "/relay/x", headers={"X-Forwarded-For": client})
            assert answer.window == (100, left)
        plain = {"X-Forwarded-For": "192.0.2.1", "X-Forwarded-Proto": "http"}
        answer = await ask(surface, "GET", "/relay/x", headers=plain)
        assert (answer.body["code"], answer.window) == ("HTTPS_REQUIRED", (100, 97))


async def test_other_paths_and_preflights_do_not_count(surface: RunningSurfaces) -> None:
    for path in ("/", "/relayed", "/service-api/health", "/docs/openapi.json", "/nowhere/relay"):
        async with surface.client.get(surface.url + path) as answer:
            assert not set(WINDOW) & set(answer.headers)
    preflight = await ask(surface, "OPTIONS", "/relay")
    assert (preflight.status, set(WINDOW) & set(preflight.headers)) == (204, set())
    assert (await ask(surface, "GET", "/relay/x")).window == (100, 99)


async def test_the_101st_request_of_a_minute_is_429_whatever_it_is(
    surface: RunningSurfaces,
) -> None:
    calls = [ask(surface, "GET", "/relay/x") for _ in range(100)]
    assert {answer.status for answer in await asyncio.gather(*calls)} == {404}
    for method, path, body in (
        ("POST", "/relay", a_call()),
        ("POST", "/relay", b"{"),
        ("GET", "/relay", None),
        ("GET", "/relay/x/y", None),
    ):
        answer = await ask(surface, method, path, body, {"Origin": "https://evil.example"})
        seconds = int(answer.headers["Retry-After"])
        assert answer.status == 429
        assert answer.body == {
            "error": "Rate limit exceeded",
            "code": "RATE_LIMIT_EXCEEDED",
            "details": {
                "message": f"An address may ask 100 times a minute; try again in {seconds} seconds",
                "limit": 100,
                "retryAfterSeconds": seconds,
            },
        }
        assert 1 <= seconds <= 60
        assert answer.window == (100, 0)
        reset = int(answer.headers["X-RateLimit-Reset"])
        assert abs(reset - time.time() - seconds) <= 2
    assert surface.relays.calls == ["user_of"] * 100
    head = await ask(surface, "HEAD", "/relay/x")
    assert (head.status, head.body) == (429, None)
    assert (await ask(surface, "OPTIONS", "/relay")).status == 204
    async with surface.client.get(surface.url + "/service-api/health") as answer_elsewhere:
        assert answer_elsewhere.status == 200


async def test_the_users_window_shows_its_own_end(surface: RunningSurfaces) -> None:
    answer = await post(surface)
    assert int(answer.headers["X-RateLimit-Reset"]) == math.ceil(surface.relays.reset_at)


# --- fields -------------------------------------------------------------------------------------


async def test_every_field_reaches_the_action(surface: RunningSurfaces) -> None:
    body = a_call(
        data="0x01AB",
        value="0x10",
        gasLimit=90_000,
        metadata={"action": "claim", "perkId": "p", "permit": a_permit(v=1, r="0x1"), "x": []},
        surprise=1,
    )
    await post(surface, body)
    (relay,) = surface.relays.requests
    assert relay == RelayRequest(
        to=address_of(CONTRACT.lower()),
        data=b"\x01\xab",
        user=WALLET,
        value=16,
        gas_limit=90_000,
        permit=SignedPermit(
            owner=WALLET,
            spender=address_of(CONTRACT.lower()),
            value=10**18,
            deadline=1_800_000_000,
            signature=bytes(31) + b"\x01" + b"\x0b" * 32 + b"\x1c",
        ),
        fingerprint=relay.fingerprint,
    )


async def test_optional_fields_may_be_absent_or_null(surface: RunningSurfaces) -> None:
    nulls = dict.fromkeys(("value", "gasLimit", "metadata"))
    nothing = dict.fromkeys(("action", "perkId", "permit", "idempotencyKey"))
    for body in (a_call(), a_call(**nulls), a_call(metadata={}), a_call(metadata=nothing)):
        assert (await post(surface, body)).status == 200
    plain = RelayRequest(to=address_of(CONTRACT.lower()), data=b"\x01\xab", user=WALLET)
    assert [replace(each, fingerprint=b"") for each in surface.relays.requests] == [plain] * 4


CHECKSUM = "must have the right checksum (EIP-55), or letters of one case"
ADDRESS = "must be an address, 0x and 40 hex digits"
WHOLE = "must be a whole number below 2^256, decimal or 0x and hex digits"


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (CHECKSUMMED_WALLET, None),
        (CHECKSUMMED_WALLET.lower(), None),
        ("0x" + CHECKSUMMED_WALLET[2:].upper(), None),
        (CHECKSUMMED_WALLET + "\u0007", None),  # control characters are removed
        (CHECKSUMMED_WALLET.replace("A", "a", 1), CHECKSUM),
        (CHECKSUMMED_WALLET.swapcase().replace("X", "x"), CHECKSUM),
        ("", ADDRESS),
        ("0x", ADDRESS),
        (CHECKSUMMED_WALLET[2:], ADDRESS),
        ("0X" + CHECKSUMMED_WALLET[2:], ADDRESS),
        (CHECKSUMMED_WALLET[:-1], ADDRESS),
        (CHECKSUMMED_WALLET + "0", ADDRESS),
        (CHECKSUMMED_WALLET + " ", ADDRESS),
        ("0x" + "g" * 40, ADDRESS),
        ("0x" + "\u0661" * 40, ADDRESS),
        ("shop.eth", ADDRESS),
        (5, "must be a string"),
        (True, "must be a string"),
        ([], "must be a string"),
        ({}, "must be a string"),
    ],
)
async def test_addresses(surface: RunningSurfaces, text: object, fault: str | None) -> None:
    answer = await post(surface, a_call(userAddress=text))
    if fault is None:
        assert answer.status == 200
        assert surface.relays.requests[0].user == WALLET
    else:
        assert answer.faults == [f"userAddress: {fault}"]
        assert (await post(surface, a_call(to=text))).faults == [f"to: {fault}"]
        assert surface.relays.requests == []


@pytest.mark.parametrize(
    ("data", "fault"),
    [
        ("0x", None),
        ("0xAbCd", None),
        ("0x" + "ab" * MAX_DATA_BYTES, None),
        ("0x" + "ab" * MAX_DATA_BYTES + "ab", "must hold at most 16384 bytes"),
        ("", "must be 0x and an even number of hex digits"),
        ("abcd", "must be 0x and an even number of hex digits"),
        ("0Xabcd", "must be 0x and an even number of hex digits"),
        ("0xabc", "must be 0x and an even number of hex digits"),
        ("0xab cd", "must be 0x and an even number of hex digits"),
        ("0xzz", "must be 0x and an even number of hex digits"),
        (1, "must be a string"),
        (["0x"], "must be a string"),
    ],
)
async def test_data(surface: RunningSurfaces, data: object, fault: str | None) -> None:
    answer = await post(surface, a_call(data=data))
    if fault is None:
        assert answer.status == 200
        assert surface.relays.requests[0].data == bytes.fromhex(str(data)[2:])
    else:
        assert answer.faults == [f"data: {fault}"]


@pytest.mark.parametrize(
    ("value", "wanted"),
    [
        ("0", 0),
        ("00", 0),
        ("1", 1),
        ("0x0", 0),
        ("0xFf", 255),
        (str(2**256 - 1), 2**256 - 1),
        ("0x" + "f" * 64, 2**256 - 1),
        (str(2**256), WHOLE),
        ("0x1" + "0" * 64, WHOLE),
        ("", WHOLE),
        ("0x", WHOLE),
        ("-1", WHOLE),
        ("+1", WHOLE),
        ("1.0", WHOLE),
        ("1e18", WHOLE),
        ("1_000", WHOLE),
        (" 1", WHOLE),
        ("\u0661", WHOLE),
        ("ff", WHOLE),
        ("9" * 5_000, WHOLE),
        (0, "must be a string"),
        (1.5, "must be a string"),
        (False, "must be a string"),
    ],
)
async def test_amounts(surface: RunningSurfaces, value: object, wanted: int | str) -> None:
    """Of the call and of the permit, which has no default."""
    answer = await post(surface, a_call(value=value, metadata={"permit": a_permit(value=value)}))
    if isinstance(wanted, int):
        relay = surface.relays.requests[0]
        assert relay.permit is not None
        assert (relay.value, relay.permit.value) == (wanted, wanted)
    else:
        assert answer.faults == [f"value: {wanted}", f"metadata.permit.value: {wanted}"]


@pytest.mark.parametrize(
    ("gas", "fault"),
    [
        (0, None),
        (1_000_000, None),
        (1_000_001, None),  # refused later, with 403
        (10**30, None),
        (-1, "must be at least 0"),
        (True, "must be an integer"),
        (21_000.0, None),
        (float(2**53), "must be an integer"),
        (1.5, "must be an integer"),
        ("21000", "must be an integer"),
        ([], "must be an integer"),
    ],
)
async def test_gas_limits(surface: RunningSurfaces, gas: object, fault: str | None) -> None:
    answer = await post(surface, a_call(gasLimit=gas))
    if fault is None:
        assert surface.relays.requests[0].gas_limit == gas
    else:
        assert answer.faults == [f"gasLimit: {fault}"]


@pytest.mark.parametrize(
    ("metadata", "faults"),
    [
        ([], ["metadata: must be an object"]),
        ("x", ["metadata: must be an object"]),
        (
            {"action": 5, "perkId": "x" * 201},
            [
                "metadata.action: must be a string",
                "metadata.perkId: must be at most 200 characters",
            ],
        ),
        ({"permit": []}, ["metadata.permit: must be an object"]),
        ({"permit": "0x"}, ["metadata.permit: must be an object"]),
        (
            {"permit": {}},
            [
                f"metadata.permit.{name}: is required"
                for name in ("owner", "spender", "value", "deadline", "v", "r", "s")
            ],
        ),
        (
            {"permit": a_permit(deadline=..., r=None)},
            ["metadata.permit.deadline: is required", "metadata.permit.r: is required"],
        ),
        ({"permit": a_permit(owner="0x12")}, [f"metadata.permit.owner: {ADDRESS}"]),
        ({"permit": a_permit(spender=7)}, ["metadata.permit.spender: must be a string"]),
    ],
)
async def test_metadata(surface: RunningSurfaces, metadata: object, faults: list[str]) -> None:
    assert (await post(surface, a_call(metadata=metadata))).faults == faults


WORD = "must be 0x and 1 to 64 hex digits"
SECONDS = "must be a whole number from 0 to below 2^256"


@pytest.mark.parametrize(
    ("field", "value", "fault"),
    [
        ("deadline", 0, None),
        ("deadline", 2**256 - 1, None),
        ("deadline", 2**256, SECONDS),
        ("deadline", -1, SECONDS),
        ("deadline", 1.0, None),
        ("deadline", 1.5, "must be an integer"),
        ("deadline", float(2**53), "must be an integer"),
        ("deadline", "1800000000", "must be an integer"),
        ("deadline", True, "must be an integer"),
        ("v", 0, None),
        ("v", 1, None),
        ("v", 27, None),
        ("v", 28, None),
        ("v", 2, "must be 0, 1, 27 or 28"),
        ("v", 29, "must be 0, 1, 27 or 28"),
        ("v", -1, "must be 0, 1, 27 or 28"),
        ("v", True, "must be an integer"),
        ("v", 27.0, None),
        ("v", 27.5, "must be an integer"),
        ("v", "27", "must be an integer"),
        ("r", "0x0", None),
        ("r", "0xabc", None),
        ("s", "0x" + "F" * 64, None),
        ("r", "0x", WORD),
        ("s", "0x" + "f" * 65, WORD),
        ("s", "f" * 64, WORD),
        ("r", "0xzz", WORD),
        ("r", 5, "must be a string"),
    ],
)
async def test_the_parts_of_a_permit(
    surface: RunningSurfaces, field: str, value: object, fault: str | None
) -> None:
    body = a_call(metadata={"permit": a_permit(**{field: value})})
    answer = await post(surface, body)
    if fault is not None:
        assert answer.faults == [f"metadata.permit.{field}: {fault}"]
        return
    permit = surface.relays.requests[0].permit
    assert permit is not None
    signature = permit.signature
    parts: dict[str, object] = {
        "deadline": permit.deadline,
        "v": signature[64],
        "r": int.from_bytes(signature[:32], "big"),
        "s": int.from_bytes(signature[32:64], "big"),
    }
    wanted = int(value, 16) if isinstance(value, str) else value
    assert len(signature) == 65
    assert parts[field] == ({0: 27, 1: 28}.get(value, value) if field == "v" else wanted)  # type: ignore[call-overload]


async def test_all_faults_are_told_at_once_and_none_of_the_values(surface: RunningSurfaces) -> None:
    answer = await post(
        surface,
        a_call(to="secret", data="secret", value="secret", metadata={"permit": {"v": "secret"}}),
        Idempotency_Key="k" * 256,
    )
    assert {fault.partition(":")[0] for fault in answer.faults} == {
        "to",
        "data",
        "value",
        "Idempotency-Key",
        *(f"metadata.permit.{name}" for name in a_permit()),
    }
    assert "secret" not in json.dumps(answer.body)


# --- idempotency keys ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("in_header", "in_body", "key"),
    [
        (None, None, None),
        ("k", None, "k"),
        (None, "k", "k"),
        ("k", "k", "k"),
        (" k ", None, "k"),
        ("a b", None, "a b"),
        ("k" * 255, None, "k" * 255),
        (None, "\u00fc" * 255, "\u00fc" * 255),
        (None, "k\u0000", "k"),  # control characters are removed
    ],
)
async def test_the_key_comes_from_the_header_or_the_metadata(
    surface: RunningSurfaces, in_header: str | None, in_body: str | None, key: str | None
) -> None:
    body = a_call(metadata={"idempotencyKey": in_body})
    assert (await post(surface, body, Idempotency_Key=in_header)).status == 200
    assert [relay.idempotency_key for relay in surface.relays.requests] == [key]


PRINTABLE = "must be 1 to 255 printable characters"


@pytest.mark.parametrize(
    ("in_header", "in_body", "fault"),
    [
        ("k" * 256, None, f"Idempotency-Key: {PRINTABLE}"),
        (" ", None, f"Idempotency-Key: {PRINTABLE}"),
        ("a\tb", None, f"Idempotency-Key: {PRINTABLE}"),
        (None, "", f"metadata.idempotencyKey: {PRINTABLE}"),
        (None, "k" * 256, f"metadata.idempotencyKey: {PRINTABLE}"),
        (None, "a\u2028b", f"metadata.idempotencyKey: {PRINTABLE}"),
        (None, 5, "metadata.idempotencyKey: must be a string"),
        (None, ["k"], "metadata.idempotencyKey: must be a string"),
        (
            "a",
            "b",
            "metadata.idempotencyKey: must be the same as in the Idempotency-Key header",
        ),
    ],
)
async def test_a_malformed_key_is_a_fault(
    surface: RunningSurfaces, in_header: str | None, in_body: object, fault: str
) -> None:
    body = a_call(metadata={"idempotencyKey": in_body})
    assert (await post(surface, body, Idempotency_Key=in_header)).faults == [fault]


async def test_a_key_that_comes_with_a_list_beside_the_header_is_a_fault(
    surface: RunningSurfaces,
) -> None:
    answer = await post(surface, a_call(metadata={"idempotencyKey": ["k"]}), Idempotency_Key="k")
    assert "metadata.idempotencyKey: must be a string" in answer.faults


@pytest.mark.parametrize("raw", [b"k", b"\xff\xfe", b""])
async def test_keys_on_two_lines_and_bytes_that_are_no_text_are_faults(
    surface: RunningSurfaces, raw: bytes
) -> None:
    body = json.dumps(a_call()).encode()
    line = b"Idempotency-Key: " + raw + b"\r\n"
    received = await say(
        surface,
        b"POST /relay HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        + f"Authorization: Bearer {TOKEN}\r\nContent-Type: application/json\r\n".encode()
        + (line if raw != b"k" else line * 2)
        + b"Content-Length: %d\r\n\r\n" % len(body)
        + body,
    )
    assert received.startswith(b"HTTP/1.1 400 ")
    assert b'"Idempotency-Key: must be ' in received


async def test_a_retry_is_recognised_however_it_is_written(surface: RunningSurfaces) -> None:
    first = await post(
        surface, a_call(gasLimit=5, metadata={"action": "a", "perkId": "p"}), Idempotency_Key="k"
    )
    turned = {
        "metadata": {"idempotencyKey": "k", "perkId": "p", "action": "a"},
        "gasLimit": 5,
    } | a_call()
    again = await post(surface, json.dumps(turned, indent=3).encode())
    assert again.body == first.body
    assert len(surface.relays.sent) == 1
    other = await post(surface, turned | {"gasLimit": 6})
    assert (other.status, other.body["code"]) == (409, "IDEMPOTENCY_KEY_REUSED")


@pytest.mark.parametrize("metadata", [..., None, {}, {"permit": None}], ids=str)
async def test_a_key_may_move_between_the_header_and_the_metadata(
    surface: RunningSurfaces, metadata: Any
) -> None:
    body = a_call() if metadata is ... else a_call(metadata=metadata)
    first = await post(surface, body, Idempotency_Key="k")
    again = await post(surface, a_call(metadata={"idempotencyKey": "k"}))
    assert (first.status, again.status, again.body) == (200, 200, first.body)
    assert len(surface.relays.sent) == 1


def test_a_fingerprint_is_of_the_content() -> None:
    body: dict[str, Any] = {"a": 1, "metadata": {"x": [1, 2], "y": {"b": 1, "a": 2}}}
    same = {"metadata": {"y": {"a": 2, "b": 1}, "idempotencyKey": "k", "x": [1, 2]}, "a": 1}
    assert len(fingerprint(body)) == 32
    assert fingerprint(body) == fingerprint(same)
    assert same["metadata"]["idempotencyKey"] == "k"  # type: ignore[index]
    others: list[dict[str, Any]] = [
        body | {"a": "1"},
        body | {"a": 10**40},
        body | {"idempotencyKey": "k"},
        body | {"metadata": None},
        body | {"metadata": "x"},
        body | {"metadata": {"x": [2, 1], "y": {"b": 1, "a": 2}}},
    ]
    prints = [fingerprint(body) for body in (body, *others)]
    assert len(set(prints)) == len(prints)


# --- hostile bodies -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"null",
        b"[]",
        b'"x"',
        b"{",
        b'{"to": NaN}',
        b'{"to": "\\ud800"}',
        b'{"to": "\xff"}',
        b'{"a":' * 5_000,
        b"[" * 60_000,
        b'{"metadata":' + b"[" * 32 + b"]" * 32 + b"}",
    ],
)
async def test_what_is_no_json_object_of_sane_depth_is_400(
    surface: RunningSurfaces, raw: bytes
) -> None:
    answer = await post(surface, raw)
    assert (answer.status, answer.body["code"]) == (400, "INVALID_BODY")
    assert surface.relays.calls == []


@pytest.mark.parametrize("raw", [b"[" * 60_000, b'{"a":' * 12_000, b'{"a":"\\"' + b"[" * 60_000])
async def test_a_deep_body_is_refused_whatever_pythons_recursion_limit(
    surface: RunningSurfaces, raw: bytes
) -> None:
    """Libraries raise the limit. A decoder that relies on it would overflow the stack."""
    known = sys.getrecursionlimit()
    sys.setrecursionlimit(max(known, 100_000))
    try:
        answer = await post(surface, raw)
    finally:
        sys.setrecursionlimit(known)
    assert (answer.status, answer.body["code"]) == (400, "INVALID_BODY")


async def test_many_brackets_that_are_not_deep_are_read(surface: RunningSurfaces) -> None:
    values: list[object] = [[{}] * 2_000, "[" * 5_000, '"[' * 5_000 + "\\"]
    for value in values:
        assert (await post(surface, a_call(metadata={"x": value}))).status == 200


async def test_other_content_types_and_compressed_bodies_are_400(surface: RunningSurfaces) -> None:
    for headers in ({"Content_Type": "text/plain"}, {"Content_Encoding": "gzip"}):
        answer = await post(surface, **headers)
        assert (answer.status, answer.body["code"]) == (400, "INVALID_BODY")


async def test_a_body_over_its_limit_is_413_and_one_at_it_is_read(surface: RunningSurfaces) -> None:
    body = json.dumps(a_call()).encode()
    answer = await post(surface, body.ljust(BODY_LIMIT))
    assert answer.status == 200
    for size in (BODY_LIMIT + 1, 500_000):
        answer = await post(surface, body.ljust(size))
        assert answer.status == 413
        assert answer.body == {
            "error": "Request body is larger than 65536 bytes",
            "code": "PAYLOAD_TOO_LARGE",
            "details": {"maxBytes": 65_536},
        }


async def test_the_longest_data_fits_into_a_body(surface: RunningSurfaces) -> None:
    metadata = {"action": "a" * 200, "perkId": "p" * 200, "permit": a_permit()}
    body = a_call(data="0x" + "ab" * MAX_DATA_BYTES, metadata=metadata)
    assert (await post(surface, body, Idempotency_Key="k" * 255)).status == 200


@pytest.mark.parametrize("name", ["to", "data", "userAddress", "value", "gasLimit", "metadata"])
@pytest.mark.parametrize("value", [{"$gt": ""}, [["x"]], True, -(10**40), 1.5, "\u0000", "0x" * 99])
async def test_no_wrong_type_is_worse_than_400(
    surface: RunningSurfaces, name: str, value: object
) -> None:
    answer = await post(surface, a_call(**{name: value}))
    is_object = name == "metadata" and isinstance(value, dict)
    assert answer.status == (200 if is_object else 400), answer.body


async def test_a_405_says_which_methods_are_right(surface: RunningSurfaces) -> None:
    answer = await ask(surface, "GET", "/relay")
    assert answer.body == {"error": "Method not allowed", "code": "METHOD_NOT_ALLOWED"}
    assert answer.headers["Allow"] == "OPTIONS, POST"
    answer = await ask(surface, "DELETE", "/relay/x")
    assert answer.headers["Allow"] == "GET, HEAD, OPTIONS"


async def test_no_answer_holds_the_token(
    surface: RunningSurfaces, caplog: pytest.LogCaptureFixture
) -> None:
    surface.relays.refusal = ValueError("unforeseen")
    answer = await post(surface)
    assert answer.status == 500
    assert TOKEN not in json.dumps(answer.body) + str(answer.headers) + caplog.text
