"""The error body of the relayer (spec 7.2).

Perk charges, `/site-links` and paths that belong to no surface have the same body.
"""

from typing import Any

from pydantic import ConfigDict, Field

from ltzd.http.errors import Envelope, HttpError
from ltzd.http.models import ResponseModel


class RelayerError(ResponseModel):
    """An error of the relayer (spec 7.2)."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    error: str = Field(description="For people")
    code: str = Field(description="For programs")
    details: dict[str, Any] | None = Field(
        None, description="Facts by code; `errors` lists field faults as `field: reason`"
    )


def error_body(error: HttpError) -> dict[str, object]:
    body: dict[str, object] = {"error": error.message, "code": error.code}
    return body | {"details": error.details} if error.details else body


ERRORS = Envelope(error_body, RelayerError)
