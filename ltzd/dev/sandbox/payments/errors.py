"""The payment provider's error object, which every answer without success has."""

import secrets
import string
from collections.abc import Mapping
from dataclasses import dataclass

from aiohttp import web

from ltzd.dev.sandbox.requests import json_reply

_LETTERS = string.ascii_letters + string.digits


def new_id(prefix: str, letters: int = 24) -> str:
    return prefix + "_" + "".join(secrets.choice(_LETTERS) for _ in range(letters))


@dataclass(eq=False)
class ProviderError(Exception):
    """`param` is the full name of the parameter, such as `line_items[0][quantity]`."""

    message: str
    status: int = 400
    type: str = "invalid_request_error"
    code: str | None = None
    param: str | None = None

    def as_json(self) -> dict[str, object]:
        fields = {"type": self.type, "message": self.message, "code": self.code}
        all_fields = {**fields, "param": self.param}
        return {"error": {name: value for name, value in all_fields.items() if value is not None}}


def error_reply(error: ProviderError, headers: Mapping[str, str]) -> web.Response:
    reply = json_reply(error.as_json(), error.status)
    reply.headers.update(headers)
    return reply


def ordered_fault(status: int) -> web.Response:
    """The reply to an ordered fault, in the shape that the provider's clients expect."""
    kinds = {429: ("invalid_request_error", "rate_limit"), 402: ("card_error", "card_declined")}
    default = ("api_error" if status >= 500 else "invalid_request_error", None)
    kind, code = kinds.get(status, default)
    error = ProviderError("A fault ordered at the sandbox", status, kind, code)
    return error_reply(error, {"Request-Id": new_id("req", 14)})
