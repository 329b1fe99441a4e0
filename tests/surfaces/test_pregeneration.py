"""Pregeneration over HTTP: spec 4.5 and the bodies of 7.3, each with exactly the fields shown."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from ipaddress import ip_network
from typing import Any

import pytest
import pytest_asyncio
import requests
import schemathesis
from pydantic import BaseModel
from schemathesis import GenerationMode

from ltzd.actions.pregeneration import PER_DAY, invalid_credentials, too_many
from ltzd.errors import (
    DatabaseUnavailable,
    IdentityUnavailable,
    LtzdError,
    RateLimited,
    Unavailable,
)
from ltzd.http.pregeneration.errors import (
    BadRequestError,
    DetailedError,
    InvalidAccountIdError,
    InvalidCredentialsError,
    PregenerationError,
    RequiredFieldsError,
    UnknownProviderError,
)
from ltzd.http.pregeneration.handlers import PATH
from ltzd.http.pregeneration.models import PregenerateUserBody, PregenerateUserResponse
from ltzd.http.pregeneration.operations import OPERATIONS
from ltzd.http.requests.client_address import Proxies
from ltzd.http.requests.json_body import EVENT_HANDLER_LIMIT
from ltzd.http.services import HttpPolicy
from ltzd.rules.oauth.accounts import PROVIDERS, OAuthAccount
from ltzd.rules.oauth.ids import TITLES, example_id
from ltzd.rules.request_signatures import signature
from ltzd.store.users.pregenerations import AccountWallet
from tests.support.surfaces.http_surface import (
    BRAND_ID,
    CHECKSUMMED_WALLET,
    SECURITY_KEY,
    WALLET,
    RunningSurfaces,
    a_surface,
)
from tests.support.surfaces.json_response import WINDOW, JsonResponse
from tests.support.surfaces.openapi import assert_examples_fit
from tests.surfaces.test_schemathesis import CHECKS, Run, random_cases

ID = "175928847299117063"
REQUIRED = ["brand_id", "oauth_provider", "oauth_user_id"]
VALID_PROVIDERS = [
    *("discord", "twitter", "github", "google", "telegram", "spotify", "instagram", "tiktok")
]
SHAPES: dict[int, type[BaseModel]] = {
    200: PregenerateUserResponse,
    400: BadRequestError,
    401: PregenerationError,
    403: PregenerationError,
    404: PregenerationError,
    405: PregenerationError,
    413: PregenerationError,
    429: PregenerationError,
    500: DetailedError,
}


@pytest_asyncio.fixture(scope="module")
async def running() -> AsyncIterator[RunningSurfaces]:
    async with a_surface() as surface:
        yield surface


@pytest.fixture
def surface(running: RunningSurfaces) -> RunningSurfaces:
    running.reset_pregenerations()
    return running


def window_of(answer: JsonResponse) -> tuple[int, int] | None:
    """The brand's window; None if the response shows none."""
    if not any(name in answer.headers for name in WINDOW):
        return None
    return answer.window_within(PER_DAY.seconds + 1)


def an_order(**changes: object) -> dict[str, object]:
    """A valid body. A field of `None` is sent as null."""
    return {
        "brand_id": BRAND_ID,
        "oauth_provider": "discord",
        "oauth_user_id": ID,
    } | changes


async def post(surface: RunningSurfaces, payload: object = None, **headers: str) -> JsonResponse:
    """Send `payload` as JSON; bytes are sent unchanged."""
    body = an_order() if payload is None else payload
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Content-Type": "application/json"}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    sent = {name: value for name, value in sent.items() if value}
    async with surface.client.post(
        surface.url + PATH, data=raw, headers=sent, skip_auto_headers=("Content-Type",)
    ) as reply:
        answer = JsonResponse(reply.status, await reply.json(), reply.headers)
    SHAPES[reply.status].model_validate(answer.body)
    return answer


async def refused(
    surface: RunningSurfaces, payload: object, model: type[BaseModel]
) -> dict[str, Any]:
    """The body of a 400 of exactly this form. No provider was asked and no request counted."""
    answer = await post(surface, payload)
    assert (answer.status, window_of(answer)) == (400, None)
    assert (surface.pregeneration.requests, surface.pregeneration.counted) == ([], 0)
    model.model_validate(answer.body)
    body: dict[str, Any] = answer.body
    return body


