"""The site plugin's API over PostgreSQL and the sandbox's host site and identity provider.

There is no chain; redemptions on a chain have tests of their own.
"""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

import pytest
import pytest_asyncio
from msgspec.structs import replace
from structlog.testing import capture_logs

from ltzd import telemetry
from ltzd.actions.site_plugin.links import SiteLinks
from ltzd.actions.site_plugin.members import SiteMembers, SitePolicy
from ltzd.actions.users.registration import UserRegistration
from ltzd.actions.users.token_auth import TokenAuthenticator
from ltzd.actions.users.wallet_migration import WalletMigration
from ltzd.concurrency.line_limits import LineLimits
from ltzd.daemon.surfaces import http_app
from ltzd.dev.sandbox.faults import Fault
from ltzd.http import errors
from ltzd.http.services import HttpPolicy
from ltzd.http.site_plugin.errors import SitePluginError
from ltzd.http.site_plugin.operations import operations
from ltzd.providers.host_sites import HostSiteClient
from ltzd.providers.identity.tokens import IdentityTokens
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.values import address_of
from tests.support.sites.host_sites import SHORT
from tests.support.surfaces.event_action import SEALER
from tests.support.surfaces.event_surface import EventSurface, LiveBrand
from tests.support.surfaces.http_surface import serving
from tests.support.surfaces.json_response import JsonResponse

BASE = "/wp-json/loyalty/v1"
PERK_ID = "6f1c2a4e-9d1b-4b7e-8f43-2f8f0e1c5a77"
FIRST_DAY = {
    "currentStreak": 1,
    "multiplier": 1.5,
    "nextMilestone": {"days": 7, "bonus": 70},
    "unclaimedMilestones": [{"days": 1, "bonus": 5}],
}
FAILURES = {
    "checkin": (400, "checkin_failed"),
    "redeem": (400, "redeem_failed"),
    "claim-milestone": (400, "claim_failed"),
    "link": (400, "link_failed"),
    "me": (500, "api_error"),
}
BODIES: dict[str, dict[str, object]] = {
    "redeem": {"perkId": PERK_ID},
    "claim-milestone": {"milestoneDays": 1},
    "link": {"code": "x"},
}
MODELS = {
    (operation.method, operation.path.rpartition("/")[2]): {
        status: response.model
        for status, response in operation.responses.items()
        if response.model is not None
    }
    for operation in operations(HttpPolicy())
}


@dataclass(frozen=True)
class LogInResponse(JsonResponse):
    @property
    def code(self) -> tuple[int, str]:
        """Status and code of an error, whose message is a sentence."""
        SitePluginError.model_validate(self.body)
        assert self.body["data"]["status"] == self.status
        assert self.body["message"].endswith(".")
        return self.status, self.body["code"]


@dataclass
class Site:
    """A brand's site, and the requests of its users."""

    url: str
    shop: EventSurface
    brand: LiveBrand
    host: str

    async def session(self, username: str | None = None) -> "Session":
        """The session of a new user, or of `username`."""
        payload = {"username": username or f"u{uuid4().hex}"}
        url = self.shop.sandbox.control_endpoints()["siteSessionUrl"]
        async with self.shop.http.post(url, json=payload) as answer:
            assert answer.status == 200
            return Session(self, await answer.json())

    async def ask(
        self, path: str, payload: object = None, method: str | None = None, **headers: str
    ) -> LogInResponse:
        """Every response fits the document, and none contains an e-mail address.

        Only `me` may contain one: it returns the member's own name.
        """
        method = method or ("POST" if path in {"checkin", *BODIES} else "GET")
        sent = {"Host": self.host} | headers
        sent = {name.replace("_", "-"): value for name, value in sent.items() if value}
        async with self.shop.http.request(
            method, f"{self.url}{BASE}/{path}", json=payload, headers=sent
        ) as reply:
            text = await reply.text()
            answer = LogInResponse(reply.status, json.loads(text), reply.headers)
        MODELS[method, path.partition("?")[0]][answer.status].model_validate(answer.body)
        assert path == "me" or "@" not in text
        return answer

    async def token(self, email: str, **more: object) -> dict[str, str]:
        url = self.shop.sandbox.control_endpoints()["identityTokenUrl"]
        async with self.shop.http.post(url, json={"email": email} | more) as answer:
            tokens: dict[str, str] = await answer.json()
            return tokens

    async def as_owner(
        self, token: str, method: str, path: str = "", payload: object = None
    ) -> tuple[int, Any]:
        """The response of /site-links to the token's user."""
        async with self.shop.http.request(
            method,
            f"{self.url}/site-links{path}",
            json=payload,
            headers={"Authorization": f"Bearer {token}"},
        ) as reply:
            return reply.status, await reply.json() if await reply.read() else None

    async def code(self, token: str, allowance: int = 500) -> str:
        payload = {"host": self.host, "dailyAllowance": allowance}
        status, body = await self.as_owner(token, "POST", payload=payload)
        assert (status, body["host"], body["dailyAllowance"]) == (201, self.host, allowance)
        code: str = body["code"]
        return code

    def fails(self, **fault: Any) -> None:
        """Make the host site fail until the test ends."""
        self.shop.sandbox.faults.order("site", Fault(times=1_000, **fault))


