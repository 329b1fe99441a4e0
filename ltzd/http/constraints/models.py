"""The request and response of the invalidation endpoints (spec 2.10).

Field names have underscores, as the specification writes them.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, ConfigDict, Field, WithJsonSchema

from ltzd.errors import MissingFields
from ltzd.http.models import RequestModel, ResponseModel
from ltzd.http.requests.fields import AddressText, Integer, field_error
from ltzd.rules.brands.value_types import MAX_ID
from ltzd.values import Address, address_of


def _collection_id(number: int) -> int:
    if 1 <= number <= MAX_ID:
        return number
    raise field_error(f"must be a whole number from 1 to {MAX_ID}")


CollectionId = Annotated[
    Integer,
    AfterValidator(_collection_id),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_ID}),
]


class InvalidateCacheBody(RequestModel):
    """Cached results to invalidate. The optional fields narrow the selection."""

    model_config = ConfigDict(alias_generator=None)

    api_url: str = Field(
        min_length=1, description="The constraint's URL as configured, placeholders included"
    )
    user_address: AddressText | None = None
    collection_id: CollectionId | None = None

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises MissingFields if `api_url` is absent or empty, else InvalidFields."""
        if body.get("api_url") in (None, ""):
            raise MissingFields(["api_url"])
        return super().from_json(body)

    @property
    def user(self) -> Address | None:
        return None if self.user_address is None else address_of(self.user_address)


class InvalidateCacheResponse(ResponseModel):
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