# --- answers ------------------------------------------------------------------------------------


async def test_a_new_account_is_answered_with_its_wallet(surface: RunningSurfaces) -> None:
    answer = await post(surface)
    steps = answer.body.pop("next_steps")
    assert (answer.status, answer.body) == (
        200,
        {
            "success": True,
            "wallet_address": "0x0000000000000000000000000000000000000001",
            "privy_user_id": "did:privy:c1",
            "oauth_provider": "discord",
            "oauth_user_id": ID,
            "created_new": True,
            "message": "A wallet was created for this Discord account",
        },
    )
    assert steps
    assert all(isinstance(step, str) and step for step in steps)


async def test_the_same_account_is_answered_with_the_same_wallet(surface: RunningSurfaces) -> None:
    first, second = await post(surface), await post(surface)
    for name in ("wallet_address", "privy_user_id", "oauth_provider", "oauth_user_id"):
        assert first.body[name] == second.body[name]
    assert (first.body["created_new"], second.body["created_new"]) == (True, False)


async def test_another_provider_with_the_same_id_is_another_account(
    surface: RunningSurfaces,
) -> None:
    first = await post(surface)
    other = await post(surface, an_order(oauth_provider="twitter"))
    assert first.body["wallet_address"] != other.body["wallet_address"]


async def test_the_address_is_shown_with_its_checksum(surface: RunningSurfaces) -> None:
    surface.pregeneration.wallets["discord", ID] = AccountWallet("did:privy:cada", WALLET)
    assert (await post(surface)).body["wallet_address"] == CHECKSUMMED_WALLET


@pytest.mark.parametrize("provider", PROVIDERS)
async def test_every_provider_is_taken(surface: RunningSurfaces, provider: str) -> None:
    account = OAuthAccount(provider, example_id(provider))  # type: ignore[arg-type]
    order = an_order(oauth_provider=provider, oauth_user_id=account.user_id)
    assert (await post(surface, order)).status == 200
    assert surface.pregeneration.requests[0].account == account


async def test_what_is_optional_may_be_null_absent_or_empty(surface: RunningSurfaces) -> None:
    for order in (
        an_order(oauth_username=None, metadata=None),
        an_order(oauth_username=""),
        an_order(unknown=5),
    ):
        assert (await post(surface, order)).status == 200
        request = surface.pregeneration.requests[-1]
        assert (request.account.username, request.metadata) == (None, None)


async def test_username_and_metadata_arrive_without_control_characters(
    surface: RunningSurfaces,
) -> None:
    order = an_order(
        oauth_user_id="1759288\u000047299\u007f117063",
        oauth_username="@a\u0085da",
        metadata={"no\u0000te": ["a\nb", {"deep": "\u001fx"}], "number": 1.5, "none": None},
    )
    assert (await post(surface, order)).body["oauth_user_id"] == ID
    (request,) = surface.pregeneration.requests
    assert request.account == OAuthAccount("discord", ID, "@ada")
    assert request.metadata == {"note": ["ab", {"deep": "x"}], "number": 1.5, "none": None}


async def test_only_google_accounts_take_facts_from_metadata(surface: RunningSurfaces) -> None:
    metadata = {"email": "eve@example.com", "name": "Eve"}
    for provider in PROVIDERS:
        order = an_order(
            oauth_provider=provider, oauth_user_id=example_id(provider), metadata=metadata
        )
        assert (await post(surface, order)).status == 200
    facts = {
        request.account.provider: (request.account.email, request.account.name)
        for request in surface.pregeneration.requests
    }
    assert facts.pop("google") == ("eve@example.com", "Eve")
    assert set(facts.values()) == {(None, None)}


@pytest.mark.parametrize(
    ("metadata", "email", "name"),
    [
        ({"email": ["a@b.example"], "name": {"x": 1}}, None, None),
        ({"email": "no address", "name": "   "}, None, None),
        ({"email": "a@b.example" + "x" * 250, "name": "x" * 101}, None, None),
        ({"email": 'Ada <ada@example.com>, "x"', "name": ""}, None, None),
        ({"email": "ada@exam\u0000ple.com", "name": "Ada\u0000"}, "ada@example.com", "Ada"),
    ],
)
async def test_what_cannot_be_an_email_or_a_name_counts_as_not_said(
    surface: RunningSurfaces, metadata: object, email: str | None, name: str | None
) -> None:
    order = an_order(oauth_provider="google", oauth_user_id=example_id("google"), metadata=metadata)
    await post(surface, order)
    (request,) = surface.pregeneration.requests
    assert (request.account.email, request.account.name) == (email, name)