@dataclass
class Session:
    site: Site
    log_in: dict[str, str]

    @property
    def wallet(self) -> str:
        return self.log_in["walletAddress"]

    async def ask(
        self, path: str, payload: object = None, method: str | None = None, **headers: str
    ) -> LogInResponse:
        log_in = {"Cookie": self.log_in["cookie"], "X_WP_Nonce": self.log_in["nonce"]}
        body = BODIES.get(path) if payload is None else payload
        return await self.site.ask(path, body, method, **log_in | headers)


@pytest_asyncio.fixture(scope="module")
async def running(event_surface: EventSurface) -> AsyncIterator[str]:
    """The app's URL, as `ltzd run` serves it, except that it may call sites of this machine."""
    daemon, sandbox = event_surface.daemon, event_surface.sandbox
    async with AsyncExitStack() as stack:
        sites = HostSiteClient(SHORT)
        stack.push_async_callback(sites.close)
        members = SiteMembers(
            daemon.pools.http,
            daemon.brands,
            UserRegistration(daemon.pools.http, daemon.identity, ErasedAddresses(SEALER)),
            sites,
            SitePolicy(sandbox.site_url),
        )
        tokens = await stack.enter_async_context(IdentityTokens(sandbox.identity_policy()))
        owners = TokenAuthenticator(
            tokens,
            daemon.identity,
            WalletMigration(daemon.pools.http, daemon.identity, ErasedAddresses(SEALER)),
        )
        links = SiteLinks(daemon.pools.http, members, owners, SEALER)
        site = replace(daemon.site, members=members, links=links)
        app = http_app(replace(daemon, site=site), is_dev=False)
        yield await stack.enter_async_context(serving(app))


@pytest_asyncio.fixture
async def site(running: str, event_surface: EventSurface) -> AsyncIterator[Site]:
    """The site of a new brand."""
    host = f"{uuid4().hex}.example"
    brand = await event_surface.brand(
        site={
            "hosts": (host,),
            "checkin_reward": 10,
            "multipliers": {1: 1.5},
            "milestones": {1: 5, 7: 70},
        },
        perks=({"id": PERK_ID, "name": "Coffee", "category": "drinks", "item_id": 9},),
    )
    yield Site(running, event_surface, brand, host)
    event_surface.sandbox.faults.order("site", Fault(times=0))


# --- limits -------------------------------------------------------------------------------------


async def test_of_many_failed_log_ins_in_a_row_the_site_hears_sixty(site: Site) -> None:
    """A log-in that succeeded before still does, as long as it is remembered."""
    ann = await site.session()
    assert (await ann.ask("me")).status == 200
    before = site_requests()
    for number in range(100):
        stolen = {"Cookie": f"{ann.log_in['cookie']}{number}", "X_WP_Nonce": ann.log_in["nonce"]}
        answer = await site.ask("me", **stolen)
        wanted = (401, "not_logged_in") if number < 60 else (429, "rest_too_many_requests")
        assert answer.code == wanted, number
    assert site_requests() - before == 60
    assert (await ann.ask("me")).status == 200
    newcomer = await site.session()
    assert (await newcomer.ask("me")).code == (429, "rest_too_many_requests")


async def test_log_ins_that_the_sites_firewall_refuses_are_failed_ones(site: Site) -> None:
    """A stranger can provoke a firewall's 406 as often as he likes."""
    ann = await site.session()
    assert (await ann.ask("me")).status == 200
    site.shop.sandbox.faults.order("site", Fault(status=406, times=1_000))
    for number in range(70):
        stolen = {"Cookie": f"{ann.log_in['cookie']}{number}", "X_WP_Nonce": ann.log_in["nonce"]}
        wanted = 500 if number < 60 else 429
        assert (await site.ask("me", **stolen)).status == wanted, number


