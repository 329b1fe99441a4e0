"""Form-encoded parameters of the payment provider, read by their full bracketed names.

A parameter that no reader has asked for is refused, as the provider refuses it.
"""

import re
from collections.abc import Iterable, Mapping
from typing import NoReturn, Self
from urllib.parse import parse_qsl

from ltzd.dev.sandbox.payments.errors import ProviderError

_MAX_FIELDS = 1_000
_MAX_KEYS = 50
_MAX_KEY_LENGTH = 40
_MAX_VALUE_LENGTH = 500
_MAX_NUMBER = 2**53


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
                max_num_fields=_MAX_FIELDS,
            )
        except ValueError:
            raise ProviderError("The parameters are not form-encoded.") from None
        return cls(dict(pairs))

    def text(self, name: str, max_length: int = 5_000) -> str | None:
        self._unread.pop(name, None)
        value = self.fields.get(name)
        if value is None:
            return None
        if not value.strip():
            raise ProviderError(
                f"{name} cannot be empty.", code="parameter_invalid_empty", param=name
            )
        if len(value) > max_length:
            raise ProviderError(f"{name} has more than {max_length} characters.", param=name)
        return value

    def required_text(self, name: str, max_length: int = 5_000) -> str:
        value = self.text(name, max_length)
        return _raise_missing(name) if value is None else value

    def one_of(self, name: str, *choices: str) -> str | None:
        value = self.text(name)
        if value is not None and value not in choices:
            raise ProviderError(f"{name} must be one of {', '.join(choices)}.", param=name)
        return value

    def whole_number(self, name: str, least: int = 0) -> int | None:
        value = self.text(name)
        if value is None:
            return None
        if not re.fullmatch(r"[+-]?[0-9]{1,16}", value) or not (least <= int(value) <= _MAX_NUMBER):
            raise ProviderError(
                f"{name} must be a whole number from {least}.",
                code="parameter_invalid_integer",
                param=name,
            )
        return int(value)

    def required_number(self, name: str, least: int = 0) -> int:
        value = self.whole_number(name, least)
        return _raise_missing(name) if value is None else value

    def indexed_prefixes(self, name: str) -> list[str]:
        """The prefixes `name[0]`, `name[1]` and so on that the parameters have, in order."""
        pattern = re.compile(re.escape(name) + r"\[([0-9]{1,4})\]\[")
        numbers = {int(match[1]) for field in self.fields if (match := pattern.match(field))}
        return [f"{name}[{number}]" for number in sorted(numbers)]

    def listed(self, name: str) -> list[str]:
        pattern = re.compile(re.escape(name) + r"\[[0-9]{0,4}\]")
        return [self.required_text(field) for field in self.fields if pattern.fullmatch(field)]

    def metadata(self, name: str = "metadata") -> dict[str, str]:
        pattern = re.compile(re.escape(name) + r"\[([^\[\]]+)\]")
        entries: dict[str, str] = {}
        for field, value in self.fields.items():
            if match := pattern.fullmatch(field):
                self._unread.pop(field, None)
                entries[match[1]] = _metadata_value(field, match[1], value)
        if len(entries) > _MAX_KEYS:
            raise ProviderError(f"{name} can have up to {_MAX_KEYS} keys.", param=name)
        # An empty value deletes its key.
        return {key: value for key, value in entries.items() if value}

    def skip(self, names: Iterable[str]) -> None:
        """Accept parameters that have no effect in the sandbox."""
        for name in names:
            for field in [field for field in self._unread if field.partition("[")[0] == name]:
                del self._unread[field]

    def refuse_unread(self) -> None:
        """Raises ProviderError if any parameter has not been read."""
        for name in self._unread:
            shown = name[:100]
            raise ProviderError(
                f"Unknown parameter: {shown}.", code="parameter_unknown", param=shown
            )


def missing(name: str) -> ProviderError:
    return ProviderError(f"{name} is missing.", code="parameter_missing", param=name)


def _raise_missing(name: str) -> NoReturn:
    raise missing(name)


def _metadata_value(field: str, key: str, value: str) -> str:
    if len(key) > _MAX_KEY_LENGTH:
        raise ProviderError(
            f"Metadata keys can have up to {_MAX_KEY_LENGTH} characters.", param=field
        )
    if len(value) > _MAX_VALUE_LENGTH:
        raise ProviderError(
            f"Metadata values can have up to {_MAX_VALUE_LENGTH} characters.", param=field
        )
    return value
