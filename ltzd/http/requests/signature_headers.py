"""Reads the LTZ-HMAC headers of a request. Does not verify the signature: the actions do."""

from sanic.request import Request

from ltzd.rules.request_signatures import SignedRequest

_NAMES = ("x-ltz-brand-id", "x-ltz-timestamp", "x-ltz-nonce", "x-ltz-signature")


def is_signed(request: Request) -> bool:
    """True if the request has any of the headers."""
    return any(name in request.headers for name in _NAMES)


def signed_request_of(request: Request, body: bytes) -> SignedRequest | None:
    """None if the request has none of the headers."""
    headers = request.headers
    # A proxy may have read another line of a repeated header. Joined by a comma, no header but the
    # signature has a valid form, so a repeated one is refused.
    values = [",".join(headers.getall(name, ())) for name in _NAMES]
    if not any(values):
        return None
    brand_id, timestamp, nonce, signatures = values
    return SignedRequest(
        brand_id=brand_id,
        timestamp=timestamp,
        nonce=nonce,
        signatures=signatures,
        method=request.method,
        target=request.raw_url,
        body=body,
    )
