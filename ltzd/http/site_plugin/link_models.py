"""Requests and answers of /site-links, as validated, as sent and as documented."""

from collections.abc import Sequence
from typing import Any, Self

from pydantic import Field, ValidationError

from ltzd.actions.site_plugin.links import LinkCode
from ltzd.errors import MissingFields
from ltzd.http.event_handler.models import Answered, Sent
from ltzd.http.requests.fields import Domain, invalid_fields
from ltzd.rules.site_plugin.links import CODE_LENGTH, DEFAULT_ALLOWANCE, MOST_ALLOWANCE
from ltzd.store.site_plugin.links import Link
from ltzd.values import checksummed, iso


class NewLink(Sent):
    """At which site a member is to be linked, and what he may spend there."""

    host: Domain = Field(description="Of a brand's site, where the member will type the code")
    daily_allowance: int | None = Field(
        None,
        ge=0,
        le=MOST_ALLOWANCE,
        description=f"Whole LTZ a day, in UTC; {DEFAULT_ALLOWANCE} if it is left out",
    )

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> Self:
        """Raises MissingFields, and InvalidFields with every fault."""
        if body.get("host") is None:
            raise MissingFields(["host"])
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            raise invalid_fields(error) from None

    @property
    def allowance(self) -> int:
        return DEFAULT_ALLOWANCE if self.daily_allowance is None else self.daily_allowance


class LinkCodeAnswer(Answered):
    """A code for one member of one site. It works once, and nobody can be told it again."""

    code: str = Field(min_length=CODE_LENGTH, max_length=CODE_LENGTH)
    host: str
    daily_allowance: int = Field(description="Whole LTZ a day")
    expires_at: str = Field(
        description="When nobody can use the code any more; a link lasts 180 days",
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


class LinkShown(Answered):
    """A link that lasts."""

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


class LinksAnswer(Answered):
    """The owner's links, the oldest first."""

    links: list[LinkShown]

    @staticmethod
    def body(links: Sequence[Link]) -> dict[str, object]:
        return {"links": [LinkShown.body(link) for link in links]}
