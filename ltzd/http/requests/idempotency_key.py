"""Reads and checks the Idempotency-Key header."""

from collections.abc import Sequence

from sanic.request import Request

from ltzd.http.requests.fields import IDEMPOTENCY_KEY_RULE, idempotency_key


def key_lines(request: Request) -> list[str]:
    """Every Idempotency-Key line of the request."""
    return [line.strip(" \t") for line in request.headers.getall("idempotency-key", ())]


def key_faults(lines: Sequence[str]) -> list[str]:
    """The faults of the header, as "field: reason"."""
    if len(lines) > 1:
        return ["Idempotency-Key: must be given once"]
    try:
        for line in lines:
            idempotency_key(line)
    except ValueError:
        return [f"Idempotency-Key: {IDEMPOTENCY_KEY_RULE}"]
    return []
