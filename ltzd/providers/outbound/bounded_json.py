"""JSON from outside, decoded without trusting its depth.

eth-account raises the interpreter's recursion limit to 100,000 as it is imported, and above some
30,000 levels a decoder written in C overflows its stack and takes the process down.
"""

import msgspec

# Far more than any message of the outside services has, far less than the stack holds.
_MOST_BRACKETS = 5_000


class InvalidJsonError(ValueError):
    pass


def decode_json(body: bytes) -> object:
    """The JSON value in `body`. Raises InvalidJsonError."""
    if body.count(b"[") + body.count(b"{") > _MOST_BRACKETS:
        raise InvalidJsonError("too many brackets")
    try:
        value: object = msgspec.json.decode(body)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidJsonError("no JSON") from error
    return value
