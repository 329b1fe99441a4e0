"""The base classes of every request and response model.

A surface's models validate its requests and describe its requests and responses in the OpenAPI
document, so the document and the code always agree.
"""

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.alias_generators import to_camel

from ltzd.http.requests.fields import invalid_fields


class RequestModel(BaseModel):
    """Fields of a request body or query.

    JSON types are not converted, unknown fields are ignored, and null in an optional field counts
    as absent.
    """

    model_config = ConfigDict(
        alias_generator=to_camel,
        strict=True,
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,
    )

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises InvalidFields with every fault."""
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            raise invalid_fields(error) from None


class ResponseModel(BaseModel):
    """A response body. Handlers on hot paths build a plain dict of the same shape instead."""

    model_config = ConfigDict(
        alias_generator=to_camel,
        populate_by_name=True,
        frozen=True,
        extra="forbid",
        json_schema_serialization_defaults_required=True,
    )
