"""The invalidation endpoints as the OpenAPI document describes them."""

from msgspec.structs import replace

from ltzd.errors import InvalidFields, LtzdError, MissingFields, Unauthorized
from ltzd.http.constraints.errors import ERRORS
from ltzd.http.constraints.handlers import (
    KEYED_PATH,
    PATH,
    ConstraintHandlers,
    keyless_limit_exceeded,
)
from ltzd.http.constraints.models import InvalidateCacheBody, InvalidateCacheResponse
from ltzd.http.openapi.operations import Credential, Operation, RateWindow, Response
from ltzd.http.requests.rate_limits import PER_CLIENT

_REQUEST = {
    "api_url": "https://api.example/check?user={user_address}",
    "user_address": "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
    "collection_id": 7,
}
_SUCCESS = {
    200: Response(
        "The number of invalidated results, which may be 0",
        InvalidateCacheResponse,
        {
            "invalidated": InvalidateCacheResponse.body(3),
            "nothing cached": InvalidateCacheResponse.body(0),
        },
    ),
}
_ERROR_EXAMPLES: dict[str, LtzdError] = {
    "missing field": MissingFields(["api_url"]),
    "invalid fields": InvalidFields(["user_address: must be an address, 0x and 40 hex digits"]),
    "wrong key": Unauthorized("The API key is not valid"),
}


_API_KEY = Credential("brandApiKey", "bearer", "A brand's API key")


OPERATIONS = (
    Operation(
        ConstraintHandlers.invalidate,
        "POST",
        PATH,
        "Invalidate cached results of a constraint's API; with a brand's API key (Authorization: "
        "Bearer) only those of the brand's own constraints",
        request=InvalidateCacheBody,
        request_examples={"one user": _REQUEST, "every user": {"api_url": _REQUEST["api_url"]}},
        credential=replace(_API_KEY, required=False),
        success=_SUCCESS,
        errors=ERRORS,
        error_examples={
            **_ERROR_EXAMPLES,
            "limit of the address": keyless_limit_exceeded(PER_CLIENT.keyless_invalidations, 42),
        },
        rate_window=RateWindow(
            "Requests of an address a minute, if the request has no key",
            frozenset({200, 400, 413, 429, 500, 503}),
        ),
    ),
    Operation(
        ConstraintHandlers.invalidate_keyed,
        "POST",
        KEYED_PATH,
        "Invalidate cached results of a brand's own constraints; the brand's API key is required",
        request=InvalidateCacheBody,
        request_examples={"one user": _REQUEST},
        credential=_API_KEY,
        success=_SUCCESS,
        errors=ERRORS,
        error_examples=_ERROR_EXAMPLES,
    ),
)