def site_requests() -> float:
    name = "ltzd_providers_request_seconds_count"
    labels = {"provider": "host_site", "outcome": "ok"}
    return telemetry.REGISTRY.get_sample_value(name, labels) or 0.0


# --- what a member does -------------------------------------------------------------------------


async def test_a_day_is_claimed_once_and_owed_to_the_e_mails_wallet(site: Site) -> None:
    ann = await site.session()

    first, second = await ann.ask("checkin"), await ann.ask("checkin")

    expected = {"success": True, "streak": FIRST_DAY, "reward": 15, "alreadyClaimed": False}
    assert (first.status, first.body) == (200, expected)
    assert (second.status, second.body) == (200, expected | {"reward": 0, "alreadyClaimed": True})
    rewards = await site.shop.value(
        "SELECT array_agg((encode(wallet, 'hex'), kind, ltz)::text) FROM rewards "
        "WHERE brand_id = $1",
        site.brand.brand.address,
    )
    assert rewards == [f"({ann.wallet[2:].lower()},3,15)"]


async def test_a_member_sees_himself_and_what_he_claimed(site: Site) -> None:
    ann = await site.session()
    await ann.ask("checkin")

    answer = await ann.ask("me")

    assert (answer.status, answer.body) == (
        200,
        {
            "success": True,
            "username": ann.log_in["username"],
            "walletAddress": ann.wallet,
            "balance": 0,
            "streak": FIRST_DAY,
            "linked": False,
            "spendable": 0,
            "link": None,
        },
    )


async def test_two_sessions_of_one_user_are_one_member(site: Site) -> None:
    ann = await site.session()
    again = await site.session(ann.log_in["username"])
    assert (await ann.ask("checkin")).body["alreadyClaimed"] is False
    assert (await again.ask("checkin")).body["alreadyClaimed"] is True


async def test_an_application_password_is_a_log_in(site: Site) -> None:
    section = site.shop.sandbox.site_section()
    pair = f"{section['username']}:{section['applicationPassword']}".encode()
    basic = f"Basic {base64.b64encode(pair).decode()}"

    answer = await site.ask("me", Authorization=basic)
    assert (answer.status, answer.body["username"]) == (200, section["username"])
    assert "X-WP-Nonce" not in answer.headers
    wrong = f"Basic {base64.b64encode(pair + b'x').decode()}"
    assert (await site.ask("me", Authorization=wrong)).code == (401, "not_logged_in")


async def test_a_milestone_is_claimed_once_and_not_before_it_is_reached(site: Site) -> None:
    ann = await site.session()
    assert (await ann.ask("claim-milestone")).code == (400, "claim_failed")
    await ann.ask("checkin")

    claimed = await ann.ask("claim-milestone")

    assert claimed.body == {"success": True, "bonusLtz": 5, "milestone": 1}
    assert (await ann.ask("claim-milestone")).code == (400, "claim_failed")
    for days in (7, 8, 2**63):
        answer = await ann.ask("claim-milestone", {"milestoneDays": days})
        assert answer.code == (400, "claim_failed")
    assert (await ann.ask("me")).body["streak"]["unclaimedMilestones"] == []


async def test_the_leaderboard_shows_who_came(site: Site) -> None:
    ann = await site.session()
    empty = await site.ask("leaderboard?metric=streak")
    assert (empty.body["leaderboard"], empty.body["total"]) == ([], 0)
    await ann.ask("checkin")

    for period in ("week", "month", "all"):
        board = (await site.ask(f"leaderboard?metric=streak&period={period}")).body
        (entry,) = board["leaderboard"]
        assert set(entry) == {"userIdentifier", "username", "value", "rank"}
        assert (entry["username"], entry["value"], entry["rank"]) == (ann.log_in["username"], 1, 1)
        assert board["total"] == 1


async def test_a_name_that_is_an_e_mail_address_is_shown_to_nobody_else(site: Site) -> None:
    name = f"{uuid4().hex}@mail.example"
    ann = await site.session(name)
    await ann.ask("checkin")
    (entry,) = (await site.ask("leaderboard?metric=streak")).body["leaderboard"]
    assert entry["username"].startswith("member-")
    assert (await ann.ask("me")).body["username"] == name


