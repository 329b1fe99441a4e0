"""The count of one fixed window, and the name under which a window is kept."""

import hashlib
from collections.abc import Iterable

import msgspec

_MAX_BYTES = 200


class WindowCount(msgspec.Struct, frozen=True):
    """Hits of the window, the latest included, and the seconds until it ends."""

    count: int
    left_seconds: float


def window_name(limit: str, seconds: int, parts: Iterable[str]) -> bytes:
    """The name of a window. Parts that differ by more than letter case have different names.

    Callers of the API choose some parts, so the name has a bounded length.
    """
    escaped = [part.lower().replace("%", "%25").replace("|", "%7c") for part in parts]
    # Sanic decodes header bytes that are not UTF-8 as surrogates.
    name = "|".join((limit, str(seconds), *escaped)).encode(errors="surrogatepass")
    if len(name) <= _MAX_BYTES:
        return name
    return f"{limit}|{seconds}#{hashlib.sha256(name).hexdigest()}".encode()
