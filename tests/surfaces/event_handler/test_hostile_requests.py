"""Hostile requests to the event handler: bodies, framing, paths and fields, up to the stored rows.

No response here is 5xx, and every response has the surface's error body.
"""

import asyncio
import gzip
import json
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import pytest

from tests.support.surfaces.event_surface import (
    PREFIX,
    EventHandlerResponse,
    EventSurface,
    LiveBrand,
    new_email,
    unlimited_rule,
)

EVENT = f"{PREFIX}/manual-event"


def port_of(surface: EventSurface) -> int:
    return int(surface.url.rpartition(":")[2])


async def say(surface: EventSurface, *pieces: bytes) -> list[tuple[int, Any]]:
    """Send bytes to the server's port. Returns the responses until it closes or is silent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(surface))
    received = b""
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        async with asyncio.timeout(5):
            received = await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()
    return list(answers_in(received))


def answers_in(received: bytes) -> Any:
    while received:
        head, _, received = received.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(b": ") for line in lines[1:])
        }
        length = int(headers.get(b"content-length", b"0"))
        raw, received = received[:length], received[length:]
        yield int(lines[0].split(b" ")[1]), json.loads(raw) if raw else None


def head(*lines: str, method: str = "POST", path: str = EVENT, last: bool = True) -> bytes:
    own = [f"{method} {path} HTTP/1.1", "Host: x", "Content-Type: application/json"]
    own += ["Connection: close"] if last else []
    return "\r\n".join([*own, *lines, "", ""]).encode()


def event(brand: LiveBrand, **changes: Any) -> bytes:
    return json.dumps(brand.body(**changes)).encode()


async def assert_unreadable(brand: LiveBrand, raw: bytes, **headers: str) -> EventHandlerResponse:
    answer = await brand.surface.post(raw, **headers)
    assert answer.status == 400, (raw[:80], answer.body)
    assert set(answer.body) <= {"success", "error", "details"}
    assert await brand.events() == 0
    return answer


# --- JSON --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" \r\n\t ",
        b"\x00",
        b"null",
        b"true",
        b"0",
        b'"{}"',
        b"[]",
        b"[{}]",
        b"{}{}",
        b"{} x",
        b"{,}",
        b'{"a":1,}',
        b'{"a" 1}',
        b"{a: 1}",
        b'{"a": undefined}',
        b'{"a": 0x10}',
        b'{"a": +1}',
        b'{"a": .5}',
        b'{"a": 1.}',
        b'{"a": 1e}',
        b'{"a": -}',
        b'{"a": "\t"}',
        b'{"a": "\\x41"}',
        b'{"a": "\\u12"}',
        b'{"a": "\\udc00"}',
        b'{"a": "\\ud800\\ud800"}',
        b'{"\\ud800": 1}',
        b'{"a": "\xc0\x80"}',
        b'{"a": "\xf4\x90\x80\x80"}',
        b'{"a": "\xe2\x82"}',
        b'{"a": NaN}',
        b'{"a": -Infinity}',
        b'{"a": 1e400}',
        b'{"a": -1e400}',
        b'/* c */ {"a": 1}',
        b'\xef\xbb\xbf{"a": 1}',
        '{"a": 1}'.encode("utf-16"),
        '{"a": 1}'.encode("utf-16-le"),
        '{"a": 1}'.encode("utf-32"),
        b'{"a":' * 2_000,
        b"[" * 10_240,
        b'{"a":' * 33 + b"1" + b"}" * 33,
        b'{"a":' + b"[" * 32 + b"]" * 32 + b"}",
        b'{"a": ' + b"9" * 10_000 + b"}",
    ],
)
async def test_what_is_no_json_object_of_sane_depth_is_400(
    event_surface: EventSurface, raw: bytes
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    await assert_unreadable(brand, raw)


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (b'{"a": {"b": 1e400}}', "number out of range"),
        (b'{"a": [' + b"9" * 5_000 + b"]}", "integer value out of range"),
    ],
    ids=["float", "integer"],
)
async def test_a_number_out_of_range_is_named_in_words(
    event_surface: EventSurface, raw: bytes, reason: str
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    response = await assert_unreadable(brand, raw)
    assert response.body["error"] == f"Request body is not valid JSON: {reason}"


async def test_good_fields_do_not_save_a_body_with_rubbish_in_it(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    good = event(brand)
    for raw in (
        b"\xef\xbb\xbf" + good,
        good + b"x",
        good + good,
        good[:-1],
        good[:-1] + b', "metadata": {"amount": NaN}}',
        good[:-1] + b', "surprise": "\\ud800"}',
        good.decode().encode("utf-16"),
        b"[" + good + b"]",
        gzip.compress(good),
    ):
        await assert_unreadable(brand, raw)


@pytest.mark.parametrize(("levels", "status"), [(32, 200), (33, 400)])
async def test_a_good_event_may_be_nested_32_levels_deep(
    event_surface: EventSurface, levels: int, status: int
) -> None:
    """The event and its metadata are the first two levels."""
    brand = await event_surface.brand(unlimited_rule())
    deep = b"[" * (levels - 2) + b"]" * (levels - 2)
    raw = event(brand)[:-1] + b', "metadata": {"v": ' + deep + b"}}"
    assert (await event_surface.post(raw)).status == status


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        ("1", 1),
        ("-0", 0),
        ("1E2", 100.0),
        ("18446744073709551616", 2**64),
        ("-9223372036854775809", -(2**63) - 1),
        ("1" + "0" * 300, 10**300),
        ("1.7976931348623157e308", None),
        ("5e-324", 5e-324),
        ("1e-400", 0.0),
        ('"\\ud83d\\ude00 \\u2028"', "\U0001f600 \u2028"),
        ('"a\\u0000b\\u001f\\u007f\\u0085c\\n"', "abc"),
        ('{"": {"": [[], {}, null]}}', {"": {"": [[], {}, None]}}),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('{"a": 1, "\\u0000a": 2}', {"a": 2}),
        ('{"__proto__": {"x": 1}, "constructor": 1}', {"__proto__": {"x": 1}, "constructor": 1}),
        ("[" * 30 + "]" * 30, None),
    ],
)
async def test_strange_but_valid_values_are_kept_with_the_event(
    event_surface: EventSurface, value: str, kept: object
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    raw = event(brand)[:-1] + b', "metadata": {"v": ' + value.encode() + b"}}"
    answer = await event_surface.post(raw)
    assert answer.status == 200, answer.body
    if kept is not None:
        stored = await event_surface.value(
            "SELECT metadata FROM events WHERE id = $1", UUID(answer.event_id)
        )
        assert stored == {"v": kept}


async def test_the_last_of_two_equal_keys_counts(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule(), unlimited_rule("custom_b"))
    raw = b'{"eventType": "custom_b", "domain": 5, ' + event(brand)[1:]
    answer = await event_surface.post(raw)
    assert (answer.status, answer.body["eventType"]) == (200, "form_submit")


async def test_the_longest_integer_that_is_read_is_kept_too(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule())
    for digits in (4_000, 4_300, 4_301, 9_000):
        raw = event(brand)[:-1] + b', "metadata": {"v": ' + b"9" * digits + b"}}"
        assert (await event_surface.post(raw)).status in {200, 400}


# --- content types, size, framing --------------------------------------------------------------


@pytest.mark.parametrize(
    "content_type",
    [
        "",
        "text/json",
        "text/plain",
        "multipart/form-data; boundary=x",
        "application/x-www-form-urlencoded",
        "application/json-patch+json",
        "application/ld+json",
        "application/json, text/plain",
        "application/json; charset=utf-16",
        "application/json; charset=",
        "*/*",
        "json",
    ],
)
async def test_another_content_type_is_400(event_surface: EventSurface, content_type: str) -> None:
    brand = await event_surface.brand(unlimited_rule())
    answer = await event_surface.post(event(brand), **{"Content-Type": content_type})
    assert answer.status == 400
    assert "application/json" in answer.error
    assert await brand.events() == 0


@pytest.mark.parametrize(
    "content_type",
    [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        'APPLICATION/JSON ; Charset="utf-8"',
    ],
)
async def test_json_in_utf_8_is_accepted_however_it_is_written(
    event_surface: EventSurface, content_type: str
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    answer = await event_surface.post(event(brand), **{"Content-Type": content_type})
    assert answer.status == 200


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "x-gzip", "zstd", "identity, gzip"])
async def test_a_compressed_body_is_400(event_surface: EventSurface, encoding: str) -> None:
    brand = await event_surface.brand(unlimited_rule())
    for raw in (gzip.compress(event(brand)), event(brand)):
        await assert_unreadable(brand, raw, **{"Content-Encoding": encoding})


def padded(brand: LiveBrand, size: int) -> bytes:
    raw = event(brand)
    inside = b', "padding": "' + b"x" * (size - len(raw) - len(b', "padding": ""')) + b'"}'
    padded = raw[:-1] + inside
    assert len(padded) == size
    return padded


async def in_chunks(raw: bytes, size: int = 100) -> AsyncIterator[bytes]:
    for at in range(0, len(raw), size):
        yield raw[at : at + size]


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize("size", [10_239, 10_240, 10_241, 16_384, 500_000])
async def test_a_body_has_at_most_10240_bytes_and_one_more_is_413(
    event_surface: EventSurface, size: int, is_chunked: bool
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    raw = padded(brand, size)
    answer = await event_surface.post(in_chunks(raw) if is_chunked else raw)
    assert answer.status == (200 if size <= 10_240 else 413), answer.body
    assert await brand.events() == (1 if size <= 10_240 else 0)
    if answer.status == 413:
        assert answer.body["success"] is False
        assert "10240" in answer.raw.decode()


@pytest.mark.parametrize("is_chunked", [False, True])
@pytest.mark.parametrize(("path", "status"), [(EVENT, 413), ("/service-api/nothing", 404)])
async def test_a_client_that_writes_a_huge_body_to_its_end_reads_its_answer(
    event_surface: EventSurface, path: str, status: int, is_chunked: bool
) -> None:
    """The body is larger than what the sockets hold, so the server must read the rest of it."""
    piece, pieces = b"x" * 65_536, 256
    length = "Transfer-Encoding: chunked" if is_chunked else f"Content-Length: {65_536 * pieces}"
    reader, writer = await asyncio.open_connection("127.0.0.1", port_of(event_surface))
    try:
        writer.write(head(length, path=path))
        for _ in range(pieces):
            writer.write(b"10000\r\n%b\r\n" % piece if is_chunked else piece)
            await writer.drain()
        if is_chunked:
            writer.write(b"0\r\n\r\n")
        received = await reader.read()
    finally:
        writer.close()
    assert [answered for answered, _ in answers_in(received)] == [status]


async def test_size_is_counted_in_bytes_not_characters(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule())
    body = json.dumps(brand.body(note="ü" * 6_000), ensure_ascii=False).encode()
    assert len(body.decode()) < 10_240 < len(body)
    assert (await event_surface.post(body)).status == 413


async def test_size_comes_before_everything_that_is_wrong_with_a_body(
    event_surface: EventSurface,
) -> None:
    for headers in ({"Content-Type": "text/plain"}, {"Content-Encoding": "gzip"}, {}):
        answer = await event_surface.post(b"{" * 20_000, **headers)
        assert answer.status == 413


async def test_a_content_length_that_promises_less_leaves_no_second_request_recorded(
    event_surface: EventSurface,
) -> None:
    """The bytes after the promised ones are another request, and a malformed one."""
    brand = await event_surface.brand(unlimited_rule())
    raw = event(brand)
    rubbish = raw + b"\r\n\r\n"
    answers = await say(
        event_surface, head(f"Content-Length: {len(raw)}", last=False) + raw + rubbish
    )
    assert [status for status, _ in answers] == [200, 400]
    assert await brand.events() == 1

    answers = await say(event_surface, head("Content-Length: 5", last=False) + rubbish)
    assert [status for status, _ in answers] == [400, 400]
    assert await brand.events() == 1


async def test_a_smuggled_request_is_refused(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule())
    raw = event(brand)
    inner = head(f"Content-Length: {len(raw)}") + raw
    for lines in (
        ["Content-Length: 0", "Transfer-Encoding: chunked"],
        ["Transfer-Encoding: chunked", f"Content-Length: {len(inner) + 5}"],
        ["Content-Length: 0", f"Content-Length: {len(inner)}"],
        ["Transfer-Encoding: gzip, chunked"],
        ["Transfer-Encoding: x"],
        ["Transfer-Encoding : chunked"],
        ["Content-Length: +5"],
        ["Content-Length: 0x10"],
        ["Content-Length: 1_0"],
    ):
        answers = await say(event_surface, head(*lines, last=False) + b"0\r\n\r\n" + inner)
        assert answers, lines
        assert all(400 <= status < 500 for status, _ in answers), (lines, answers)
        assert all(body["success"] is False for _, body in answers[:1]), lines
    assert await brand.events() == 0


async def test_two_requests_at_once_on_one_connection_are_two_events(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    pieces = []
    for is_last in (False, False, True):
        raw = event(brand)
        pieces.append(head(f"Content-Length: {len(raw)}", last=is_last) + raw)
    answers = await say(event_surface, b"".join(pieces))
    assert [status for status, _ in answers] == [200] * 3
    assert await brand.events() == 3


async def test_after_a_413_the_connection_serves_on_or_closes_but_never_misreads(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    large, raw = padded(brand, 20_000), event(brand)
    answers = await say(
        event_surface,
        head(f"Content-Length: {len(large)}", last=False) + large,
        head(f"Content-Length: {len(raw)}") + raw,
    )
    assert [status for status, _ in answers] in ([413, 200], [413])


async def test_chunks_of_one_byte_and_trailing_extensions_are_read(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    raw = event(brand)
    body = b"".join(b"1;x=y\r\n%c\r\n" % byte for byte in raw) + b"0\r\n\r\n"
    answers = await say(event_surface, head("Transfer-Encoding: chunked") + body)
    # The server may refuse chunk extensions, but must not read half of one.
    assert [status for status, _ in answers] in ([200], [400])
    body = b"".join(b"1\r\n%c\r\n" % byte for byte in event(brand)) + b"0\r\n\r\n"
    answers = await say(event_surface, head("Transfer-Encoding: chunked") + body)
    assert [status for status, _ in answers] == [200]


# --- paths and methods -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/service-api",
        "/service-api/",
        "/service-api/manual-events",
        "/service-api/manual-event/x",
        "/service-api/Manual-Event",
        "/service-api/manual-event%00",
        "/service-api/manual-event;x",
        "/service-api/../manual-event",
        "/service-api/%2e%2e/relay",
        "/service-api//manual-event",
        "/service-api/" + "a" * 4_000,
    ],
)
async def test_an_unknown_path_below_the_prefix_is_404_in_the_surfaces_envelope(
    event_surface: EventSurface, path: str
) -> None:
    for method in ("GET", "POST", "DELETE"):
        answers = await say(event_surface, head(method=method, path=path))
        assert [status for status, _ in answers] == [404], answers
        assert answers[0][1] == {"success": False, "error": "Unknown endpoint"}


@pytest.mark.parametrize("path", ["/service-api/ü", "/service-api/manual-event?ü=ü"])
async def test_a_target_that_is_no_ascii_is_refused_in_the_surfaces_envelope(
    event_surface: EventSurface, path: str
) -> None:
    ((status, body),) = await say(event_surface, head(path=path))
    assert status in {400, 404}
    assert body["success"] is False


METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"]
ROUTES = {
    "/manual-event": {"POST"},
    "/bulk-events": {"POST"},
    "/event-config": {"GET", "HEAD"},
    "/health": {"GET", "HEAD"},
    "/diagnostic": {"GET", "HEAD"},
    "/debug": {"GET", "HEAD"},
    "/events/00000000-0000-4000-8000-000000000000": {"GET", "HEAD"},
}


@pytest.mark.parametrize("path", ROUTES)
async def test_a_wrong_method_is_405_and_says_which_are_right(
    event_surface: EventSurface, path: str
) -> None:
    for method in METHODS:
        if method in ROUTES[path]:
            continue
        answer = await event_surface.ask(method, PREFIX + path)
        assert answer.status == 405, method
        assert set(answer.headers["Allow"].split(", ")) == ROUTES[path] | {"OPTIONS"}
        if method != "HEAD":
            assert answer.body == {"success": False, "error": "Method not allowed"}


@pytest.mark.parametrize("method", ["TRACE", "CONNECT", "PROPFIND", "get", "POSTT", "\xff"])
async def test_an_unknown_method_is_refused_in_json(
    event_surface: EventSurface, method: str
) -> None:
    answers = await say(event_surface, head(method=method, path=EVENT))
    assert answers
    assert all(400 <= status < 500 for status, _ in answers)
    assert answers[0][1]["success"] is False


# --- fields ------------------------------------------------------------------------------------


async def test_every_fault_is_listed_at_once_with_its_dotted_name(
    event_surface: EventSurface,
) -> None:
    answer = await event_surface.post(
        {
            "brandId": "0X" + "ab" * 20,
            "userEmail": "nobody",
            "domain": "*.shop.example",
            "sourceUrl": "javascript:alert(1)",
            "userIdentifier": "0x12",
            "metadata": {"channel_id": 5, "skip_cooldown": "true"},
        }
    )
    assert answer.status == 400
    assert [fault.partition(": ")[0] for fault in answer.faults] == [
        "brandId",
        "eventType",
        "userEmail",
        "domain",
        "sourceUrl",
        "userIdentifier",
        "metadata.channel_id",
        "metadata.skip_cooldown",
    ]
    assert all(fault.partition(": ")[2] for fault in answer.faults)


@pytest.mark.parametrize("name", ["brandId", "eventType", "userEmail"])
@pytest.mark.parametrize("value", [..., None, "", "\x00", " "])
async def test_a_required_field_is_required(
    event_surface: EventSurface, name: str, value: object
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    body = {key: each for key, each in (brand.body() | {name: value}).items() if each is not ...}
    answer = await event_surface.post(body)
    assert answer.status == 400
    assert [fault.partition(":")[0] for fault in answer.faults] == [name]


LONGEST_EMAIL = "a" * 64 + "@" + ".".join(["b" * 61] * 3) + ".cd"

EMAILS = [
    "ada@example.com",
    "ADA+tag.x_y-z@Example.COM",
    "o'brien!#$%&*/=?^`{|}~@example.com",
    '"ada lovelace"@example.com',
    '"a@b"@example.com',
    '"a\\"b"@example.com',
    '"a..b"@example.com',
    "ada@localhost",
    "ada@host.test",
    "ada@x.invalid",
    "ada@[192.0.2.1]",
    "ada@[IPv6:2001:db8::1]",
    "jürgen@münchen.example",
    "ДЖ@пример.рф",
    "\u0131@example.com",
    "İ@example.com",
    "ß@example.com",
    "ﬁ@example.com",
    "用户@例子.公司",
    LONGEST_EMAIL,
    "a" * 242 + "@example.com",
]


@pytest.mark.parametrize("email", EMAILS)
async def test_every_address_of_rfc_5322_gets_its_wallet_and_is_a_duplicate_of_itself(
    event_surface: EventSurface, email: str
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    assert len(email) <= 254
    answer = await brand.post(email)
    assert answer.status == 200, answer.body
    again = await brand.post(email)
    assert (again.status, again.details) == (409, {"existingEventId": answer.event_id})
    kept = await event_surface.value(
        "SELECT email FROM events WHERE id = $1", UUID(answer.event_id)
    )
    assert kept == email, "stored as given"


@pytest.mark.parametrize(
    "email",
    [
        "ada",
        "@example.com",
        "ada@",
        "ada@@example.com",
        "ada@exa mple.com",
        "ada @example.com",
        " ada@example.com",
        "ada@example.com ",
        "Ada <ada@example.com>",
        "<ada@example.com>",
        "ada@example.com, eve@example.com",
        "ada@.com",
        "ada@example..com",
        ".ada@example.com",
        "ada.@example.com",
        "ada@-x.com",
        "ada@example.com\u200b",
        "ada\\@example.com",
        "ada@[300.1.1.1]",
        "mailto:ada@example.com",
        LONGEST_EMAIL + "ef",
        5,
        ["ada@example.com"],
        {"$ne": None},
        True,
    ],
)
async def test_what_is_no_address_is_a_fault_of_user_email(
    event_surface: EventSurface, email: object
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    answer = await event_surface.post(brand.body() | {"userEmail": email})
    assert answer.status == 400, answer.body
    (fault,) = answer.faults
    assert fault.startswith("userEmail: must be "), "found here, not by the identity provider"


FIELDS: list[tuple[str, object, int]] = [
    ("eventType", "a" * 50, 200),
    ("eventType", "a" * 51, 400),
    ("eventType", "form-submit", 400),
    ("eventType", "form submit", 400),
    ("eventType", "form_submit\n", 200),  # a control character, so it is removed
    ("eventType", "f\u00f6rm", 400),
    ("eventType", "custom_" + "\u0661", 400),
    ("brandId", "0x" + "AB" * 20, 400),
    ("brandId", "0x" + "g0" * 20, 400),
    ("brandId", "0x" + "00" * 21, 400),
    ("brandId", "0x" + "\uff10" * 40, 400),
    ("sourceUrl", "https://x.example/" + "a" * (2048 - 18), 200),
    ("sourceUrl", "https://x.example/" + "a" * (2049 - 18), 400),
    ("sourceUrl", "ftp://x.example", 400),
    ("sourceUrl", "//x.example", 400),
    ("sourceUrl", "https:/x.example", 400),
    ("sourceUrl", "https://", 400),
    ("sourceUrl", "https://user:pw@x.example", 400),
    ("sourceUrl", "https://x.example:0x50/", 400),
    ("sourceUrl", "https://x.example:99999", 400),
    ("sourceUrl", "https://x\\y.example", 400),
    ("sourceUrl", "https://x.example/\u202e", 400),
    ("sourceUrl", "https://[::1", 400),
    ("sourceUrl", "", 400),
    ("domain", "", 400),
    ("domain", ".", 400),
    ("domain", "..", 400),
    ("domain", " shop.example", 400),
    ("domain", "shop.example:443", 400),
    ("domain", "https://shop.example", 400),
    ("domain", "shop.example/x", 400),
    ("domain", "*.shop.example", 400),
    ("domain", "192.0.2.1", 400),
    ("domain", "0x7f.1", 400),
    ("domain", "::1", 400),
    ("domain", "[::1]", 400),
    ("domain", "a_b.example", 400),
    ("domain", "-a.example", 400),
    ("domain", "xn--a.example", 400),
    ("domain", "a" * 64 + ".example", 400),
    ("domain", ".".join(["a" * 61] * 4) + ".abcdef", 400),
    ("userIdentifier", "0x" + "aB" * 20, 200),
    ("userIdentifier", "eve@example.com", 200),
    ("userIdentifier", "0x" + "aB" * 19, 400),
    ("userIdentifier", "eve", 400),
    ("userIdentifier", "", 400),
    ("metadata", [], 400),
    ("metadata", "{}", 400),
    ("metadata", {"skip_cooldown": 1}, 400),
    ("metadata", {"channel_id": ["a"]}, 400),
]


@pytest.mark.parametrize(("name", "value", "status"), FIELDS)
async def test_each_field_has_the_rules_of_2_1(
    event_surface: EventSurface, name: str, value: object, status: int
) -> None:
    brand = await event_surface.brand(unlimited_rule(), unlimited_rule("a" * 50))
    answer = await event_surface.post(brand.body() | {name: value})
    assert answer.status == status, answer.body
    if status == 400:
        assert answer.error == "Validation failed"
        (fault,) = answer.faults
        assert fault.partition(":")[0].partition(".")[0] == name


@pytest.mark.parametrize("value", [1, 1.5, True, [], {}, ["x"]])
@pytest.mark.parametrize(
    "name", ["brandId", "eventType", "userEmail", "domain", "sourceUrl", "userIdentifier"]
)
async def test_a_field_of_another_json_type_is_never_converted(
    event_surface: EventSurface, name: str, value: object
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    answer = await event_surface.post(brand.body() | {name: value})
    assert answer.status == 400
    assert [fault.partition(":")[0] for fault in answer.faults] == [name]


async def test_unknown_fields_are_ignored_and_null_is_absence(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule())
    answer = await brand.post(
        sourceUrl=None, userIdentifier=None, metadata=None, rewardAmount=10**9, eventId="x", x=None
    )
    assert (answer.status, answer.body["rewardAmount"]) == (200, 0)


async def test_no_refusal_repeats_what_was_sent(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule())
    secret = "swordfish-12345"
    for changes in (
        {"userEmail": f"{secret}@"},
        {"userIdentifier": secret},
        {"brandId": secret},
        {"sourceUrl": f"https://{secret}:{secret}@shop.example"},
        {"metadata": {"channel_id": [secret]}},
        {"metadata": secret},
    ):
        answer = await event_surface.post(brand.body() | changes)
        assert answer.status == 400
        assert secret not in answer.raw.decode()


async def test_sql_and_script_in_free_text_are_just_text(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule())
    metadata = {"a'); DROP TABLE events; --": "<script>alert(1)</script>", "$1": "%s %(x)s {0}"}
    answer = await brand.post(metadata=metadata, sourceUrl="https://x.example/';--")
    assert answer.status == 200
    stored = await event_surface.value(
        "SELECT metadata FROM events WHERE id = $1", UUID(answer.event_id)
    )
    assert stored == metadata


async def test_addresses_that_differ_only_in_case_are_one_user_beyond_ascii_too(
    event_surface: EventSurface,
) -> None:
    brand = await event_surface.brand(unlimited_rule())
    first = await brand.post("jürgen@example.com")
    again = await brand.post("JÜRGEN@EXAMPLE.COM")
    assert again.status == 409
    assert again.details == {"existingEventId": first.event_id}


async def test_many_hostile_requests_leave_the_surface_well(event_surface: EventSurface) -> None:
    brand = await event_surface.brand(unlimited_rule())
    bodies = [b"{", b"[" * 9_000, b"x" * 50_000, event(brand), b"", b'{"a": 1e999}'] * 20
    answers = await asyncio.gather(*map(event_surface.post, bodies))
    assert {answer.status for answer in answers} == {200, 400, 409, 413}
    assert (await brand.post(new_email())).status == 200