async def test_a_perk_that_the_chain_does_not_know_is_neither_listed_nor_redeemed(
    site: Site,
) -> None:
    ann = await site.session()
    assert (await site.ask("perks")).body == {"success": True, "perks": []}
    assert (await ann.ask("redeem")).code == (400, "redeem_failed")
    unknown = await ann.ask("redeem", {"perkId": str(uuid4())})
    assert unknown.body["message"] == "This site offers no such perk."
    assert unknown.code == (400, "redeem_failed")


# --- who is none --------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FAILURES)
async def test_a_stolen_cookie_is_no_log_in(site: Site, path: str) -> None:
    ann, ben = await site.session(), await site.session()
    for headers in (
        {"X_WP_Nonce": ""},
        {"X_WP_Nonce": "0123456789"},
        {"X_WP_Nonce": ben.log_in["nonce"]},
        {"X_WP_Nonce": "x" * 10_000},
        {"Cookie": "", "X_WP_Nonce": ""},
        {"Cookie": ""},
        {"Cookie": "wordpress_logged_in_x=ann%7C1900000000%7Ctoken%7Chmac"},
        {"Cookie": ann.log_in["cookie"][:-1]},
        {"Cookie": "", "Authorization": "Bearer x"},
        {"Cookie": "", "Authorization": "Basic eDp5"},
    ):
        answer = await ann.ask(path, **headers)
        assert answer.code == (401, "not_logged_in"), headers
        assert "X-WP-Nonce" not in answer.headers
    assert (
        await site.shop.value(
            "SELECT count(*) FROM site_members WHERE brand_id = $1", site.brand.brand.address
        )
        == 0
    )


async def test_a_log_ins_fresh_nonce_is_one_for_the_next_request(site: Site) -> None:
    ann = await site.session()
    nonce = (await ann.ask("checkin")).headers["X-WP-Nonce"]
    assert (await ann.ask("me", X_WP_Nonce=nonce)).status == 200


async def test_a_site_of_nobody_has_no_users(site: Site) -> None:
    ann = await site.session()
    for host in ("nobody.example", f"www.{site.host}", site.host + ".evil.example"):
        for path in (*FAILURES, "leaderboard", "perks"):
            assert (await ann.ask(path, Host=host)).code == (500, "not_configured")
    assert (await ann.ask("me", Host=f"{site.host.upper()}:8443")).status == 200


async def test_a_disabled_brand_has_no_site(site: Site) -> None:
    ann = await site.session()
    await site.shop.value(
        "UPDATE brands SET disabled_at = now(), revision = nextval('brand_revisions') "
        "WHERE id = $1",
        site.brand.brand.address,
    )
    await site.shop.refresh()
    assert (await ann.ask("checkin")).code == (500, "not_configured")


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 503},
        {"status": 404},
        {"drops_request": True},
        {"drops_reply": True},
        {"delay_seconds": 30.0},
    ],
    ids=str,
)
async def test_a_site_that_is_down_or_slow_is_a_failure_with_a_sentence(
    site: Site, fault: dict[str, Any]
) -> None:
    ann = await site.session()
    site.fails(**fault)
    for path, code in FAILURES.items():
        answer = await ann.ask(path)
        assert answer.code == code
        assert "cannot tell who you are" in answer.body["message"]
        if "delay_seconds" in fault:
            break  # each waits for its timeout


async def test_a_member_whose_wallet_nobody_can_tell_is_told_to_come_again(site: Site) -> None:
    ann = await site.session()
    faults = site.shop.sandbox.faults
    faults.order("identity", Fault(times=1_000, status=503))
    try:
        answer = await ann.ask("checkin")
    finally:
        faults.order("identity", Fault(times=0))
    assert answer.code == (400, "checkin_failed")
    assert "try again" in answer.body["message"]


# --- linking ------------------------------------------------------------------------------------


async def test_an_owner_links_a_member_sees_it_and_ends_it(site: Site) -> None:
    ann = await site.session()
    token = (await site.token(ann.log_in["email"]))["accessToken"]
    code = await site.code(token, 40)

    answer = await ann.ask("link", {"code": code})

    expected = {"success": True, "walletAddress": ann.wallet, "dailyAllowance": 40}
    assert (answer.status, answer.body) == (200, expected)
    me = (await ann.ask("me")).body
    assert (me["linked"], me["link"]["dailyAllowance"], me["spendable"]) == (True, 40, 0)
    (link,) = (await site.as_owner(token, "GET"))[1]["links"]
    assert (link["host"], link["username"]) == (site.host, ann.log_in["username"])
    assert link["walletAddress"] == ann.wallet
    assert (await ann.ask("link", {"code": code})).code == (400, "link_failed")

    assert (await site.as_owner(token, "DELETE", f"/{site.host}"))[0] == 204
    assert not (await ann.ask("me")).body["linked"]
    assert (await site.as_owner(token, "DELETE", f"/{site.host}"))[0] == 404


