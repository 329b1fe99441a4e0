"""The payment provider's parameters: form-encoded, read by their full bracketed names.

A name that nobody reads is refused, as the provider refuses it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NoReturn, Self
from urllib.parse import parse_qsl

from ltzd.dev.sandbox.payments.errors import ProviderError

_MOST_FIELDS = 1_000
_MOST_KEYS = 50
_LONGEST_KEY = 40
_LONGEST_VALUE = 500
_LARGEST_NUMBER = 2**53


class Form:
    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = fields
        self._unread = dict.fromkeys(fields)

    @classmethod
    def parsed(cls, content: bytes) -> Self:
        try:
            pairs = parse_qsl(
                content.decode(),
                keep_blank_values=True,
                errors="strict",
                max_num_fields=_MOST_FIELDS,
            )
        except ValueError:
            raise ProviderError("The parameters are not form-encoded.") from None
        return cls(dict(pairs))

    def text(self, name: str, longest: int = 5_000) -> str | None:
        self._unread.pop(name, None)
        value = self.fields.get(name)
        if value is None:
            return None
        if not value.strip():
            raise ProviderError(
                f"{name} cannot be empty.", code="parameter_invalid_empty", param=name
            )
        if len(value) > longest:
            raise ProviderError(f"{name} has more than {longest} characters.", param=name)
        return value

    def needed_text(self, name: str, longest: int = 5_000) -> str:
        value = self.text(name, longest)
        return _needed(name) if value is None else value

    def one_of(self, name: str, *choices: str) -> str | None:
        value = self.text(name)
        if value is not None and value not in choices:
            raise ProviderError(f"{name} must be one of {', '.join(choices)}.", param=name)
        return value

    def whole_number(self, name: str, least: int = 0) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"[+-]?[0-9]{1,16}", value) or not (
            least <= int(value) <= _LARGEST_NUMBER
        ):
            raise ProviderError(
                f"{name} must be a whole number from {least}.",
                code="parameter_invalid_integer",
                param=name,
            )
        return int(value)

    def needed_number(self, name: str, least: int = 0) -> int:
        value = self.whole_number(name, least)
        return _needed(name) if value is None else value

    def places(self, name: str) -> list[str]:
        """`line_items[0]`, `line_items[1]` and so on, in the order of their numbers."""
        pattern = re.compile(re.escape(name) + r"\[([0-9]{1,4})\]\[")
        found = {int(match[1]) for field in self.fields if (match := pattern.match(field))}
        return [f"{name}[{number}]" for number in sorted(found)]

    def listed(self, name: str) -> list[str]:
        pattern = re.compile(re.escape(name) + r"\[[0-9]{0,4}\]")
        return [self.needed_text(field) for field in self.fields if pattern.fullmatch(field)]

    def metadata(self, name: str = "metadata") -> dict[str, str]:
        pattern = re.compile(re.escape(name) + r"\[([^\[\]]+)\]")
        entries: dict[str, str] = {}
        for field, value in self.fields.items():
            if match := pattern.fullmatch(field):
                self._unread.pop(field, None)
                entries[match[1]] = _metadata_value(field, match[1], value)
        if len(entries) > _MOST_KEYS:
            raise ProviderError(f"{name} can have up to {_MOST_KEYS} keys.", param=name)
        # An empty value unsets its key.
        return {key: value for key, value in entries.items() if value}

    def skip(self, names: Iterable[str]) -> None:
        """Parameters of the provider that change nothing here."""
        for name in names:
            for field in [field for field in self._unread if field.partition("[")[0] == name]:
                del self._unread[field]

    def refuse_the_rest(self) -> None:
        for name in self._unread:
            shown = name[:100]
            raise ProviderError(
                f"Unknown parameter: {shown}.", code="parameter_unknown", param=shown
            )


def missing(name: str) -> ProviderError:
    return ProviderError(f"{name} is missing.", code="parameter_missing", param=name)


def _needed(name: str) -> NoReturn:
    raise missing(name)


def _metadata_value(field: str, key: str, value: str) -> str:
    if len(key) > _LONGEST_KEY:
        raise ProviderError(f"Metadata keys can have up to {_LONGEST_KEY} characters.", param=field)
    if len(value) > _LONGEST_VALUE:
        raise ProviderError(
            f"Metadata values can have up to {_LONGEST_VALUE} characters.", param=field
        )
    return value
