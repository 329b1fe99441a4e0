"""The page that plays a user's wallet app, with a stub of ltzd's `/site-links`."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web

from ltzd.dev.sandbox import Sandbox

LINK = {
    "host": "site.example",
    "walletAddress": "0x" + "ab" * 20,
    "dailyAllowance": 500,
    "linkedAt": "2026-05-12T10:00:00Z",
    "expiresAt": "2026-11-08T10:00:00Z",
}
CODE = {
    "code": "ABCD2345",
    "host": "site.example",
    "dailyAllowance": 70,
    "expiresAt": "2026-05-12T10:10:00Z",
}


@dataclass
class Ltzd:
    """A stub of ltzd's `/site-links` that records its requests."""

    requests: list[tuple[str, str, Any]] = field(default_factory=list)
    tokens: set[str] = field(default_factory=set)
    links: list[dict[str, Any]] = field(default_factory=list)
    refusal: dict[str, str] | None = None

    async def answer(self, request: web.Request) -> web.Response:
        body = await request.json() if request.can_read_body else None
        self.requests.append((request.method, request.path, body))
        self.tokens.add(request.headers["Authorization"])
        if self.refusal is not None and request.method != "GET":
            return web.json_response(self.refusal, status=400)
        if request.method == "POST":
            return web.json_response(CODE, status=201)
        if request.method == "DELETE":
            self.links.clear()
            return web.Response(status=204)
        return web.json_response({"links": self.links})


@pytest.fixture
async def ltzd() -> Ltzd:
    return Ltzd()


@pytest.fixture
async def sandbox(tmp_path: Path, ltzd: Ltzd) -> AsyncIterator[Sandbox]:
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", ltzd.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    sandbox = Sandbox(tmp_path, 0, "http://127.0.0.1:1", None)
    await sandbox.start()
    sandbox.set_ltzd_url(f"http://127.0.0.1:{runner.addresses[0][1]}")
    yield sandbox
    await sandbox.stop()
    await runner.cleanup()


async def post(
    sandbox: Sandbox, path: str, form: dict[str, str], headers: dict[str, str] | None = None
) -> tuple[int, str]:
    url = f"{sandbox.url}/wallet/{path}"
    async with aiohttp.request("POST", url, data=form, headers=headers) as answer:
        return answer.status, await answer.text()


async def test_a_code_is_asked_for_with_the_owners_token_and_shown(
    sandbox: Sandbox, ltzd: Ltzd
) -> None:
    form = {"email": "ann@shop.example", "host": " site.example ", "dailyAllowance": "70"}
    status, page = await post(sandbox, "code", form)
    assert status == 200
    assert re.search(r'<p class="code" role="status">ABCD2345</p>', page)
    order = {"host": "site.example", "dailyAllowance": 70}
    assert ltzd.requests == [("POST", "/site-links", order), ("GET", "/site-links", None)]
    (token,) = ltzd.tokens
    assert re.fullmatch(r"Bearer [\w-]+\.[\w-]+\.[\w-]+", token)


async def test_the_links_are_shown_and_each_can_be_ended(sandbox: Sandbox, ltzd: Ltzd) -> None:
    ltzd.links.append(LINK)
    _, page = await post(sandbox, "", {"email": "ann@shop.example"})
    assert "End the link to site.example" in page
    status, page = await post(sandbox, "end", {"email": "ann@shop.example", "host": "site.example"})
    assert (status, "No site is linked" in page) == (200, True)
    assert ("DELETE", "/site-links/site.example", None) in ltzd.requests


async def test_what_ltzd_refuses_is_shown_in_its_words_and_as_text(
    sandbox: Sandbox, ltzd: Ltzd
) -> None:
    ltzd.refusal = {"error": "host: no <site> of this name", "code": "INVALID_FIELDS"}
    form = {"email": "ann@shop.example", "host": "../x", "dailyAllowance": "many"}
    status, page = await post(sandbox, "code", form)
    assert status == 200
    assert '<p class="bad" role="alert">host: no &lt;site&gt; of this name</p>' in page
    assert ltzd.requests[0][2] == {"host": "../x", "dailyAllowance": "many"}
    await post(sandbox, "end", form)
    assert ("DELETE", "/site-links/../x", None) in ltzd.requests


@pytest.mark.parametrize("email", ["", "ann", '"><script>'])
async def test_what_is_no_address_opens_no_wallet(sandbox: Sandbox, ltzd: Ltzd, email: str) -> None:
    status, page = await post(sandbox, "", {"email": email})
    assert (status, "<script>" in page) == (400, False)
    assert "email: must be" in page
    assert ltzd.requests == []


async def test_no_other_origins_form_gets_a_code(sandbox: Sandbox, ltzd: Ltzd) -> None:
    foreign = {"Origin": "http://127.0.0.1:1"}
    form = {"email": "ann@shop.example", "host": "site.example", "dailyAllowance": "70"}
    assert (await post(sandbox, "code", form, foreign))[0] == 403
    assert ltzd.requests == []


async def test_while_ltzd_is_away_the_page_says_so(sandbox: Sandbox) -> None:
    sandbox.set_ltzd_url("http://127.0.0.1:1")
    status, page = await post(sandbox, "", {"email": "ann@shop.example"})
    assert (status, "ltzd does not answer" in page) == (503, True)


async def test_the_demo_site_leads_there_with_the_members_address(sandbox: Sandbox) -> None:
    jar = aiohttp.CookieJar(unsafe=True)
    async with aiohttp.ClientSession(cookie_jar=jar) as http:
        async with http.post(f"{sandbox.site_url}/log-in", data={"username": "ann"}) as answer:
            page = await answer.text()
        match = re.search(r'href="(\.\./wallet/\?[^"]+)"', page)
        assert match is not None
        async with http.get(f"{sandbox.site_url}/{match[1]}") as answer:
            assert 'value="ann@site.example"' in await answer.text()
