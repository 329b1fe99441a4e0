"""The site plugin's API, spec 4.4: what the users of a brand's own site ask.

The Host names the site, and with it the brand; a log-in is the site's own. Checks come in one
order: the Host, the log-in, the body or query, and then those of the actions.
"""

import re
from contextlib import suppress
from typing import Any

from sanic import Blueprint
from sanic.request import Request

from ltzd.cache.rate_limits import RateLimits
from ltzd.errors import Refused, SiteUnknown
from ltzd.http.errors import BodyTooLarge
from ltzd.http.requests.json_body import (
    EVENT_HANDLER_LIMIT,
    parsed,
    read_body,
    refuse_what_is_not_json,
)
from ltzd.http.responses import Reply
from ltzd.http.services import SiteServices
from ltzd.http.site_plugin import errors as site_errors
from ltzd.http.site_plugin.log_in_limit import LogInLimit
from ltzd.http.site_plugin.models import (
    CheckInAnswer,
    LeaderboardAnswer,
    LeaderboardQuery,
    LinkAnswer,
    LinkOrder,
    MemberAnswer,
    MilestoneAnswer,
    MilestoneOrder,
    PerkOrder,
    PerkRedeemedAnswer,
    PerksAnswer,
    UnlinkAnswer,
    site_reply,
)
from ltzd.providers.host_sites import HostCredentials
from ltzd.rules.brands.configuration import Brand
from ltzd.rules.domains.names import normal_domain
from ltzd.store.site_plugin.members import Member

BODY_LIMIT = EVENT_HANDLER_LIMIT

NONCE = "X-WP-Nonce"
READ = ("GET", "HEAD")

_PRIVATE = {"Cache-Control": "no-store"}
# ASCII only: IDNA would make some foreign letters the same as ours.
_HOST = re.compile(r"([A-Za-z0-9.-]{1,254})(?::[0-9]{1,5})?")
_ABSOLUTE = re.compile(rb"[^:/?#]+://([^/?#]*)")


def surface(site: SiteServices, limits: RateLimits, base: str) -> Blueprint:
    handlers = SitePlugin(site, limits)
    blueprint = Blueprint("site_plugin", url_prefix=base)
    # ignore_body: `read_body` reads it, under this surface's own limit.
    for path, handler in (
        (site_errors.CHECK_IN, handlers.check_in),
        (site_errors.REDEEM, handlers.redeem),
        (site_errors.CLAIM_MILESTONE, handlers.claim_milestone),
        (site_errors.LINK, handlers.link),
    ):
        blueprint.add_route(handler, f"/{path}", ["POST"], ignore_body=True)
    blueprint.add_route(handlers.unlink, f"/{site_errors.LINK}", ["DELETE"], ignore_body=True)
    blueprint.add_route(handlers.leaderboard, f"/{site_errors.LEADERBOARD}", READ)
    blueprint.add_route(handlers.me, f"/{site_errors.ME}", READ)
    blueprint.add_route(handlers.perks, f"/{site_errors.PERKS}", READ)
    return blueprint


class SitePlugin:
    def __init__(self, site: SiteServices, limits: RateLimits) -> None:
        self._members = site.members
        self._log_ins = LogInLimit(site.members, limits)
        self._check_ins = site.check_ins
        self._leaderboards = site.leaderboards
        self._redemptions = site.redemptions
        self._links = site.links

    async def check_in(self, request: Request) -> Reply:
        with suppress(BodyTooLarge):  # whatever it holds means nothing
            await read_body(request, BODY_LIMIT)
        member = await self._member(request)
        return site_reply(CheckInAnswer.body(await self._check_ins.check_in(member)))

    async def redeem(self, request: Request) -> Reply:
        """202 while the chain has not decided; asked again then, it is the same redemption."""
        body = await _body_of(request)
        member = await self._member(request)
        order = PerkOrder.from_json(_checked(body))
        brand = self._brand_of(member)
        redeemed = await self._redemptions.redeem(brand, member, order.perk, order.max_cost_units)
        status = 202 if redeemed.is_pending else 200
        return site_reply(PerkRedeemedAnswer.body(redeemed), status)

    async def claim_milestone(self, request: Request) -> Reply:
        body = await _body_of(request)
        member = await self._member(request)
        days = MilestoneOrder.from_json(_checked(body)).milestone_days
        bonus = await self._check_ins.claim_milestone(member, days)
        return site_reply(MilestoneAnswer.body(days, bonus))

    async def link(self, request: Request) -> Reply:
        body = await _body_of(request)
        member = await self._member(request)
        code = LinkOrder.from_json(_checked(body)).code
        return site_reply(LinkAnswer.body(await self._links.link(member, code)))

    async def unlink(self, request: Request) -> Reply:
        """Also if there is no link: afterwards there is none."""
        with suppress(BodyTooLarge):  # whatever it holds means nothing
            await read_body(request, BODY_LIMIT)
        await self._links.end(await self._member(request))
        return site_reply(UnlinkAnswer.body())

    async def leaderboard(self, request: Request) -> Reply:
        brand = self._members.brand_of(host_of(request))
        query = LeaderboardQuery.from_query(request.get_args(keep_blank_values=True))
        board = await self._leaderboards.read(brand, query.metric, query.period, query.limit)
        return site_reply(LeaderboardAnswer.body(query, board))

    async def me(self, request: Request) -> Reply:
        member = await self._member(request)
        streak = await self._check_ins.streak(member)
        funds = await self._redemptions.funds(self._brand_of(member), member)
        return site_reply(MemberAnswer.body(member, funds, streak), headers=_PRIVATE)

    async def perks(self, request: Request) -> Reply:
        brand = self._members.brand_of(host_of(request))
        return site_reply(PerksAnswer.body(await self._redemptions.perks(brand)))

    def _brand_of(self, member: Member) -> Brand:
        """Raises SiteUnknown."""
        brand = self._members.brand_of(member.host)
        if brand.address != member.brand_id:
            raise SiteUnknown("This site has just become another brand's.")
        return brand

    async def _member(self, request: Request) -> Member:
        """Raises SiteUnknown, NotLoggedIn, LoginRateLimited, and what keeps us from knowing him."""
        headers = request.headers
        credentials = HostCredentials(
            cookie="; ".join(headers.getall("cookie", ())),
            nonce=headers.getone(NONCE, None),
            authorization=headers.getone("authorization", None),
        )
        logged_in = await self._log_ins.member(request, host_of(request), credentials)
        if logged_in.nonce is not None:
            request.ctx.nonce = logged_in.nonce
        return logged_in.member


def host_of(request: Request) -> str:
    """The name in the Host header, in its normal form; empty where there is none, or the request's
    target has another."""
    name = _name_in(request.headers.getone("host", ""))
    # RFC 9112 3.2.2: the target counts, so that a proxy may have let it pass for the other's.
    target = _ABSOLUTE.match(request.raw_url)
    return name if target is None or _name_in(target[1].decode("ascii", "replace")) == name else ""


def _name_in(authority: str) -> str:
    named = _HOST.fullmatch(authority)
    try:
        return "" if named is None else normal_domain(named[1])
    except ValueError:
        return ""


async def _body_of(request: Request) -> dict[str, Any] | Refused:
    """What is wrong with it is told once it is known who asks."""
    try:
        raw = await read_body(request, BODY_LIMIT)
        if not raw:
            return {}
        refuse_what_is_not_json(request)
        return parsed(raw)
    except Refused as refusal:
        return refusal


def _checked(body: dict[str, Any] | Refused) -> dict[str, Any]:
    if isinstance(body, Refused):
        raise body
    return body
