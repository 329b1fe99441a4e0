"""POST /service-api/verify-dns, spec 4.1: whether a domain's TXT record names one of our brands.

Checks come in one order: size and JSON; fields; the address's limit, since each question is one to
the world's resolvers. A wrong key and an unknown brand are answered as no record at all.
"""

import math
import time
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import PydanticCustomError
from sanic import Blueprint
from sanic.request import Request

from ltzd.cache.rate_limits import RateLimit, RateLimits
from ltzd.errors import (
    DatabaseUnavailable,
    DnsUnavailable,
    InvalidFields,
    LtzdError,
    RateLimited,
)
from ltzd.http.errors import BodyTooLarge, BodyUnreadable, answer_of, event_handler_envelope
from ltzd.http.event_handler.handlers import PREFIX
from ltzd.http.event_handler.models import Answered, Refusal, Sent
from ltzd.http.openapi.operations import AnswerHeader, Operation
from ltzd.http.requests.client_address import client_network
from ltzd.http.requests.fields import Domain, invalid_fields
from ltzd.http.requests.json_body import EVENT_HANDLER_LIMIT, parsed, read_json
from ltzd.http.responses import Reply, json_reply
from ltzd.http.services import Domains
from ltzd.rules.domains.txt_records import LABEL, refuse_public_suffix
from ltzd.values import Address, hex_of

PATH = f"{PREFIX}/verify-dns"

PER_CLIENT = RateLimit("verify_dns_ip", 300, 60)


def surface(domains: Domains, limits: RateLimits) -> Blueprint:
    handlers = DomainVerificationSurface(domains, limits)
    blueprint = Blueprint("domain_verification")
    # ignore_body: `read_json` reads it, under this surface's own limit.
    blueprint.add_route(handlers.verify, PATH, ["POST"], ignore_body=True)
    return blueprint


def _registrable(domain: str) -> str:
    try:
        refuse_public_suffix(domain)
    except ValueError as error:
        raise PydanticCustomError("format", "{reason}", {"reason": str(error)}) from error
    return domain


class DomainQuestion(Sent):
    domain: Annotated[Domain, AfterValidator(_registrable)] = Field(
        description=f"The record stands at {LABEL}. and this name; no subdomain inherits it"
    )

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises InvalidFields."""
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            raise invalid_fields(error) from None


class DomainAnswer(Answered):
    success: Literal[True]
    domain: str = Field(description="In lower case, international names in their ASCII form")
    dns_configured: bool = Field(description="Whether a record names a brand and one of its keys")
    brand_id: str | None = Field(description="That brand's id; null where there is none")

    @staticmethod
    def body(domain: str, brand: Address | None) -> dict[str, object]:
        return {
            "success": True,
            "domain": domain,
            "dnsConfigured": brand is not None,
            "brandId": None if brand is None else hex_of(brand),
        }


class DomainVerificationSurface:
    def __init__(self, domains: Domains, limits: RateLimits) -> None:
        self._domains = domains
        self._limits = limits

    async def verify(self, request: Request) -> Reply:
        asked = DomainQuestion.from_json(parsed(await read_json(request)))
        await self._count(request)
        brand = await self._domains.brand_of(asked.domain)
        return json_reply(DomainAnswer.body(asked.domain, brand))

    async def _count(self, request: Request) -> None:
        """Questions that cost a resolver something. Raises RateLimited."""
        window = await self._limits.hit(PER_CLIENT, client_network(request))
        request.ctx.window = window
        if not window.is_within:
            raise _too_many(max(1, math.ceil(window.reset_at - time.time())))


def _too_many(seconds: int) -> RateLimited:
    return RateLimited(
        f"Rate limit exceeded: an address may ask {PER_CLIENT.max_hits} times a minute; "
        f"try again in {seconds} seconds",
        limit=PER_CLIENT.max_hits,
        retryAfterSeconds=seconds,
    )


def _refusals(**examples: LtzdError) -> dict[int, dict[str, dict[str, object]]]:
    """By status; underscores in their names are spaces."""
    by_status: dict[int, dict[str, dict[str, object]]] = {}
    for name, error in examples.items():
        answer = answer_of(error)
        of_status = by_status.setdefault(answer.status, {})
        of_status[name.replace("_", " ")] = event_handler_envelope(answer)
    return by_status


_EXAMPLES = {
    200: {
        "configured": DomainAnswer.body("shop.example", Address(b"\xab" * 20)),
        "no right record": DomainAnswer.body("shop.example", None),
    },
    **_refusals(
        missing_domain=InvalidFields(["domain: is required"]),
        with_a_port=InvalidFields(["domain: must be a name without a port"]),
        public_suffix=InvalidFields(
            ["domain: must be a name below a public suffix, such as shop.example"]
        ),
        unreadable_body=BodyUnreadable("Content-Type must be application/json"),
        body_too_large=BodyTooLarge(f"Request body is larger than {EVENT_HANDLER_LIMIT} bytes"),
        too_many=_too_many(42),
        internal_error=LtzdError(""),
        no_resolver_answers=DnsUnavailable(""),
        database_away=DatabaseUnavailable(""),
    ),
}

OPERATIONS = (
    Operation(
        "POST",
        PATH,
        f"Whether the TXT record at {LABEL}.<domain> says brand_id=…;api_key=… of one of our "
        "brands; api_key is its API key or, better, its verification token",
        request=DomainQuestion,
        request_examples={"a domain": {"domain": "shop.example"}},
        answers={
            200: ("What the record says, also if there is none or no right one", DomainAnswer),
            400: ("Unreadable body, or domain is missing or no name of its own", Refusal),
            413: (f"Body over {EVENT_HANDLER_LIMIT:,} bytes", Refusal),
            429: ("Too many requests of the address", Refusal),
            500: ("An internal error", Refusal),
            503: ("No resolver answers, or the database is unavailable", Refusal),
        },
        examples=_EXAMPLES,
        headers=(
            AnswerHeader("X-RateLimit-Limit", "How many a window allows", {"type": "integer"}),
            AnswerHeader("X-RateLimit-Remaining", "How many are left", {"type": "integer"}),
            AnswerHeader(
                "X-RateLimit-Reset", "When the window ends, in Unix seconds", {"type": "integer"}
            ),
            AnswerHeader(
                "Retry-After",
                "Seconds until the window ends",
                {"type": "integer"},
                frozenset({429}),
            ),
        ),
    ),
)