async def test_a_member_ends_his_link_himself(site: Site) -> None:
    ann, ben = await site.session(), await site.session()
    code = await site.code((await site.token(ben.log_in["email"]))["accessToken"])
    await ben.ask("checkin")

    linked = await ann.ask("link", {"code": code.lower()})

    assert linked.body["walletAddress"] == ben.wallet
    assert (await ann.ask("me")).body["walletAddress"] == ben.wallet
    assert (await ann.ask("checkin")).body["alreadyClaimed"] is True
    for _ in range(2):
        answer = await ann.ask("link", method="DELETE")
        assert (answer.status, answer.body) == (200, {"success": True})
    assert (await ann.ask("me")).body["walletAddress"] == ann.wallet


async def test_tokens_and_rubbish_link_nothing_and_the_sixth_try_waits(site: Site) -> None:
    ann = await site.session()
    token = (await site.token(ann.log_in["email"]))["accessToken"]
    good = await site.code(token)
    answer = await ann.ask("link", {"identityToken": token})
    assert answer.body["data"]["params"] == {"code": "is required"}
    for code in ("x", "00000000", "x" * 9_000, token, "\u0661\u0662"):
        answer = await ann.ask("link", {"code": code})
        assert answer.code == (400, "link_failed")
        assert len(code) < 8 or code not in answer.body["message"]
    answer = await ann.ask("link", {"code": good})
    assert answer.code == (429, "rest_too_many_requests")
    assert 590 <= int(answer.headers["Retry-After"]) <= 600
    assert answer.headers["X-RateLimit-Limit"] == "5"
    assert not (await ann.ask("me")).body["linked"]


# --- an address that is another's -----------------------------------------------------------------


async def test_a_member_with_a_strangers_address_may_spend_nothing_of_the_strangers(
    site: Site,
) -> None:
    """The site gives the attacker's account the victim's address."""
    email = f"{uuid4().hex}@mail.example"
    thief = await site.session(email)
    assert thief.log_in["email"] == email
    wallet, brand = address_of(thief.wallet), site.brand.brand.address
    await site.shop.value(
        "INSERT INTO earnings VALUES ($1, 'all', '1970-01-01', $2, 90, 1, 0)", brand, wallet
    )
    await site.shop.value("INSERT INTO balances VALUES ($1, 100 * 10^18)", wallet)
    me = (await thief.ask("me")).body
    assert (me["balance"], me["spendable"], me["linked"]) == (100, 0, False)


# --- what is kept to itself ---------------------------------------------------------------------


async def test_no_log_holds_an_address_a_cookie_or_a_token(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(errors, "_lines", LineLimits())  # others may have used up this second's
    with capture_logs() as logs:
        ann = await site.session()
        tokens = await site.token(ann.log_in["email"])
        await ann.ask("checkin")
        code = await site.code(tokens["accessToken"])
        await ann.ask("link", {"code": tokens["accessToken"]})
        await ann.ask("link", {"code": code})
        site.fails(status=500)
        fresh = await site.session(ann.log_in["username"])
        await fresh.ask("checkin")
    log_text = str(logs)
    assert {"site_member.created", "checkin.claimed", "site_link.made", "http.unavailable"} <= {
        entry["event"] for entry in logs
    }
    assert tokens["accessToken"] not in log_text
    assert code not in log_text
    for secret in (
        ann.log_in["email"],
        ann.log_in["cookie"],
        ann.log_in["nonce"],
        "wordpress_logged",
    ):
        assert secret not in log_text


async def test_pages_of_the_brands_domain_may_read_answers(site: Site) -> None:
    ann = await site.session()
    own, foreign = f"https://{site.brand.domain}", "https://evil.example"
    assert (await ann.ask("me", Origin=own)).headers["Access-Control-Allow-Origin"] == own
    assert "Access-Control-Allow-Origin" not in (await ann.ask("me", Origin=foreign)).headers
