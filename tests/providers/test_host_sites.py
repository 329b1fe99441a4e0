"""Host sites' members, from the sandbox's site and from a site with the answers that a test sets.

The shapes are those of the platform's own documents, so that client and sandbox cannot drift
together unseen.
"""

import asyncio
import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from msgspec.structs import replace

from ltzd.dev.sandbox import Sandbox
from ltzd.errors import HostSiteBusy, HostSiteUnavailable, LoginRateLimited
from ltzd.providers import host_sites
from ltzd.providers.host_sites import (
    MAX_FORMS,
    HostCredentials,
    HostSiteClient,
    SiteUser,
    login_headers,
)
from ltzd.providers.outbound.guarded_http import GuardPolicy
from tests.support.chain.mint_world import true
from tests.support.clocks import ManualClock
from tests.support.services.brand_api import never_answer
from tests.support.services.web_servers import served_at
from tests.support.sites.host_sites import a_fake_site
from tests.support.waiting import until

LOGGED_IN = "wordpress_logged_in_5d41402abc4b2a76b9719d911017c592=ann%7C1900000000%7Ctoken%7Chmac"
SEC = "wordpress_sec_5d41402abc4b2a76b9719d911017c592=ann%7C1900000000%7Ctoken%7Cother"
NONCE = "a1b2c3d4e5"
COOKIE = HostCredentials(cookie=LOGGED_IN, nonce=NONCE)
BASIC = HostCredentials(authorization="Basic YWRhOmFiY2QgRUZHSA==")
ANN = {
    "id": 42,
    "username": "ann",
    "name": "Ann",
    "first_name": "",
    "last_name": "",
    "email": "ann@site.example",
    "url": "",
    "description": "",
    "link": "https://site.example/author/ann/",
    "locale": "en_US",
    "nickname": "ann",
    "slug": "ann",
    "roles": ["subscriber", "customer"],
    "registered_date": "2026-01-01T00:00:00+00:00",
    "capabilities": {"read": True, "subscriber": True},
    "extra_capabilities": {"subscriber": True},
    "avatar_urls": {"24": "https://secure.gravatar.example/avatar/x?s=24"},
    "meta": [],
    "_links": {"self": [{"href": "https://site.example/wp-json/wp/v2/users/42"}]},
}
SHORT = GuardPolicy(allow_loopback=True, timeout_seconds=1.0)

Json = dict[str, Any]
ODD: tuple[object, ...] = (1, 0, "true", "", [], {}, [True], 1.0)


class Site:
    """A host site that gives the same answer to every request, and records the requests."""

    def __init__(self) -> None:
        self.base = ""
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        self.gate = asyncio.Event()
        self.gate.set()
        self.set_answer(200, ANN, {"X-WP-Nonce": "0123456789"})

    def set_answer(self, status: int, body: object, headers: dict[str, str] | None = None) -> None:
        self._status, self._body, self._headers = status, body, headers or {}
        self.is_silent = False

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.paths.append(str(request.rel_url))
        self.headers.append(dict(request.headers))
        await self.gate.wait()
        if self.is_silent:
            return await never_answer(request)
        if isinstance(self._body, str):
            return web.Response(status=self._status, text=self._body, headers=self._headers)
        return web.json_response(self._body, status=self._status, headers=self._headers)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    site = Site()
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", site.answer)
    async with served_at(application) as site.base:
        yield site
        site.gate.set()


async def now(addresses: list[str]) -> list[str]:
    return addresses


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def sites(clock: ManualClock) -> AsyncIterator[HostSiteClient]:
    sites = HostSiteClient(SHORT, clock=clock)
    yield sites
    await sites.close()


# --- requests -----------------------------------------------------------------------------------