# --- missing fields, types, provider ------------------------------------------------------------


@pytest.mark.parametrize("name", REQUIRED)
@pytest.mark.parametrize("value", [None, "", "\u0000\u001b", ...], ids=repr)
async def test_a_missing_field_is_told_with_all_that_are_required(
    surface: RunningSurfaces, name: str, value: object
) -> None:
    order = an_order(**{name: value})
    if value is ...:
        del order[name]
    assert await refused(surface, order, RequiredFieldsError) == {
        "error": f"Missing required fields: {name}",
        "required": REQUIRED,
    }


async def test_what_is_missing_is_told_before_what_is_wrong(surface: RunningSurfaces) -> None:
    order = {"brand_id": 5, "oauth_provider": "myspace", "metadata": []}
    assert set(await refused(surface, order, RequiredFieldsError)) == {"error", "required"}


@pytest.mark.parametrize(
    ("changes", "details"),
    [
        ({"oauth_user_id": 175928847299117063}, "oauth_user_id: must be a string"),
        ({"oauth_user_id": [ID]}, "oauth_user_id: must be a string"),
        ({"oauth_user_id": {"$ne": ""}}, "oauth_user_id: must be a string"),
        ({"oauth_user_id": False}, "oauth_user_id: must be a string"),
        ({"oauth_user_id": 0}, "oauth_user_id: must be a string"),
        ({"oauth_provider": ["discord"]}, "oauth_provider: must be a string"),
        ({"oauth_username": 5}, "oauth_username: must be a string"),
        ({"oauth_username": ["ada"]}, "oauth_username: must be a string"),
        ({"metadata": "text"}, "metadata: must be an object"),
        ({"metadata": [1]}, "metadata: must be an object"),
        ({"brand_id": 7, "metadata": 1}, "brand_id: must be a string; metadata: must be an object"),
        (
            {"brand_id": BRAND_ID.upper()},
            "brand_id: must be 42 characters, 0x and 40 lower-case hex digits",
        ),
        (
            {"brand_id": "\u0660x" + "ab" * 20},
            "brand_id: must be 42 characters, 0x and 40 lower-case hex digits",
        ),
    ],
    ids=str,
)
async def test_a_wrong_type_is_told_with_its_field(
    surface: RunningSurfaces, changes: dict[str, object], details: str
) -> None:
    body = await refused(surface, an_order(**changes), DetailedError)
    assert body == {"error": "Validation failed", "details": details}


@pytest.mark.parametrize(
    "provider",
    ["myspace", "Discord", "discord ", " discord", "\u0501iscord", "discord\u200b", "0x1"],
)
async def test_an_unknown_provider_is_told_with_those_that_are_valid(
    surface: RunningSurfaces, provider: str
) -> None:
    assert await refused(surface, an_order(oauth_provider=provider), UnknownProviderError) == {
        "error": "Invalid OAuth provider",
        "valid_providers": VALID_PROVIDERS,
    }


# --- the form of ids ----------------------------------------------------------------------------

NO_NUMBERS = [
    *("x", "1759288472991170.3", "-175928847299117063", "+175928847299117063", "1e17"),
    *("0x271070A49B42007", "175928847299117063n", " 175928847299117063", "175928847299117063 "),
    *("175928847299117063\u2028", "175 928847299117063", "175_928_847_299_117_063"),
    "".join(chr(0x0660 + int(digit)) for digit in ID),  # Arabic digits
    "".join(chr(0xFF10 + int(digit)) for digit in ID),  # full-width digits
    "".join(chr(0x1D7CE + int(digit)) for digit in ID),  # mathematical digits
    ID[:-1] + "²",
    ID[:-1] + "O",
    "l" + ID[1:],
    ID + "\u200b",
    "\u202e" + ID,
    "1" * 10_000,
    "'; DROP TABLE pregenerations; --",
    "../../users/1",
    "ada@example.com",
]
NO_LETTERS = [
    *(
        "\u0430da",
        "a da",
        " ada",
        "ada\u200b",
        "ada/../eve",
        "ada?x=1",
        "ada%00",
        "a" * 10_000,
        "ada@x",
    ),
    *("\uff41da", "ada\u202eeve", "\u0455potify", "\u00e9", "ada\u0301"),
]


