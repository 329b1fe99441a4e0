"""POST /service-api/verify-dns, spec 4.1: does a domain's TXT record name one of the brands?

Checks run in this order: body size and JSON; fields; the address's limit, since every request
costs a DNS query. A record with a wrong key or an unknown brand counts as no record.
"""

from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from sanic import Blueprint
from sanic.request import Request

from ltzd.cache.rate_limits import RateLimit, RateLimits
from ltzd.errors import Broken, DatabaseUnavailable, DnsUnavailable, InvalidFields, RateLimited
from ltzd.http.errors import BodyTooLarge, BodyUnreadable
from ltzd.http.event_handler.errors import ERRORS
from ltzd.http.models import RequestModel, ResponseModel
from ltzd.http.openapi.operations import Operation, RateWindow, Response, raises
from ltzd.http.requests.fields import Domain, field_error
from ltzd.http.requests.json_body import parse_object, read_json
from ltzd.http.requests.rate_limits import PER_CLIENT, address_limit_exceeded, count_request
from ltzd.http.requests.validation_turns import ValidationTurns, are_slow
from ltzd.http.responses import Reply, json_reply
from ltzd.http.routes import add_route
from ltzd.http.services import DomainService
from ltzd.http.surface import API_PREFIX, Surface
from ltzd.rules.domains.txt_records import LABEL, refuse_public_suffix
from ltzd.values import Address, hex_of

PATH = f"{API_PREFIX}/verify-dns"


def surface(domains: DomainService, limits: RateLimits, limit: RateLimit) -> Surface:
    handlers = DomainVerificationHandlers(domains, limits, limit)
    blueprint = Blueprint("domain_verification")
    # ignore_body: `read_json` reads the body, under this surface's own limit.
    add_route(blueprint, handlers.verify_dns, PATH, ["POST"], ignore_body=True)
    return Surface(blueprint)


def _registrable(domain: str) -> str:
    try:
        refuse_public_suffix(domain)
    except ValueError as error:
        raise field_error(str(error)) from error
    return domain


class VerifyDnsBody(RequestModel):
    domain: Annotated[Domain, AfterValidator(_registrable)] = Field(
        description=f"The record is at {LABEL}. and this name; subdomains do not inherit it"
    )


class VerifyDnsResponse(ResponseModel):
    success: Literal[True]
    domain: str = Field(description="In lower case, international names in their ASCII form")
    dns_configured: bool = Field(description="True if a record names a brand and one of its keys")
    brand_id: str | None = Field(description="The brand of that record; null if there is none")

    @staticmethod
    def body(domain: str, brand: Address | None) -> dict[str, object]:
        return {
            "success": True,
            "domain": domain,
            "dnsConfigured": brand is not None,
            "brandId": None if brand is None else hex_of(brand),
        }


class DomainVerificationHandlers:
    def __init__(self, domains: DomainService, limits: RateLimits, limit: RateLimit) -> None:
        self._domains = domains
        self._limits = limits
        self._limit = limit
        self._turns = ValidationTurns()

    @raises(
        BodyUnreadable,
        InvalidFields,
        BodyTooLarge,
        RateLimited,
        Broken,
        DnsUnavailable,
        DatabaseUnavailable,
    )
    async def verify_dns(self, request: Request) -> Reply:
        names = parse_object(await read_json(request))
        if are_slow(names.values()):
            await self._turns.take()
        body = VerifyDnsBody.from_json(names)
        await count_request(request, self._limits, self._limit, address_limit_exceeded)
        brand = await self._domains.brand_of(body.domain)
        return json_reply(VerifyDnsResponse.body(body.domain, brand))


OPERATIONS = (
    Operation(
        DomainVerificationHandlers.verify_dns,
        "POST",
        PATH,
        f"Verify that the TXT record at {LABEL}.<domain> holds brand_id=…;api_key=… of a brand; "
        "api_key is the brand's API key or, better, its verification token",
        request=VerifyDnsBody,
        request_examples={"a domain": {"domain": "shop.example"}},
        success={
            200: Response(
                "The brand that the record names, if it names one",
                VerifyDnsResponse,
                {
                    "configured": VerifyDnsResponse.body("shop.example", Address(b"\xab" * 20)),
                    "not configured": VerifyDnsResponse.body("shop.example", None),
                },
            ),
        },
        errors=ERRORS,
        error_examples={
            "missing domain": InvalidFields(["domain: is required"]),
            "domain with a port": InvalidFields(["domain: must be a name without a port"]),
            "public suffix": InvalidFields(
                ["domain: must be a name below a public suffix, such as shop.example"]
            ),
            "limit of the address": address_limit_exceeded(PER_CLIENT.domain_verifications, 42),
        },
        rate_window=RateWindow("Requests of an address a minute"),
    ),
)
