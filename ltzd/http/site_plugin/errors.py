"""How the site plugin's API says no (spec 7.5), below its REST prefix whatever the path.

What goes wrong has the code of its endpoint, and a sentence for the person at the site: nothing
there can be helped by knowing which of our services is away. Faults of the request itself have the
host platform's own codes.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ltzd.http.errors import FIXED_TEXTS, Answer
from ltzd.rules.event_handler.brand_limits import RATE_REASON

CHECK_IN = "checkin"
REDEEM = "redeem"
CLAIM_MILESTONE = "claim-milestone"
LINK = "link"
LEADERBOARD = "leaderboard"
ME = "me"
PERKS = "perks"

_API_ERROR = (500, "api_error")
FAILURES: Mapping[str, tuple[int, str]] = {
    CHECK_IN: (400, "checkin_failed"),
    REDEEM: (400, "redeem_failed"),
    CLAIM_MILESTONE: (400, "claim_failed"),
    LINK: (400, "link_failed"),
    LEADERBOARD: _API_ERROR,
    ME: _API_ERROR,
    PERKS: _API_ERROR,
}
"""By endpoint: whatever was asked well and did not come about."""

_NO_ROUTE = (404, "rest_no_route")
_OWN: Mapping[str, tuple[int, str]] = {
    "NOT_CONFIGURED": (500, "not_configured"),
    "NOT_LOGGED_IN": (401, "not_logged_in"),
    "MISSING_PERK_ID": (400, "missing_perk_id"),
    "MISSING_MILESTONE": (400, "missing_milestone"),
    "INVALID_PARAM": (400, "rest_invalid_param"),
    "INVALID_BODY": (400, "rest_invalid_json"),
    "METHOD_NOT_ALLOWED": _NO_ROUTE,
    "LOG_INS_LIMITED": (429, "rest_too_many_requests"),
    "HOST_SITE_BUSY": (503, "api_error"),
    "TOO_MANY_TRIES": (429, "rest_too_many_requests"),
    "INTERNAL_ERROR": (500, "internal_server_error"),
}
_PROTOCOL = frozenset(
    (
        "BAD_REQUEST",
        "CANCELLED",
        "EXPECTATION_FAILED",
        "HTTPS_REQUIRED",
        "PAYLOAD_TOO_LARGE",
        "REQUEST_TIMEOUT",
        "TIMEOUT",
        "URI_TOO_LONG",
    )
)
"""What is wrong with a request before it is anybody's: its status stays."""

_AWAY = "This is not available at the moment. Please try again soon."
_SENTENCES: Mapping[str, str] = {
    "HOST_SITE_BUSY": "This site answers slowly at the moment. Please try again soon.",
    "INTERNAL_ERROR": "Something went wrong. Please try again later.",
    "HOST_SITE_UNAVAILABLE": (
        "This site cannot tell who you are at the moment. Please try again soon."
    ),
}


@dataclass(frozen=True, slots=True)
class SiteErrors:
    """`rest` is the REST prefix with its slash, `base` the API's place below it."""

    rest: str
    base: str

    def covers(self, path: str) -> bool:
        return path == self.rest or path.startswith(self.rest + "/")

    def reply(self, path: str, answer: Answer) -> tuple[int, dict[str, object]]:
        status, code = self._status_and_code(path, answer)
        data: dict[str, object] = {"status": status}
        message = _message(answer)
        if (status, code) == _NO_ROUTE:
            message = "No route was found matching the URL and request method."
        elif answer.code == "INVALID_PARAM":
            data |= {"params": answer.details["params"], "details": {}}
        return status, {"code": code, "message": message, "data": data}

    def _status_and_code(self, path: str, answer: Answer) -> tuple[int, str]:
        if answer.code in _OWN:
            return _OWN[answer.code]
        if answer.code in _PROTOCOL:
            return answer.status, f"rest_{answer.code.lower()}"
        # However many slashes there are at its end, it is the same route.
        endpoint = path.rstrip("/").removeprefix(self.base + "/")
        return FAILURES.get(endpoint, _NO_ROUTE)


def _message(answer: Answer) -> str:
    if answer.code in FIXED_TEXTS:
        return _SENTENCES.get(answer.code, _AWAY)
    if answer.details.get("reason") == RATE_REASON:
        return _no_new_members(answer.details)
    longer = answer.details.get("message")
    return longer if isinstance(longer, str) else answer.text


def _no_new_members(details: Mapping[str, object]) -> str:
    """Of a brand's own limits this API meets that of new wallets alone; its text is for brands."""
    seconds = details.get("retryAfterSeconds")
    minutes = -(-seconds // 60) if isinstance(seconds, int) else 60
    when = "1 minute" if minutes == 1 else f"{minutes} minutes"
    return f"This site takes in no more new members for the moment. Please try again in {when}."
