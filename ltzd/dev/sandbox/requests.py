"""Reads of request bodies, and the error that a malformed field raises."""

import math
from collections.abc import Mapping

import msgspec
from aiohttp import web

from ltzd.providers.outbound.json_bodies import InvalidJsonError, decode_json

Body = Mapping[str, object]

_encoder = msgspec.json.Encoder()


class BadInputError(Exception):
    """A malformed field; the answer is 400 and names it."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field


def json_reply(value: object, status: int = 200) -> web.Response:
    return web.Response(body=_encoder.encode(value), status=status, content_type="application/json")


async def json_object(request: web.Request) -> Body:
    try:
        value = decode_json(await request.read())
    except InvalidJsonError as error:
        raise BadInputError("body", "must be JSON") from error
    if not isinstance(value, dict):
        raise BadInputError("body", "must be a JSON object")
    return value


async def control_body(request: web.Request) -> Body:
    """The body of a control request; a null field counts as absent, as in ltzd's own surfaces."""
    body = await json_object(request)
    return {name: value for name, value in body.items() if value is not None}


def allow_only(body: Body, *names: str) -> None:
    for name in body:
        if name not in names:
            raise BadInputError(name[:64], f"is unknown; the fields are {', '.join(names)}")


def text_in(body: Body, name: str, longest: int = 256) -> str:
    value = body.get(name)
    if not isinstance(value, str) or not 0 < len(value) <= longest:
        raise BadInputError(name, f"must be text of 1 to {longest} characters")
    return value


def email_in(body: Body, name: str) -> str:
    email = text_in(body, name, longest=254)
    local, at, domain = email.rpartition("@")
    is_quoted = len(local) > 2 and local.startswith('"') and local.endswith('"')
    plain = email.replace(" ", "") if is_quoted else email
    if not (local and at and domain) or any(c.isspace() or not c.isprintable() for c in plain):
        raise BadInputError(name, "must be an e-mail address")
    return email


def whole_number_in(body: Body, name: str, least: int, most: int) -> int:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise BadInputError(name, f"must be a whole number from {least} to {most}")
    return value


def number_in(body: Body, name: str, least: float, most: float) -> float:
    value = body.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise BadInputError(name, f"must be a number from {least:g} to {most:g}")
    if not least <= value <= most:
        raise BadInputError(name, f"must be a number from {least:g} to {most:g}")
    return float(value)


def object_in(body: Body, name: str) -> Body:
    value = body.get(name)
    if not isinstance(value, dict):
        raise BadInputError(name, "must be a JSON object")
    return value


def list_in(body: Body, name: str, longest: int) -> list[object]:
    value = body.get(name)
    if not isinstance(value, list) or len(value) > longest:
        raise BadInputError(name, f"must be a list of at most {longest}")
    return value