@pytest.mark.parametrize(
    ("provider", "user_id"),
    [
        *(
            (provider, user_id)
            for provider in ("discord", "twitter", "github", "google", "telegram", "instagram")
            for user_id in NO_NUMBERS
        ),
        *((provider, user_id) for provider in ("spotify", "tiktok") for user_id in NO_LETTERS),
        *(("discord", "1" * length) for length in (16, 21)),
        ("discord", str(2**64)),
        ("twitter", str(2**63)),
        ("telegram", str(2**52)),
    ],
    ids=lambda text: text[:30].encode("ascii", "backslashreplace").decode(),
)
async def test_what_has_not_the_form_of_the_providers_ids_is_no_id(
    surface: RunningSurfaces, provider: str, user_id: str
) -> None:
    order = an_order(oauth_provider=provider, oauth_user_id=user_id)
    body = await refused(surface, order, InvalidAccountIdError)
    title = TITLES[provider]  # type: ignore[index]
    assert (body["error"].lower(), body["example"]) == (
        f"invalid {title.lower()} user id",
        example_id(provider),  # type: ignore[arg-type]
    )
    assert user_id not in body["details"]


async def test_an_example_of_an_id_is_one(surface: RunningSurfaces) -> None:
    body = await refused(surface, an_order(oauth_user_id="1"), InvalidAccountIdError)
    assert (await post(surface, an_order(oauth_user_id=body["example"]))).status == 200


async def test_a_malformed_id_is_told_before_the_brand_is_looked_at(
    surface: RunningSurfaces,
) -> None:
    order = an_order(brand_id="0x" + "00" * 20, oauth_user_id="1")
    await refused(surface, order, InvalidAccountIdError)


# --- brand and limits ---------------------------------------------------------------------------


async def test_an_unknown_brand_is_403_and_counts_nothing(surface: RunningSurfaces) -> None:
    answer = await post(surface, an_order(brand_id="0x" + "00" * 20))
    assert (answer.status, answer.body, window_of(answer)) == (
        403,
        {"error": "Unknown brand"},
        None,
    )
    assert (surface.pregeneration.requests, surface.pregeneration.counted) == ([], 0)


async def test_every_answer_to_a_known_brand_shows_its_window(surface: RunningSurfaces) -> None:
    assert window_of(await post(surface)) == (100, 99)
    surface.pregeneration.refusal = invalid_credentials(OAuthAccount("discord", ID), "no")
    assert window_of(await post(surface)) == (100, 98)
    surface.pregeneration.refusal = DatabaseUnavailable("gone")
    assert window_of(await post(surface)) == (100, 97)


async def test_over_the_minutes_limit_is_429_with_the_time_to_wait(
    surface: RunningSurfaces,
) -> None:
    surface.pregeneration.most = 1
    await post(surface)
    answer = await post(surface)
    assert (answer.status, window_of(answer), answer.headers["Retry-After"]) == (
        429,
        (100, 0),
        "42",
    )
    assert answer.body == {
        "error": "Rate limit exceeded: a brand may pregenerate 100 wallets a minute; "
        "try again in 42 seconds"
    }
    assert len(surface.pregeneration.requests) == 1


async def test_an_address_may_ask_200_times_a_minute_broken_requests_and_foreign_brands_too(
    surface: RunningSurfaces,
) -> None:
    payloads = [b"{", an_order(brand_id="0x" + "00" * 20), an_order(oauth_user_id="1"), b""]
    for number in range(200):
        answer = await post(surface, payloads[number % 4])
        assert (answer.status in {400, 403}, window_of(answer)) == (True, None)
    for body in (an_order(), b"{"):
        answer = await post(surface, body)
        seconds = int(answer.headers["Retry-After"])
        assert 1 <= seconds <= 60
        assert (answer.status, window_of(answer)) == (429, (200, 0))
        assert answer.body == {
            "error": "Rate limit exceeded: an address may ask 200 times a minute; "
            f"try again in {seconds} seconds"
        }
    assert (surface.pregeneration.requests, surface.pregeneration.counted) == ([], 0)