async def test_a_cookies_user_is_told_with_a_fresh_nonce(site: Site, sites: HostSiteClient) -> None:
    user = await sites.user_of(site.base, COOKIE)

    roles = ("subscriber", "customer")
    assert user == SiteUser(42, "ann", "ann@site.example", roles, "0123456789")
    assert site.paths == ["/wp-json/wp/v2/users/me?context=edit"]
    assert (site.headers[0]["Cookie"], site.headers[0]["X-WP-Nonce"]) == (LOGGED_IN, NONCE)
    assert "Authorization" not in site.headers[0]


async def test_a_site_may_lie_below_a_path_and_have_a_rest_prefix_of_its_own(
    site: Site, sites: HostSiteClient
) -> None:
    await sites.user_of(f"{site.base}/blog/", COOKIE, "api")
    assert site.paths == ["/blog/api/wp/v2/users/me?context=edit"]


@pytest.mark.parametrize(
    ("given", "sent"),
    [
        (LOGGED_IN, LOGGED_IN),
        (f"{LOGGED_IN}; {SEC}", f"{LOGGED_IN}; {SEC}"),
        (f"session=secret; {LOGGED_IN};_ga=GA1.2; {SEC}; wp-settings-1=x", f"{LOGGED_IN}; {SEC}"),
        (f"xwordpress_logged_in_a=1; {LOGGED_IN}", LOGGED_IN),
        (f"wordpress_test_cookie=WP%20Cookie; wordpress_5d41=x; {LOGGED_IN}", LOGGED_IN),
        (f"a=wordpress_logged_in_x=1; {LOGGED_IN}", LOGGED_IN),
        (f"wordpress_logged_in_a; {LOGGED_IN}", LOGGED_IN),
        (f"wordpress_logged_in_a=x\r\nHost: elsewhere; {LOGGED_IN}", LOGGED_IN),
        (f"wordpress_logged_in_a=ä; {LOGGED_IN}", LOGGED_IN),
    ],
)
def test_only_the_cookies_of_a_log_in_are_sent_on(given: str, sent: str) -> None:
    headers = login_headers(HostCredentials(given, NONCE, BASIC.authorization))
    assert headers == {"Accept": "application/json", "Cookie": sent, "X-WP-Nonce": NONCE}


@pytest.mark.parametrize(
    "credentials",
    [
        BASIC,
        HostCredentials(LOGGED_IN, None, BASIC.authorization),
        HostCredentials("session=secret", NONCE, BASIC.authorization),
        HostCredentials(LOGGED_IN, "a1 b2\r\n", BASIC.authorization),
        HostCredentials(authorization="basic   YWRhOmFiY2QgRUZHSA=="),
    ],
)
def test_a_password_is_sent_on_where_no_cookie_can_count(credentials: HostCredentials) -> None:
    assert login_headers(credentials) == {
        "Accept": "application/json",
        "Authorization": "Basic YWRhOmFiY2QgRUZHSA==",
    }


@pytest.mark.parametrize(
    "credentials",
    [
        HostCredentials(),
        HostCredentials(cookie=LOGGED_IN),
        HostCredentials(nonce=NONCE),
        HostCredentials("session=secret", NONCE),
        HostCredentials(LOGGED_IN, ""),
        HostCredentials(LOGGED_IN, "x" * 65),
        HostCredentials(f"{LOGGED_IN}{'x' * 5000}", NONCE),
        HostCredentials(authorization="Bearer YWRhOmFi"),
        HostCredentials(authorization="Basic"),
        HostCredentials(authorization="Basic a\r\nHost: x"),
        HostCredentials(authorization=f"Basic {'a' * 2000}"),
    ],
)
async def test_where_nothing_can_prove_a_log_in_no_site_is_asked(
    site: Site, sites: HostSiteClient, credentials: HostCredentials
) -> None:
    assert await sites.user_of(site.base, credentials) is None
    assert site.paths == []


