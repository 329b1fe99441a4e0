"""The error body of the event handler (spec 7.1), which create-checkout and verify-dns share."""

from typing import Any, Literal

from pydantic import ConfigDict, Field

from ltzd.http.errors import Envelope, HttpError
from ltzd.http.models import ResponseModel


class EventHandlerError(ResponseModel):
    """An error of the event handler (spec 7.1)."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    success: Literal[False]
    error: str
    details: dict[str, Any] | list[Any] | None = Field(
        None, description="`errors` lists field faults as `field: reason`"
    )


def error_body(error: HttpError) -> dict[str, object]:
    body: dict[str, object] = {"success": False, "error": error.message}
    return body | {"details": error.details} if error.details else body


ERRORS = Envelope(error_body, EventHandlerError)
