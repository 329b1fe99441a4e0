"""Kinds of values in brand files that their sections share, or that take more than a line."""

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
"""Of a collection or an item: what TOML promises to hold, and PostgreSQL's bigint."""
MAX_COUNT = 10**12

Scalar: TypeAlias = bool | int | Decimal | str
Value: TypeAlias = Scalar | tuple[Scalar, ...]

_MOST_DIGITS = 78
"""As many as a word of a contract needs."""
_MOST_CHARACTERS = 500
_MOST_IN_A_LIST = 100


def _number(value: object, info: ValidationInfo) -> object:
    # pydantic reads a Decimal from text and from a bool too. In a file these are mistakes; in the
    # stored JSON a Decimal is text.
    if isinstance(value, bool) or (isinstance(value, str) and info.mode != "json"):
        raise ValueError("must be a number")
    return value


def printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("must not hold control characters")
    return text


def truths_in(value: Value | None) -> list[bool]:
    """Which of its parts are true or false, not numbers: 1 == True."""
    return [isinstance(one, bool) for one in (value if isinstance(value, tuple) else (value,))]


def _read(given: object, info: ValidationInfo) -> Value | None:
    """In the stored JSON a Decimal is {"decimal": "1.5"}, which no text is mistaken for."""
    match given:
        case list() | tuple():
            if not 1 <= len(given) <= _MOST_IN_A_LIST:
                raise ValueError(f"must be a list of 1 to {_MOST_IN_A_LIST}")
            return tuple(_scalar(one, info) for one in given)
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
        isinstance(exponent, int)  # else it is infinite, or no number
        and max(len(digits), abs(exponent), abs(number.adjusted())) <= _MOST_DIGITS
    )


def _stored(value: Value | None) -> object:
    match value:
        case tuple():
            return [_stored(one) for one in value]
        case Decimal():
            return {"decimal": str(value)}
    return value


IsNumber = BeforeValidator(_number)
"""Beside Decimal."""
Text = Annotated[str, Field(min_length=1, max_length=500), AfterValidator(printable)]
OnChainId = Annotated[int, Field(ge=1, le=MAX_ID, strict=True)]
AnyValue = Annotated[Value, PlainValidator(_read), PlainSerializer(_stored, when_used="json")]
"""Of whatever type TOML gives it; None stays None."""