# --- answers ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (401, "rest_not_logged_in", "You are not currently logged in."),
        (401, "incorrect_password", "The provided password is an invalid application password."),
        (403, "rest_cookie_invalid_nonce", "Cookie nonce is invalid"),
        (403, "rest_cookie_invalid_nonce", "Cookie check failed"),
    ],
)
async def test_whom_the_site_refuses_is_nobody(
    site: Site, sites: HostSiteClient, status: int, code: str, message: str
) -> None:
    site.set_answer(status, {"code": code, "message": message, "data": {"status": status}})
    assert await sites.user_of(site.base, COOKIE) is None
    assert await sites.user_of(site.base, COOKIE) is None
    assert len(site.paths) == 2, "a refusal is not cached"


async def test_the_site_judges_a_password_that_is_not_base64(
    site: Site, sites: HostSiteClient
) -> None:
    site.set_answer(401, {"code": "rest_not_logged_in", "message": "", "data": {"status": 401}})
    assert await sites.user_of(site.base, HostCredentials(authorization="Basic a")) is None
    assert len(site.paths) == 1


@pytest.mark.parametrize(
    ("status", "body"),
    [
        *((status, ANN) for status in (201, 302, 400, 404, 429, 500, 503)),
        (200, "<html>maintenance</html>"),
        (200, []),
        (200, {}),
        (200, {name: value for name, value in ANN.items() if name != "email"}),
        (200, {name: value for name, value in ANN.items() if name != "username"}),
        (200, ANN | {"id": 0}),
        (200, ANN | {"id": "42"}),
        (200, ANN | {"id": True}),
        (200, ANN | {"username": ""}),
        (200, ANN | {"email": False}),
        (200, ANN | {"roles": {"1": "subscriber"}}),
        (200, ANN | {"description": "x" * 70_000}),
        (200, ANN | {"username": "x" * 60_000}),
        (200, ANN | {"email": "ann@" + "x" * 60_000 + ".example"}),
        (200, ANN | {"roles": ["x" * 600 for _ in range(100)]}),
        (200, ANN | {"roles": ["x"] * 101}),
        (200, "[" * 100_000),
    ],
)
async def test_anything_else_is_the_sites_trouble_and_never_a_log_out(
    site: Site, sites: HostSiteClient, status: int, body: object
) -> None:
    site.set_answer(status, body, {"Location": "/wp-login.php"})
    with pytest.raises(HostSiteUnavailable) as caught:
        await sites.user_of(site.base, COOKIE)
    assert "ann@" not in str(caught.value)
    assert len(site.paths) == 1, "no redirect is followed"


async def test_a_site_that_is_silent_or_away_is_in_trouble(
    site: Site, sites: HostSiteClient
) -> None:
    site.is_silent = True
    with pytest.raises(HostSiteUnavailable):
        await sites.user_of(site.base, COOKIE)
    with pytest.raises(HostSiteUnavailable):
        await sites.user_of("http://127.0.0.1:1", COOKIE)


@pytest.mark.parametrize(
    "origin",
    ["http://site.example", "https://10.0.0.1", "https://site.example:8443", "ftp://site.example"],
)
async def test_a_log_in_is_sent_to_https_on_the_public_internet_only(origin: str) -> None:
    async def at_home(_host: str) -> list[str]:
        return ["10.0.0.1"]

    sites = HostSiteClient(host_sites.guard_policy(), at_home)
    for place in (origin, "https://site.example"):
        with pytest.raises(HostSiteUnavailable):
            await sites.user_of(place, COOKIE)
    await sites.close()


async def test_outside_dev_mode_this_machine_is_not_asked(site: Site) -> None:
    sites = HostSiteClient(host_sites.guard_policy())
    with pytest.raises(HostSiteUnavailable):
        await sites.user_of(site.base, COOKIE)
    await sites.close()
    assert site.paths == []


async def test_a_user_without_an_address_or_a_fresh_nonce_is_a_user(
    site: Site, sites: HostSiteClient
) -> None:
    site.set_answer(200, ANN | {"email": "", "roles": []}, {"X-WP-Nonce": "not a nonce"})
    assert await sites.user_of(site.base, COOKIE) == SiteUser(42, "ann", None)


# --- waiting -------------------------------------------------------------------------------------


