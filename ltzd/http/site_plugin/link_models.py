"""The requests and responses of /site-links."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field

from ltzd.actions.site_plugin.links import LinkCode
from ltzd.errors import MissingFields
from ltzd.http.models import RequestModel, ResponseModel
from ltzd.http.requests.fields import Domain, whole_number
from ltzd.rules.site_plugin.links import CODE_LENGTH, DEFAULT_ALLOWANCE, MOST_ALLOWANCE
from ltzd.store.site_plugin.links import Link
from ltzd.values import checksummed, iso

Allowance = Annotated[int, Field(ge=0, le=MOST_ALLOWANCE), BeforeValidator(whole_number)]


class CreateSiteLinkBody(RequestModel):
    """The site whose member the code is for, and what the member may spend there."""

    host: Domain = Field(description="Host of a brand's site, where the member enters the code")
    daily_allowance: Allowance | None = Field(
        None,
        description=f"Whole LTZ a day, in UTC; default {DEFAULT_ALLOWANCE}",
    )

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises MissingFields if `host` is absent, else InvalidFields with every fault."""
        if body.get("host") is None:
            raise MissingFields(["host"])
        return super().from_json(body)

    @property
    def allowance(self) -> int:
        return DEFAULT_ALLOWANCE if self.daily_allowance is None else self.daily_allowance


class SiteLinkCodeResponse(ResponseModel):
    """A code for one member of one site. The code works once, and cannot be read again."""

    code: str = Field(min_length=CODE_LENGTH, max_length=CODE_LENGTH)
    host: str
    daily_allowance: int = Field(description="Whole LTZ a day")
    expires_at: str = Field(
        description="When the code expires; a link lasts 180 days",
        json_schema_extra={"format": "date-time"},
    )

    @staticmethod
    def body(code: LinkCode) -> dict[str, object]:
        return {
            "code": code.code,
            "host": code.host,
            "dailyAllowance": code.daily_allowance,
            "expiresAt": iso(code.expires_at),
        }


class SiteLinkEntry(ResponseModel):
    """A link that has not ended."""

    host: str
    username: str = Field(description="The member's name at the site")
    wallet_address: str
    daily_allowance: int = Field(description="Whole LTZ a day")
    linked_at: str = Field(json_schema_extra={"format": "date-time"})
    expires_at: str = Field(json_schema_extra={"format": "date-time"})

    @staticmethod
    def body(link: Link) -> dict[str, object]:
        return {
            "host": link.host,
            "username": link.username,
            "walletAddress": checksummed(link.wallet),
            "dailyAllowance": link.daily_allowance,
            "linkedAt": iso(link.linked_at),
            "expiresAt": iso(link.expires_at),
        }


class SiteLinksResponse(ResponseModel):
    """The owner's links, oldest first."""

    links: list[SiteLinkEntry]

    @staticmethod
    def body(links: Sequence[Link]) -> dict[str, object]:
        return {"links": [SiteLinkEntry.body(link) for link in links]}
