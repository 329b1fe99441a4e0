"""The error body of the invalidation endpoints (spec 7.6)."""

from typing import Literal

from pydantic import Field

from ltzd.http.errors import Envelope, HttpError, message_with_faults
from ltzd.http.models import ResponseModel


class InvalidateCacheError(ResponseModel):
    """An error of the invalidation endpoints (spec 7.6)."""

    success: Literal[False]
    error: str = Field(description="Names the field that is missing or wrong")


def error_body(error: HttpError) -> dict[str, object]:
    return {"success": False, "error": message_with_faults(error)}


ERRORS = Envelope(error_body, InvalidateCacheError)
