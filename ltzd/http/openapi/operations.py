"""How a surface describes its endpoints to the OpenAPI document."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    place: str
    schema: Mapping[str, object]
    required: bool = True


@dataclass(frozen=True, slots=True)
class AnswerHeader:
    """`statuses` are those that carry it; None is all."""

    name: str
    description: str
    schema: Mapping[str, object]
    statuses: frozenset[int] | None = None


Examples = Mapping[str, Mapping[str, object]]
"""Bodies by a name that tells what each is an example of."""


@dataclass(frozen=True, slots=True)
class Operation:
    """`examples` are by status; `needs_token` asks for a bearer token. Statuses in `bodiless` have
    a description and no body."""

    method: str
    path: str
    summary: str
    answers: Mapping[int, tuple[str, type[BaseModel]]]
    request: type[BaseModel] | None = None
    parameters: tuple[Parameter, ...] = ()
    request_examples: Examples = field(default_factory=dict)
    examples: Mapping[int, Examples] = field(default_factory=dict)
    headers: tuple[AnswerHeader, ...] = ()
    needs_token: bool = False
    bodiless: Mapping[int, str] = field(default_factory=dict)


WAIT_FOR_WINDOW = AnswerHeader(
    "Retry-After", "Seconds until the window ends", {"type": "integer"}, frozenset({429})
)
WAIT_TO_SEND = AnswerHeader(
    "Retry-After",
    "Seconds until the window or the day of a spent gas budget ends; at RELAY_PENDING, until the "
    "same request is worth repeating",
    {"type": "integer"},
    frozenset({403, 429, 503}),
)
"""Of endpoints that have the operator send a transaction."""
