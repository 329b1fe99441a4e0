"""The plugin for WordPress sites, run by PHP's own server with WordPress's functions stubbed.

The tests give the plugin a fake ltzd, whose answers a test sets, and at the end a live ltzd.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
import pytest_asyncio
from aiohttp import web

from tests.support.instances.instance import Instance
from tests.support.ports import free_port
from tests.support.services.web_servers import served_at
from tests.support.sites.plugin_site import FAILURES, PLUGIN, StubbedSite, a_stubbed_site
from tests.support.tools import php_path
from tests.support.waiting import until

BRAND = "0x" + "ab" * 20

LOGGED_IN = "wordpress_logged_in_5d41402abc4b2a76b9719d911017c592=ann%7C1900000000%7Ctoken%7Chmac"
SEC = "wordpress_sec_5d41402abc4b2a76b9719d911017c592=ann%7C1900000000%7Ctoken%7Cother"
NONCE = "a1b2c3d4e5"
SESSION = {"Cookie": LOGGED_IN, "X-WP-Nonce": NONCE}
BASIC = "Basic YWRhOmFiY2QgRUZHSA=="
REDEEM = {"perkId": "6f1c2d3e-0000-4000-8000-000000000001", "maxCost": 25}

Json = dict[str, Any]


@dataclass(frozen=True)
class ReceivedRequest:
    """A request as it came to ltzd."""

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        assert len(values) <= 1, f"{name} came {len(values)} times"
        return values[0] if values else None


SLOW_SECONDS = 4.7
"""As long as ltzd waits for a site, nearly."""


@dataclass
class Upstream:
    """A fake ltzd: gives the same answer to every request and records the requests."""

    port: int = 0
    requests: list[ReceivedRequest] = field(default_factory=list)
    status: int = 200
    body: str = '{"success": true}'
    headers: Mapping[str, str] = field(default_factory=dict)
    statuses: dict[str, int] = field(default_factory=dict)
    """By path; every other path is answered with `status`."""
    slow_path: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def set_answer(self, status: int, body: object, **headers: str) -> None:
        self.status = status
        self.body = body if isinstance(body, str) else json.dumps(body)
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}

    async def answer(self, request: web.Request) -> web.Response:
        headers = tuple(
            (key.decode("latin-1"), value.decode("latin-1")) for key, value in request.raw_headers
        )
        self.requests.append(
            ReceivedRequest(request.method, request.raw_path, headers, await request.read())
        )
        if request.path == self.slow_path:
            await asyncio.sleep(SLOW_SECONDS)
        return web.Response(
            status=self.statuses.get(request.path, self.status),
            body=self.body.encode(),
            headers={"Content-Type": "application/json", **self.headers},
        )

    @property
    def last(self) -> ReceivedRequest:
        return self.requests[-1]


@pytest_asyncio.fixture(scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[StubbedSite]:
    async with a_stubbed_site(tmp_path_factory.mktemp("wordpress")) as site:
        yield site


@pytest_asyncio.fixture
async def upstream() -> AsyncIterator[Upstream]:
    upstream = Upstream()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", upstream.answer)
    async with served_at(application) as base_url:
        upstream.port = urlsplit(base_url).port or 0
        yield upstream


@pytest.fixture
def site(server: StubbedSite, upstream: Upstream) -> StubbedSite:
    """A site whose plugin is configured for `upstream`."""
    server.keep(ltzd_loyalty={"url": upstream.url, "brand": BRAND, "host": ""})
    server.keep_users({1: {"login": "ann", "email": "ann@site.example", "capabilities": []}})
    (server.folder / "mails.json").unlink(missing_ok=True)
    return server


# --- the file -----------------------------------------------------------------------------------


async def php(*arguments: str) -> tuple[int | None, str]:
    process = await asyncio.create_subprocess_exec(
        *(str(php_path()), "-n", *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    async with asyncio.timeout(20):
        output, _ = await process.communicate()
    return process.returncode, output.decode()


async def test_the_plugin_is_good_php() -> None:
    status, output = await php("-l", str(PLUGIN))
    assert status == 0, output


async def test_opened_without_wordpress_it_does_and_says_nothing() -> None:
    assert await php("-d", "display_errors=1", str(PLUGIN)) == (0, "")


# --- requests to ltzd ---------------------------------------------------------------------------


@pytest.mark.parametrize("route", FAILURES)
async def test_each_route_is_asked_of_ltzd_under_the_sites_name(
    site: StubbedSite, upstream: Upstream, route: str
) -> None:
    upstream.set_answer(
        200, {"success": True, "streak": {"multiplier": 1.5, "nextMilestone": None}}
    )
    status, body, headers = await site.ask(route, headers=SESSION)

    assert (status, body) == (200, json.loads(upstream.body))
    assert "no-store" in headers["Cache-Control"]
    assert len(upstream.requests) == 1
    assert (upstream.last.method, upstream.last.target) == (
        FAILURES[route][0],
        f"/wp-json/loyalty/v1/{route.removeprefix('DELETE ')}",
    )
    assert upstream.last.header("Host") == "site.example"


async def test_body_and_query_arrive_as_they_were_sent(
    site: StubbedSite, upstream: Upstream
) -> None:
    await site.ask("redeem", json=REDEEM, headers=SESSION)
    assert json.loads(upstream.last.body) == REDEEM
    assert upstream.last.header("Content-Type") == "application/json"

    query = (
        "metric=activity&period=a%20%26%27b&limit=%0d%0aX&rest_route=%2F&_wpnonce=n&_locale=user"
    )
    await site.ask(f"leaderboard?{query}")
    assert parse_qsl(urlsplit(upstream.last.target).query) == [
        ("metric", "activity"),
        ("period", "a &'b"),
        ("limit", "\r\nX"),
    ]


async def test_a_broken_body_is_ltzds_to_refuse(site: StubbedSite, upstream: Upstream) -> None:
    refusal = {"code": "rest_invalid_json", "message": "No", "data": {"status": 400}}
    upstream.set_answer(400, refusal)
    url = f"{site.url}/wp-json/loyalty/v1/redeem"
    headers = {**SESSION, "Content-Type": "text/plain"}
    async with site.http.post(url, data=b"{'", headers=headers) as reply:
        assert (reply.status, await reply.json()) == (400, refusal)
    assert (upstream.last.body, upstream.last.header("Content-Type")) == (b"{'", "text/plain")


async def test_a_check_in_without_a_body_is_no_form(site: StubbedSite, upstream: Upstream) -> None:
    await site.ask("checkin", headers=SESSION)
    assert upstream.last.body == b""
    assert upstream.last.header("Content-Type") == "application/json"


async def test_a_redemption_may_take_longer_and_nothing_is_asked_elsewhere(
    site: StubbedSite, upstream: Upstream
) -> None:
    seconds = {}
    for route in FAILURES:
        await site.ask(route, headers=SESSION)
        arguments = site.sent_with()
        seconds[route] = arguments["timeout"]
        assert (arguments["redirection"], arguments["sslverify"]) == (0, True)
        assert arguments["httpversion"] == "1.1"
    assert seconds == dict.fromkeys(FAILURES, 10) | {"redeem": 70}


async def test_the_sites_name_may_be_another_than_the_platforms(
    site: StubbedSite, upstream: Upstream
) -> None:
    site.keep(ltzd_loyalty={"url": f"{upstream.url}/behind", "host": "club.example"})
    await site.ask("me", headers=SESSION)
    assert upstream.last.header("Host") == "club.example"
    assert upstream.last.target == "/behind/wp-json/loyalty/v1/me"


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (SESSION, SESSION),
        ({**SESSION, "Cookie": f"{SEC};{LOGGED_IN}"}, {**SESSION, "Cookie": f"{SEC}; {LOGGED_IN}"}),
        (
            {**SESSION, "Cookie": f"PHPSESSID=x; _ga=GA1.2; {LOGGED_IN}; wp-settings-1=y; csrf=z"},
            SESSION,
        ),
        ({**SESSION, "Cookie": f"wordpress_test_cookie=WP; wordpress_a=x; {LOGGED_IN}"}, SESSION),
        ({**SESSION, "Cookie": f"a=wordpress_logged_in_x=1; {LOGGED_IN}"}, SESSION),
        ({**SESSION, "Cookie": f"wordpress_logged_in_a; {LOGGED_IN}"}, SESSION),
        (
            {**SESSION, "Cookie": r'wordpress_sec_a="x\"'},
            {**SESSION, "Cookie": r'wordpress_sec_a="x\"'},
        ),
        ({**SESSION, "Authorization": BASIC}, SESSION),
        ({**SESSION, "Authorization": BASIC, "X-WP-Nonce": "a1 b2"}, {"Authorization": BASIC}),
        ({"Authorization": BASIC}, {"Authorization": BASIC}),
        ({"Authorization": "basic   YWRh"}, {"Authorization": "Basic YWRh"}),
        ({"Cookie": LOGGED_IN, "Authorization": BASIC}, {"Authorization": BASIC}),
        (
            {**SESSION, "X-Forwarded-For": "1.2.3.4", "Origin": "https://elsewhere.example"},
            SESSION,
        ),
    ],
)
async def test_only_what_proves_a_log_in_is_handed_on(
    site: StubbedSite,
    upstream: Upstream,
    given: Mapping[str, str],
    sent: Mapping[str, str],
) -> None:
    await site.ask("me", headers=given)
    assert forwarded_headers(upstream.last) == sent


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"Cookie": LOGGED_IN},
        {"X-WP-Nonce": NONCE},
        {"Cookie": f"{LOGGED_IN}{'x' * 5000}", "X-WP-Nonce": NONCE},
        {"Authorization": "Bearer YWRh"},
        {"Authorization": "Basic YWRh:x"},
    ],
)
async def test_without_a_log_in_nothing_is_asked_of_ltzd(
    site: StubbedSite, upstream: Upstream, given: Mapping[str, str]
) -> None:
    for route in FAILURES:
        if route not in ("leaderboard", "perks"):
            status, body, _ = await site.ask(route, headers=given)
            assert (status, body["code"], body["data"]) == (401, "not_logged_in", {"status": 401})
    assert upstream.requests == []


async def test_a_strangers_failed_log_ins_do_not_reach_ltzd(
    site: StubbedSite, upstream: Upstream
) -> None:
    """All visitors of a site share its address at ltzd, where failed log-ins are limited."""
    site.keep(user=0, **site.options())
    for headers in (SESSION, {"Authorization": BASIC}):
        status, body, _ = await site.ask("me", headers=headers)
        assert (status, body["code"]) == (401, "not_logged_in")
    assert upstream.requests == []


PLATFORMS = {"Host", "User-Agent", "Connection", "Accept", "Content-Length", "Content-Type"}


def forwarded_headers(request: ReceivedRequest) -> Mapping[str, str]:
    """The headers that come from the visitor, not from the platform."""
    return {name: value for name, value in request.headers if name not in PLATFORMS}


async def test_a_nonce_in_the_query_counts_as_the_platform_has_it(
    site: StubbedSite, upstream: Upstream
) -> None:
    await site.ask(f"me?_wpnonce={NONCE}", headers={"Cookie": LOGGED_IN})
    assert forwarded_headers(upstream.last) == SESSION
    assert upstream.last.target == "/wp-json/loyalty/v1/me"


@pytest.mark.parametrize("route", ["leaderboard?limit=3", "perks"])
async def test_what_is_for_everybody_is_asked_without_anybodys_log_in(
    site: StubbedSite, upstream: Upstream, route: str
) -> None:
    await site.ask(route, headers={**SESSION, "Authorization": BASIC})
    assert forwarded_headers(upstream.last) == {}


HOSTILE = {
    "a query with a line break": (
        f"me?_wpnonce={NONCE}%0d%0aX-Evil:1",
        f"Cookie: {LOGGED_IN}",
    ),
    "a list for a nonce": (f"me?_wpnonce[]={NONCE}", f"Cookie: {LOGGED_IN}"),
    "a folded nonce": ("me", f"Cookie: {LOGGED_IN}\r\nX-WP-Nonce: {NONCE}\r\n X-Evil: 1"),
    "a folded cookie": ("me", f"X-WP-Nonce: {NONCE}\r\nCookie: {LOGGED_IN}x\r\n\tX-Evil: 1"),
    "a bare return": ("me", f"X-WP-Nonce: {NONCE}\r\nCookie: {LOGGED_IN}\rX-Evil: 1"),
    "a bare feed": ("me", f"X-WP-Nonce: {NONCE}\r\nCookie: {LOGGED_IN}\nX-Evil: 1"),
    "a vertical tab": ("me", f"X-WP-Nonce: {NONCE}\r\nCookie: {LOGGED_IN}\x0bX-Evil: 1"),
    "letters of no header": ("me", f"X-WP-Nonce: {NONCE}\r\nCookie: {LOGGED_IN}\xe4X-Evil: 1"),
    "a folded password": ("me", f"Authorization: {BASIC}\r\n X-Evil: 1"),
    "a folded type": ("redeem", "Content-Type: application/json\r\n\tX-Evil: 1"),
    "a type with a control character": ("redeem", "Content-Type: a/b\x01X-Evil: 1"),
}


@pytest.mark.parametrize("case", HOSTILE)
async def test_no_value_becomes_a_header_of_its_own(
    site: StubbedSite, upstream: Upstream, case: str
) -> None:
    target, headers = HOSTILE[case]
    method = FAILURES[target.partition("?")[0]][0]
    length = "Content-Length: 0\r\n" if method == "POST" else ""
    request_head = (
        f"{method} /wp-json/loyalty/v1/{target} HTTP/1.1\r\nHost: x\r\n{length}{headers}\r\n"
    )
    await site.ask_raw(f"{request_head}Connection: close\r\n\r\n".encode("latin-1"))

    allowed = PLATFORMS | {"Cookie", "X-WP-Nonce", "Authorization"}
    for request in upstream.requests:
        names = [name for name, _ in request.headers]
        assert set(names) <= allowed
        assert len(names) == len(set(names))
        assert request.header("X-WP-Nonce") in {None, NONCE}
        assert (request.header("Cookie") or LOGGED_IN).startswith("wordpress_")
        assert all(value.isascii() and value.isprintable() for _, value in request.headers)


# --- answers to the visitor ---------------------------------------------------------------------


async def test_a_fresh_nonce_is_passed_back_and_no_other_header(
    site: StubbedSite, upstream: Upstream
) -> None:
    upstream.set_answer(
        200, {"success": True}, X_WP_Nonce="0123456789", Set_Cookie="a=b", X_Own="1"
    )
    _, _, headers = await site.ask("me", headers=SESSION)
    assert headers["X-WP-Nonce"] == "0123456789"
    assert not {"Set-Cookie", "X-Own"} & set(headers)

    upstream.set_answer(200, {"success": True}, X_WP_Nonce="not a nonce")
    _, _, headers = await site.ask("me", headers=SESSION)
    assert "X-WP-Nonce" not in headers


async def test_a_refusal_says_when_to_ask_again(site: StubbedSite, upstream: Upstream) -> None:
    refusal = {"code": "rest_too_many_requests", "message": "No", "data": {"status": 429}}
    upstream.set_answer(429, refusal, Retry_After="540")
    status, body, headers = await site.ask("link", json={"code": "ABCD2345"}, headers=SESSION)
    assert (status, body, headers["Retry-After"]) == (429, refusal, "540")
    upstream.set_answer(429, refusal, Retry_After="soon")
    _, _, headers = await site.ask("link", json={"code": "ABCD2345"}, headers=SESSION)
    assert "Retry-After" not in headers


async def test_a_redemption_that_the_chain_has_not_decided_is_told_as_such(
    site: StubbedSite, upstream: Upstream
) -> None:
    upstream.set_answer(202, {"success": True, "confirmationCode": None, "perk": {}})
    status, body, _ = await site.ask("redeem", json=REDEEM, headers=SESSION)
    assert (status, body) == (202, json.loads(upstream.body))


@pytest.mark.parametrize(
    ("route", "status", "code"),
    [
        ("checkin", 401, "not_logged_in"),
        ("redeem", 400, "redeem_failed"),
        ("leaderboard", 500, "not_configured"),
        ("leaderboard", 400, "rest_invalid_param"),
    ],
)
async def test_what_ltzd_refuses_is_told_in_its_own_words(
    site: StubbedSite, upstream: Upstream, route: str, status: int, code: str
) -> None:
    data = {"status": status, "params": {"limit": "is none"}, "details": {}}
    refusal = {"code": code, "message": "“No”", "data": data}
    upstream.set_answer(status, refusal)
    answered, body, _ = await site.ask(route, headers=SESSION)
    assert (answered, body) == (status, refusal)


def has_failed(route: str, status: int, body: Json) -> bool:
    _, expected, code = FAILURES[route]
    message = body.pop("message")
    return (
        (status, body) == (expected, {"code": code, "data": {"status": expected}})
        and "try again" in message
        and "127.0.0.1" not in message
    )


@pytest.mark.parametrize("route", FAILURES)
async def test_where_ltzd_is_away_the_route_has_failed(site: StubbedSite, route: str) -> None:
    site.keep(ltzd_loyalty={"url": f"http://127.0.0.1:{free_port()}"})
    status, body, headers = await site.ask(route, json={}, headers=SESSION)
    assert has_failed(route, status, body)
    assert "no-store" in headers["Cache-Control"]


@pytest.mark.parametrize(
    ("status", "answer"),
    [
        (502, "<html>Bad Gateway</html>"),
        (200, "<html>Welcome</html>"),
        (200, "[1, 2]"),
        (200, '"yes"'),
        (200, ""),
        (204, ""),
        (302, '{"success": true}'),
        (404, '{"error": "No such path", "code": "NOT_FOUND"}'),
        (500, "{}"),
        (400, '{"code": "redeem_failed", "message": ["x"], "data": {"status": 400}}'),
        (400, '{"code": {"a": 1}, "message": "x", "data": {"status": 400}}'),
        (200, '{"success": true, "padding": "' + "x" * 2**20 + '"}'),
    ],
)
async def test_what_is_no_answer_of_ltzds_is_a_failure(
    site: StubbedSite, upstream: Upstream, status: int, answer: str
) -> None:
    upstream.set_answer(status, answer, Location=f"{upstream.url}/elsewhere")
    answered, body, _ = await site.ask("redeem", json=REDEEM, headers=SESSION)
    assert has_failed("redeem", answered, body)
    assert len(upstream.requests) == 1, "no redirect is followed"


@pytest.mark.parametrize("kept", [{}, {"ltzd_loyalty": {"url": ""}}, {"ltzd_loyalty": "x"}])
async def test_a_site_that_is_not_set_up_says_so(
    site: StubbedSite, upstream: Upstream, kept: Json
) -> None:
    site.keep(**kept)
    for route in FAILURES:
        status, body, _ = await site.ask(route, json={}, headers=SESSION)
        assert (status, body["code"], body["data"]) == (500, "not_configured", {"status": 500})
    assert upstream.requests == []


# --- Settings -> Loyalty ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "given", "kept"),
    [
        ("url", "https://ltzd.example", "https://ltzd.example"),
        ("url", " https://ltzd.example:8443/behind/ ", "https://ltzd.example:8443/behind"),
        ("url", "http://127.0.0.1:8000", "http://127.0.0.1:8000"),
        ("url", "http://localhost:8000", "http://localhost:8000"),
        ("url", "http://[::1]:8000", "http://[::1]:8000"),
        ("url", "", ""),
        ("brand", "0x" + "AB" * 20, "0x" + "ab" * 20),
        ("brand", "", ""),
        ("host", "Club.example", "club.example"),
    ],
)
async def test_a_good_setting_is_kept(site: StubbedSite, name: str, given: str, kept: str) -> None:
    before = site.options()["ltzd_loyalty"]
    assert await site.save({name: given}) == (before | {name: kept}, {})


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("url", "http://ltzd.example"),
        ("url", "http://127.0.0.1.ltzd.example"),
        ("url", "http://localhost@ltzd.example"),
        ("url", "https://user:pass@ltzd.example"),
        ("url", "https://ltzd.example?x=1"),
        ("url", "https://ltzd.example#x"),
        ("url", "https://ltzd.example\\@127.0.0.1"),
        ("url", "https://ltzd.example/\r\nX-Evil: 1"),
        ("url", "ftp://ltzd.example"),
        ("url", "javascript:alert(1)"),
        ("url", "ltzd.example"),
        ("url", ["https://ltzd.example"]),
        ("brand", "0x" + "ab" * 19),
        ("brand", "ab" * 20),
        ("brand", "0x" + "ab" * 20 + "\n0"),
        ("host", "site.example:443"),
        ("host", "https://site.example"),
        ("host", "site.example\r\nX-Evil: 1"),
        ("host", "-site.example"),
    ],
)
async def test_a_bad_setting_is_told_of_and_changes_nothing(
    site: StubbedSite, name: str, given: object
) -> None:
    before = site.options()["ltzd_loyalty"]
    kept, errors = await site.save({name: given, "unknown": "x"})
    assert kept == before
    assert list(errors) == [name]


@pytest.mark.parametrize("given", [None, "x", [], {}])
async def test_a_form_without_settings_changes_nothing(site: StubbedSite, given: object) -> None:
    assert await site.save(given) == (site.options()["ltzd_loyalty"], {})


async def test_the_page_shows_what_is_kept_and_whether_ltzd_knows_it(
    site: StubbedSite, upstream: Upstream
) -> None:
    page = await site.page()
    assert f'value="{upstream.url}"' in page
    assert "ltzd serves site.example." in page
    assert "ltzd knows the brand." in page
    targets = [(request.header("Host"), request.target) for request in upstream.requests]
    assert targets == [
        ("site.example", "/wp-json/loyalty/v1/leaderboard?limit=1"),
        (f"127.0.0.1:{upstream.port}", f"/service-api/event-config?brandId={BRAND}"),
    ]

    upstream.set_answer(500, {"code": "not_configured"})
    page = await site.page()
    assert "ltzd does not serve site.example" in page
    assert "ltzd does not know the brand." in page


async def test_the_page_says_what_the_brand_file_needs_and_what_is_off(
    site: StubbedSite, upstream: Upstream
) -> None:
    kept = site.options()
    site.keep(**kept, home="https://site.example")
    page = await site.page()
    assert "choose another structure under Settings" in page
    assert "in a folder" not in page
    assert "Application passwords are off" not in page

    site.keep(
        **kept
        | {
            "home": "https://site.example/blog",
            "permalink_structure": "/%postname%/",
            "has_application_passwords": False,
        }
    )
    page = await site.page()
    assert "url = &quot;https://site.example/blog&quot;" in page
    assert "Application passwords are off: they need https" in page
    assert "Settings → Permalinks" not in page


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (200, "ltzd asked this site who you are, and the site told it."),
        (401, "did not know you. ltzd must ask https://site.example/blog/wp-json/wp/v2/users/me"),
        (500, "ltzd cannot tell who you are (status 500)"),
    ],
)
async def test_the_readers_own_log_in_goes_to_ltzd_and_back(
    site: StubbedSite, upstream: Upstream, status: int, sentence: str
) -> None:
    upstream.statuses["/wp-json/loyalty/v1/me"] = status
    url = f"{site.url}/wp-admin/options-general.php"
    async with site.http.get(url, headers={"Cookie": SESSION["Cookie"]}) as reply:
        page = await reply.text()
    assert sentence in page
    (sent,) = (request for request in upstream.requests if request.target.endswith("/me"))
    assert sent.header("Cookie") is not None
    assert sent.header("X-WP-Nonce") is not None


async def test_a_site_that_ltzd_waits_for_in_vain_is_told_to_have_a_second_worker(
    site: StubbedSite, upstream: Upstream
) -> None:
    upstream.slow_path = "/wp-json/loyalty/v1/me"
    upstream.statuses[upstream.slow_path] = 500
    url = f"{site.url}/wp-admin/options-general.php"
    async with site.http.get(url, headers={"Cookie": SESSION["Cookie"]}) as reply:
        page = await reply.text()
    assert "this site did not answer within five seconds. Give PHP a second worker" in page


async def test_a_clock_that_differs_is_named(site: StubbedSite, upstream: Upstream) -> None:
    upstream.set_answer(200, "{}", Date="Thu, 01 Jan 2015 00:00:00 GMT")
    assert "Let the server set its clock by NTP." in await site.page()


async def test_whatever_is_kept_the_page_is_no_script(site: StubbedSite) -> None:
    site.keep(
        home="https://site.example",
        ltzd_loyalty={
            "url": "http://127.0.0.1:1/\"><script>alert('u')</script>",
            "brand": "'\"><script>alert('b')</script>",
            "host": "<script>alert('h')</script>",
        },
    )
    page = await site.page()
    assert "<script" not in page
    assert "cannot be reached: Could not connect to &lt;server&gt;" in page


async def test_only_who_manages_the_site_sees_the_page(site: StubbedSite) -> None:
    site.keep(is_administrator=False, **site.options())
    assert await site.page() == ""


async def test_of_a_plugin_that_is_removed_nothing_is_left(site: StubbedSite) -> None:
    site.keep(another="stays", **site.options())
    async with site.http.get(f"{site.url}/uninstall") as reply:
        assert reply.status == 200
    assert site.options() == {"another": "stays"}


async def test_of_a_plugin_that_is_removed_nothing_is_left_at_any_site_of_a_network(
    site: StubbedSite,
) -> None:
    other_site = site.folder / "options-2.json"
    key = {"key": "ltzsk_test_0123456789abcdef"}
    other_site.write_text(json.dumps({"ltzd_loyalty": {}, "ltzd_loyalty_events": key, "a": "b"}))
    site.keep(network=[1, 2], **site.options())
    async with site.http.get(f"{site.url}/uninstall") as reply:
        assert reply.status == 200
    assert site.options() == {"network": [1, 2]}
    assert json.loads(other_site.read_text()) == {"a": "b"}
    dropped = (site.folder / "dropped").read_text().split("\n")
    assert "DROP TABLE IF EXISTS wp_ltzd_events" in dropped
    assert "DROP TABLE IF EXISTS wp_2_ltzd_events" in dropped


async def test_of_a_plugin_that_is_removed_no_confirmation_is_left(site: StubbedSite) -> None:
    await site.confirm_email()
    await site.open(site.mailed_link())
    async with site.http.get(f"{site.url}/uninstall") as reply:
        assert reply.status == 200
    (user,) = json.loads((site.folder / "users.json").read_text()).values()
    assert not user["meta"]
    assert "ltzd_loyalty_secret" not in site.options()


# --- e-mail addresses; WordPress's own part is in test_real_wordpress.py --------------------------


async def test_a_member_gives_himself_no_unconfirmed_address(site: StubbedSite) -> None:
    status, body = await site.users_me({"email": "rich@shop.example"})
    assert (status, body["code"]) == (403, "ltzd_unconfirmed_email")
    assert body["data"] == {"status": 403}
    assert await site.users_me() == (
        200,
        {"id": 1, "email": "ann@site.example", "ltzd_email_confirmed": False},
    )
    assert (await site.users_me({"email": "ann@site.example"}))[0] == 200


async def test_whoever_edits_users_gets_the_address_but_unconfirmed(site: StubbedSite) -> None:
    await site.confirm_email()
    assert (await site.open(site.mailed_link()))[0] == 200
    users = json.loads((site.folder / "users.json").read_text())
    site.keep_users({1: users["1"] | {"capabilities": ["edit_users"]}})
    assert (await site.users_me())[1]["ltzd_email_confirmed"] is True
    status, user = await site.users_me({"email": "rich@shop.example"})
    assert (status, user["email"], user["ltzd_email_confirmed"]) == (
        200,
        "rich@shop.example",
        False,
    )


async def test_the_mailed_link_confirms_once(site: StubbedSite) -> None:
    status, body = await site.confirm_email()
    assert (status, body) == (200, {"success": True, "confirmed": False})
    ((to, _),) = site.mails()
    assert to == "ann@site.example"
    assert (await site.users_me())[1]["ltzd_email_confirmed"] is False
    link = site.mailed_link()

    site.keep(user=0, **site.options())
    status, _ = await site.open(link)
    assert status == 302
    site.keep(**(site.options() | {"user": 1}))
    assert await site.open(link.replace("confirm_email=", "confirm_email=0")) == (400, BAD_LINK)
    assert await site.open(link) == (200, "Your e-mail address is confirmed.")
    assert await site.open(link) == (400, BAD_LINK)

    assert (await site.users_me())[1]["ltzd_email_confirmed"] is True
    status, body = await site.confirm_email()
    assert (status, body) == (200, {"success": True, "confirmed": True})


async def test_a_second_link_is_not_mailed_at_once(site: StubbedSite) -> None:
    await site.confirm_email()
    status, body = await site.confirm_email()
    assert (status, body["code"]) == (429, "rest_too_many_requests")
    assert len(site.mails()) == 1


BAD_LINK = (
    "This link was used before, has ended, or is another member&#039;s. Please ask for a new one."
)


async def test_the_field_is_shown_for_editing_alone(site: StubbedSite) -> None:
    async with site.http.get(f"{site.url}/wp-json/wp/v2/users/me") as reply:
        assert await reply.json() == {"id": 1}


# --- a live ltzd --------------------------------------------------------------------------------


async def a_session(instance: Instance, username: str) -> Mapping[str, str]:
    control_url = instance.dev_json["sandbox"]["siteSessionUrl"]
    async with instance.http.post(control_url, json={"username": username}) as reply:
        assert reply.status == 200, await reply.text()
        session = await reply.json()
    return {"Cookie": session["cookie"], "X-WP-Nonce": session["nonce"]}


async def test_a_visitor_checks_in_at_a_live_ltzd_through_the_plugin(
    site: StubbedSite, one_instance: Instance
) -> None:
    host = one_instance.dev_json["site"]["host"]
    site.keep(home=f"https://{host}", ltzd_loyalty={"url": one_instance.base_url})
    session = await a_session(one_instance, "paula")

    status, first, headers = await site.ask("checkin", headers=session)
    assert (status, first["success"], first["alreadyClaimed"]) == (200, True, False)
    assert first["streak"]["currentStreak"] == 1
    assert headers["X-WP-Nonce"]
    status, again, _ = await site.ask("checkin", headers=session)
    assert (status, again["reward"], again["alreadyClaimed"]) == (200, 0, True)

    async def balance() -> int:
        status, me, _ = await site.ask("me", headers=session)
        assert (status, me["username"]) == (200, "paula")
        return int(me["balance"])

    await until(balance)
    assert await balance() == first["reward"]
    status, board, _ = await site.ask("leaderboard?metric=streak&period=all&limit=100")
    assert (status, board["metric"], board["period"]) == (200, "streak", "all")
    assert "paula" in {entry["username"] for entry in board["leaderboard"]}


async def test_a_live_ltzd_refuses_a_stranger_through_the_plugin(
    site: StubbedSite, one_instance: Instance
) -> None:
    host = one_instance.dev_json["site"]["host"]
    site.keep(home=f"https://{host}", ltzd_loyalty={"url": one_instance.base_url})
    for headers in ({}, {"Cookie": LOGGED_IN, "X-WP-Nonce": NONCE}, {"Authorization": BASIC}):
        status, body, _ = await site.ask("checkin", headers=headers)
        assert (status, body["code"], body["data"]) == (401, "not_logged_in", {"status": 401})
    status, body, _ = await site.ask("leaderboard?limit=0")
    assert (status, body["code"]) == (400, "rest_invalid_param")
    site.keep(home="https://nobodys.example", ltzd_loyalty={"url": one_instance.base_url})
    status, body, _ = await site.ask("leaderboard")
    assert (status, body["code"]) == (500, "not_configured")


async def test_a_member_who_takes_a_strangers_address_spends_nothing_of_the_strangers(
    site: StubbedSite, one_instance: Instance
) -> None:
    """The site lets a user change the address at once, as WordPress's core does."""
    host = one_instance.dev_json["site"]["host"]
    site.keep(home=f"https://{host}", ltzd_loyalty={"url": one_instance.base_url})
    rich = "rich@shop.example"
    event = await one_instance.post_event(rich)
    await one_instance.minted(event.event_id)
    session = await a_session(one_instance, "mallory")
    url = f"{one_instance.dev_json['sandboxUrl']}/site/wp-json/wp/v2/users/me"
    async with one_instance.http.post(url, json={"email": rich}, headers=session) as reply:
        assert (reply.status, (await reply.json())["email"]) == (200, rich)

    _, me, _ = await site.ask("me", headers=session)
    assert (me["balance"], me["spendable"]) == (100, 0)
    mug = {"perkId": "0e9f8d7c-6b5a-4938-a716-25f4c3d2e1b0", "maxCost": 15}
    status, body, _ = await site.ask("redeem", json=mug, headers=session)
    assert (status, body["code"]) == (400, "redeem_failed")
    assert "Link your wallet" in body["message"]
    _, me, _ = await site.ask("me", headers=session)
    assert me["balance"] == 100
