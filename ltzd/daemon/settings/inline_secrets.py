"""Finds the secrets that a settings file holds itself, instead of naming a secret's file.

A value of the type SecretStr is a secret; a URL of that type only if it holds a password or a
provider's key.
"""

from collections.abc import Iterator, Mapping
from typing import get_args
from urllib.parse import parse_qs, urlsplit

from pydantic import BaseModel, SecretStr

from ltzd.rules.brands.toml_documents import FieldPath

_WEB_SCHEMES = ("http", "https")


def inline_secrets(
    section: type[BaseModel], document: object, at: FieldPath = ()
) -> Iterator[FieldPath]:
    """The places of the secrets, in the order of the settings; unknown keys are ignored."""
    if not isinstance(document, Mapping):
        return
    for name, field in section.model_fields.items():
        kinds, value, place = set(_kinds(field.annotation)), document.get(name), (*at, name)
        if SecretStr in kinds and isinstance(value, str) and _is_secret(name, value):
            yield place
        for kind in kinds:
            if issubclass(kind, BaseModel):
                yield from inline_secrets(kind, value, place)
                for number, item in enumerate(value if isinstance(value, list) else ()):
                    yield from inline_secrets(kind, item, (*place, number))


def _kinds(annotation: object) -> Iterator[type]:
    """The classes in an annotation such as `Annotated[SecretStr, …] | None`."""
    if isinstance(annotation, type):
        yield annotation
    for part in get_args(annotation):
        yield from _kinds(part)


def _is_secret(name: str, value: str) -> bool:
    return _is_secret_url(value) if name.endswith("_url") else bool(value)


def _is_secret_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        password = parts.password
    except ValueError:
        return True
    if password or "password" in parse_qs(parts.query):
        return True
    # Node providers put the customer's key into the path or the query.
    return parts.scheme in _WEB_SCHEMES and bool(parts.path.strip("/") or parts.query)
