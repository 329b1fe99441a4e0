"""How a surface describes its endpoints to the OpenAPI document."""

from collections.abc import Mapping
from dataclasses import dataclass

from pydantic import BaseModel


@dataclass(frozen=True, slots=True)
class Parameter:
    name: str
    place: str
    schema: Mapping[str, object]
    required: bool = True


@dataclass(frozen=True, slots=True)
class Operation:
    method: str
    path: str
    summary: str
    answers: Mapping[int, tuple[str, type[BaseModel]]]
    request: type[BaseModel] | None = None
    parameters: tuple[Parameter, ...] = ()
