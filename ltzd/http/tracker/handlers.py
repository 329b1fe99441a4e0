"""Serves /ltzd.js, with which a brand's page sends its customer events (docs/sites/tracker.md).

The script reads event-config and sends what the brand's patterns and selectors detect. Its text
changes with ltzd's version only, so the ETag is a hash of it.
"""

import hashlib
from pathlib import Path

from sanic import Blueprint
from sanic.request import Request

from ltzd.http.openapi.operations import raises
from ltzd.http.responses import Reply
from ltzd.http.routes import add_route
from ltzd.http.surface import READ_METHODS, Surface

SCRIPT = (Path(__file__).parent / "ltzd.js").read_bytes()
ETAG = f'"{hashlib.sha256(SCRIPT).hexdigest()[:32]}"'
HEADERS = {
    "ETag": ETAG,
    "Cache-Control": "public, max-age=3600",
    "Cross-Origin-Resource-Policy": "cross-origin",
    "X-Content-Type-Options": "nosniff",
}
JAVASCRIPT = "text/javascript"


@raises()
async def tracker(request: Request) -> Reply:
    """304 without a body if the caller has this version."""
    if _is_known(request.headers.getall("if-none-match", [])):
        return Reply(b"", 304, HEADERS)
    return Reply(SCRIPT, 200, HEADERS, f"{JAVASCRIPT}; charset=utf-8")


def surface() -> Surface:
    blueprint = Blueprint("tracker")
    add_route(blueprint, tracker, "/ltzd.js", READ_METHODS)
    return Surface(blueprint)


def _is_known(values: list[str]) -> bool:
    """Compare weakly (RFC 9110, 13.1.2): a proxy that compresses the script weakens its tag."""
    tags = {tag.strip().removeprefix("W/") for value in values for tag in value.split(",")}
    return "*" in tags or ETAG in tags
