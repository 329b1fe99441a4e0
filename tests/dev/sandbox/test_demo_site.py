"""The demo site's pages and its loyalty routes, as a browser without a script uses them.

The tests of its script are in tests/browser.
"""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from http.cookies import Morsel
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from ltzd.dev.sandbox import Sandbox

LOYALTY = "/wp-json/loyalty/v1"
JSON = "application/json"
TRANSPORT = {"host", "accept-encoding", "connection"}


@dataclass
class Ltzd:
    """A stub of ltzd's site API that records its requests."""

    requests: list[dict[str, Any]] = field(default_factory=list)
    answer: web.Response | None = None
    url: str = ""

    async def handle(self, request: web.Request) -> web.Response:
        self.requests.append(
            {
                "line": f"{request.method} {request.rel_url.raw_path_qs}",
                "headers": {name.lower(): text for name, text in request.headers.items()},
                "body": await request.read(),
            }
        )
        return self.answer or web.json_response({"success": True}, headers={"X-Other": "1"})


@pytest.fixture
async def ltzd() -> AsyncIterator[Ltzd]:
    ltzd = Ltzd()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", ltzd.handle)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    ltzd.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    yield ltzd
    await runner.cleanup()


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    sandbox = Sandbox(tmp_path, 0, "http://127.0.0.1:1", None)
    await sandbox.start()
    yield sandbox
    await sandbox.stop()


@pytest.fixture
async def visitor(sandbox: Sandbox) -> AsyncIterator["Visitor"]:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as http:
        yield Visitor(sandbox, http)


