"""The site plugin's endpoints, spec 4.4: for the users of a brand's own site.

The Host header names the site, and with it the brand; users log in at the site itself. Checks run
in this order: the Host, the log-in, the body or query, and then the checks of the actions.
"""

import re
from collections.abc import Sequence
from typing import Any

from sanic import Blueprint
from sanic.request import Request

from ltzd.actions.site_plugin.members import NoEmailAddress
from ltzd.cache.rate_limits import RateLimits
from ltzd.errors import (
    Broken,
    CheckInRefused,
    DatabaseUnavailable,
    HostSiteBusy,
    HostSiteUnavailable,
    IdentityUnavailable,
    LinkRefused,
    LoginRateLimited,
    MilestoneRefused,
    NotLoggedIn,
    RateLimited,
    RedemptionRefused,
    Refused,
    SiteUnknown,
    TooManyAttempts,
)
from ltzd.http.errors import BodyTooLarge, BodyUnreadable
from ltzd.http.openapi.operations import raises
from ltzd.http.requests.json_body import (
    EVENT_HANDLER_LIMIT,
    parse_object,
    read_body,
    require_json,
)
from ltzd.http.requests.query_string import TOO_MANY, has_too_many_parameters
from ltzd.http.responses import Reply
from ltzd.http.routes import add_route
from ltzd.http.services import SiteServices
from ltzd.http.site_plugin import errors
from ltzd.http.site_plugin.errors import (
    InvalidParams,
    MissingMilestone,
    MissingPerkId,
    SitePluginErrors,
)
from ltzd.http.site_plugin.log_in_limit import LogInLimit
from ltzd.http.site_plugin.models import (
    CheckInResponse,
    ClaimMilestoneBody,
    ClaimMilestoneResponse,
    LeaderboardQuery,
    LeaderboardResponse,
    LinkBody,
    LinkResponse,
    MemberResponse,
    PerksResponse,
    RedeemBody,
    RedeemResponse,
    UnlinkResponse,
    site_reply,
)
from ltzd.http.surface import READ_METHODS, Surface
from ltzd.providers.host_sites import HostCredentials
from ltzd.rules.brands.configuration import Brand
from ltzd.rules.domains.names import normal_domain
from ltzd.store.site_plugin.members import Member

BODY_LIMIT = EVENT_HANDLER_LIMIT

NONCE_HEADER = "X-WP-Nonce"

COMMON_ERRORS = (SiteUnknown, DatabaseUnavailable, Broken)
LOG_IN_ERRORS = (
    *COMMON_ERRORS,
    NotLoggedIn,
    NoEmailAddress,
    HostSiteUnavailable,
    HostSiteBusy,
    LoginRateLimited,
    RateLimited,
    IdentityUnavailable,
)
BODY_ERRORS = (BodyUnreadable, BodyTooLarge)

# ASCII only: IDNA maps some other letters to ASCII ones.
_HOST = re.compile(r"([A-Za-z0-9.-]{1,254})(?::[0-9]{1,5})?")
_ABSOLUTE_URL = re.compile(rb"[^:/?#]+://([^/?#]*)")


def surface(site: SiteServices, limits: RateLimits, rest_prefix: str, base: str) -> Surface:
    """`base`, the path of the API, is below `rest_prefix`, the path of the site's REST API."""
    handlers = SitePluginHandlers(site, limits)
    blueprint = Blueprint("site_plugin", url_prefix=base)
    # ignore_body: `read_body` reads the body, under this surface's own limit, where it has a
    # meaning. Elsewhere it is discarded after the answer.
    for endpoint, handler in (
        (errors.CHECK_IN, handlers.check_in),
        (errors.REDEEM, handlers.redeem),
        (errors.CLAIM_MILESTONE, handlers.claim_milestone),
        (errors.LINK, handlers.link),
    ):
        add_route(blueprint, handler, f"/{endpoint}", ["POST"], ignore_body=True)
    add_route(blueprint, handlers.unlink, f"/{errors.LINK}", ["DELETE"], ignore_body=True)
    add_route(blueprint, handlers.leaderboard, f"/{errors.LEADERBOARD}", READ_METHODS)
    add_route(blueprint, handlers.me, f"/{errors.ME}", READ_METHODS)
    add_route(blueprint, handlers.perks, f"/{errors.PERKS}", READ_METHODS)
    return Surface(blueprint, ((rest_prefix, SitePluginErrors(base)),))


