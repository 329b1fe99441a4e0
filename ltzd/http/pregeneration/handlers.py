"""POST /service-api/pregenerate-user, spec 4.5: an account's wallet before its owner logs in.

Checks run in this order: the limit of the address, body size and JSON, missing fields, types, the
provider, the form of the id, the brand, the signature if there is one, the brand's limits, and then
the checks of `actions/pregeneration.py`. So every well-formed request of a known brand counts
towards the brand's limits, whatever its outcome, and its response shows a window of the brand. A
request with an invalid signature counts only towards the limit of its address.
"""

from sanic import Blueprint
from sanic.request import Request

from ltzd.cache.rate_limits import RateLimit, RateLimits
from ltzd.errors import (
    AccountLookupUnavailable,
    AccountRefused,
    BrandUnknown,
    Broken,
    DatabaseUnavailable,
    IdentityUnavailable,
    InvalidFields,
    MissingFields,
    RateLimited,
    SignatureRefused,
    Unavailable,
)
from ltzd.http.errors import BodyTooLarge, BodyUnreadable
from ltzd.http.openapi.operations import raises
from ltzd.http.pregeneration.errors import ERRORS, ProviderUnknown
from ltzd.http.pregeneration.models import PregenerateUserBody, PregenerateUserResponse
from ltzd.http.requests.client_address import client_network
from ltzd.http.requests.json_body import parse_object, read_json
from ltzd.http.requests.rate_limits import address_limit_exceeded, seconds_left
from ltzd.http.requests.signature_headers import signed_request_of
from ltzd.http.responses import Reply, json_reply
from ltzd.http.routes import add_route
from ltzd.http.services import PregenerationService
from ltzd.http.surface import API_PREFIX, Surface
from ltzd.rules.oauth.ids import OAuthIdInvalid

PATH = f"{API_PREFIX}/pregenerate-user"


def surface(pregeneration: PregenerationService, limits: RateLimits, limit: RateLimit) -> Surface:
    handlers = PregenerationHandlers(pregeneration, limits, limit)
    blueprint = Blueprint("pregeneration")
    # ignore_body: `read_json` reads the body, under this surface's own limit.
    add_route(blueprint, handlers.pregenerate_user, PATH, ["POST"], ignore_body=True)
    return Surface(blueprint, ((PATH, ERRORS),))


class PregenerationHandlers:
    def __init__(
        self, pregeneration: PregenerationService, limits: RateLimits, limit: RateLimit
    ) -> None:
        self._pregeneration = pregeneration
        self._limits = limits
        self._limit = limit

    @raises(
        BodyUnreadable,
        MissingFields,
        InvalidFields,
        ProviderUnknown,
        OAuthIdInvalid,
        AccountRefused,
        SignatureRefused,
        BrandUnknown,
        BodyTooLarge,
        RateLimited,
        IdentityUnavailable,
        AccountLookupUnavailable,
        Unavailable,
        DatabaseUnavailable,
        Broken,
    )
    async def pregenerate_user(self, request: Request) -> Reply:
        await self._count(request)
        raw = await read_json(request)
        body = PregenerateUserBody.from_json(parse_object(raw))
        signed = signed_request_of(request, raw)
        pregeneration = body.to_request(is_signed=signed is not None)
        request.ctx.window = await self._pregeneration.admit(pregeneration.brand_id, signed)
        recorded = await self._pregeneration.pregenerate(pregeneration)
        return json_reply(PregenerateUserResponse.body(pregeneration.account, recorded))

    async def _count(self, request: Request) -> None:
        """Unlike `count_request`, leaves the X-RateLimit headers to the brand's window.

        Raises RateLimited.
        """
        window = await self._limits.hit(self._limit, client_network(request))
        if not window.is_within:
            raise address_limit_exceeded(self._limit, seconds_left(window))
