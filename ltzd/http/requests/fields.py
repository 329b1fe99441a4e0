"""The field types of requests, which pydantic validates and the OpenAPI document describes.

A reason continues the field's name, as `details.errors` shows it: "field: reason".
"""

import re
from collections.abc import Callable
from typing import Annotated, Any

import email_validator
from pydantic import AfterValidator, BeforeValidator, Field, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails, PydanticCustomError

from ltzd.errors import InvalidFields
from ltzd.providers.email_addresses import MAX_LENGTH as MAX_EMAIL_LENGTH
from ltzd.rules.brands.configuration import EVENT_TYPE
from ltzd.rules.domains.names import MAX_LENGTH, MAX_URL_LENGTH, normal_domain, url_host
from ltzd.values import BRAND_ID, has_right_case

email_validator.SPECIAL_USE_DOMAIN_NAMES.clear()
"""The library's switch to accept special-use domains: only the form is checked here."""

ADDRESS = re.compile(r"0x[0-9A-Fa-f]{40}")
UUID_TEXT = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")

UINT256_TEXT = re.compile(r"0x[0-9A-Fa-f]{1,64}|[0-9]{1,78}")
MAX_DATA_BYTES = 16_384
_HEX_DATA = re.compile(r"0x(?:[0-9A-Fa-f]{2})*")
_HEX_WORD = re.compile(r"0x[0-9A-Fa-f]{1,64}")

_EXACT_FLOATS = 2**53
"""A JSON number from here on may have been rounded on its way to us."""

_ATOM = r"[A-Za-z0-9_+-]+"
_LABEL = r"(?!..--)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
PLAIN_EMAIL = re.compile(rf"(?=[^@]{{1,64}}@){_ATOM}(?:\.{_ATOM})*@(?:{_LABEL}\.)+[A-Za-z]{{2,24}}")
"""Matches most addresses 50 times as fast as the library, which decides all others."""


def field_error(reason: str) -> PydanticCustomError:
    return PydanticCustomError("format", "{reason}", {"reason": reason})


def brand_id(text: str) -> str:
    if BRAND_ID.fullmatch(text):
        return text
    raise field_error("must be 42 characters, 0x and 40 lower-case hex digits")


def event_type(text: str) -> str:
    if EVENT_TYPE.fullmatch(text):
        return text
    raise field_error("must be 1 to 50 characters: letters, digits and underscores")


def email(text: str) -> str:
    """Return the text unchanged. RFC 5322 without display names; no DNS look-up."""
    if len(text) > MAX_EMAIL_LENGTH:
        raise field_error(f"must be at most {MAX_EMAIL_LENGTH} characters")
    if PLAIN_EMAIL.fullmatch(text) or is_email(text):
        return text
    raise field_error("must be an e-mail address")


def is_email(text: str) -> bool:
    try:
        email_validator.validate_email(
            text,
            check_deliverability=False,
            globally_deliverable=False,
            allow_quoted_local=True,
            allow_domain_literal=True,
        )
    except email_validator.EmailNotValidError:
        return False
    return True


def domain(text: str) -> str:
    """Return the normalized name."""
    try:
        return normal_domain(text)
    except ValueError as error:
        raise field_error(str(error)) from error


def source_url(text: str) -> str:
    try:
        url_host(text)
    except ValueError as error:
        raise field_error(str(error)) from error
    return text


def user_identifier(text: str) -> str:
    if ADDRESS.fullmatch(text):
        return text
    try:
        return email(text)
    except PydanticCustomError:
        raise field_error("must be an e-mail address or an Ethereum address") from None


def address(text: str) -> str:
    """Return the text unchanged. Letters of both cases must be a correct EIP-55 checksum."""
    if not ADDRESS.fullmatch(text):
        raise field_error("must be an address, 0x and 40 hex digits")
    if not has_right_case(text):
        raise field_error("must have the right checksum (EIP-55), or letters of one case")
    return text


def hex_data(text: str) -> str:
    if len(text) > 2 + 2 * MAX_DATA_BYTES:
        raise field_error(f"must hold at most {MAX_DATA_BYTES} bytes")
    if _HEX_DATA.fullmatch(text):
        return text
    raise field_error("must be 0x and an even number of hex digits")


def uint256_text(text: str) -> str:
    if UINT256_TEXT.fullmatch(text) and uint256_of(text) < 1 << 256:
        return text
    raise field_error("must be a whole number below 2^256, decimal or 0x and hex digits")


def uint256_of(text: str) -> int:
    """Parse text that `uint256_text` accepts."""
    return int(text, 16) if text.startswith("0x") else int(text)


def uint256(number: int) -> int:
    if 0 <= number < 1 << 256:
        return number
    raise field_error("must be a whole number from 0 to below 2^256")