class SitePluginHandlers:
    def __init__(self, site: SiteServices, limits: RateLimits) -> None:
        self._members = site.members
        self._log_ins = LogInLimit(site.members, limits)
        self._check_ins = site.check_ins
        self._leaderboards = site.leaderboards
        self._redemptions = site.redemptions
        self._links = site.links

    @raises(*LOG_IN_ERRORS, CheckInRefused)
    async def check_in(self, request: Request) -> Reply:
        member = await self._member(request)
        return site_reply(CheckInResponse.body(await self._check_ins.check_in(member)))

    @raises(*LOG_IN_ERRORS, *BODY_ERRORS, MissingPerkId, InvalidParams, RedemptionRefused)
    async def redeem(self, request: Request) -> Reply:
        """202 while the transaction is not mined: a repeated request has the outcome."""
        body = await _body_or_error(request)
        member = await self._member(request)
        order = RedeemBody.from_json(_raise_error(body))
        brand = self._brand_of(member)
        redeemed = await self._redemptions.redeem(brand, member, order.perk, order.max_cost_units)
        status = 202 if redeemed.is_pending else 200
        return site_reply(RedeemResponse.body(redeemed), status)

    @raises(*LOG_IN_ERRORS, *BODY_ERRORS, MissingMilestone, InvalidParams, MilestoneRefused)
    async def claim_milestone(self, request: Request) -> Reply:
        body = await _body_or_error(request)
        member = await self._member(request)
        days = ClaimMilestoneBody.from_json(_raise_error(body)).milestone_days
        bonus = await self._check_ins.claim_milestone(member, days)
        return site_reply(ClaimMilestoneResponse.body(days, bonus))

    @raises(*LOG_IN_ERRORS, *BODY_ERRORS, InvalidParams, LinkRefused, TooManyAttempts)
    async def link(self, request: Request) -> Reply:
        body = await _body_or_error(request)
        member = await self._member(request)
        code = LinkBody.from_json(_raise_error(body)).code
        return site_reply(LinkResponse.body(await self._links.link(member, code)))

    @raises(*LOG_IN_ERRORS)
    async def unlink(self, request: Request) -> Reply:
        """Succeeds also if the member has no link."""
        await self._links.end(await self._member(request))
        return site_reply(UnlinkResponse.body())

    @raises(*COMMON_ERRORS, InvalidParams)
    async def leaderboard(self, request: Request) -> Reply:
        host = host_of(request)
        brand = self._members.brand_of(host)
        if has_too_many_parameters(request):
            raise InvalidParams({"query": TOO_MANY})
        query = LeaderboardQuery.from_text(request.query_string)
        board = await self._leaderboards.read(brand, host, query.metric, query.period, query.limit)
        return site_reply(LeaderboardResponse.body(query, board))

    @raises(*LOG_IN_ERRORS)
    async def me(self, request: Request) -> Reply:
        member = await self._member(request)
        streak = await self._check_ins.streak(member)
        funds = await self._redemptions.funds(self._brand_of(member), member)
        return site_reply(MemberResponse.body(member, funds, streak))

    @raises(*COMMON_ERRORS)
    async def perks(self, request: Request) -> Reply:
        brand = self._members.brand_of(host_of(request))
        return site_reply(PerksResponse.body(await self._redemptions.perks(brand)))

    def _brand_of(self, member: Member) -> Brand:
        """Raises SiteUnknown."""
        brand = self._members.brand_of(member.host)
        if brand.address != member.brand_id:
            raise SiteUnknown("This site has just become another brand's.")
        return brand

    async def _member(self, request: Request) -> Member:
        """The logged-in user as a member of the brand. Raises the errors of LOG_IN_ERRORS."""
        headers = request.headers
        credentials = HostCredentials(
            cookie="; ".join(headers.getall("cookie", ())),
            nonce=_joined(headers.getall(NONCE_HEADER, ())),
            authorization=_joined(headers.getall("authorization", ())),
        )
        logged_in = await self._log_ins.member(request, host_of(request), credentials)
        if logged_in.nonce is not None:
            request.ctx.nonce = logged_in.nonce
        return logged_in.member


def _joined(lines: Sequence[str]) -> str | None:
    """The header's value. A proxy may have read another line of a repeated header: joined by a
    comma, no nonce and no password has a valid form."""
    return ", ".join(lines) if lines else None


def host_of(request: Request) -> str:
    """The name in the Host header, normalized.

    Empty if there is none, or if the request target names another host: RFC 9112 3.2.2 gives the
    target precedence, so a proxy may have checked that one.
    """
    name = host_name(request.headers.getone("host", ""))
    target = _ABSOLUTE_URL.match(request.raw_url)
    if target is None or host_name(target[1].decode("ascii", "replace")) == name:
        return name
    return ""


def host_name(authority: str) -> str:
    """The normalized name in a Host header, or empty for no host's name."""
    match = _HOST.fullmatch(authority)
    try:
        return "" if match is None else normal_domain(match[1])
    except ValueError:
        return ""


async def _body_or_error(request: Request) -> dict[str, Any] | Refused:
    """The body, or its fault, which is raised only after the log-in is checked."""
    try:
        raw = await read_body(request, BODY_LIMIT)
        if not raw:
            return {}
        require_json(request)
        return parse_object(raw)
    except Refused as error:
        return error


def _raise_error(body: dict[str, Any] | Refused) -> dict[str, Any]:
    if isinstance(body, Refused):
        raise body
    return body
