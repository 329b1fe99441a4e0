"""The site plugin's API over HTTP: spec 4.4, and 7.5 with exactly the fields shown.

`FakeSite` stands behind it; `test_log_ins.py` has the real parts.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from decimal import Decimal
from io import BytesIO
from ipaddress import ip_network
from typing import Any

import pytest
import pytest_asyncio
import requests
import schemathesis
from msgspec.structs import replace
from schemathesis import GenerationMode

from ltzd.actions.site_plugin.leaderboards import Leaderboard
from ltzd.concurrency.answer_age import note_age
from ltzd.errors import (
    BudgetExhausted,
    CheckInRefused,
    ClaimLimitReached,
    DatabaseUnavailable,
    HostSiteBusy,
    HostSiteUnavailable,
    IdentityUnavailable,
    IllegalTransition,
    InvalidFields,
    LtzdError,
    MilestoneRefused,
    NodeUnavailable,
    NotFound,
    OutcomeUnknown,
    RateLimited,
    RedemptionRefused,
    TooManyAttempts,
    TransactionFailed,
    Unavailable,
)
from ltzd.http.openapi.operations import Operation
from ltzd.http.requests.client_address import Proxies
from ltzd.http.requests.json_body import DRAIN_LIMIT
from ltzd.http.services import HttpPolicy
from ltzd.http.site_plugin import models as site_models
from ltzd.http.site_plugin.errors import SitePluginError
from ltzd.http.site_plugin.handlers import BODY_LIMIT
from ltzd.http.site_plugin.operations import operations
from ltzd.providers.host_sites import HostCredentials
from ltzd.rules.event_handler.brand_limits import rate_limited
from ltzd.values import LTZ, address_of
from tests.support.surfaces.http_surface import (
    ANN,
    BRAND_ID,
    CHECKSUMMED_WALLET,
    CODE,
    COFFEE,
    COOKIE,
    FRESH_NONCE,
    LINK_CODE,
    NONCE,
    SITE_HOST,
    RunningSurfaces,
    a_surface,
)
from tests.support.surfaces.json_response import JsonResponse
from tests.support.surfaces.openapi import assert_examples_fit
from tests.surfaces.test_schemathesis import CHECKS, Run, random_cases

BASE = "/wp-json/loyalty/v1"
NO_ROUTE = {
    "code": "rest_no_route",
    "message": "No route was found matching the URL and request method.",
    "data": {"status": 404},
}
AWAY = "This is not available at the moment. Please try again soon."
FAILED = {
    "checkin": (400, "checkin_failed"),
    "redeem": (400, "redeem_failed"),
    "claim-milestone": (400, "claim_failed"),
    "link": (400, "link_failed"),
    "leaderboard": (500, "api_error"),
    "me": (500, "api_error"),
    "perks": (500, "api_error"),
}
GOOD: dict[str, object] = {
    "redeem": {"perkId": COFFEE.id},
    "claim-milestone": {"milestoneDays": 7},
    "link": {"code": LINK_CODE},
}
POSTED = ("checkin", *GOOD)
READ = ("leaderboard", "me", "perks")
NEED_LOG_IN = (*POSTED, "me")
STREAK = {
    "currentStreak": 8,
    "multiplier": 1.5,
    "nextMilestone": {"days": 30, "bonus": 250},
    "unclaimedMilestones": [{"days": 7, "bonus": 50}],
}


@pytest_asyncio.fixture(scope="module")
async def running() -> AsyncIterator[RunningSurfaces]:
    async with a_surface() as surface:
        yield surface


@pytest.fixture
def surface(running: RunningSurfaces) -> RunningSurfaces:
    running.reset_site()
    return running


@dataclass(frozen=True)
class SitePluginResponse(JsonResponse):
    """`body` is None if the response is not JSON."""

    text: str

    @property
    def error(self) -> tuple[int, str, str]:
        """Status, code and message of an error, which has exactly the fields of 7.5."""
        body = self.body
        assert set(body) == {"code", "message", "data"}
        assert body["data"] == {"status": self.status}
        return self.status, body["code"], body["message"]

    @property
    def params(self) -> dict[str, str]:
        """The fault of each parameter."""
        body = self.body
        assert (self.status, body["code"]) == (400, "rest_invalid_param")
        params: dict[str, str] = body["data"]["params"]
        assert body["message"] == f"Invalid parameter(s): {', '.join(params)}"
        assert body["data"] == {"status": 400, "params": params, "details": {}}
        return params


async def ask(
    surface: RunningSurfaces, method: str, path: str, payload: object = None, **headers: str
) -> SitePluginResponse:
    """Send a request with ann's log-in. An empty header is not sent.

    `payload` is sent as JSON; bytes are sent unchanged.
    """
    sent = {"Host": SITE_HOST, "Cookie": COOKIE, "X-WP-Nonce": NONCE}
    sent |= {name.replace("_", "-"): value for name, value in headers.items()}
    raw = payload if payload is None or isinstance(payload, bytes) else json.dumps(payload).encode()
    if raw is not None:
        sent.setdefault("Content-Type", "application/json")
    url = surface.url + (path if path.startswith("/") else f"{BASE}/{path}")
    async with surface.client.request(
        method,
        url,
        data=None if raw is None else BytesIO(raw),
        headers={name: value for name, value in sent.items() if value},
        skip_auto_headers=("Content-Type",),
    ) as reply:
        text = await reply.text()
        is_json = text and reply.content_type == "application/json"
        body = json.loads(text) if is_json else None
        return SitePluginResponse(reply.status, body, reply.headers, text)


async def post(
    surface: RunningSurfaces, path: str, payload: object = ..., **headers: str
) -> SitePluginResponse:
    payload = GOOD.get(path) if payload is ... else payload
    return await ask(surface, "POST", path, payload, **headers)


async def get(surface: RunningSurfaces, path: str, **headers: str) -> SitePluginResponse:
    return await ask(surface, "GET", path, **headers)


async def well(surface: RunningSurfaces, path: str, **headers: str) -> SitePluginResponse:
    """A valid request of this endpoint."""
    return await (post if path in POSTED else get)(surface, path, **headers)


# --- good answers -------------------------------------------------------------------------------


async def test_a_check_in_is_answered_with_the_streak_and_its_reward(
    surface: RunningSurfaces,
) -> None:
    first, second = await post(surface, "checkin"), await post(surface, "checkin")

    expected = {"success": True, "streak": STREAK, "reward": 15, "alreadyClaimed": False}
    assert (first.status, first.body) == (200, expected)
    assert (second.status, second.body) == (200, expected | {"reward": 0, "alreadyClaimed": True})


async def test_a_redeemed_perk_is_answered_with_its_code(surface: RunningSurfaces) -> None:
    answer = await post(surface, "redeem")

    perk = {"id": COFFEE.id, "name": "Free coffee", "cost": 25, "category": "drinks"}
    assert (answer.status, answer.body) == (
        200,
        {"success": True, "confirmationCode": CODE, "perk": perk},
    )
    upper = await post(surface, "redeem", {"perkId": COFFEE.id.upper()})
    assert upper.body["perk"]["id"] == COFFEE.id


async def test_a_perk_that_is_not_mined_yet_has_no_code(surface: RunningSurfaces) -> None:
    surface.site.is_pending = True
    answer = await post(surface, "redeem")
    assert (answer.status, answer.body["confirmationCode"]) == (202, None)
    assert (answer.body["success"], answer.body["perk"]["id"]) == (True, COFFEE.id)
    assert CODE not in answer.text


async def test_a_claimed_milestone_is_answered_with_its_bonus(surface: RunningSurfaces) -> None:
    answer = await post(surface, "claim-milestone")
    assert (answer.status, answer.body) == (
        200,
        {"success": True, "bonusLtz": 50, "milestone": 7},
    )


async def test_a_link_is_answered_with_the_wallet(surface: RunningSurfaces) -> None:
    answer = await post(surface, "link")
    assert (answer.status, answer.body) == (
        200,
        {"success": True, "walletAddress": CHECKSUMMED_WALLET, "dailyAllowance": 500},
    )
    assert (await post(surface, "link")).error == (400, "link_failed", "This code is wrong.")


async def test_a_link_is_ended_also_where_there_is_none(surface: RunningSurfaces) -> None:
    await post(surface, "link")
    assert (await get(surface, "me")).body["linked"]
    for payload in (None, b"x" * (BODY_LIMIT + 1), b"x" * (DRAIN_LIMIT + 1)):
        answer = await ask(surface, "DELETE", "link", payload)
        assert (answer.status, answer.body) == (200, {"success": True})
        assert not (await get(surface, "me")).body["linked"]
    assert (await ask(surface, "DELETE", "link", X_WP_Nonce="")).error[:2] == (401, "not_logged_in")


async def test_too_many_wrong_codes_are_answered_with_when_to_try_again(
    surface: RunningSurfaces,
) -> None:
    surface.site.refusal = TooManyAttempts(
        "You have typed too many.", limit=5, retryAfterSeconds=431
    )
    answer = await post(surface, "link")
    assert answer.error == (429, "rest_too_many_requests", "You have typed too many.")
    assert answer.headers["Retry-After"] == "431"
    assert answer.headers["X-RateLimit-Limit"] == "5"
    assert answer.headers["X-RateLimit-Remaining"] == "0"
    assert 430 <= int(answer.headers["X-RateLimit-Reset"]) - time.time() <= 433
    assert answer.headers["X-WP-Nonce"] == FRESH_NONCE


async def test_an_answer_of_a_standby_tells_its_age(
    surface: RunningSurfaces, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = surface.site.read

    async def read_old(*arguments: Any) -> Leaderboard:
        note_age(0.5)
        note_age(2.5)
        return await read(*arguments)

    assert "Age" not in (await get(surface, "leaderboard")).headers
    monkeypatch.setattr(surface.site, "read", read_old)
    assert (await get(surface, "leaderboard")).headers["Age"] == "3"
    assert "Age" not in (await get(surface, "me")).headers


async def test_the_leaderboard_needs_no_log_in_and_has_defaults(surface: RunningSurfaces) -> None:
    answer = await get(surface, "leaderboard", Cookie="", X_WP_Nonce="")
    assert (answer.status, answer.body) == (
        200,
        {
            "success": True,
            "leaderboard": [
                {"userIdentifier": "9d2c6a1f", "username": "ann", "value": 320, "rank": 1}
            ],
            "metric": "ltz_earned",
            "period": "week",
            "total": 1,
        },
    )
    assert surface.site.requests == [(BRAND_ID, SITE_HOST, "ltz_earned", "week", 10)]


@pytest.mark.parametrize("metric", ["ltz_earned", "activity", "streak"])
@pytest.mark.parametrize("period", ["week", "month", "all"])
async def test_every_metric_and_period_can_be_asked_for(
    surface: RunningSurfaces, metric: str, period: str
) -> None:
    answer = await get(surface, f"leaderboard?metric={metric}&period={period}&limit=100&x=1&x=2")
    assert (answer.status, answer.body["metric"], answer.body["period"]) == (200, metric, period)
    assert surface.site.requests == [(BRAND_ID, SITE_HOST, metric, period, 100)]


async def test_a_member_sees_himself(surface: RunningSurfaces) -> None:
    answer = await get(surface, "me")
    assert (answer.status, answer.body) == (
        200,
        {
            "success": True,
            "username": "ann",
            "walletAddress": CHECKSUMMED_WALLET,
            "balance": 1250,
            "streak": STREAK,
            "linked": False,
            "spendable": 320,
            "link": None,
        },
    )
    assert answer.headers["Cache-Control"] == "no-store"


async def test_a_linked_member_sees_what_the_link_still_allows(surface: RunningSurfaces) -> None:
    await post(surface, "link")
    body = (await get(surface, "me")).body
    assert (body["linked"], body["spendable"]) == (True, 780)
    assert body["link"] == {
        "dailyAllowance": 500,
        "allowanceLeft": 460,
        "expiresAt": "2026-09-10T09:30:00.000Z",
    }


@pytest.mark.parametrize("most", [25, 25.0, 26, 10**30, None])
async def test_a_perk_that_costs_no_more_than_was_shown_is_redeemed(
    surface: RunningSurfaces, most: float | None
) -> None:
    assert (await post(surface, "redeem", {"perkId": COFFEE.id, "maxCost": most})).status == 200


async def test_a_perk_that_has_become_dearer_is_refused_with_its_price(
    surface: RunningSurfaces,
) -> None:
    for most in (0, 24):
        answer = await post(surface, "redeem", {"perkId": COFFEE.id, "maxCost": most})
        assert answer.error == (400, "redeem_failed", "The price is now 25 LTZ.")


@pytest.mark.parametrize(
    ("most", "reason"),
    [
        (-1, "must be at least 0"),
        (float(2**53), "must be an integer"),
        (24.5, "must be an integer"),
        ("25", "must be an integer"),
        (True, "must be an integer"),
        ([25], "must be an integer"),
        ("", "must be an integer"),
    ],
)
async def test_a_malformed_cost_is_an_invalid_parameter(
    surface: RunningSurfaces, most: object, reason: str
) -> None:
    answer = await post(surface, "redeem", {"perkId": COFFEE.id, "maxCost": most})
    assert answer.params == {"maxCost": reason}
    assert surface.site.requests == []


async def test_a_member_is_shown_his_own_name_as_the_site_has_it(surface: RunningSurfaces) -> None:
    surface.site.visitor = replace(ANN, username="ann@mail.example")
    assert (await get(surface, "me")).body["username"] == "ann@mail.example"


async def test_a_member_redeems_nothing_of_a_brand_that_has_just_got_his_site(
    surface: RunningSurfaces,
) -> None:
    """The member's links and LTZ belong to the brand of his log-in."""
    surface.site.visitor = replace(ANN, brand_id=address_of("0x" + "cd" * 20))
    answer = await post(surface, "redeem")
    assert (answer.status, answer.body["code"]) == (500, "not_configured")
    assert "redeem" not in surface.site.calls