def a_log_in(number: int) -> HostCredentials:
    return HostCredentials(cookie=f"{LOGGED_IN}{number}", nonce=f"{NONCE}{number}")


async def test_fifty_wait_for_a_slow_site_and_others_are_asked_at_once(site: Site) -> None:
    """The limit is the slow host's alone; the hosts here are two names of this machine."""
    sites = HostSiteClient(host_sites.guard_policy(allow_loopback=True))
    slow = [f"{site.base}/{name}" for name in ("one", "two", "three", "four", "five", "six")]
    site.gate.clear()
    waiting = [
        asyncio.create_task(sites.user_of(origin, a_log_in(number)))
        for origin in slow[:1]
        for number in range(50)
    ]
    await until(lambda: true(len(site.paths) == 50))
    for number in (0, 50):  # callers with a log-in whose request is in flight wait as well
        with pytest.raises(HostSiteBusy):
            await sites.user_of(slow[0], a_log_in(number))
    async with a_fake_site() as quick:
        quick_base = quick.base.replace("127.0.0.1", "localhost")
        async with asyncio.timeout(20):
            assert await sites.user_of(quick_base, COOKIE) is not None
    site.gate.set()
    assert all(await asyncio.gather(*waiting))
    assert await sites.user_of(slow[0], a_log_in(51)) is not None
    await sites.close()


@pytest.mark.parametrize("proof", ["nonce", "password"])
async def test_one_good_log_in_in_many_forms_does_not_ask_the_site_without_end(
    site: Site, sites: HostSiteClient, clock: ManualClock, proof: str
) -> None:
    """The platform ignores foreign cookies, and spaces in an application password."""

    def form(number: int) -> HostCredentials:
        if proof == "nonce":
            return HostCredentials(cookie=f"{LOGGED_IN}a; wordpress_sec_{number}=b", nonce=NONCE)
        password = "Ab3 d" + number * " "
        return HostCredentials(
            authorization="Basic " + base64.b64encode(f"ann:{password}".encode()).decode()
        )

    for number in range(MAX_FORMS):
        assert await sites.user_of(site.base, form(number)) is not None
    for number in range(MAX_FORMS, 3 * MAX_FORMS):
        with pytest.raises(LoginRateLimited):
            await sites.user_of(site.base, form(number))
    assert await sites.user_of(site.base, form(0)) is not None, "it is known"
    assert len(site.paths) == MAX_FORMS
    assert await sites.user_of(site.base, a_log_in(1)) is not None, "another session"
    clock.now += 60
    assert await sites.user_of(site.base, form(MAX_FORMS)) is not None


async def test_however_many_sites_hang_another_one_answers(site: Site) -> None:
    """20 hosts with 50 requests each: more than any bound that they could share."""
    policy = replace(host_sites.guard_policy(allow_loopback=True), timeout_seconds=60.0)
    sites = HostSiteClient(policy, resolve=lambda _host: now(["127.0.0.1"]))
    site.gate.clear()
    port = site.base.rpartition(":")[2]
    waiting = [
        asyncio.create_task(sites.user_of(f"http://s{host}.localhost:{port}", a_log_in(number)))
        for host in range(20)
        for number in range(50)
    ]
    await until(lambda: true(len(site.paths) == 1_000))
    async with a_fake_site() as quick:
        quick_base = quick.base.replace("127.0.0.1", "quick.localhost")
        async with asyncio.timeout(20):
            assert await sites.user_of(quick_base, COOKIE) is not None
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    site.gate.set()
    await sites.close()


