"""/site-links: where the owner of a wallet makes and ends links with site members.

Choices.md, Site, describes linking by code. The endpoints are at the root like /relay, with the
relayer's error body, tokens, Origin check and limit per address. Checks run in this order: that
limit, Origin, JSON, token, fields, and then the checks of `actions/site_plugin/links.py`. The
member enters the code at the site plugin's `link` endpoint.
"""

from sanic import Blueprint
from sanic.request import Request

from ltzd.errors import (
    Broken,
    DatabaseUnavailable,
    IdentityUnavailable,
    InvalidFields,
    MissingFields,
    NotFound,
    RateLimited,
    Unauthorized,
    ValidationFailed,
)
from ltzd.http.errors import BodyTooLarge, BodyUnreadable
from ltzd.http.openapi.operations import raises
from ltzd.http.requests.authorization import bearer_token
from ltzd.http.requests.cors import Cors
from ltzd.http.requests.json_body import EVENT_HANDLER_LIMIT, parse_object, read_json
from ltzd.http.responses import Reply, json_reply
from ltzd.http.routes import add_route
from ltzd.http.services import SiteLinkService
from ltzd.http.site_plugin.link_models import (
    CreateSiteLinkBody,
    SiteLinkCodeResponse,
    SiteLinksResponse,
)
from ltzd.http.surface import READ_METHODS, Surface
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.domains.names import normal_domain

PATH = "/site-links"
BODY_LIMIT = EVENT_HANDLER_LIMIT

CORS_METHODS = "GET, POST, DELETE, OPTIONS"
"""Spec 5 names three methods for every path; a page of the owner's may also DELETE a link."""

COMMON_ERRORS = (
    Unauthorized,
    ValidationFailed,
    RateLimited,
    IdentityUnavailable,
    Broken,
    DatabaseUnavailable,
)


def surface(links: SiteLinkService, cors: Cors) -> Surface:
    handlers = SiteLinkHandlers(links, cors)
    blueprint = Blueprint("site_links")
    # ignore_body: `read_json` reads the body, under this surface's own limit.
    add_route(blueprint, handlers.create_code, PATH, ["POST"], ignore_body=True)
    add_route(blueprint, handlers.links, PATH, READ_METHODS)
    add_route(blueprint, handlers.end, f"{PATH}/<host:str>", ["DELETE"], ignore_body=True)
    return Surface(blueprint)


class SiteLinkHandlers:
    def __init__(self, links: SiteLinkService, cors: Cors) -> None:
        self._links = links
        self._cors = cors

    @raises(*COMMON_ERRORS, BodyUnreadable, MissingFields, InvalidFields, NotFound, BodyTooLarge)
    async def create_code(self, request: Request) -> Reply:
        self._cors.refuse_foreign_origin(request)
        body = parse_object(await read_json(request, BODY_LIMIT))
        owner = await self._owner(request)
        link = CreateSiteLinkBody.from_json(body)
        code = await self._links.new_code(owner, link.host, link.allowance)
        return json_reply(SiteLinkCodeResponse.body(code), 201, {"Cache-Control": "no-store"})

    @raises(*COMMON_ERRORS)
    async def links(self, request: Request) -> Reply:
        self._cors.refuse_foreign_origin(request)
        links = await self._links.links_of(await self._owner(request))
        return json_reply(SiteLinksResponse.body(links))

    @raises(*COMMON_ERRORS, NotFound)
    async def end(self, request: Request, host: str) -> Reply:
        """Works also if the host is no longer the site of any brand."""
        self._cors.refuse_foreign_origin(request)
        owner = await self._owner(request)
        try:
            name = normal_domain(host)
        except ValueError as error:
            raise NotFound("You have no link at this host") from error
        await self._links.end_at(owner, name)
        return Reply(status=204)

    async def _owner(self, request: Request) -> TokenUser:
        """Raises Unauthorized and IdentityUnavailable."""
        return await self._links.owner_of(bearer_token(request))
