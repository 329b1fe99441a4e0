"""The sandbox's host site over HTTP, as its platform documents it."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from ltzd.dev.sandbox import Sandbox
from ltzd.dev.sandbox.journal import Journal
from ltzd.dev.sandbox.site.sessions import SiteSessions
from ltzd.dev.sandbox.site.users import HostSiteUser, SiteUsers
from ltzd.errors import Misconfigured
from ltzd.providers.identity.client import IdentityClient
from ltzd.values import address_of

ME = "/wp-json/wp/v2/users/me"
NOT_LOGGED_IN = {
    "code": "rest_not_logged_in",
    "message": "You are not currently logged in.",
    "data": {"status": 401},
}
BAD_NONCE = {
    "code": "rest_cookie_invalid_nonce",
    "message": "Cookie check failed",
    "data": {"status": 403},
}

Json = dict[str, Any]


async def started(folder: Path) -> Sandbox:
    sandbox = Sandbox(folder, 0, "http://127.0.0.1:1", None)
    await sandbox.start()
    return sandbox


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    sandbox = await started(tmp_path)
    yield sandbox
    await sandbox.stop()


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as session:
        yield session


@pytest.fixture
def site(sandbox: Sandbox, http: aiohttp.ClientSession) -> "Site":
    return Site(sandbox, http)


class Site:
    def __init__(self, sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
        self.sandbox = sandbox
        self._http = http

    async def log_in(self, username: object = "ann") -> Json:
        status, given = await self.control({"username": username})
        assert status == 200, given
        return given

    async def control(self, body: object) -> tuple[int, Json]:
        url = self.sandbox.control_endpoints()["siteSessionUrl"]
        async with self._http.post(url, json=body) as response:
            return response.status, await response.json()

    async def ask(
        self, path: str = f"{ME}?context=edit", method: str = "GET", **headers: str
    ) -> tuple[int, Json, str | None]:
        """Returns status, body and the new nonce; underscores in header names become dashes."""
        by_username = {name.replace("_", "-"): text for name, text in headers.items()}
        url = self.sandbox.site_url + path
        async with self._http.request(method, url, headers=by_username) as response:
            return response.status, await response.json(), response.headers.get("X-WP-Nonce")

    async def me(self, session: Json, **headers: str) -> tuple[int, Json, str | None]:
        log_in = {"Cookie": session["cookie"], "X_WP_Nonce": session["nonce"]}
        return await self.ask(**(log_in | headers))

    async def by_password(self, login: str, password: str) -> tuple[int, Json]:
        basic = aiohttp.encode_basic_auth(login, password)
        status, body, nonce = await self.ask(Authorization=basic)
        assert nonce is None
        return status, body


# --- the control endpoint ---------------------------------------------------------------------


async def test_the_section_registers_a_user_and_logs_him_in(site: Site) -> None:
    session = await site.log_in("Ann")

    assert set(session) == {"cookie", "nonce", "username", "email", "walletAddress"}
    assert (session["username"], session["email"]) == ("Ann", "ann@site.example")
    assert re.search(r"(?:^|; )wordpress_logged_in_[0-9a-f]{32}=[^; ]+(?:;|$)", session["cookie"])
    assert re.fullmatch("[0-9a-f]{10}", session["nonce"])
    status, user, _ = await site.me(session)
    assert (status, user["username"], user["email"]) == (200, "Ann", "ann@site.example")


async def test_the_wallet_is_the_one_that_the_identity_provider_has(site: Site) -> None:
    first = await site.log_in("ann")
    async with IdentityClient(site.sandbox.identity_policy()) as client:
        known = await client.wallet_of_email("ann@site.example")
        earlier = await client.wallet_of_email("ben@site.example")
    second = await site.log_in("ben")

    assert address_of(first["walletAddress"]) == known.wallet
    assert address_of(second["walletAddress"]) == earlier.wallet


async def test_a_user_is_one_in_any_letter_case_and_has_many_sessions(site: Site) -> None:
    first, second = await site.log_in("ann"), await site.log_in("ANN")

    assert second["username"] == "ann"
    assert first["cookie"] != second["cookie"]
    assert first["nonce"] != second["nonce"]
    assert [(await site.me(session))[0] for session in (first, second)] == [200, 200]


async def test_everybody_gets_an_address_of_his_own(site: Site) -> None:
    names = ["ann", "ann@site.example", "ann lee", "x@shop.example", "._.", "Ann-Lee", "@home"]
    sessions = [await site.log_in(name) for name in names]
    emails = [session["email"] for session in sessions]

    assert len(set(emails)) == len(names)
    assert emails[0] == "ann@site.example"
    assert emails[3] == "x@shop.example"
    assert len({session["walletAddress"] for session in sessions}) == len(names)


async def test_concurrent_log_ins_register_one_user(site: Site) -> None:
    sessions = await asyncio.gather(*(site.log_in("ann") for _ in range(20)))
    ids = [(await site.me(session))[1]["id"] for session in sessions]
    assert len(set(ids)) == 1


@pytest.mark.parametrize(
    "body",
    [
        *({}, [], {"name": "ann"}, {"username": 7}),
        *({"username": name} for name in ("", "a" * 61, "a|b", " ann", "änn", "a\nb")),
    ],
)
async def test_who_cannot_be_registered_is_refused_by_name(site: Site, body: object) -> None:
    status, answer = await site.control(body)
    assert status == 400
    assert answer["error"].startswith(("username: ", "name: ", "body: "))


# --- cookies and nonces -------------------------------------------------------------------------


async def test_a_user_is_told_with_what_the_context_shows(site: Site) -> None:
    session = await site.log_in()
    log_in = {"Cookie": session["cookie"], "X_WP_Nonce": session["nonce"]}
    viewed, embedded, edited = [
        (await site.ask(f"{ME}?context={context}", **log_in))[1]
        for context in ("view", "embed", "edit")
    ]

    seen = {"id", "name", "url", "description", "link", "slug", "avatar_urls", "_links"}
    assert set(embedded) == seen
    assert set(viewed) == seen | {"meta"} == set((await site.ask(ME, **log_in))[1])
    assert set(edited) == set(viewed) | {
        *("username", "email", "first_name", "last_name", "nickname", "locale"),
        *("roles", "capabilities", "extra_capabilities", "registered_date"),
    }
    assert edited["roles"] == ["subscriber"]
    assert edited["capabilities"]["read"] is True


async def test_a_good_nonce_comes_back_refreshed(site: Site) -> None:
    session = await site.log_in()
    status, _, refreshed = await site.me(session)
    assert status == 200
    assert refreshed is not None
    assert (await site.me(session, X_WP_Nonce=refreshed))[0] == 200


async def test_a_nonce_may_stand_in_the_query_too(site: Site) -> None:
    session = await site.log_in()
    path = f"{ME}?context=edit&_wpnonce={session['nonce']}"
    status, user, _ = await site.ask(path, Cookie=session["cookie"])
    assert (status, user["username"]) == (200, "ann")


async def test_without_a_nonce_a_cookies_bearer_is_a_stranger(site: Site) -> None:
    session = await site.log_in()
    assert await site.ask(Cookie=session["cookie"]) == (401, NOT_LOGGED_IN, None)
    assert await site.ask() == (401, NOT_LOGGED_IN, None)


async def test_a_nonce_of_anybody_or_anything_else_is_refused(site: Site) -> None:
    session, again, other = [await site.log_in(name) for name in ("ann", "ann", "ben")]
    wrong = (again["nonce"], other["nonce"], "0000000000", "", session["nonce"].upper() + "x")
    for nonce in wrong:
        assert await site.me(session, X_WP_Nonce=nonce) == (403, BAD_NONCE, None)


async def test_a_good_nonce_with_a_dead_cookie_is_refused(site: Site) -> None:
    session = await site.log_in()
    name, _, value = session["cookie"].rpartition("; ")[2].partition("=")
    dead = (f"{name}={value[:-1]}x", f"{name}=", f"{name}=ann", f"wordpress_logged_in_x={value}")
    for cookie in (*dead, "other=1"):
        assert await site.me(session, Cookie=cookie) == (403, BAD_NONCE, None)


async def test_nobody_makes_himself_another_user_by_his_cookie(site: Site) -> None:
    session = await site.log_in("ann")
    await site.log_in("ben")
    forged = session["cookie"].replace("=ann%7C", "=ben%7C")
    assert forged != session["cookie"]
    assert (await site.me(session, Cookie=forged))[0] == 403


async def test_cookies_and_nonces_end_with_their_time(tmp_path: Path) -> None:
    journal, _ = Journal.open(tmp_path / "site.jsonl")
    users, now = SiteUsers(journal), 1_800_000_000.0
    user = await users.find_or_create("ann")
    sessions = SiteSessions(b"secret", users, lambda: now)
    session = sessions.open(user)
    nonce, cookie = sessions.nonce(session), sessions.cookie_header(session)
    cookies = dict([cookie.rpartition("; ")[2].split("=", 1)])

    def user_then() -> HostSiteUser | None:
        return sessions.session_in(cookies).user

    now += 12 * 3600
    assert sessions.is_nonce(nonce, session)
    assert sessions.nonce(session) != nonce
    now += 12 * 3600
    assert not sessions.is_nonce(nonce, session)
    assert user_then() == user
    now += 24 * 3600
    assert user_then() is None
    await journal.close()


# --- addresses ----------------------------------------------------------------------------------


async def changed(site: Site, session: Json, path: str, body: object, method: str = "POST") -> Any:
    headers = {"Cookie": session["cookie"], "X-WP-Nonce": session["nonce"]}
    url = f"{site.sandbox.site_url}/wp-json/wp/v2/users/{path}"
    async with aiohttp.request(method, url, json=body, headers=headers) as response:
        return response.status, await response.json()


async def test_a_user_changes_his_address_at_once_as_in_the_platforms_core(site: Site) -> None:
    session = await site.log_in()
    status, user = await changed(site, session, "me", {"email": "rich@shop.example"})
    assert (status, user["email"], user["username"]) == (200, "rich@shop.example", "ann")
    assert (await site.me(session))[1]["email"] == "rich@shop.example"
    again = await site.log_in()
    async with IdentityClient(site.sandbox.identity_policy()) as client:
        rich = await client.wallet_of_email("rich@shop.example")
    assert (again["email"], address_of(again["walletAddress"])) == (
        "rich@shop.example",
        rich.wallet,
    )
    # The address that he has left is free for somebody else.
    other = await site.log_in("ben")
    status, _ = await changed(site, other, "me", {"email": "ann@site.example"}, "PATCH")
    assert status == 200


async def test_a_user_changes_no_other_users_address_and_takes_none_that_another_has(
    site: Site,
) -> None:
    session, other = await site.log_in("ann"), await site.log_in("ben")
    ids = [(await site.me(each))[1]["id"] for each in (session, other)]
    body = {"email": "new@shop.example"}
    status, answer = await changed(site, session, str(ids[1]), body)
    assert (status, answer["code"]) == (403, "rest_cannot_edit")
    status, answer = await changed(site, session, "me", {"email": "BEN@site.example"})
    assert (status, answer["code"]) == (400, "rest_user_invalid_email")
    assert (await changed(site, session, str(ids[0]), body, "PUT"))[0] == 200
    assert (await site.me(other))[1]["email"] == "ben@site.example"


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"email": "ann"}, "rest_invalid_param"),
        ({"email": 7}, "rest_invalid_param"),
        ([], "rest_invalid_json"),
    ],
)
async def test_a_bad_address_is_refused_and_changes_nothing(
    site: Site, body: object, code: str
) -> None:
    session = await site.log_in()
    status, answer = await changed(site, session, "me", body)
    assert (status, answer["code"]) == (400, code)
    status, answer = await changed(site, {**session, "nonce": "0"}, "me", {"email": "a@b.example"})
    assert (status, answer) == (403, BAD_NONCE)
    assert (await site.me(session))[1]["email"] == "ann@site.example"


async def test_the_site_says_whether_an_address_is_confirmed_once_it_is_told_to(
    site: Site,
) -> None:
    field = "ltzd_email_confirmed"
    session = await site.log_in()
    assert field not in (await site.me(session))[1]
    for confirmed in (True, False, True):
        status, answer = await site.control({"username": "ann", "emailConfirmed": confirmed})
        assert (status, set(answer)) == (200, set(session))
        assert (await site.me(session))[1][field] is confirmed
    await site.log_in()
    assert (await site.me(session))[1][field] is True
    log_in = {"Cookie": session["cookie"], "X_WP_Nonce": session["nonce"]}
    assert field not in (await site.ask(f"{ME}?context=view", **log_in))[1]

    await changed(site, session, "me", {"email": "ann@site.example"})
    assert (await site.me(session))[1][field] is True
    await changed(site, session, "me", {"email": "rich@shop.example"})
    assert (await site.me(session))[1][field] is False

    await site.control({"username": "ann", "emailConfirmed": "absent"})
    assert field not in (await site.me(session))[1]
    wrong: tuple[object, ...] = ("yes", 1, 0, [], {})
    for each in wrong:
        status, answer = await site.control({"username": "ann", "emailConfirmed": each})
        assert (status, answer["field"]) == (400, "emailConfirmed")


async def test_a_changed_address_is_unconfirmed_unless_the_site_stands_for_core_alone(
    site: Site,
) -> None:
    field = "ltzd_email_confirmed"
    session, core = await site.log_in("ann"), await site.log_in("ben")
    await site.control({"username": "ben", "emailConfirmed": "absent"})
    for each, address in ((session, "rich@shop.example"), (core, "richer@shop.example")):
        status, user = await changed(site, each, "me", {"email": address})
        assert (status, user["email"]) == (200, address)
    assert (await site.me(session))[1][field] is False
    assert field not in (await site.me(core))[1]


# --- application passwords ----------------------------------------------------------------------


async def test_the_demo_user_has_an_application_password(site: Site) -> None:
    section = site.sandbox.site_section()
    assert {name: section[name] for name in ("host", "restPrefix", "namespace")} == {
        "host": "site.example",
        "restPrefix": "wp-json",
        "namespace": "loyalty",
    }
    username, password = section["username"], section["applicationPassword"]
    assert re.fullmatch(r"(?:[A-Za-z0-9]{4} ){5}[A-Za-z0-9]{4}", password)
    for login in (username, username.upper(), f"{username}@site.example"):
        for given in (password, password.replace(" ", "")):
            status, user = await site.by_password(login, given)
            assert (status, user["username"]) == (200, username)


@pytest.mark.parametrize(
    ("login", "password", "code"),
    [
        ("ada", "wrong", "incorrect_password"),
        ("ada", "", "incorrect_password"),
        ("ann", "", "incorrect_password"),
        ("nobody", "x", "invalid_username"),
        ("", "x", "invalid_username"),
        ("nobody@site.example", "x", "invalid_email"),
    ],
)
async def test_a_wrong_password_is_refused_with_its_code(
    site: Site, login: str, password: str, code: str
) -> None:
    await site.log_in("ann")
    status, body = await site.by_password(login, password)
    assert (status, set(body)) == (401, {"code", "message", "data"})
    assert (body["code"], body["data"]) == (code, {"status": 401})


@pytest.mark.parametrize("header", ["Bearer abc", "Basic !", "Basic YWRh", "Basic", "Basic /w=="])
async def test_what_is_no_password_login_is_passed_over(site: Site, header: str) -> None:
    assert await site.ask(Authorization=header) == (401, NOT_LOGGED_IN, None)


async def test_a_live_cookie_goes_before_a_password(site: Site) -> None:
    session = await site.log_in()
    basic = aiohttp.encode_basic_auth("ada", "wrong")
    status, user, _ = await site.me(session, Authorization=basic)
    assert (status, user["username"]) == (200, "ann")


# --- what else it says no to, and what it keeps -------------------------------------------------


async def test_a_bad_context_and_an_unknown_route_are_refused_in_the_platforms_words(
    site: Site,
) -> None:
    status, body, _ = await site.ask(f"{ME}?context=all")
    assert (status, body["code"]) == (400, "rest_invalid_param")
    assert body["data"]["params"] == {"context": "context is not one of view, embed, and edit."}
    no_route = {
        "code": "rest_no_route",
        "message": "No route was found matching the URL and request method.",
        "data": {"status": 404},
    }
    assert await site.ask("/wp-json/wp/v2/nothing") == (404, no_route, None)
    assert await site.ask(ME, method="DELETE") == (404, no_route, None)


async def test_faults_may_be_ordered_for_it(site: Site, http: aiohttp.ClientSession) -> None:
    order = {"service": "site", "status": 503, "retryAfterSeconds": 7, "times": 1}
    async with http.post(site.sandbox.control_endpoints()["faultUrl"], json=order) as response:
        assert response.status == 200
    status, body, _ = await site.ask()
    assert (status, body["data"]) == (503, {"status": 503})
    assert (await site.ask())[0] == 401


async def test_users_sessions_and_passwords_survive_a_restart(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    first = await started(tmp_path)
    session, section = await Site(first, http).log_in("ann"), first.site_section()
    other = await Site(first, http).log_in("ben")
    await Site(first, http).control({"username": "ben", "emailConfirmed": True})
    await changed(Site(first, http), other, "me", {"email": "rich@shop.example"})
    await first.stop()

    second = await started(tmp_path)
    again = Site(second, http)
    assert (await again.me(session))[0] == 200
    assert second.site_section() == section
    user = (await again.me(other))[1]
    assert (user["email"], user["ltzd_email_confirmed"]) == ("rich@shop.example", False)
    status, _ = await again.by_password(section["username"], section["applicationPassword"])
    assert status == 200
    assert (await again.log_in("ann"))["walletAddress"] == session["walletAddress"]
    await second.stop()


async def test_a_damaged_journal_is_said_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "sandbox").mkdir()
    (tmp_path / "sandbox" / "site.jsonl").write_text('{"kind":"site"}\n')
    with pytest.raises(Misconfigured, match="host site is damaged"):
        await started(tmp_path)