async def test_what_the_brand_has_signed_is_told_apart_from_what_anybody_sends(
    surface: RunningSurfaces,
) -> None:
    raw = json.dumps(an_order()).encode()
    assert (await post(surface, raw)).status == 200
    for key, status in ((SECURITY_KEY, 200), ("ltzsk_" + "0" * 40, 401)):
        at, nonce = str(int(time.time())), "n" * 16
        made = signature(key, at, nonce, "POST", PATH.encode(), raw)
        headers = {
            "X_LTZ_Brand_Id": BRAND_ID,
            "X_LTZ_Timestamp": at,
            "X_LTZ_Nonce": nonce,
            "X_LTZ_Signature": made,
        }
        answer = await post(surface, raw, **headers)
        assert answer.status == status
    assert answer.body == {"error": "The request is not signed by this brand"}
    assert answer.headers["WWW-Authenticate"] == "LTZ-HMAC"
    assert [signed is not None for signed in surface.pregeneration.signed] == [False, True, True]
    assert [request.is_signed for request in surface.pregeneration.requests] == [False, True]


async def test_addresses_of_one_ipv6_network_share_a_limit() -> None:
    policy = HttpPolicy(proxies=Proxies(1, (ip_network("127.0.0.0/8"),)), requires_https=False)
    async with a_surface(policy) as surface:
        for number in range(200):
            await post(surface, b"{", X_Forwarded_For=f"2001:db8:1:2::{number:x}")
        spent = await post(surface, b"{", X_Forwarded_For="2001:db8:1:2:ffff::1")
        assert spent.status == 429
        assert (await post(surface, b"{", X_Forwarded_For="2001:db8:1:3::1")).status == 400


async def test_over_the_days_limit_the_day_is_shown(
    surface: RunningSurfaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def admit(_brand: object, _signed: object) -> RateLimited:
        raise too_many(PER_DAY, 4_200)

    monkeypatch.setattr(surface.pregeneration, "admit", admit)
    answer = await post(surface)
    assert (answer.status, window_of(answer)) == (429, (10_000, 0))
    assert answer.headers["Retry-After"] == "4200"
    assert set(answer.body) == {"error"}
    reset = int(answer.headers["X-RateLimit-Reset"])
    assert reset - time.time() == pytest.approx(4_200, abs=2)


# --- refusals and failures ----------------------------------------------------------------------


async def test_a_refused_account_is_told_with_hint_and_provider(surface: RunningSurfaces) -> None:
    surface.pregeneration.refusal = invalid_credentials(
        OAuthAccount("discord", ID), "Discord knows no account with this id"
    )
    answer = await post(surface)
    InvalidCredentialsError.model_validate(answer.body)
    assert (answer.status, answer.body) == (
        400,
        {
            "error": "Invalid OAuth credentials",
            "hint": "Discord knows no account with this id",
            "provider": "discord",
        },
    )


@pytest.mark.parametrize(
    "failure",
    [
        invalid_credentials(OAuthAccount("discord", ID), "Discord knows no account with this id"),
        IdentityUnavailable(""),
    ],
    ids=lambda failure: type(failure).__name__,
)
async def test_the_document_names_the_window_of_an_admitted_request_that_fails(
    surface: RunningSurfaces, failure: LtzdError
) -> None:
    surface.pregeneration.refusal = failure
    answer = await post(surface)
    (operation,) = OPERATIONS
    documented = {header.name for header in operation.responses[answer.status].headers}
    assert set(WINDOW) <= set(answer.headers)
    assert set(WINDOW) <= documented


@pytest.mark.parametrize(
    ("refusal", "error"),
    [
        (IdentityUnavailable("did:privy:secret"), "Identity provider unavailable"),
        (Unavailable("Discord does not tell"), "Service unavailable"),
        (DatabaseUnavailable("at db.internal"), "Database unavailable"),
        (ValueError("unforeseen secret"), "Internal server error"),
    ],
    ids=["identity", "look-up", "database", "unforeseen"],
)
async def test_what_goes_wrong_here_is_500_without_its_cause(
    surface: RunningSurfaces, refusal: Exception, error: str
) -> None:
    surface.pregeneration.refusal = refusal
    answer = await post(surface)
    assert (answer.status, answer.body) == (
        500,
        {
            "error": error,
            "details": "Repeat the same request: it creates no second wallet",
        },
    )


@pytest.mark.parametrize(
    ("raw", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"", {}, 400),
        (b"[]", {}, 400),
        (b'"text"', {}, 400),
        (b'{"brand_id": NaN}', {}, 400),
        (b'{"metadata": ' + b"[" * 200 + b"]" * 200 + b"}", {}, 400),
        (b'{"oauth_user_id": "\\ud800"}', {}, 400),
        (b"{}", {"Content_Type": "text/plain"}, 400),
        (b"{}", {"Content_Type": ""}, 400),
        (b"{}", {"Content_Encoding": "gzip"}, 400),
        (b" " * (EVENT_HANDLER_LIMIT + 1), {}, 413),
    ],
)
async def test_what_is_no_json_or_too_large_is_refused_in_the_same_envelope(
    surface: RunningSurfaces, raw: bytes, headers: dict[str, str], status: int
) -> None:
    answer = await post(surface, raw, **headers)
    assert (answer.status, set(answer.body)) == (status, {"error"})
    assert surface.pregeneration.counted == 0


