"""Types of values in brand files."""

from decimal import Decimal
from typing import Annotated, TypeAlias

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    PlainValidator,
    ValidationInfo,
)

MAX_ID = 2**63 - 1
"""The highest id of a collection or item: TOML and PostgreSQL's bigint hold no higher one."""
MAX_COUNT = 10**12

Scalar: TypeAlias = bool | int | Decimal | str
Value: TypeAlias = Scalar | tuple[Scalar, ...]

_MOST_DIGITS = 78
"""As many as the largest 256-bit number has."""
_MOST_CHARACTERS = 500
_MOST_IN_A_LIST = 100


def _number(value: object, info: ValidationInfo) -> object:
    # pydantic also reads a Decimal from text and from a bool. In a file both are mistakes, but in
    # stored JSON a Decimal is text.
    if isinstance(value, bool) or (isinstance(value, str) and info.mode != "json"):
        raise ValueError("must be a number")
    return value


def printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not hold control characters")
    return text


def bools_in(value: Value | None) -> list[bool]:
    """For each part of the value, whether it is a bool. (In Python, 1 == True.)"""
    return [isinstance(part, bool) for part in (value if isinstance(value, tuple) else (value,))]


def _read(given: object, info: ValidationInfo) -> Value | None:
    """In stored JSON a Decimal is {"decimal": "1.5"}, which cannot be mistaken for text."""
    match given:
        case list() | tuple():
            if not 1 <= len(given) <= _MOST_IN_A_LIST:
                raise ValueError(f"must be a list of 1 to {_MOST_IN_A_LIST}")
            return tuple(_scalar(part, info) for part in given)
        case None:
            return None
    return _scalar(given, info)


def _scalar(given: object, info: ValidationInfo) -> Scalar:
    match given:
        case {"decimal": str(text)} if info.mode == "json":
            return Decimal(text)
        case bool():
            return given
        case int() if abs(given) < 10**_MOST_DIGITS:
            return given
        case Decimal() if _is_short(given):
            return given
        case int() | Decimal():
            raise ValueError(f"must be a number of at most {_MOST_DIGITS} digits")
        case str() if len(given) <= _MOST_CHARACTERS:
            return printable(given)
        case str():
            raise ValueError(f"must have at most {_MOST_CHARACTERS} characters")
    raise ValueError("must be true, false, a number or text, or a list of these")


def _is_short(number: Decimal) -> bool:
    _, digits, exponent = number.as_tuple()
    return (
        isinstance(exponent, int)  # A string here means infinity or NaN.
        and max(len(digits), abs(exponent), abs(number.adjusted())) <= _MOST_DIGITS
    )


def _stored(value: Value | None) -> object:
    match value:
        case tuple():
            return [_stored(part) for part in value]
        case Decimal():
            return {"decimal": str(value)}
    return value


IsNumber = BeforeValidator(_number)
"""Refuses bools and text for a Decimal."""
Text = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(printable)]
OnChainId = Annotated[int, Field(ge=1, le=MAX_ID, strict=True)]
AnyValue = Annotated[Value, PlainValidator(_read), PlainSerializer(_stored, when_used="json")]
"""Any scalar of TOML, or a list of scalars."""
