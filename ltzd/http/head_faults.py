"""Names the fault of a request that Sanic refuses while reading it, if the fault can be found.

Sanic names only some faults; the received bytes show the others.
"""

from typing import Final

_BY_SANICS_TEXT: Final = {
    "URL may only contain US-ASCII characters.": "the URL may hold only ASCII characters",
    "Bad content-length": "Content-Length must be a whole number, and Transfer-Encoding chunked",
    "Bad chunked encoding": "the body's chunked encoding is broken",
}
_LENGTH, _CODING = b"content-length", b"transfer-encoding"
_WORDS_OF_A_REQUEST_LINE: Final = 3


def fault_in(text: str, received: bytes) -> str | None:
    """`text` is Sanic's, and `received` begins with the refused head. Returns None if neither tells
    the fault.
    """
    return _BY_SANICS_TEXT.get(text) or _fault_in_head(received.partition(b"\r\n\r\n")[0])


def is_url_too_long(received: bytes) -> bool:
    """Whether the URL is most of a head that is too large."""
    end = received.find(b"\r\n")
    return not 0 <= end <= len(received) // 2


def _fault_in_head(head: bytes) -> str | None:
    line, *header_lines = head.split(b"\r\n")
    words = line.split(b" ")
    if len(words) != _WORDS_OF_A_REQUEST_LINE or words[-1] not in {b"HTTP/1.1", b"HTTP/1.0"}:
        return "its first line must be a method, a URL and HTTP/1.1"
    names = [header.partition(b":")[0].lower() for header in header_lines]
    if _LENGTH in names and _CODING in names:
        return "Content-Length and Transfer-Encoding exclude each other"
    if names.count(_LENGTH) > 1:
        return "Content-Length must be given once"
    if names.count(_CODING) > 1:
        return "Transfer-Encoding must be given once"
    return None