class Visitor:
    def __init__(self, sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
        self._sandbox = sandbox
        self.http = http

    async def page(self, path: str = "/") -> str:
        async with self.http.get(self._sandbox.site_url + path) as answer:
            assert (answer.status, answer.content_type) == (200, "text/html")
            return await answer.text()

    async def log_in(self, username: str = "ann", **headers: str) -> tuple[int, str]:
        url = f"{self._sandbox.site_url}/log-in"
        async with self.http.post(url, data={"username": username}, headers=headers) as answer:
            return answer.status, await answer.text()

    async def ask(
        self, path: str, method: str = "GET", **request: Any
    ) -> tuple[int, Any, dict[str, str]]:
        url = self._sandbox.site_url + path
        async with self.http.request(method, url, **request) as answer:
            return answer.status, await answer.json(), dict(answer.headers)

    @property
    def login_cookie(self) -> Morsel[str]:
        (match,) = [each for each in self.http.cookie_jar if each.key.startswith("wordpress_l")]
        return match


# --- the pages ----------------------------------------------------------------------------------


async def test_a_name_is_enough_to_log_in_and_log_out_ends_it(
    sandbox: Sandbox, visitor: Visitor
) -> None:
    assert 'action="log-in"' in await visitor.page()

    status, page = await visitor.log_in("Ann Lee")

    assert status == 200
    assert "Good to see you, Ann Lee" in page
    cookie = visitor.login_cookie
    assert (cookie["path"], cookie["httponly"], cookie["samesite"]) == ("/site/", True, "Lax")
    async with visitor.http.post(f"{sandbox.site_url}/log-out") as answer:
        assert 'action="log-in"' in await answer.text()
    assert 'action="log-in"' in await visitor.page()
    assert not [each for each in visitor.http.cookie_jar if each.value]


async def test_the_page_holds_a_nonce_that_the_site_takes(visitor: Visitor) -> None:
    _, page = await visitor.log_in("ann")
    match = re.search('data-nonce="([0-9a-f]{10})"', page)
    assert match is not None
    status, user, _ = await visitor.ask("/wp-json/wp/v2/users/me", headers={"X-WP-Nonce": match[1]})
    assert (status, user["name"]) == (200, "ann")


@pytest.mark.parametrize("name", ["", "a|b", "änn", '"><script>', "x" * 61])
async def test_a_name_that_cannot_be_is_refused_on_the_page(visitor: Visitor, name: str) -> None:
    status, page = await visitor.log_in(name)
    assert status == 400
    assert "A name has 1 to 60 letters" in page
    assert 'aria-invalid="true"' in page
    assert "<script>" not in page


async def test_no_other_origin_logs_anybody_in_or_out(sandbox: Sandbox, visitor: Visitor) -> None:
    foreign = {"Origin": "http://127.0.0.1:1"}
    status, _ = await visitor.log_in("ann", **foreign)
    assert status == 403
    assert not [*visitor.http.cookie_jar]
    assert (await visitor.log_in("ann", Origin=sandbox.url))[0] == 200
    status, _, _ = await visitor.ask("/log-out", "POST", headers=foreign)
    assert status == 403
    assert visitor.login_cookie.value


async def test_pages_load_nothing_from_elsewhere_and_run_no_script_of_their_own(
    sandbox: Sandbox, visitor: Visitor
) -> None:
    pages = [await visitor.page(), (await visitor.log_in())[1]]
    for page in pages:
        assert not re.search(r"<script(?![^>]*src=)|\son\w+=|\sstyle=|<style", page)
        by_username = re.findall(r'(?:src|href)="([^"#]+)"', page)
        loaded = [each for each in by_username if not each.startswith("../wallet/?")]
        assert loaded
        for each in loaded:
            assert "//" not in each
            async with visitor.http.get(f"{sandbox.site_url}/{each}") as answer:
                assert answer.status == 200
                policy = answer.headers["Content-Security-Policy"]
                assert "default-src 'none'; script-src 'self';" in policy
                assert not re.search(r"unsafe|://|\*", policy)


async def test_an_address_without_a_page_says_so_on_a_page(
    sandbox: Sandbox, visitor: Visitor
) -> None:
    assert 'action="log-in"' in await visitor.page("")
    async with visitor.http.get(f"{sandbox.demo_site_url}frame.html") as answer:
        assert (answer.status, answer.content_type) == (404, "text/html")


# --- the loyalty routes -------------------------------------------------------------------------


async def test_a_request_is_carried_to_ltzd_as_the_sites_plugin_carries_it(
    sandbox: Sandbox, visitor: Visitor, ltzd: Ltzd
) -> None:
    sandbox.set_ltzd_url(ltzd.url)
    await visitor.log_in()
    cookie = visitor.login_cookie
    headers = {
        "X-WP-Nonce": "0123456789",
        "Content-Type": JSON,
        "Authorization": "Basic YWRhOng=",
        "X-Forwarded-For": "10.0.0.1",
        "Cookie": "other=1; wordpress_sec_a=b",
    }
    query = "?metric=streak&metric=%2B%20&limit"

    await visitor.ask(f"{LOYALTY}/redeem{query}", "POST", data=b'{"perkId": 7', headers=headers)

    (requests,) = ltzd.requests
    assert requests["line"] == f"POST {LOYALTY}/redeem{query}"
    assert requests["body"] == b'{"perkId": 7'
    headers = requests["headers"]
    assert headers["host"] == "site.example"
    assert (headers["x-wp-nonce"], headers["content-type"]) == ("0123456789", JSON)
    assert sorted(headers["cookie"].split("; ")) == [
        f"{cookie.key}={cookie.value}",
        "wordpress_sec_a=b",
    ]
    assert set(headers) == {"x-wp-nonce", "content-type", "cookie", "content-length", *TRANSPORT}


async def test_what_a_visitor_did_not_say_is_not_said_to_ltzd(
    sandbox: Sandbox, visitor: Visitor, ltzd: Ltzd
) -> None:
    sandbox.set_ltzd_url(ltzd.url)
    assert (await visitor.ask(f"{LOYALTY}/leaderboard"))[0] == 200
    assert set(ltzd.requests[0]["headers"]) == TRANSPORT


async def test_status_body_and_nonce_come_back_and_nothing_else(
    sandbox: Sandbox, visitor: Visitor, ltzd: Ltzd
) -> None:
    sandbox.set_ltzd_url(ltzd.url)
    answer = {"code": "not_logged_in", "message": "Log in, ännchen", "data": {"status": 401}}
    ltzd.answer = web.json_response(
        answer,
        status=401,
        headers={"X-WP-Nonce": "abcdef0123", "Set-Cookie": "a=b", "X-Other": "1"},
    )

    status, body, headers = await visitor.ask(f"{LOYALTY}/checkin", "POST")

    assert (status, body) == (401, answer)
    assert headers["X-WP-Nonce"] == "abcdef0123"
    assert headers["Cache-Control"] == "no-store"
    assert not {"Set-Cookie", "X-Other"} & set(headers)


async def test_a_redirect_is_not_followed(sandbox: Sandbox, visitor: Visitor, ltzd: Ltzd) -> None:
    sandbox.set_ltzd_url(ltzd.url)
    ltzd.answer = web.json_response({}, status=302, headers={"Location": f"{ltzd.url}/elsewhere"})
    assert (await visitor.ask(f"{LOYALTY}/me", allow_redirects=False))[0] == 302
    assert len(ltzd.requests) == 1


@pytest.mark.parametrize("path", ["", "/", "/a/b", "/..%2f..%2fservice-api", "/%2e%2e", "/a%3Fb"])
async def test_nothing_else_of_ltzd_is_reached_through_the_site(
    sandbox: Sandbox, visitor: Visitor, ltzd: Ltzd, path: str
) -> None:
    sandbox.set_ltzd_url(ltzd.url)
    status, body, _ = await visitor.ask(LOYALTY + path)
    assert (status, body["code"]) == (404, "rest_no_route")
    assert ltzd.requests == []


async def test_before_ltzd_is_known_and_while_it_is_away_the_answer_is_503(
    sandbox: Sandbox, visitor: Visitor
) -> None:
    for _ in range(2):
        status, body, _ = await visitor.ask(f"{LOYALTY}/me")
        assert (status, body["code"], body["data"]) == (503, "api_error", {"status": 503})
        assert body["message"]
        sandbox.set_ltzd_url("http://127.0.0.1:1")


async def test_what_is_too_large_is_refused_in_the_platforms_shape(
    sandbox: Sandbox, visitor: Visitor, ltzd: Ltzd
) -> None:
    sandbox.set_ltzd_url(ltzd.url)
    status, body, _ = await visitor.ask(f"{LOYALTY}/link", "POST", data=b"x" * 300_000)
    assert (status, body["data"]) == (413, {"status": 413})
    assert ltzd.requests == []


async def test_a_fault_ordered_for_the_site_is_kept_for_ltzd(
    sandbox: Sandbox, visitor: Visitor
) -> None:
    order = {"service": "site", "status": 503, "times": 1}
    async with visitor.http.post(sandbox.control_endpoints()["faultUrl"], json=order) as answer:
        assert answer.status == 200
    assert 'action="log-in"' in await visitor.page()
    status, body, _ = await visitor.ask("/wp-json/wp/v2/users/me")
    assert (status, body["code"]) == (503, "ordered_fault")
