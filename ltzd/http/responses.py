"""Responses with a body that is already encoded."""

from collections.abc import Iterator

import msgspec
from sanic.response import HTTPResponse


class Reply(HTTPResponse):
    """A response without Sanic's header sanitizing, a fifth of the cost of a response.

    Header values must be constants, numbers, or text that matched a pattern. Omits the empty
    `alt-svc` header that Sanic sends without HTTP/3.
    """

    @property
    def processed_headers(self) -> Iterator[tuple[bytes, bytes]]:
        headers = self.headers
        if self.body:
            headers.setdefault("content-type", self.content_type)
        return (
            (name.encode("ascii"), str(value).encode("ascii"))
            for name, value in headers.items()
            if name != "alt-svc"
        )


JSON = "application/json"
encoded = msgspec.json.encode


def json_reply(body: object, status: int = 200, headers: dict[str, str] | None = None) -> Reply:
    return Reply(encoded(body), status, headers, JSON)
