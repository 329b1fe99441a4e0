"""Requests and answers of the invalidation endpoints (spec 2.10), as checked, sent and documented.

Here alone names are written with underscores, as the specification writes them.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic_core import PydanticCustomError

from ltzd.errors import MissingFields
from ltzd.http.event_handler.models import Answered, Sent
from ltzd.http.requests.fields import AddressText, invalid_fields
from ltzd.rules.brands.value_types import MAX_ID
from ltzd.values import Address, address_of


def _collection_id(number: int) -> int:
    if 1 <= number <= MAX_ID:
        return number
    reason = f"must be a whole number from 1 to {MAX_ID}"
    raise PydanticCustomError("format", "{reason}", {"reason": reason})


CollectionId = Annotated[
    int,
    AfterValidator(_collection_id),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_ID}),
]


class Invalidation(Sent):
    """Whose cached results are no longer true; the optional fields narrow it."""

    model_config = ConfigDict(alias_generator=None)

    api_url: str = Field(description="The constraint's URL as configured, placeholders and all")
    user_address: AddressText | None = None
    collection_id: CollectionId | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises MissingFields, also for an empty `api_url`, and InvalidFields with every fault."""
        if body.get("api_url") in (None, ""):
            raise MissingFields(["api_url"])
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            raise invalid_fields(error) from None

    @property
    def user(self) -> Address | None:
        return None if self.user_address is None else address_of(self.user_address)


class InvalidationAnswer(Answered):
    model_config = ConfigDict(alias_generator=None)

    success: Literal[True]
    invalidated_count: int
    message: str

    @staticmethod
    def body(count: int) -> dict[str, object]:
        results = "result" if count == 1 else "results"
        return {
            "success": True,
            "invalidated_count": count,
            "message": f"Invalidated {count} cached {results}",
        }


class InvalidationRefusal(Answered):
    """Every other answer (spec 7.6)."""

    success: Literal[False]
    error: str = Field(description="Names the field that is missing or wrong")
