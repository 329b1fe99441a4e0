"""The replies of each OAuth provider to an ordered fault: body, and headers with the time to wait.

Refusals that depend on the request are in the provider's own API module.
"""

import time
from collections.abc import Callable, Mapping

from aiohttp import web

from ltzd.dev.sandbox.requests import json_reply

PREFIX = "/accounts"

FaultReply = tuple[object, Mapping[str, str]]
"""A body, and headers."""

_TEXT = "A fault ordered at the sandbox"


def ordered_fault(path: str, status: int, wait: int | None) -> web.Response:
    """The provider's reply with this status; `wait` in seconds applies to a 429."""
    vendor = path.removeprefix(PREFIX).strip("/").partition("/")[0]
    shape = _SHAPES.get(vendor, _levels)
    body, headers = shape(status, wait if status == 429 else None)
    reply = json_reply(body, status)
    reply.headers.update(headers)
    return reply


def _discord(status: int, wait: int | None) -> FaultReply:
    if status != 429:
        return {"message": f"{status}: {_TEXT}", "code": 0}, {}
    seconds = 1.0 if wait is None else float(wait)
    headers = {
        "Retry-After": f"{seconds:.0f}",
        "X-RateLimit-Remaining": "0",
        "X-RateLimit-Reset-After": f"{seconds:.3f}",
        "X-RateLimit-Scope": "user",
    }
    body = {"message": "You are being rate limited.", "retry_after": seconds, "global": False}
    return body, headers


def _github(status: int, wait: int | None) -> FaultReply:
    body = {
        "message": "API rate limit exceeded" if status == 429 else _TEXT,
        "documentation_url": "https://docs.github.com/rest",
        "status": str(status),
    }
    return body, _reset("x-ratelimit", status, wait)


def _twitter(status: int, wait: int | None) -> FaultReply:
    title = "Too Many Requests" if status == 429 else _TEXT
    body = {"title": title, "detail": title, "type": "about:blank", "status": status}
    return body, _reset("x-rate-limit", status, wait)


def _telegram(status: int, wait: int | None) -> FaultReply:
    body: dict[str, object] = {"ok": False, "error_code": status, "description": _TEXT}
    if wait is not None:
        body["description"] = f"Too Many Requests: retry after {wait}"
        body["parameters"] = {"retry_after": wait}
    return body, {}


def _spotify(status: int, _wait: int | None) -> FaultReply:
    return {"error": {"status": status, "message": _TEXT}}, {}


def _google(status: int, _wait: int | None) -> FaultReply:
    kind = {429: "RESOURCE_EXHAUSTED", 403: "PERMISSION_DENIED"}.get(status, "UNAVAILABLE")
    return {"error": {"code": status, "message": _TEXT, "status": kind}}, {}


def _instagram(status: int, _wait: int | None) -> FaultReply:
    code = 4 if status == 429 else 2
    error = {"message": f"(#{code}) {_TEXT}", "type": "OAuthException", "is_transient": True}
    return {"error": error | {"code": code, "fbtrace_id": "AsandboxTrace"}}, {}


def _tiktok(status: int, _wait: int | None) -> FaultReply:
    code = "rate_limit_exceeded" if status == 429 else "internal_error"
    return {"error": {"code": code, "message": _TEXT, "log_id": "sandbox"}}, {}


def _levels(_status: int, _wait: int | None) -> FaultReply:
    return {"error": _TEXT}, {}


def _reset(prefix: str, status: int, wait: int | None) -> dict[str, str]:
    if status != 429:
        return {}
    at = int(time.time()) + (1 if wait is None else wait)
    return {f"{prefix}-remaining": "0", f"{prefix}-reset": str(at)}


_SHAPES: Mapping[str, Callable[[int, int | None], FaultReply]] = {
    "discord": _discord,
    "github": _github,
    "twitter": _twitter,
    "telegram": _telegram,
    "spotify": _spotify,
    "google": _google,
    "instagram": _instagram,
    "tiktok": _tiktok,
}
