"""Field rules of requests, as types that pydantic checks and OpenAPI describes.

Reasons are written for the person who reads `details.errors`: "field: reason".
"""

import re
from collections.abc import Callable
from typing import Annotated, Any

import email_validator
from pydantic import AfterValidator, ValidationError, WithJsonSchema
from pydantic_core import ErrorDetails, PydanticCustomError

from ltzd.errors import InvalidFields
from ltzd.rules.domains import normal_domain, url_host

email_validator.SPECIAL_USE_DOMAIN_NAMES.clear()
"""The library's own switch: whether a name can receive mail is not a question of its form."""

BRAND_ID = re.compile(r"0x[0-9a-f]{40}")
EVENT_TYPE = re.compile(r"[A-Za-z0-9_]{1,50}")
ADDRESS = re.compile(r"0x[0-9A-Fa-f]{40}")
UUID_TEXT = re.compile(r"[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}")

_ATOM = r"[A-Za-z0-9_+-]+"
_LABEL = r"(?!..--)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
PLAIN_EMAIL = re.compile(rf"(?=[^@]{{1,64}}@){_ATOM}(?:\.{_ATOM})*@(?:{_LABEL}\.)+[A-Za-z]{{2,24}}")
"""Addresses that need no second look; the library takes 50 times as long and decides the rest."""


def _fault(reason: str) -> PydanticCustomError:
    return PydanticCustomError("format", "{reason}", {"reason": reason})


def brand_id(text: str) -> str:
    if BRAND_ID.fullmatch(text):
        return text
    raise _fault("must be 42 characters, 0x and 40 lower-case hex digits")


def event_type(text: str) -> str:
    if EVENT_TYPE.fullmatch(text):
        return text
    raise _fault("must be 1 to 50 characters: letters, digits and underscores")


def email(text: str) -> str:
    """As given: RFC 5322 without display names; quoted local parts and any domain, no DNS."""
    if len(text) > 254:
        raise _fault("must be at most 254 characters")
    if PLAIN_EMAIL.fullmatch(text) or is_email(text):
        return text
    raise _fault("must be an e-mail address")


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
    """In its normal form."""
    try:
        return normal_domain(text)
    except ValueError as error:
        raise _fault(str(error)) from error


def source_url(text: str) -> str:
    try:
        url_host(text)
    except ValueError as error:
        raise _fault(str(error)) from error
    return text


def user_identifier(text: str) -> str:
    if ADDRESS.fullmatch(text):
        return text
    try:
        return email(text)
    except PydanticCustomError:
        raise _fault("must be an e-mail address or an Ethereum address") from None


def _text(check: Callable[[str], str], **schema: object) -> Any:
    return Annotated[str, AfterValidator(check), WithJsonSchema({"type": "string", **schema})]


BrandId = _text(brand_id, pattern="^0x[0-9a-f]{40}$", examples=["0x" + "ab" * 20])
EventType = _text(event_type, pattern="^[A-Za-z0-9_]{1,50}$", examples=["account_creation"])
Email = _text(email, format="email", maxLength=254)
Domain = _text(domain, maxLength=253, examples=["shop.example"])
SourceUrl = _text(source_url, format="uri", maxLength=2048)
UserIdentifier = _text(user_identifier, description="An e-mail address or an Ethereum address")

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
}
"""pydantic's error types in our words, with the numbers of the rule."""


def invalid_fields(error: ValidationError) -> InvalidFields:
    """Every fault at once, none with the value that was sent."""
    return InvalidFields(
        [
            f"{'.'.join(map(str, fault['loc']))}: {_reason(fault)}"
            for fault in error.errors(include_url=False, include_input=False)
        ]
    )


def _reason(fault: ErrorDetails) -> str:
    text = REASONS.get(fault["type"])
    return fault["msg"] if text is None else text.format(**fault.get("ctx", {}))