async def test_those_who_gave_up_leave_their_places(site: Site, sites: HostSiteClient) -> None:
    site.gate.clear()
    waiting = [
        asyncio.create_task(sites.user_of(site.base, a_log_in(number))) for number in range(50)
    ]
    await asyncio.sleep(0)
    with pytest.raises(HostSiteBusy):
        await sites.user_of(site.base, COOKIE)
    waiting[0].cancel()
    await asyncio.gather(waiting[0], return_exceptions=True)
    waiting[0] = asyncio.create_task(sites.user_of(site.base, a_log_in(50)))
    await asyncio.sleep(0)
    with pytest.raises(HostSiteBusy):
        await sites.user_of(site.base, COOKIE)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, return_exceptions=True)
    site.gate.set()
    assert await sites.user_of(site.base, COOKIE) is not None


async def test_one_sites_log_ins_push_out_no_other_sites(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A brand's own site may accept any number of them."""
    monkeypatch.setattr(host_sites, "MAX_CACHED", 4)
    sites = HostSiteClient(SHORT)
    await sites.user_of(site.base, COOKIE)
    for number in range(8):
        await sites.user_of(f"{site.base}/other", a_log_in(number))

    requests = len(site.paths)
    assert sites.was_recently_valid(site.base, COOKIE)
    assert await sites.user_of(site.base, COOKIE) is not None
    assert len(site.paths) == requests, "the answer is cached"
    await sites.close()


async def test_a_log_in_is_confirmed_for_an_hour_or_until_the_site_denies_it(
    site: Site, sites: HostSiteClient, clock: ManualClock
) -> None:
    assert not sites.was_recently_valid(site.base, COOKIE)
    await sites.user_of(site.base, COOKIE)
    assert sites.was_recently_valid(site.base, COOKIE)
    assert not sites.was_recently_valid(site.base, BASIC)
    assert not sites.was_recently_valid(f"{site.base}/other", COOKIE)
    assert not sites.was_recently_valid(site.base, HostCredentials())
    clock.now += 3_599
    assert sites.was_recently_valid(site.base, COOKIE)
    site.set_answer(401, {"code": "rest_not_logged_in"})
    assert await sites.user_of(site.base, COOKIE) is None
    assert not sites.was_recently_valid(site.base, COOKIE)

    site.set_answer(200, ANN)
    await sites.user_of(site.base, COOKIE)
    clock.now += 3_600
    assert not sites.was_recently_valid(site.base, COOKIE)


@pytest.mark.parametrize(
    ("fields", "confirmed"),
    [
        ({}, None),
        ({"ltzd_email_confirmed": None}, None),
        ({"ltzd_email_confirmed": True}, True),
        ({"ltzd_email_confirmed": False}, False),
        *(({"ltzd_email_confirmed": odd}, False) for odd in ODD),
    ],
    ids=str,
)
async def test_only_true_confirms_an_address_and_only_silence_leaves_it_to_the_operator(
    site: Site, sites: HostSiteClient, fields: dict[str, object], confirmed: bool | None
) -> None:
    site.set_answer(200, ANN | fields)
    user = await sites.user_of(site.base, COOKIE)
    assert user is not None
    assert user.email_confirmed is confirmed


# --- the cache ---------------------------------------------------------------------------------


async def test_a_log_in_is_believed_for_less_than_a_minute(
    site: Site, sites: HostSiteClient, clock: ManualClock
) -> None:
    first = await sites.user_of(site.base, COOKIE)
    site.set_answer(401, {"code": "rest_not_logged_in"})
    clock.now += 54
    assert await sites.user_of(site.base, COOKIE) == first
    clock.now += 6
    assert await sites.user_of(site.base, COOKIE) is None
    assert len(site.paths) == 2


@pytest.mark.parametrize(
    "other",
    [
        HostCredentials(LOGGED_IN.replace("ann", "ben"), NONCE),
        HostCredentials(LOGGED_IN, "a1b2c3d4e6"),
        BASIC,
    ],
)
async def test_what_is_kept_of_one_log_in_is_not_told_of_another(
    site: Site, sites: HostSiteClient, other: HostCredentials
) -> None:
    await sites.user_of(site.base, COOKIE)
    site.set_answer(401, {"code": "rest_not_logged_in"})
    assert await sites.user_of(site.base, other) is None
    assert await sites.user_of(f"{site.base}/another", COOKIE) is None


async def test_what_does_not_prove_a_log_in_makes_no_other_of_it(
    site: Site, sites: HostSiteClient
) -> None:
    await sites.user_of(site.base, COOKIE)
    await sites.user_of(site.base, HostCredentials(f"_ga=GA1.2; {LOGGED_IN}", NONCE))
    assert len(site.paths) == 1


async def test_trouble_is_not_kept(site: Site, sites: HostSiteClient) -> None:
    site.set_answer(503, {})
    with pytest.raises(HostSiteUnavailable):
        await sites.user_of(site.base, COOKIE)
    site.set_answer(200, ANN)
    assert await sites.user_of(site.base, COOKIE) is not None


async def test_a_pages_many_requests_ask_once(site: Site, sites: HostSiteClient) -> None:
    site.gate.clear()
    crowd = [asyncio.create_task(sites.user_of(site.base, COOKIE)) for _ in range(20)]
    await asyncio.sleep(0)
    crowd[0].cancel()
    site.gate.set()
    users = await asyncio.gather(*crowd[1:])
    assert all(user is not None and user.id == 42 for user in users)
    assert len(site.paths) == 1


def test_secrets_and_addresses_do_not_show() -> None:
    user = SiteUser(42, "ann", "ann@site.example", (), NONCE)
    shown = repr(COOKIE) + repr(BASIC) + repr(user)
    for hidden in (LOGGED_IN, NONCE, "YWRh", "@site"):
        assert hidden not in shown


# --- the sandbox speaks the same ----------------------------------------------------------------


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    sandbox = Sandbox(tmp_path, 0, "http://127.0.0.1:1", None)
    await sandbox.start()
    yield sandbox
    await sandbox.stop()


async def log_in(sandbox: Sandbox, username: str) -> Json:
    async with (
        aiohttp.ClientSession() as http,
        http.post(
            sandbox.control_endpoints()["siteSessionUrl"], json={"username": username}
        ) as response,
    ):
        given: Json = await response.json()
        return given


async def test_the_sandboxs_sessions_are_log_ins(sandbox: Sandbox, sites: HostSiteClient) -> None:
    session = await log_in(sandbox, "ann@shop.example")
    user = await sites.user_of(
        sandbox.site_url, HostCredentials(session["cookie"], session["nonce"])
    )

    assert user is not None
    assert (user.username, user.email) == (session["username"], session["email"])
    assert user.roles == ("subscriber",)
    again = await sites.user_of(sandbox.site_url, HostCredentials(session["cookie"], user.nonce))
    assert again == user
    for nonce in ("0123456789", None):
        wrong = HostCredentials(session["cookie"], nonce)
        assert await sites.user_of(sandbox.site_url, wrong) is None


async def test_the_sandboxs_application_password_is_a_log_in(
    sandbox: Sandbox, sites: HostSiteClient
) -> None:
    section = sandbox.site_section()
    good = aiohttp.encode_basic_auth(section["username"], section["applicationPassword"])
    user = await sites.user_of(sandbox.site_url, HostCredentials(authorization=good))
    assert user is not None
    assert (user.username, user.nonce) == (section["username"], None)
    bad = aiohttp.encode_basic_auth(section["username"], "abcd EFGH")
    assert await sites.user_of(sandbox.site_url, HostCredentials(authorization=bad)) is None


async def test_the_sandboxs_user_has_every_field_of_the_platforms(
    sandbox: Sandbox,
) -> None:
    section = sandbox.site_section()
    basic = aiohttp.encode_basic_auth(section["username"], section["applicationPassword"])
    url = f"{sandbox.site_url}/wp-json/wp/v2/users/me?context=edit"
    async with (
        aiohttp.ClientSession(headers={"Authorization": basic}) as http,
        http.get(url) as response,
    ):
        user: Json = await response.json()
    assert {name: type(value) for name, value in user.items()} == {
        name: type(value) for name, value in ANN.items()
    }
