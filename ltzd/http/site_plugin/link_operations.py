"""/site-links as the OpenAPI document describes it."""

from datetime import UTC, datetime, timedelta

from ltzd.actions.site_plugin.links import LinkCode
from ltzd.errors import (
    InvalidFields,
    LtzdError,
    MissingFields,
    NotFound,
    RateLimited,
    ValidationFailed,
)
from ltzd.http.openapi.operations import (
    USER_TOKEN,
    Operation,
    Parameter,
    RateWindow,
    Response,
)
from ltzd.http.relayer.address_limit import too_many_requests
from ltzd.http.relayer.errors import ERRORS
from ltzd.http.requests.rate_limits import PER_CLIENT
from ltzd.http.site_plugin.link_models import (
    CreateSiteLinkBody,
    SiteLinkCodeResponse,
    SiteLinksResponse,
)
from ltzd.http.site_plugin.links import BODY_LIMIT, PATH, SiteLinkHandlers
from ltzd.rules.site_plugin.links import CODE_LIFE, LINK_LIFE
from ltzd.store.site_plugin.links import Link
from ltzd.values import address_of

_HOST = "site.example"
_NOW = datetime(2026, 3, 14, 9, 30, tzinfo=UTC)
_CODE = LinkCode("7KQ2M9XA", _HOST, 500, _NOW + CODE_LIFE)
_LINK = Link(
    brand_id=address_of("0x" + "ab" * 20),
    host=_HOST,
    username="ada",
    wallet=address_of("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"),
    daily_allowance=500,
    linked_at=_NOW + timedelta(minutes=2),
    expires_at=_NOW + timedelta(minutes=2) + LINK_LIFE,
)

_COMMON_EXAMPLES: dict[str, LtzdError] = {
    "foreign origin": ValidationFailed("Origin not allowed"),
    "limit of the address": too_many_requests(PER_CLIENT.relayer, 42),
}
_WINDOW = RateWindow("Requests of the address a minute")

OPERATIONS = (
    Operation(
        SiteLinkHandlers.create_code,
        "POST",
        PATH,
        "Create a code that links a member of a brand's site with the user's wallet",
        request=CreateSiteLinkBody,
        request_examples={"a site": {"host": _HOST, "dailyAllowance": 500}},
        success={
            201: Response(
                "The code, for the member to enter at the site",
                SiteLinkCodeResponse,
                {"a code": SiteLinkCodeResponse.body(_CODE)},
            ),
        },
        errors=ERRORS,
        error_examples={
            **_COMMON_EXAMPLES,
            "missing host": MissingFields(["host"]),
            "invalid fields": InvalidFields(["dailyAllowance: must be at least 0"]),
            "no wallet": ValidationFailed("The token's user has no wallet yet"),
            "no such site": NotFound("No brand has a site at this host"),
            "too many open codes": RateLimited(
                "Too many open codes",
                message="You have 5 unused codes; try again in 300 seconds",
                limit=5,
                retryAfterSeconds=300,
            ),
        },
        body_limit=BODY_LIMIT,
        rate_window=_WINDOW,
        credential=USER_TOKEN,
    ),
    Operation(
        SiteLinkHandlers.links,
        "GET",
        PATH,
        "List the links of site members with the user's wallets",
        success={
            200: Response(
                "The links that have not ended",
                SiteLinksResponse,
                {"a link": SiteLinksResponse.body([_LINK])},
            ),
        },
        errors=ERRORS,
        error_examples=_COMMON_EXAMPLES,
        rate_window=_WINDOW,
        credential=USER_TOKEN,
    ),
    Operation(
        SiteLinkHandlers.end,
        "DELETE",
        f"{PATH}/{{host}}",
        "End the user's links at a host, and the unused codes for it",
        parameters=(Parameter("host", "path", {"type": "string", "maxLength": 253}),),
        success={204: Response("Ended", None)},
        errors=ERRORS,
        error_examples={**_COMMON_EXAMPLES, "no link": NotFound("You have no link at this host")},
        rate_window=_WINDOW,
        credential=USER_TOKEN,
    ),
)
