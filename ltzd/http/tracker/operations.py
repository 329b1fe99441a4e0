"""The script of brands' pages as the OpenAPI document describes it."""

from ltzd.http.openapi.operations import TEXT, Operation, Parameter, Response, ResponseHeader
from ltzd.http.relayer.errors import ERRORS
from ltzd.http.tracker.handlers import JAVASCRIPT, tracker

_ETAG = ResponseHeader("ETag", "The script's version", TEXT)

OPERATIONS = (
    Operation(
        tracker,
        "GET",
        "/ltzd.js",
        "Load the script that sends a page's customer events",
        parameters=(Parameter("If-None-Match", "header", TEXT, required=False),),
        success={
            200: Response("The script", None, headers=(_ETAG,), media_type=JAVASCRIPT),
            304: Response("The caller has this version", None, headers=(_ETAG,)),
        },
        errors=ERRORS,
    ),
)
