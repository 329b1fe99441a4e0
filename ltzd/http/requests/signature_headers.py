"""Reads a request's LTZ-HMAC headers; whether they are any good is not decided here."""

from sanic.request import Request

from ltzd.actions.event_handler.ids import event_ids
from ltzd.rules.request_signatures import SignedRequest

_ids = event_ids()
_NAMES = ("x-ltz-brand-id", "x-ltz-timestamp", "x-ltz-nonce", "x-ltz-signature")


def is_signed(request: Request) -> bool:
    """Whether any of the headers is there."""
    return any(name in request.headers for name in _NAMES)


def signed_of(request: Request, body: bytes) -> SignedRequest | None:
    """None for a request that has none of the headers, which most have not."""
    headers = request.headers
    # Of a line that is there twice somebody before us may have read the other one: joined, all but
    # signatures have no valid form.
    given = [",".join(headers.getall(name, ())) for name in _NAMES]
    if not any(given):
        return None
    brand_id, timestamp, nonce, signatures = given
    return SignedRequest(
        id=next(_ids),
        brand_id=brand_id,
        timestamp=timestamp,
        nonce=nonce,
        signatures=signatures,
        method=request.method,
        target=request.raw_url,
        body=body,
    )
