"""The event handler over HTTP: field rules, hostile bodies, error bodies and responses."""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from hypothesis import given
from hypothesis import strategies as st

from ltzd import errors
from ltzd.errors import LtzdError
from ltzd.http.errors import http_error_of
from ltzd.http.event_handler import models
from ltzd.http.requests.fields import PLAIN_EMAIL, is_email
from ltzd.http.services import Health
from ltzd.values import address_of
from tests.support.surfaces.http_surface import (
    BRAND_ID,
    CHECKSUMMED_WALLET,
    MINT,
    RunningSurfaces,
    a_surface,
    an_event,
    without,
)

EVENT_PATH = "/service-api/manual-event"


@pytest_asyncio.fixture
async def surface() -> AsyncIterator[RunningSurfaces]:
    async with a_surface() as surface:
        yield surface


async def post(
    surface: RunningSurfaces, body: object, path: str = EVENT_PATH, **headers: str
) -> tuple[int, Any, Any]:
    """Send `body` as JSON; bytes are sent unchanged."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    sent = {"Content-Type": "application/json"} | headers
    async with surface.client.post(surface.url + path, data=raw, headers=sent) as answer:
        return answer.status, await answer.json(), answer.headers


async def get(surface: RunningSurfaces, path: str) -> tuple[int, Any, Any]:
    async with surface.client.get(surface.url + path) as answer:
        return answer.status, await answer.json(), answer.headers


async def faults(surface: RunningSurfaces, body: object) -> list[str]:
    status, answer, _ = await post(surface, body)
    assert (status, answer["success"], answer["error"]) == (400, False, "Validation failed")
    assert surface.events.requests == []
    listed: list[str] = answer["details"]["errors"]
    return listed


# --- success ------------------------------------------------------------------------------------


async def test_a_published_event_is_answered_with_every_field_of_the_specification(
    surface: RunningSurfaces,
) -> None:
    status, answer, headers = await post(surface, an_event())

    event_id = str(next(iter(surface.events.events.values())))
    assert status == 200
    assert headers["Content-Type"] == "application/json"
    assert answer == {
        "success": True,
        "eventId": event_id,
        "message": "Event recorded; 100 LTZ distributed",
        "rewardAmount": 100,
        "eventType": "account_creation",
        "walletCreated": True,
        "walletAddress": CHECKSUMMED_WALLET,
        "transactionHash": "0x" + MINT.hex(),
        "status": "published",
        "reward": {
            "amount": 100,
            "eventType": "account_creation",
            "walletAddress": CHECKSUMMED_WALLET,
            "transactionHash": "0x" + MINT.hex(),
        },
    }
    models.ManualEventResponse.model_validate(answer)


async def test_an_event_without_a_hash_in_time_is_202_with_the_fields_of_a_200(
    surface: RunningSurfaces,
) -> None:
    surface.events.hash = None
    status, answer, _ = await post(surface, an_event())

    assert status == 202
    assert answer["success"] is True
    assert answer["transactionHash"] is None
    assert answer["status"] == "queued"
    models.ManualEventResponse.model_validate(answer)


async def test_a_reward_of_zero_is_final_at_once(surface: RunningSurfaces) -> None:
    surface.events.ltz = 0
    status, answer, _ = await post(surface, an_event())

    assert status == 200
    assert (answer["status"], answer["rewardAmount"], answer["transactionHash"]) == (
        "final",
        0,
        None,
    )


async def test_every_field_reaches_the_action_and_unknown_ones_do_not(
    surface: RunningSurfaces,
) -> None:
    status, _, _ = await post(
        surface,
        an_event(
            domain="Shop.Example",
            sourceUrl="https://shop.example/welcome?a=1",
            userIdentifier="0x" + "Cd" * 20,
            metadata={"channel_id": "general", "skip_cooldown": True, "amount": 12.5, "deep": [{}]},
            surprise=1,
        ),
        Origin="https://www.shop.example",
    )

    assert status == 200
    (request,) = surface.events.requests
    assert request.brand_id == address_of(BRAND_ID)
    assert request.event_type == "account_creation"
    assert request.email == "ada@example.com"
    assert request.domain == "shop.example"
    assert request.source_url == "https://shop.example/welcome?a=1"
    assert request.user_identifier == "0x" + "Cd" * 20
    assert request.metadata["amount"] == 12.5
    assert request.metadata["skip_cooldown"] is True
    assert request.origin == "https://www.shop.example"


async def test_null_in_an_optional_field_is_absence(surface: RunningSurfaces) -> None:
    body = an_event(domain=None, sourceUrl=None, userIdentifier=None, metadata={"channel_id": None})
    status, _, _ = await post(surface, body)
    assert status == 200
    status, _, _ = await post(surface, an_event(metadata=None, eventType="form_submit"))
    assert status == 200
    assert surface.events.requests[0].domain is None
    assert surface.events.requests[1].metadata == {}


async def test_control_characters_are_removed_before_validation(surface: RunningSurfaces) -> None:
    body = an_event(
        brandId="0x" + "ab" * 10 + "\x00\x1f" + "ab" * 10,
        userEmail="ada\x7f@example\x85.com",
        metadata={"no\x00te": ["a\tb", {"c": "d\x9f"}], "plain": "é ünd 日本"},
    )
    for raw in (json.dumps(body), json.dumps(body, ensure_ascii=False)):
        status, answer, _ = await post(surface, raw.encode())
        assert status in {200, 409}, answer

    for request in surface.events.requests:
        assert request.email == "ada@example.com"
        assert request.metadata == {"note": ["ab", {"c": "d"}], "plain": "é ünd 日本"}


async def test_the_last_of_two_equal_keys_counts(surface: RunningSurfaces) -> None:
    raw = json.dumps(an_event()).replace("{", '{"eventType": "form_submit",', 1)
    status, answer, _ = await post(surface, raw.encode())
    assert (status, answer["eventType"]) == (200, "account_creation")


# --- field rules --------------------------------------------------------------------------------


async def test_all_faults_are_listed_at_once_by_dotted_name(surface: RunningSurfaces) -> None:
    assert await faults(
        surface,
        {
            "brandId": "0xAB",
            "userEmail": 7,
            "domain": "https://shop.example",
            "sourceUrl": "ftp://shop.example",
            "userIdentifier": "somebody",
            "metadata": {"channel_id": 4, "skip_cooldown": "yes"},
        },
    ) == [
        "brandId: must be 42 characters, 0x and 40 lower-case hex digits",
        "eventType: is required",
        "userEmail: must be a string",
        "domain: must be a name without a scheme",
        "sourceUrl: must be an http or https URL",
        "userIdentifier: must be an e-mail address or an Ethereum address",
        "metadata.channel_id: must be a string",
        "metadata.skip_cooldown: must be true or false",
    ]


@pytest.mark.parametrize("name", ["brandId", "eventType", "userEmail"])
async def test_a_required_field_may_be_neither_missing_nor_null(
    surface: RunningSurfaces, name: str
) -> None:
    assert await faults(surface, without(name)) == [f"{name}: is required"]
    assert await faults(surface, an_event(**{name: None})) == [f"{name}: must be a string"]


@pytest.mark.parametrize("value", [1, 1.5, True, [], {}])
@pytest.mark.parametrize(
    "name", ["brandId", "eventType", "userEmail", "domain", "sourceUrl", "userIdentifier"]
)
async def test_a_field_of_another_type_is_never_converted(
    surface: RunningSurfaces, name: str, value: object
) -> None:
    assert await faults(surface, an_event(**{name: value})) == [f"{name}: must be a string"]


@pytest.mark.parametrize("value", ["text", 1, True, []])
async def test_metadata_is_an_object(surface: RunningSurfaces, value: object) -> None:
    assert await faults(surface, an_event(metadata=value)) == ["metadata: must be an object"]


@pytest.mark.parametrize("value", [0, 1, "true", [], {}])
async def test_skip_cooldown_is_a_boolean(surface: RunningSurfaces, value: object) -> None:
    listed = await faults(surface, an_event(metadata={"skip_cooldown": value}))
    assert listed == ["metadata.skip_cooldown: must be true or false"]


@pytest.mark.parametrize(
    "value",
    [
        "",
        "0x",
        "ab" * 20,
        "0x" + "AB" * 20,
        "0x" + "ab" * 19,
        "0x" + "ab" * 20 + "\u0661",
        "0X" + "ab" * 20,
    ],
)
async def test_a_malformed_brand_id_is_refused(surface: RunningSurfaces, value: str) -> None:
    (fault,) = await faults(surface, an_event(brandId=value))
    assert fault == "brandId: must be 42 characters, 0x and 40 lower-case hex digits"


@pytest.mark.parametrize("value", ["", "a-b", "a b", "é", "a" * 51, "٣"])
async def test_a_malformed_event_type_is_refused(surface: RunningSurfaces, value: str) -> None:
    (fault,) = await faults(surface, an_event(eventType=value))
    assert fault == "eventType: must be 1 to 50 characters: letters, digits and underscores"


async def test_an_event_type_may_have_fifty_characters(surface: RunningSurfaces) -> None:
    status, _, _ = await post(surface, an_event(eventType="custom_" + "A9_" * 14 + "x"))
    assert status == 200


@pytest.mark.parametrize(
    "value",
    [
        "ada@example.com",
        "ADA+tag@Example.COM",
        '"ada lovelace"@example.com',
        "ada@localhost",
        "ada@host.test",
        "ada@shop.local",
        "ada@[192.0.2.1]",
        "o'brien!#$%&*/=?^`{|}~@example.com",
        "jürgen@münchen.example",
        "a" * 242 + "@example.com",  # RFC 5322 has no limit for the local part; 5321 has
        "a" * 64 + "@" + ".".join(["b" * 61] * 3) + ".cd",
    ],
)
async def test_an_address_of_rfc_5322_is_kept_as_given(
    surface: RunningSurfaces, value: str
) -> None:
    status, answer, _ = await post(surface, an_event(userEmail=value))
    assert status == 200, answer
    assert surface.events.requests[0].email == value


@pytest.mark.parametrize(
    "value",
    [
        "",
        "ada",
        "@example.com",
        "ada@",
        "ada@@example.com",
        "Ada <ada@example.com>",
        "ada lovelace@example.com",
        " ada@example.com",
        "ada@example.com ",
        ".ada@example.com",
        "a..b@example.com",
        "ada@-example.com",
        "ada@exa_mple.com",
    ],
)
async def test_what_is_no_address_is_refused(surface: RunningSurfaces, value: str) -> None:
    assert await faults(surface, an_event(userEmail=value)) == [
        "userEmail: must be an e-mail address"
    ]


async def test_an_address_of_255_characters_is_refused(surface: RunningSurfaces) -> None:
    value = "a" * 64 + "@" + ".".join(["b" * 61] * 3) + ".cde" + "f"
    assert len(value) == 255
    listed = await faults(surface, an_event(userEmail=value))
    assert listed == ["userEmail: must be at most 254 characters"]


PIECES = st.text("aZ9_+-.", min_size=1, max_size=12)
NEARLY_EMAILS = st.builds("{}@{}.{}".format, PIECES, PIECES, st.sampled_from(["com", "xn--p1ai"]))


@given(NEARLY_EMAILS)
def test_the_short_cut_accepts_no_address_that_the_library_refuses(text: str) -> None:
    assert is_email(text) or not PLAIN_EMAIL.fullmatch(text)


@pytest.mark.parametrize(
    "value",
    [
        "",
        "shop.example:443",
        "shop.example/x",
        "*.shop.example",
        "192.0.2.1",
        "[::1]",
        "a..b",
        "-a.example",
        "a" * 64 + ".example",
        ".".join(["a" * 60] * 5),
    ],
)
async def test_a_domain_is_a_plain_name(surface: RunningSurfaces, value: str) -> None:
    (fault,) = await faults(surface, an_event(domain=value))
    assert fault.startswith("domain: must ")


async def test_an_international_domain_reaches_the_action_in_ascii(
    surface: RunningSurfaces,
) -> None:
    status, _, _ = await post(surface, an_event(domain="MÜNCHEN.example"))
    assert status == 200
    assert surface.events.requests[0].domain == "xn--mnchen-3ya.example"


@pytest.mark.parametrize(
    "value",
    [
        "",
        "shop.example",
        "/welcome",
        "javascript:alert(1)",
        "https://",
        "https://a b.example",
        "http://[::1",
        "https://shop.example:99999",
        "https://shop.example\\@evil.example",
        "https://x/" + "a" * 2048,
    ],
)
async def test_a_source_url_is_http_or_https_with_a_host(
    surface: RunningSurfaces, value: str
) -> None:
    (fault,) = await faults(surface, an_event(sourceUrl=value))
    assert fault.startswith("sourceUrl: must ")


@pytest.mark.parametrize(
    "value",
    [
        "http://localhost:3000/a#b",
        "https://shop.example",
        "https://[::1]/",
        "HTTPS://Shop.Example/?q",
    ],
)
async def test_a_source_url_may_have_any_host(surface: RunningSurfaces, value: str) -> None:
    status, answer, _ = await post(surface, an_event(sourceUrl=value))
    assert status == 200, answer


@pytest.mark.parametrize("value", ["ada@example.com", "0x" + "aB" * 20])
async def test_a_user_identifier_is_an_email_or_an_address(
    surface: RunningSurfaces, value: str
) -> None:
    status, _, _ = await post(surface, an_event(userIdentifier=value))
    assert status == 200


async def test_a_fault_never_repeats_what_was_sent(surface: RunningSurfaces) -> None:
    status, answer, _ = await post(
        surface, an_event(userEmail="sec ret@", userIdentifier="sec ret")
    )
    assert status == 400
    assert "sec ret" not in json.dumps(answer)


# --- bodies -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"{",
        b"{}x",
        b"null",
        b"[]",
        b'"text"',
        b"5",
        b"{'brandId': 1}",
        b'{"a": NaN}',
        b'{"a": Infinity}',
        b'{"a": -Infinity}',
        b'{"a": 1e999}',
        b'{"a": 01}',
        b'{"a": ' + b"9" * 5000 + b"}",
        b'{"a": "\xff"}',
        b'{"a": "\xed\xa0\x80"}',
        b'{"a": "\\ud800"}',
        b'{"a": "\\ud800x"}',
        b'{"a": "\x01"}',
        b'\xef\xbb\xbf{"a": 1}',
        b'{"a": 1,}',
        b"[" * 10_000,
        b'{"a":' * 1_500 + b"1" + b"}" * 1_500,
    ],
)
async def test_a_body_that_is_no_json_object_is_400(surface: RunningSurfaces, raw: bytes) -> None:
    status, answer, _ = await post(surface, raw)
    assert status == 400
    assert answer["success"] is False
    assert answer["error"].startswith("Request body ")
    assert surface.events.requests == []


@pytest.mark.parametrize(("levels", "expected"), [(30, 200), (31, 400), (100, 400)])
async def test_nesting_has_a_limit(surface: RunningSurfaces, levels: int, expected: int) -> None:
    nested: object = 1
    for _ in range(levels):
        nested = [nested]
    status, _, _ = await post(surface, an_event(metadata={"n": nested, "many": [{}] * 40}))
    assert status == expected


async def test_large_numbers_in_metadata_arrive_whole(surface: RunningSurfaces) -> None:
    status, _, _ = await post(surface, an_event(metadata={"n": 2**80}))
    assert status == 200
    assert surface.events.requests[0].metadata == {"n": 2**80}


@pytest.mark.parametrize(
    "content_type",
    ["application/json; charset=utf-8", "Application/JSON", 'application/json;charset="UTF-8"'],
)
async def test_json_content_types_are_accepted(surface: RunningSurfaces, content_type: str) -> None:
    status, answer, _ = await post(surface, an_event(), **{"Content-Type": content_type})
    assert status == 200, answer


@pytest.mark.parametrize(
    "content_type",
    [
        "text/plain",
        "application/x-www-form-urlencoded",
        "application/json; charset=latin-1",
        "application/jsonx",
        "",
    ],
)
async def test_another_content_type_is_400(surface: RunningSurfaces, content_type: str) -> None:
    status, answer, _ = await post(surface, an_event(), **{"Content-Type": content_type})
    assert (status, answer["error"]) == (400, "Content-Type must be application/json")


async def test_a_compressed_body_is_400(surface: RunningSurfaces) -> None:
    raw = gzip.compress(json.dumps(an_event()).encode())
    status, answer, _ = await post(surface, raw, **{"Content-Encoding": "gzip"})
    assert (status, answer["error"]) == (400, "Compressed request bodies are not accepted")


def padded(size: int) -> bytes:
    raw = json.dumps(an_event()).encode()
    return raw + b" " * (size - len(raw))


async def chunked(raw: bytes) -> AsyncIterator[bytes]:
    for at in range(0, len(raw), 1000):
        yield raw[at : at + 1000]


@pytest.mark.parametrize("in_chunks", [False, True])
@pytest.mark.parametrize(("size", "expected"), [(10_240, 200), (10_241, 413), (900_000, 413)])
async def test_the_limit_is_10240_bytes(
    surface: RunningSurfaces, size: int, expected: int, in_chunks: bool
) -> None:
    raw = padded(size)
    async with surface.client.post(
        surface.url + EVENT_PATH,
        data=chunked(raw) if in_chunks else raw,
        headers={"Content-Type": "application/json"},
    ) as answer:
        body = await answer.json()
    assert answer.status == expected
    if expected == 413:
        assert body == {
            "success": False,
            "error": "Request body is larger than 10240 bytes",
            "details": {"maxBytes": 10_240},
        }


@pytest.mark.parametrize("in_chunks", [False, True])
@pytest.mark.parametrize(("size", "expected"), [(10_240, 200), (10_241, 413), (900_000, 413)])
@pytest.mark.parametrize("path", ["health", "diagnostic", "debug"])
async def test_the_limit_holds_for_a_get_too(
    surface: RunningSurfaces, path: str, size: int, expected: int, in_chunks: bool
) -> None:
    raw = b"a" * size
    async with surface.client.get(
        f"{surface.url}/service-api/{path}", data=chunked(raw) if in_chunks else raw
    ) as answer:
        body = await answer.json()
    assert answer.status == expected
    if expected == 413:
        assert body["error"] == "Request body is larger than 10240 bytes"


async def test_a_body_too_large_comes_before_a_wrong_content_type(surface: RunningSurfaces) -> None:
    status, _, _ = await post(surface, b"x" * 20_000, **{"Content-Type": "text/plain"})
    assert status == 413


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("refusal", "status", "body"),
    [
        (errors.BrandUnknown("Unknown brand"), 403, {"error": "Unknown brand"}),
        (errors.AutomationDisabled("Off"), 403, {"error": "Off"}),
        (
            errors.DomainUnauthorized("Domain a.example is not b.example", domain="a.example"),
            403,
            {"error": "Domain a.example is not b.example", "details": {"domain": "a.example"}},
        ),
        (
            errors.ChannelNotAllowed("Channel not allowed", allowedChannels=["general"]),
            403,
            {"error": "Channel not allowed", "details": {"allowedChannels": ["general"]}},
        ),
        (errors.EventNotConfigured("eventType: x"), 400, {"error": "eventType: x"}),
        (
            errors.MaxClaimsReached(
                "Max claims reached", reason="max_claims_reached", totalClaims=1
            ),
            429,
            {
                "error": "Max claims reached",
                "details": {"reason": "max_claims_reached", "totalClaims": 1},
            },
        ),
        (
            errors.IdentityUnavailable("http://10.0.0.1"),
            500,
            {"error": "Identity provider unavailable"},
        ),
        (errors.DatabaseUnavailable("postgres://x:y@z"), 503, {"error": "Database unavailable"}),
        (errors.NodeUnavailable("http://10.0.0.1"), 503, {"error": "Blockchain node unavailable"}),
        (errors.IllegalTransition("0x12"), 500, {"error": "Internal server error"}),
        (ValueError("row with ada@example.com"), 500, {"error": "Internal server error"}),
    ],
)
async def test_each_refusal_has_its_status_and_leaks_nothing(
    surface: RunningSurfaces, refusal: Exception, status: int, body: dict[str, object]
) -> None:
    surface.events.refusal = refusal
    answered, answer, headers = await post(surface, an_event())
    assert (answered, answer) == (status, {"success": False} | body)
    assert headers.get("Retry-After") == ("5" if isinstance(refusal, errors.Unavailable) else None)
    assert headers["X-Request-Id"]


async def test_a_cooldown_says_when_to_come_back(surface: RunningSurfaces) -> None:
    surface.events.refusal = errors.CooldownActive("Cooldown active", cooldownSeconds=3599)
    status, answer, headers = await post(surface, an_event())
    assert (status, answer["details"]) == (429, {"cooldownSeconds": 3599})
    assert headers["Retry-After"] == "3599"


async def test_of_fifty_identical_requests_one_is_recorded(surface: RunningSurfaces) -> None:
    answers = await asyncio.gather(*(post(surface, an_event()) for _ in range(50)))
    statuses = sorted(status for status, _, _ in answers)
    assert statuses == [200] + [409] * 49
    event_id = next(body["eventId"] for status, body, _ in answers if status == 200)
    for status, body, _ in answers:
        if status == 409:
            assert body["details"] == {"existingEventId": event_id}


async def test_every_class_of_the_error_tree_has_an_answer() -> None:
    tree = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    for kind in tree:
        if issubclass(kind, LtzdError) and kind is not errors.InvalidFields:
            argument: Any = [] if kind is errors.FileRejected else "text"
            error = http_error_of(kind(argument))
            assert 400 <= error.status <= 503
            assert error.message


# --- reads --------------------------------------------------------------------------------------


async def test_an_event_can_be_asked_for_later(surface: RunningSurfaces) -> None:
    _, recorded, _ = await post(surface, an_event())
    status, answer, headers = await get(surface, f"/service-api/events/{recorded['eventId']}")
    assert status == 200
    assert headers["Cache-Control"] == "no-store", "a cache would repeat a former state"
    assert answer == {
        "success": True,
        "eventId": recorded["eventId"],
        "eventType": "account_creation",
        "status": "minted",
        "rewardAmount": 100,
        "walletAddress": CHECKSUMMED_WALLET,
        "transactionHash": "0x" + MINT.hex(),
        "blockNumber": 7,
        "createdAt": "2026-11-20T12:00:00.005Z",
    }


async def test_an_unknown_event_is_404_and_what_is_no_uuid_400(surface: RunningSurfaces) -> None:
    status, answer, _ = await get(surface, f"/service-api/events/{uuid4()}")
    assert (status, answer) == (404, {"success": False, "error": "Event not found"})
    for text in ("7", "x" * 36, uuid4().hex, "{" + str(uuid4()) + "}", "%00", "..%2f"):
        status, answer, _ = await get(surface, f"/service-api/events/{text}")
        assert status == 400, text
        assert answer["details"] == {"errors": ["eventId: must be a UUID"]}


async def test_the_configuration_lists_the_brands_events_and_may_be_cached(
    surface: RunningSurfaces,
) -> None:
    status, answer, headers = await get(surface, f"/service-api/event-config?brandId={BRAND_ID}")
    assert status == 200
    assert headers["Cache-Control"] == "public, max-age=300"
    assert (answer["success"], answer["brandId"], answer["count"]) == (True, BRAND_ID, 6)
    assert answer["events"][0] == {
        "eventId": "account_creation",
        "eventType": "account_creation",
        "rewardAmount": 100,
        "maxClaims": 1,
        "cooldownHours": 24,
        "detectionMethod": "api",
        "detectionConfig": {"urlPatterns": [], "successSelectors": [], "channels": []},
        "isCustom": False,
    }


@pytest.mark.parametrize(
    ("query", "status", "errors_listed"),
    [
        ("", 400, ["brandId: is required"]),
        ("?brandId=", 400, ["brandId: is required"]),
        ("?brandId=0xAB", 400, ["brandId: must be 42 characters, 0x and 40 lower-case hex digits"]),
        ("?brandId=0x" + "00" * 20, 404, None),
        ("?brandId=0x" + "00" * 20 + "&a=1" * 99, 404, None),
        (f"?brandId={BRAND_ID}" + "&a=1" * 100, 400, ["query: must have at most 100 parameters"]),
    ],
    ids=lambda value: str(value)[:60],
)
async def test_a_refused_configuration_is_not_cached(
    surface: RunningSurfaces, query: str, status: int, errors_listed: list[str] | None
) -> None:
    answered, answer, headers = await get(surface, f"/service-api/event-config{query}")
    assert answered == status
    assert headers["Cache-Control"] == "no-store"
    assert answer["success"] is False
    if errors_listed is not None:
        assert answer["details"] == {"errors": errors_listed}


async def test_custom_events_and_fractions_are_shown_as_configured(
    surface: RunningSurfaces,
) -> None:
    brand = surface.events.brand
    surface.events.brand = type(brand).model_validate(
        {
            "id": BRAND_ID,
            "name": "Demo",
            "domains": ("shop.example",),
            "events": [
                {"type": "custom_a", "reward": 5, "cooldown_hours": 0.5, "channels": ["general"]},
                {"type": "purchase", "reward_per_dollar": 2.5, "max_claims_per_user": -1},
            ],
        }
    )
    _, answer, _ = await get(surface, f"/service-api/event-config?brandId={BRAND_ID}")
    custom, purchase = answer["events"][-2:]
    assert (custom["isCustom"], custom["cooldownHours"]) == (True, 0.5)
    assert custom["detectionConfig"]["channels"] == ["general"]
    assert (purchase["rewardAmount"], purchase["maxClaims"]) == (2.5, -1)


@pytest.mark.parametrize(
    ("health", "code", "word"),
    [
        (Health(True, True, True), 200, "healthy"),
        (Health(True, False, True), 200, "degraded"),
        (Health(True, True, False), 200, "degraded"),
        (Health(True, True, True, index_is_old=True), 200, "degraded"),
        (Health(False, True, True), 503, "unavailable"),
    ],
)
async def test_health_is_503_only_without_a_database(
    surface: RunningSurfaces, health: Health, code: int, word: str
) -> None:
    surface.health = health
    states = {
        "database": "connected" if health.database else "unavailable",
        "blockchain": "connected" if health.blockchain else "unavailable",
        "identity-provider": "connected" if health.identity_provider else "unavailable",
    }
    if health.index_is_old:
        states["blockchain"] = "degraded"
    status, answer, headers = await get(surface, "/service-api/health")
    assert (status, answer["status"], answer["services"]) == (code, word, states)
    assert answer["timestamp"].endswith("Z")
    assert headers.get("Retry-After") == (None if health.database else "5")
    status, answer, headers = await get(surface, "/service-api/diagnostic")
    assert (status, answer) == (code, states | {"status": word, "timestamp": answer["timestamp"]})
    assert headers.get("Retry-After") == (None if health.database else "5")


async def test_a_host_of_strange_bytes_is_malformed(surface: RunningSurfaces) -> None:
    port = int(surface.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /service-api/debug HTTP/1.1\r\nHost: a\xffb\r\nConnection: close\r\n\r\n")
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    writer.close()
    await writer.wait_closed()

    assert head.startswith(b"HTTP/1.1 400 ")
    assert json.loads(body) == {
        "success": False,
        "error": "Malformed request: Host must be a name or an address, with or without a port",
    }


async def test_debug_shows_the_request_and_not_the_machine(surface: RunningSurfaces) -> None:
    async with surface.client.get(
        surface.url + "/service-api/debug?secret=1", headers={"Host": "shop.example"}
    ) as response:
        answer = await response.json()
    assert answer["hostname"] == "shop.example"
    assert answer["path"] == "/service-api/debug"
    assert answer["method"] == "GET"
    assert answer["worker_version"] == "v2.0.0"
    assert set(answer) == {"debug", "hostname", "path", "method", "timestamp", "worker_version"}
