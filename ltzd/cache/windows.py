"""What a counter says of one fixed window, and the name that it is kept under."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

_LONGEST_BYTES = 200


@dataclass(frozen=True, slots=True)
class WindowCount:
    """How many hits the window has, this one included, and how long it still runs."""

    count: int
    left_seconds: float


def window_name(limit: str, seconds: int, parts: Iterable[str]) -> bytes:
    """Different parts never make the same name, whatever they hold; case does not matter.

    A name's length is bounded, for parts may come from callers.
    """
    escaped = (part.lower().replace("%", "%25").replace("|", "%7c") for part in parts)
    # Sanic keeps header bytes that are no UTF-8 as surrogates.
    name = "|".join((limit, str(seconds), *escaped)).encode(errors="surrogatepass")
    if len(name) <= _LONGEST_BYTES:
        return name
    return f"{limit}|{seconds}#{hashlib.sha256(name).hexdigest()}".encode()