async def test_perks_are_listed_for_everybody(surface: RunningSurfaces) -> None:
    answer = await get(surface, "perks", Cookie="", X_WP_Nonce="")
    perk = {"id": COFFEE.id, "name": "Free coffee", "cost": 25, "category": "drinks"}
    assert (answer.status, answer.body) == (
        200,
        {"success": True, "perks": [perk | {"available": True}]},
    )


@pytest.mark.parametrize(
    ("units", "text"),
    [
        (0, "0"),
        (LTZ, "1"),
        (LTZ // 10, "0.1"),
        (12 * LTZ + LTZ // 4, "12.25"),
        (10**27, "1000000000"),
        (10**9 * LTZ + 1, "1000000000.000000000000000001"),
    ],
)
async def test_amounts_are_exact_json_numbers(
    surface: RunningSurfaces, units: int, text: str
) -> None:
    surface.site.price = surface.site.balance = surface.site.spendable = units
    assert f'"cost":{text},' in (await post(surface, "redeem")).text
    assert f'"cost":{text},' in (await get(surface, "perks")).text
    me = (await get(surface, "me")).text
    assert f'"balance":{text},' in me
    assert f'"spendable":{text},' in me


@pytest.mark.parametrize(
    ("multiplier", "text"), [("1.0", "1"), ("1.50", "1.50"), ("0", "0"), ("1E+2", "100")]
)
async def test_a_multiplier_is_a_json_number(
    surface: RunningSurfaces, multiplier: str, text: str
) -> None:
    surface.site.multiplier = Decimal(multiplier)
    assert f'"multiplier":{text},' in (await post(surface, "checkin")).text


# --- who asks -----------------------------------------------------------------------------------


@pytest.mark.parametrize("path", NEED_LOG_IN)
@pytest.mark.parametrize(
    "without",
    [{"Cookie": ""}, {"X_WP_Nonce": ""}, {"X_WP_Nonce": "0000000000"}, {"Cookie": "a=b"}],
    ids=str,
)
async def test_without_a_log_in_nothing_happens(
    surface: RunningSurfaces, path: str, without: dict[str, str]
) -> None:
    answer = await well(surface, path, **without)
    assert answer.error == (401, "not_logged_in", "You are not logged in at this site.")
    assert surface.site.requests == []
    # The header would make a browser ask for a password.
    assert "WWW-Authenticate" not in answer.headers


@pytest.mark.parametrize(
    "host",
    [
        "other.example",
        "www.site.example",
        "site.example.evil.example",
        "xsite.example",
        "127.0.0.1",
        "[::1]",
        "site.example..",
        ".site.example",
        "-",
    ],
)
async def test_a_host_that_only_looks_like_the_sites_is_nobodys(
    surface: RunningSurfaces, host: str
) -> None:
    for path in FAILED:
        answer = await well(surface, path, Host=host)
        assert answer.error == (
            500,
            "not_configured",
            "No loyalty programme is configured for this site.",
        )
    assert surface.site.requests == []


@pytest.mark.parametrize(
    "host", ["Site.EXAMPLE", "site.example:8443", "SITE.example:80", "site.example."]
)
async def test_a_host_may_have_a_port_capitals_and_a_final_dot(
    surface: RunningSurfaces, host: str
) -> None:
    assert (await post(surface, "checkin", Host=host)).status == 200
    assert surface.site.calls[0] == f"brand_of {SITE_HOST}"


async def test_a_log_ins_fresh_nonce_comes_back_with_refusals_too(surface: RunningSurfaces) -> None:
    for path in NEED_LOG_IN:
        assert (await well(surface, path)).headers["X-WP-Nonce"] == FRESH_NONCE
    assert (await post(surface, "redeem", {})).headers["X-WP-Nonce"] == FRESH_NONCE
    surface.site.refusal = RedemptionRefused("This perk is sold out.")
    assert (await post(surface, "redeem")).headers["X-WP-Nonce"] == FRESH_NONCE
    assert "X-WP-Nonce" not in (await post(surface, "redeem", X_WP_Nonce="1")).headers
    assert "X-WP-Nonce" not in (await get(surface, "leaderboard")).headers


async def test_the_host_comes_before_the_log_in_and_that_before_what_is_asked(
    surface: RunningSurfaces,
) -> None:
    bad: list[object] = [{}, b"{", b"x" * (BODY_LIMIT + 1)]
    for path in GOOD:
        for payload in bad:
            no_site = await post(surface, path, payload, Host="other.example", X_WP_Nonce="")
            assert no_site.error[:2] == (500, "not_configured")
            assert (await post(surface, path, payload, X_WP_Nonce="")).status == 401
    answer = await get(surface, "leaderboard?limit=0", Host="other.example")
    assert answer.error[:2] == (500, "not_configured")


# --- what is asked ------------------------------------------------------------------------------


@pytest.mark.parametrize("payload", [None, b"", {}, {"perkId": None}, {"perkId": ""}], ids=str)
async def test_a_perk_must_be_named(surface: RunningSurfaces, payload: object) -> None:
    answer = await post(surface, "redeem", payload)
    assert answer.error == (400, "missing_perk_id", "perkId is required.")


@pytest.mark.parametrize(
    "perk_id",
    [
        "coffee",
        7,
        True,
        [],
        {},
        COFFEE.id.replace("-", ""),
        "{" + COFFEE.id + "}",
        f"urn:uuid:{COFFEE.id}",
        COFFEE.id + "\n",
        " " + COFFEE.id,
        COFFEE.id.replace("6", "\uff16"),
        COFFEE.id.replace("2", "\u0662"),
        "x" * 9_000,
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_malformed_perk_id_is_an_invalid_parameter(
    surface: RunningSurfaces, perk_id: object
) -> None:
    cleaned = perk_id == COFFEE.id + "\n"  # control characters are removed from every string
    answer = await post(surface, "redeem", {"perkId": perk_id})
    if cleaned:
        assert answer.status == 200
        return
    assert answer.params == {"perkId": "must be a UUID"}
    assert surface.site.requests == []


@pytest.mark.parametrize(
    "payload", [None, b"", {}, {"milestoneDays": None}, {"milestoneDays": ""}], ids=str
)
async def test_a_milestone_must_be_named(surface: RunningSurfaces, payload: object) -> None:
    answer = await post(surface, "claim-milestone", payload)
    assert answer.error == (400, "missing_milestone", "milestoneDays is required.")


@pytest.mark.parametrize(
    ("days", "reason"),
    [
        (0, "must be at least 1"),
        (-7, "must be at least 1"),
        (-(10**30), "must be at least 1"),
        (float(2**53), "must be an integer"),
        (7.5, "must be an integer"),
        ("7", "must be an integer"),
        ("\u0667", "must be an integer"),
        (True, "must be an integer"),
        ([7], "must be an integer"),
        ({}, "must be an integer"),
    ],
)
async def test_malformed_days_are_an_invalid_parameter(
    surface: RunningSurfaces, days: object, reason: str
) -> None:
    answer = await post(surface, "claim-milestone", {"milestoneDays": days})
    assert answer.params == {"milestoneDays": reason}
    assert surface.site.requests == []


@pytest.mark.parametrize("days", [8, 8.0, 2**31, 2**63, 2**64, 10**18])
async def test_a_milestone_that_does_not_exist_is_refused(
    surface: RunningSurfaces, days: float
) -> None:
    answer = await post(surface, "claim-milestone", {"milestoneDays": days})
    assert answer.error == (400, "claim_failed", "There is no such milestone.")


async def test_days_that_no_machine_number_holds_are_refused(surface: RunningSurfaces) -> None:
    for days in ("1" + "0" * 400, "-1" + "0" * 400, "1e400", "1e2"):
        answer = await post(surface, "claim-milestone", b'{"milestoneDays": %s}' % days.encode())
        assert answer.status == 400
        assert answer.body["code"] in {"rest_invalid_param", "rest_invalid_json", "claim_failed"}


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (None, "is required"),
        ({}, "is required"),
        ({"identityToken": "header.payload.signature"}, "is required"),
        ({"code": None}, "is required"),
        ({"code": ""}, "is required"),
        ({"code": 7}, "must be a string"),
        ({"code": ["x"]}, "must be a string"),
    ],
    ids=str,
)
async def test_a_link_needs_a_code(surface: RunningSurfaces, payload: object, reason: str) -> None:
    assert (await post(surface, "link", payload)).params == {"code": reason}
    assert surface.site.requests == []


@pytest.mark.parametrize(
    ("query", "params"),
    [
        ("metric=fame", {"metric": "must be one of ltz_earned, activity, streak"}),
        ("x=" + "y" * 200 + "&metric=a", {"metric": "must be one of ltz_earned, activity, streak"}),
        ("metric=LTZ_EARNED", {"metric": "must be one of ltz_earned, activity, streak"}),
        ("metric=", {"metric": "must be one of ltz_earned, activity, streak"}),
        ("period=year", {"period": "must be one of week, month, all"}),
        ("period=week%00", {"period": "must be one of week, month, all"}),
        ("metric=streak&metric=streak", {"metric": "must be given once"}),
        ("limit=0" + "&a=1" * 100, {"query": "must have at most 100 parameters"}),
        (
            "limit=0&limit=5&period=x",
            {"limit": "must be given once", "period": "must be one of week, month, all"},
        ),
        *(
            (f"limit={limit}", {"limit": "must be a whole number from 1 to 100"})
            for limit in (
                *("", "0", "101", "-1", "1.0", "1e1", "0x5", "ten", "1" + "0" * 5_000),
                *("%2B5", "+5", "5%20", "%D9%A5", "%EF%BC%95", "%C2%B2", "5%00", "1_0"),
            )
        ),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_bad_queries_name_each_bad_parameter(
    surface: RunningSurfaces, query: str, params: dict[str, str]
) -> None:
    answer = await get(surface, f"leaderboard?{query}")
    assert answer.params == params
    assert surface.site.requests == []


@pytest.mark.parametrize(
    ("payload", "headers"),
    [
        (b"{", {}),
        (b" ", {}),
        (b"[]", {}),
        (b"null", {}),
        (b'"x"', {}),
        (b'{"perkId": NaN}', {}),
        (b"\xff\xfe{\x00}\x00", {}),
        (b"[" * 5_000, {}),
        (b'{"a":' * 40 + b"1" + b"}" * 40, {}),
        (b"{}", {"Content_Type": "text/plain"}),
        (b"{}", {"Content_Type": ""}),
        (b"perkId=1", {"Content_Type": "application/x-www-form-urlencoded"}),
        (b"{}", {"Content_Encoding": "gzip"}),
    ],
    ids=str,
)
async def test_a_body_that_is_no_json_object_is_refused(
    surface: RunningSurfaces, payload: bytes, headers: dict[str, str]
) -> None:
    for path in GOOD:
        answer = await post(surface, path, payload, **headers)
        assert answer.error[:2] == (400, "rest_invalid_json")
    assert surface.site.requests == []


async def test_a_body_has_a_limit(surface: RunningSurfaces) -> None:
    pad = BODY_LIMIT - len(json.dumps({"perkId": COFFEE.id, "x": ""}))
    full = {"perkId": COFFEE.id, "x": "x" * pad}
    assert (await post(surface, "redeem", full)).status == 200
    over = await post(surface, "redeem", full | {"x": "x" * (pad + 1)})
    assert over.error == (
        413,
        "rest_payload_too_large",
        f"Request body is larger than {BODY_LIMIT} bytes",
    )


@pytest.mark.parametrize(
    "payload",
    [
        *(b"", b"{", b"\xff", b'{"reward": 1000000}'),
        *(b"x" * (limit + 1) for limit in (BODY_LIMIT, DRAIN_LIMIT)),
    ],
    ids=len,
)
async def test_whatever_a_check_in_holds_means_nothing(
    surface: RunningSurfaces, payload: bytes
) -> None:
    answer = await post(surface, "checkin", payload, Content_Type="text/plain")
    assert (answer.status, answer.body["reward"]) == (200, 15)


async def test_unknown_fields_are_ignored(surface: RunningSurfaces) -> None:
    assert (await post(surface, "redeem", {"perkId": COFFEE.id, "wallet": 7})).status == 200


# --- paths and methods --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path",
    [
        "/wp-json",
        "/wp-json/",
        "/wp-json/loyalty/v1",
        "/wp-json/loyalty/v2/checkin",
        "/wp-json/loyalty/v1/checkins",
        "/wp-json/loyalty/v1/checkin/x",
        "/wp-json/loyalty/v1/CHECKIN",
        "/wp-json/loyalty/v1//checkin",
        "/wp-json/wp/v2/users/me",
    ],
)
async def test_what_is_no_route_is_said_to_be_none(surface: RunningSurfaces, path: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        answer = await ask(surface, method, path)
        assert (answer.status, answer.body) == (404, NO_ROUTE)
    assert surface.site.requests == []


@pytest.mark.parametrize("path", FAILED)
async def test_a_wrong_method_is_no_route(surface: RunningSurfaces, path: str) -> None:
    allowed = {"POST"} if path in POSTED else {"GET", "HEAD"}
    allowed |= {"DELETE"} if path == "link" else set()
    for method in {"GET", "POST", "PUT", "PATCH", "DELETE"} - allowed:
        answer = await ask(surface, method, path)
        assert (answer.status, answer.body) == (404, NO_ROUTE)
        assert "Allow" not in answer.headers
    if path in POSTED:
        assert (await ask(surface, "HEAD", path)).status == 404


async def test_slashes_at_the_end_are_the_same_route(surface: RunningSurfaces) -> None:
    for path in ("checkin/", "checkin//"):
        assert (await ask(surface, "POST", path)).status == 200
    surface.site.refusal = CheckInRefused("Come back tomorrow.")
    for path in ("checkin/", "checkin//"):
        assert (await ask(surface, "POST", path)).error[1] == "checkin_failed"


async def test_outside_the_prefix_nothing_is_the_sites(surface: RunningSurfaces) -> None:
    for path in ("/wp-jsonx", "/wp", "/WP-JSON/loyalty/v1/me", "/loyalty/v1/me"):
        assert (await ask(surface, "GET", path)).body == {
            "code": "NOT_FOUND",
            "error": "Unknown endpoint",
        }


async def test_a_head_is_a_get_without_its_body(surface: RunningSurfaces) -> None:
    for path in READ:
        whole, head = await get(surface, path), await ask(surface, "HEAD", path)
        assert (head.status, head.text) == (200, "")
        assert head.headers["Content-Length"] == str(len(whole.text))
    assert (await ask(surface, "HEAD", "leaderboard?limit=0")).status == 400


async def test_a_preflight_is_answered_everywhere(surface: RunningSurfaces) -> None:
    for path in (*FAILED, "/wp-json/nowhere"):
        answer = await ask(surface, "OPTIONS", path, Origin="https://shop.example")
        assert (answer.status, answer.text) == (204, "")
        assert answer.headers["Access-Control-Allow-Origin"] == "https://shop.example"
    foreign = await ask(surface, "OPTIONS", "me", Origin="https://evil.example")
    assert "Access-Control-Allow-Origin" not in foreign.headers


# --- limits -------------------------------------------------------------------------------------

FAILED_COOKIE = COOKIE.replace("ann", "eve")


def retry_after(answer: SitePluginResponse) -> int:
    seconds = int(answer.headers["Retry-After"])
    assert 1 <= seconds <= 60
    return seconds


async def test_after_sixty_failed_log_ins_the_site_is_asked_no_more(
    surface: RunningSurfaces,
) -> None:
    for number in range(60):
        answer = await post(surface, "checkin", Cookie=FAILED_COOKIE)
        assert answer.error[:2] == (401, "not_logged_in"), number
    log_ins = surface.site.calls.count("member")
    for path in NEED_LOG_IN:
        answer = await well(surface, path, Cookie=FAILED_COOKIE)
        wait = f"Please try again in {retry_after(answer)} seconds."
        assert answer.error == (
            429,
            "rest_too_many_requests",
            f"Too many log-ins have failed from your address. {wait}",
        )
        assert answer.headers["X-RateLimit-Limit"] == "60"
        assert answer.headers["X-RateLimit-Remaining"] == "0"
    assert (await post(surface, "checkin")).status == 429, "nobody is asked about a new one either"
    assert surface.site.calls.count("member") == log_ins


async def test_of_3360_failed_log_ins_sixty_reach_the_site(surface: RunningSurfaces) -> None:
    for _ in range(56):
        await asyncio.gather(*[post(surface, "checkin", Cookie=FAILED_COOKIE) for _ in range(60)])
    assert 60 <= surface.site.calls.count("member") <= 120, "those under way at once may be more"


async def test_a_log_in_that_the_site_has_confirmed_passes_while_others_are_refused(
    surface: RunningSurfaces,
) -> None:
    for _ in range(61):
        await post(surface, "checkin", Cookie=FAILED_COOKIE)
    assert (await get(surface, "me")).status == 429
    surface.site.confirmed.add(HostCredentials(COOKIE, NONCE))
    assert (await get(surface, "me")).status == 200


async def test_good_log_ins_and_visitors_without_one_never_count(surface: RunningSurfaces) -> None:
    for _ in range(70):
        assert (await get(surface, "me")).status == 200
        assert (await get(surface, "me", Cookie="", X_WP_Nonce="")).status == 401
        assert (await get(surface, "me", X_WP_Nonce="")).status == 401
    assert (await post(surface, "checkin", Cookie=FAILED_COOKIE)).status == 401


async def test_failed_log_ins_count_for_one_host_and_close_no_page_that_needs_none(
    surface: RunningSurfaces,
) -> None:
    for _ in range(61):
        await post(surface, "checkin", Cookie=FAILED_COOKIE)
    for path in ("leaderboard", "perks"):
        assert (await get(surface, path)).status == 200
    elsewhere = await post(surface, "checkin", Cookie=FAILED_COOKIE, Host="other.example")
    assert elsewhere.error[:2] == (500, "not_configured")


async def test_failed_log_ins_count_for_their_address() -> None:
    policy = HttpPolicy(proxies=Proxies(1, (ip_network("127.0.0.0/8"),)), requires_https=False)
    async with a_surface(policy) as surface:
        for number in range(61):
            await post(
                surface,
                "checkin",
                Cookie=FAILED_COOKIE,
                X_Forwarded_For=f"2001:db8:1:2::{number:x}",
            )
        for client, status in (("2001:db8:1:2:f::", 429), ("2001:db8:1:3::", 200)):
            assert (await get(surface, "me", X_Forwarded_For=client)).status == status


async def test_a_host_whose_site_is_waited_for_by_too_many_is_503(surface: RunningSurfaces) -> None:
    surface.site.log_in_refusal = HostSiteBusy("too many")
    for path in NEED_LOG_IN:
        answer = await well(surface, path)
        assert answer.error == (
            503,
            "api_error",
            "This site answers slowly at the moment. Please try again soon.",
        )
        assert answer.headers["Retry-After"] == "5"


async def test_prefix_and_namespace_are_settings() -> None:
    policy = HttpPolicy(grace_seconds=2.0, site_rest_prefix="api", site_namespace="stars")
    async with a_surface(policy) as surface:
        assert (await ask(surface, "GET", "/api/stars/v1/me")).status == 200
        assert (await ask(surface, "GET", "/api/loyalty/v1/me")).body == NO_ROUTE
        assert (await ask(surface, "GET", "/wp-json/loyalty/v1/me")).body["code"] == "NOT_FOUND"
        surface.site.refusal = DatabaseUnavailable("gone")
        assert (await ask(surface, "POST", "/api/stars/v1/checkin/")).error[1] == "checkin_failed"
        async with surface.client.get(surface.url + "/docs/openapi.json") as answer:
            assert "/api/stars/v1/redeem" in (await answer.json())["paths"]


async def test_a_site_is_also_served_under_its_own_path_and_no_other_site_is() -> None:
    async with a_surface() as surface:
        surface.site.own_paths = ("/blog/api/stars/v1", "/api/stars/v1")
        for base in ("/blog/api/stars/v1", "/api/stars/v1", BASE):
            assert (await ask(surface, "GET", f"{base}/me")).status == 200
            assert (await ask(surface, "GET", f"{base}/perks?x=/v1/")).status == 200
            assert (await ask(surface, "POST", f"{base}/checkin")).status == 200
            assert (await ask(surface, "GET", f"{base}/nothing")).body == NO_ROUTE
            surface.site.refusal = DatabaseUnavailable("gone")
            assert (await ask(surface, "POST", f"{base}/checkin/")).error[1] == "checkin_failed"
            surface.site.refusal = None
        for path in ("/blog/api/stars/v2/me", "/blog/api/stars/v1", "/x/api/stars/v1/me"):
            assert (await ask(surface, "GET", path)).body["code"] == "NOT_FOUND"
        answer = await ask(surface, "GET", "/blog/api/stars/v1/me", Host="other.example")
        assert answer.body["code"] == "NOT_FOUND"


# --- what does not come about -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (DatabaseUnavailable("at db.internal"), AWAY),
        (NodeUnavailable("at node.internal"), AWAY),
        (IdentityUnavailable("at id.internal"), AWAY),
        (OutcomeUnknown("0xabc"), AWAY),
        (Unavailable("x"), AWAY),
        (CheckInRefused("Come back tomorrow."), "Come back tomorrow."),
        (RedemptionRefused("This perk is sold out."), "This perk is sold out."),
        (MilestoneRefused("You have claimed it already."), "You have claimed it already."),
        (NotFound("No such thing."), "No such thing."),
        (ClaimLimitReached("No more of it.", collectionId=7), "No more of it."),
        (InvalidFields(["email: no"]), "Validation failed"),
        (TransactionFailed("It was reverted.", reason="x"), "It was reverted."),
        (
            BudgetExhausted("Budget exhausted", message="Come back tomorrow.", reason="x"),
            "Come back tomorrow.",
        ),
        (
            RateLimited("Rate limit exceeded", message="Try again in 7 s.", retryAfterSeconds=7),
            "Try again in 7 s.",
        ),
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_goes_wrong_has_the_code_of_its_endpoint_and_a_sentence(
    surface: RunningSurfaces, error: LtzdError, message: str
) -> None:
    surface.site.refusal = error
    for path, code in FAILED.items():
        assert (await well(surface, path)).error == (*code, message)


@pytest.mark.parametrize("path", NEED_LOG_IN)
async def test_a_host_site_that_does_not_answer_is_told_as_that(
    surface: RunningSurfaces, path: str
) -> None:
    surface.site.log_in_refusal = HostSiteUnavailable("status 503", reason="status 503")
    assert (await well(surface, path)).error == (
        *FAILED[path],
        "This site cannot tell who you are at the moment. Please try again soon.",
    )


@pytest.mark.parametrize(
    ("seconds", "when"),
    [(1, "1 minute"), (60, "1 minute"), (61, "2 minutes"), (3_600, "60 minutes")],
)
async def test_whom_a_brand_cannot_take_in_this_hour_is_told_so(
    surface: RunningSurfaces, seconds: int, when: str
) -> None:
    surface.site.log_in_refusal = rate_limited("new wallets an hour", 1, seconds)
    for path in NEED_LOG_IN:
        assert (await well(surface, path)).error == (
            *FAILED[path],
            f"This site takes in no more new members for the moment. Please try again in {when}.",
        )


@pytest.mark.parametrize(
    "error", [RuntimeError("secret"), IllegalTransition("secret"), KeyError("secret")]
)
async def test_what_nobody_foresaw_tells_nothing(
    surface: RunningSurfaces, error: BaseException
) -> None:
    surface.site.refusal = error
    for path in FAILED:
        assert (await well(surface, path)).error == (
            500,
            "internal_server_error",
            "Something went wrong. Please try again later.",
        )


async def test_a_request_with_two_hosts_is_refused(running: RunningSurfaces) -> None:
    host, port = running.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"GET {BASE}/leaderboard HTTP/1.1\r\nHost: {SITE_HOST}\r\nHost: evil.example\r\n"
        "Connection: close\r\n\r\n".encode()
    )
    received = (await reader.read()).decode()
    writer.close()
    assert received.startswith("HTTP/1.1 400 ")
    assert json.loads(received.partition("\r\n\r\n")[2]) == {
        "code": "rest_bad_request",
        "message": "Malformed request: the Host header must be given once",
        "data": {"status": 400},
    }


async def asked_for(surface: RunningSurfaces, target: str, head: str) -> Any:
    """The body of the response to exactly these bytes."""
    host, port = surface.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {target} HTTP/1.1\r\n{head}Connection: close\r\n\r\n".encode())
    received = (await reader.read()).decode()
    writer.close()
    return json.loads(received.partition("\r\n\r\n")[2])


async def test_a_request_without_a_host_is_malformed(running: RunningSurfaces) -> None:
    for target in (f"{BASE}/leaderboard", f"http://{SITE_HOST}{BASE}/leaderboard"):
        assert (await asked_for(running, target, ""))["code"] == "rest_bad_request"


@pytest.mark.parametrize(
    "authority",
    ["evil.example", f"{SITE_HOST}.evil.example", f"{SITE_HOST}@evil.example", f"a@{SITE_HOST}"],
)
@pytest.mark.parametrize("scheme", ["http", "HTTPS", "ws"])
async def test_a_target_that_names_another_host_than_the_header_is_of_no_site(
    surface: RunningSurfaces, scheme: str, authority: str
) -> None:
    for path in ("leaderboard", "me"):
        target = f"{scheme}://{authority}{BASE}/{path}"
        log_in = f"Host: {SITE_HOST}\r\nCookie: {COOKIE}\r\nX-WP-Nonce: {NONCE}\r\n"
        assert (await asked_for(surface, target, log_in))["code"] == "not_configured"
    foreign = f"http://{SITE_HOST}{BASE}/leaderboard"
    body = await asked_for(surface, foreign, "Host: evil.example\r\n")
    assert body["code"] == "not_configured"
    assert surface.site.requests == []


async def test_a_target_may_name_the_host_before_a_sites_own_path() -> None:
    """RFC 9112 3.2.2: a server accepts absolute URLs for every path that it serves."""
    log_in = f"Host: {SITE_HOST}\r\nCookie: {COOKIE}\r\nX-WP-Nonce: {NONCE}\r\n"
    async with a_surface() as surface:
        surface.site.own_paths = ("/blog/api/stars/v1", "/api/stars/v1")
        for base in (*surface.site.own_paths, BASE):
            target = f"https://{SITE_HOST}{base}/me"
            assert (await asked_for(surface, target, log_in))["success"] is True
            foreign = f"https://evil.example{base}/me"
            assert (await asked_for(surface, foreign, log_in))["code"] == "not_configured"


async def test_a_target_may_name_the_host_once_more(surface: RunningSurfaces) -> None:
    for authority in (SITE_HOST, SITE_HOST.upper(), f"{SITE_HOST}:80"):
        target = f"http://{authority}{BASE}/leaderboard?limit=5"
        body = await asked_for(surface, target, f"Host: {SITE_HOST}\r\n")
        assert body["success"] is True
    there = f"{BASE}/leaderboard?metric=http://evil.example/"
    body = await asked_for(surface, there, f"Host: {SITE_HOST}\r\n")
    assert body["code"] == "rest_invalid_param"


# --- the document -------------------------------------------------------------------------------

SITE_OPERATIONS = operations(HttpPolicy())
ENDPOINTS = {
    operation.path.rpartition("/")[2]: operation
    for operation in SITE_OPERATIONS
    if operation.method != "DELETE"
}


@pytest.mark.parametrize(
    "operation", SITE_OPERATIONS, ids=lambda operation: f"{operation.method} {operation.path}"
)
def test_each_answer_has_examples_that_fit_its_model(operation: Operation) -> None:
    assert_examples_fit(operation)
    for status, response in operation.responses.items():
        assert (status >= 400) is (response.model is SitePluginError)


def test_the_examples_of_requests_are_good_requests() -> None:
    for name, model in (
        ("redeem", site_models.RedeemBody),
        ("claim-milestone", site_models.ClaimMilestoneBody),
        ("link", site_models.LinkBody),
    ):
        examples = ENDPOINTS[name].request_examples
        assert examples
        for body in examples.values():
            model.from_json(dict(body))


def test_every_code_of_the_specification_has_an_example_where_it_belongs() -> None:
    codes = {
        (name, status, body["code"])
        for name, operation in ENDPOINTS.items()
        for status, response in operation.responses.items()
        for body in response.examples.values()
        if status >= 400 and isinstance(body, dict)
    }
    assert codes >= {
        ("checkin", 401, "not_logged_in"),
        ("redeem", 401, "not_logged_in"),
        ("claim-milestone", 401, "not_logged_in"),
        ("checkin", 500, "not_configured"),
        ("leaderboard", 500, "not_configured"),
        ("redeem", 400, "missing_perk_id"),
        ("claim-milestone", 400, "missing_milestone"),
        ("checkin", 400, "checkin_failed"),
        ("redeem", 400, "redeem_failed"),
        ("claim-milestone", 400, "claim_failed"),
        ("leaderboard", 500, "api_error"),
        ("leaderboard", 400, "rest_invalid_param"),
        ("link", 400, "link_failed"),
    }
    assert not {code for name, _, code in codes if name in READ} & {"rest_invalid_json"}


async def test_good_answers_fit_what_is_documented(surface: RunningSurfaces) -> None:
    for name, operation in ENDPOINTS.items():
        answer = await well(surface, name)
        model = operation.responses[200].model
        assert model is not None
        model.model_validate(answer.body)


@pytest.mark.parametrize("mode", list(GenerationMode), ids=lambda mode: str(mode.value))
async def test_calls_made_from_the_document_are_answered_as_documented(
    surface: RunningSurfaces, mode: GenerationMode
) -> None:
    async with surface.client.get(surface.url + "/docs/openapi.json") as answer:
        described = await answer.json()
    described["paths"] = {
        operation.path: described["paths"][operation.path] for operation in SITE_OPERATIONS
    }
    for path in described["paths"].values():
        for described_operation in path.values():  # every call below sends the log-in
            described_operation["parameters"] = [
                operation
                for operation in described_operation["parameters"]
                if operation["in"] != "header"
            ]
    with requests.Session() as http:
        http.headers.update({"Host": SITE_HOST, "Cookie": COOKIE, "X-WP-Nonce": NONCE})
        run = Run(schemathesis.openapi.from_dict(described), surface.url, http)
        await asyncio.to_thread(random_cases(mode, 5, CHECKS), run)
    statuses = {status for _, status in run.seen}
    assert 401 not in statuses
    assert (200 if mode is GenerationMode.POSITIVE else 400) in statuses