def hex_word(text: str) -> str:
    """Up to 32 bytes: wallets often omit leading zeros, even a single one."""
    if _HEX_WORD.fullmatch(text):
        return text
    raise field_error("must be 0x and 1 to 64 hex digits")


def recovery_id(number: int) -> int:
    if number in {0, 1, 27, 28}:
        return number
    raise field_error("must be 0, 1, 27 or 28")


def idempotency_key(text: str) -> str:
    if 1 <= len(text) <= 255 and text.isprintable():
        return text
    raise field_error(IDEMPOTENCY_KEY_RULE)


IDEMPOTENCY_KEY_RULE = "must be 1 to 255 printable characters"


def _text(check: Callable[[str], str], **schema: object) -> Any:
    return Annotated[str, AfterValidator(check), WithJsonSchema({"type": "string", **schema})]


def whole_number(value: object) -> object:
    """Turn 5.0 into 5, below 2^53, and leave every other value to the strict check of integers.

    JSON Schema counts 5.0 as an integer, and PHP writes a whole float so.
    """
    if isinstance(value, float) and value.is_integer() and abs(value) < _EXACT_FLOATS:
        return int(value)
    return value


def _whole(check: Callable[[int], int], **schema: object) -> Any:
    return Annotated[Integer, AfterValidator(check), WithJsonSchema({"type": "integer", **schema})]


Integer = Annotated[int, BeforeValidator(whole_number)]
"""The type of an integer in a request body."""

# Bounds stand before the validator: the document would not tell those behind it.
Natural = Annotated[int, Field(ge=0), BeforeValidator(whole_number)]
Positive = Annotated[int, Field(ge=1), BeforeValidator(whole_number)]

BrandId = _text(brand_id, pattern="^0x[0-9a-f]{40}$", examples=["0x" + "ab" * 20])
EventType = _text(event_type, pattern="^[A-Za-z0-9_]{1,50}$", examples=["account_creation"])
Email = _text(email, format="email", maxLength=MAX_EMAIL_LENGTH)
Domain = _text(
    domain,
    pattern=r"^[^\s/\\?#@:*]+$",
    maxLength=MAX_LENGTH,
    description="A name without scheme, port, path and wildcard; no IP address",
    examples=["shop.example"],
)
SourceUrl = _text(
    source_url,
    # No `format`: `uri` forbids letters beyond ASCII and the braces of a placeholder.
    pattern=r"^[Hh][Tt][Tt][Pp][Ss]?://[^\s\\]+$",
    maxLength=MAX_URL_LENGTH,
    description="With a host and without a user name",
)
UserIdentifier = _text(
    user_identifier,
    maxLength=MAX_EMAIL_LENGTH,
    description="An e-mail address or an Ethereum address",
)
AddressText = _text(address, pattern="^0x[0-9A-Fa-f]{40}$")
HexData = _text(hex_data, pattern="^0x([0-9A-Fa-f]{2})*$", maxLength=2 + 2 * MAX_DATA_BYTES)
Uint256Text = _text(
    uint256_text, pattern="^(0x[0-9A-Fa-f]{1,64}|[0-9]{1,78})$", description="Below 2^256"
)
HexWord = _text(hex_word, pattern="^0x[0-9A-Fa-f]{1,64}$")
IdempotencyKey = _text(idempotency_key, minLength=1, maxLength=255)
Uint256 = _whole(uint256, minimum=0)
RecoveryId = _whole(recovery_id, enum=[0, 1, 27, 28])

REASONS = {
    "missing": "is required",
    "string_type": "must be a string",
    "bool_type": "must be true or false",
    "int_type": "must be an integer",
    "dict_type": "must be an object",
    "model_type": "must be an object",
    "list_type": "must be an array",
    "too_short": "must hold at least {min_length}",
    "too_long": "must hold at most {max_length}",
    "string_too_long": "must be at most {max_length} characters",
    "greater_than_equal": "must be at least {ge}",
    "less_than_equal": "must be at most {le}",
}
"""By pydantic's error type. Braces take the rule's numbers from the error's context."""


def invalid_fields(error: ValidationError) -> InvalidFields:
    return InvalidFields(faults_in(error))


def faults_in(error: ValidationError) -> list[str]:
    """Every fault, as "field: reason". No fault contains the value that was sent."""
    return [
        f"{'.'.join(map(str, fault['loc']))}: {_reason(fault)}"
        for fault in error.errors(include_url=False, include_input=False)
    ]


def _reason(fault: ErrorDetails) -> str:
    text = REASONS.get(fault["type"])
    return fault["msg"] if text is None else text.format(**fault.get("ctx", {}))