async def test_metadata_may_fill_the_body_to_its_limit(surface: RunningSurfaces) -> None:
    empty = len(json.dumps(an_order(metadata={"note": ""})).encode())
    note = "x" * (EVENT_HANDLER_LIMIT - empty)
    assert (await post(surface, an_order(metadata={"note": note}))).status == 200
    assert (await post(surface, an_order(metadata={"note": note + "x"}))).status == 413
    (request,) = surface.pregeneration.requests
    assert request.metadata == {"note": note}


async def test_other_methods_and_deeper_paths_are_told_in_the_same_envelope(
    surface: RunningSurfaces,
) -> None:
    async with surface.client.get(surface.url + PATH) as reply:
        assert (reply.status, await reply.json()) == (405, {"error": "Method not allowed"})
        assert reply.headers["Allow"] == "OPTIONS, POST"
    async with surface.client.post(surface.url + PATH + "/more") as reply:
        assert (reply.status, await reply.json()) == (404, {"error": "Unknown endpoint"})


async def test_the_neighbours_keep_their_envelope(surface: RunningSurfaces) -> None:
    async with surface.client.post(surface.url + PATH + "s") as reply:
        assert (reply.status, await reply.json()) == (
            404,
            {"success": False, "error": "Unknown endpoint"},
        )


async def test_the_general_rules_of_cors_hold(surface: RunningSurfaces) -> None:
    own = await post(surface, Origin="https://www.shop.example")
    assert own.headers["Access-Control-Allow-Origin"] == "https://www.shop.example"
    foreign = await post(surface, Origin="https://evil.example")
    assert "Access-Control-Allow-Origin" not in foreign.headers
    async with surface.client.options(
        surface.url + PATH, headers={"Origin": "https://shop.example"}
    ) as reply:
        assert reply.status == 204
        assert reply.headers["Access-Control-Allow-Origin"] == "https://shop.example"


# --- the document -------------------------------------------------------------------------------


def test_each_answer_has_examples_that_fit_its_model() -> None:
    (operation,) = OPERATIONS
    assert_examples_fit(operation)
    for body in operation.request_examples.values():
        PregenerateUserBody.from_json(body).to_request(is_signed=False)


def test_every_form_of_a_400_has_an_example() -> None:
    (operation,) = OPERATIONS
    bodies = operation.responses[400].examples.values()
    assert {frozenset(body) for body in bodies} == {
        frozenset(fields)
        for fields in (
            {"error"},
            {"error", "details"},
            {"error", "required"},
            {"error", "valid_providers"},
            {"error", "details", "example"},
            {"error", "hint", "provider"},
        )
    }


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: str(mode.value))
async def test_calls_made_from_the_document_are_answered_as_documented(
    surface: RunningSurfaces, mode: GenerationMode
) -> None:
    surface.pregeneration.most = 10_000
    async with surface.client.get(surface.url + "/docs/openapi.json") as reply:
        described = await reply.json()
    described["paths"] = {PATH: described["paths"][PATH]}
    with requests.Session() as http:
        run = Run(schemathesis.openapi.from_dict(described), surface.url, http)
        await asyncio.to_thread(random_cases(mode, 20, CHECKS), run)
    assert {label for label, _ in run.seen} == {f"POST {PATH}"}
