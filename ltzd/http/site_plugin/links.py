"""Links of site members with a wallet, as its owner makes and ends them (choices.md, Site).

A surface at the root like /relay, with its envelope, its tokens, its Origin check and its limit
per address. Checks come in one order: the address's limit, Origin, JSON, token, fields, and then
those of `actions/site_plugin/links.py`. The other half, where the member types the code, is
`site_plugin.py`.
"""

from sanic import Blueprint
from sanic.request import Request

from ltzd.errors import NotFound
from ltzd.http.relayer.handlers import bearer_token, refuse_foreign_origin
from ltzd.http.requests.cors import LINKS_PATH, Cors
from ltzd.http.requests.json_body import EVENT_HANDLER_LIMIT, parsed, read_json
from ltzd.http.responses import Reply, json_reply
from ltzd.http.services import SiteLinks
from ltzd.http.site_plugin.link_models import LinkCodeAnswer, LinksAnswer, NewLink
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.domains.names import normal_domain

PATH = LINKS_PATH
BODY_LIMIT = EVENT_HANDLER_LIMIT

_PRIVATE = {"Cache-Control": "no-store"}


def surface(links: SiteLinks, cors: Cors) -> Blueprint:
    handlers = SiteLinksSurface(links, cors)
    blueprint = Blueprint("site_links")
    # ignore_body: `read_json` reads it, under this surface's own limit.
    blueprint.add_route(handlers.new_code, PATH, ["POST"], ignore_body=True)
    blueprint.add_route(handlers.links, PATH, ["GET", "HEAD"])
    blueprint.add_route(handlers.end, f"{PATH}/<host:str>", ["DELETE"], ignore_body=True)
    return blueprint


class SiteLinksSurface:
    def __init__(self, links: SiteLinks, cors: Cors) -> None:
        self._links = links
        self._cors = cors

    async def new_code(self, request: Request) -> Reply:
        """The code is shown this once."""
        refuse_foreign_origin(request, self._cors)
        body = parsed(await read_json(request, BODY_LIMIT))
        owner = await self._owner(request)
        asked = NewLink.from_json(body)
        code = await self._links.new_code(owner, asked.host, asked.allowance)
        return json_reply(LinkCodeAnswer.body(code), 201, dict(_PRIVATE))

    async def links(self, request: Request) -> Reply:
        refuse_foreign_origin(request, self._cors)
        links = await self._links.links_of(await self._owner(request))
        return json_reply(LinksAnswer.body(links), 200, dict(_PRIVATE))

    async def end(self, request: Request, host: str) -> Reply:
        """Also of a host that is no site's any more."""
        refuse_foreign_origin(request, self._cors)
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
