"""The errors of the site plugin's API (spec 7.5), at every path below its REST prefix.

An error of an action has the code of its endpoint, and a message for the site's user. The user
cannot act on the reason that a service is unavailable, so the message does not name the service.
Faults of the HTTP request have the codes of WordPress.
"""

from collections.abc import Mapping

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from ltzd.http.errors import FIXED_TEXTS, ErrorReply, HttpError, RequestError
from ltzd.http.models import ResponseModel
from ltzd.rules.event_handler.brand_limits import RATE_REASON

CHECK_IN = "checkin"
REDEEM = "redeem"
CLAIM_MILESTONE = "claim-milestone"
LINK = "link"
LEADERBOARD = "leaderboard"
ME = "me"
PERKS = "perks"

_API_ERROR = (500, "api_error")
ENDPOINT_ERRORS: Mapping[str, tuple[int, str]] = {
    CHECK_IN: (400, "checkin_failed"),
    REDEEM: (400, "redeem_failed"),
    CLAIM_MILESTONE: (400, "claim_failed"),
    LINK: (400, "link_failed"),
    LEADERBOARD: _API_ERROR,
    ME: _API_ERROR,
    PERKS: _API_ERROR,
}
"""By endpoint: status and code of every error that no other table has."""

_NO_ROUTE = (404, "rest_no_route")
_STATUSES: Mapping[str, tuple[int, str]] = {
    "NOT_CONFIGURED": (500, "not_configured"),
    "NOT_LOGGED_IN": (401, "not_logged_in"),
    "MISSING_PERK_ID": (400, "missing_perk_id"),
    "MISSING_MILESTONE": (400, "missing_milestone"),
    "INVALID_PARAM": (400, "rest_invalid_param"),
    "INVALID_BODY": (400, "rest_invalid_json"),
    "METHOD_NOT_ALLOWED": _NO_ROUTE,
    "LOG_INS_LIMITED": (429, "rest_too_many_requests"),
    "HOST_SITE_BUSY": (503, "api_error"),
    "OVERLOADED": (503, "api_error"),
    "TOO_MANY_REQUESTS": (429, "rest_too_many_requests"),
    "TOO_MANY_TRIES": (429, "rest_too_many_requests"),
    "INTERNAL_ERROR": (500, "internal_server_error"),
}
"""By ltzd's code: errors that are the same at every endpoint."""

_PROTOCOL = frozenset(
    (
        "BAD_REQUEST",
        "CANCELLED",
        "EXPECTATION_FAILED",
        "HEADERS_TOO_LARGE",
        "HTTPS_REQUIRED",
        "PAYLOAD_TOO_LARGE",
        "REQUEST_TIMEOUT",
        "TIMEOUT",
        "URI_TOO_LONG",
    )
)
"""Errors of the HTTP request, which keep their status."""

_RETRY_STATUSES = frozenset({429, 503})
"""The statuses whose responses carry all of the error's headers; others carry Retry-After alone."""

_UNAVAILABLE = "This is not available at the moment. Please try again soon."
_MESSAGES: Mapping[str, str] = {
    "HOST_SITE_BUSY": "This site answers slowly at the moment. Please try again soon.",
    "OVERLOADED": "Too many people use this at the moment. Please try again in a few seconds.",
    "INTERNAL_ERROR": "Something went wrong. Please try again later.",
    "HOST_SITE_UNAVAILABLE": (
        "This site cannot tell who you are at the moment. Please try again soon."
    ),
}


class MissingPerkId(RequestError):
    """Spec 7.5: `perkId` is missing."""

    code = "MISSING_PERK_ID"
    condition = "perkId is missing"


class MissingMilestone(RequestError):
    """Spec 7.5: `milestoneDays` is missing."""

    code = "MISSING_MILESTONE"
    condition = "milestoneDays is missing"


class InvalidParams(RequestError):
    """`params` has the fault of each invalid parameter, by the parameter's name."""

    code = "INVALID_PARAM"
    condition = "a parameter is invalid"

    def __init__(self, params: dict[str, str]) -> None:
        super().__init__(f"Invalid parameter(s): {', '.join(params)}", params=params)
        self.params = params


class SitePluginErrorData(ResponseModel):
    """`params` has the fault of each invalid parameter, if that is the error."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    status: int
    params: dict[str, str] | None = None
    details: dict[str, str] | None = None


class SitePluginError(ResponseModel):
    """An error of the site plugin's API (spec 7.5)."""

    code: str
    message: str = Field(description="A sentence for the site's user")
    data: SitePluginErrorData


class SitePluginErrors(msgspec.Struct, frozen=True):
    """The error format. `base` is the path of the API, to which its endpoints are relative."""

    base: str

    def reply(self, error: HttpError, path: str) -> ErrorReply:
        status, code = self._status_and_code(path, error)
        data: dict[str, object] = {"status": status}
        message = _message(error)
        if (status, code) == _NO_ROUTE:
            message = "No route was found matching the URL and request method."
        elif error.code == "INVALID_PARAM":
            data |= {"params": error.details["params"], "details": {}}
        headers = {
            name: value
            for name, value in error.headers.items()
            if status in _RETRY_STATUSES or name == "Retry-After"
        }
        return ErrorReply(status, {"code": code, "message": message, "data": data}, headers)

    def model_of(self, _status: int) -> type[BaseModel]:
        return SitePluginError

    def _status_and_code(self, path: str, error: HttpError) -> tuple[int, str]:
        if error.code in _STATUSES:
            return _STATUSES[error.code]
        if error.code in _PROTOCOL:
            return error.status, f"rest_{error.code.lower()}"
        # The router ignores trailing slashes, so the endpoint does too.
        endpoint = path.rstrip("/").removeprefix(self.base + "/")
        return ENDPOINT_ERRORS.get(endpoint, _NO_ROUTE)


def _message(error: HttpError) -> str:
    if error.code in FIXED_TEXTS:
        return _MESSAGES.get(error.code, _UNAVAILABLE)
    if error.details.get("reason") == RATE_REASON:
        return _no_new_members(error.details)
    message = error.details.get("message")
    return message if isinstance(message, str) else error.message


def _no_new_members(details: Mapping[str, object]) -> str:
    """The brand's limit of new wallets, worded for a user: its own text is for brands."""
    seconds = details.get("retryAfterSeconds")
    minutes = -(-seconds // 60) if isinstance(seconds, int) else 60
    wait = "1 minute" if minutes == 1 else f"{minutes} minutes"
    return f"This site takes in no more new members for the moment. Please try again in {wait}."
