"""The base class of every section of the settings, and how secrets are read."""

from decimal import Decimal
from pathlib import Path
from typing import Final, get_args

from pydantic import BaseModel, ConfigDict, SecretStr, ValidationInfo, field_validator

from ltzd.errors import Misconfigured
from ltzd.secret_files import read_secret_text

_NUMBERS: Final = frozenset({int, float, Decimal})


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    @field_validator("*", mode="before")
    @classmethod
    def _refuse_a_flag_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        """pydantic would take `true` as 1."""
        assert info.field_name is not None
        kind = cls.model_fields[info.field_name].annotation
        if isinstance(value, bool) and not _NUMBERS.isdisjoint((kind, *get_args(kind))):
            raise ValueError("must be a number, not true or false")
        return value

    def require_exactly_one(self, *names: str) -> None:
        """Raises ValueError unless each secret is given once, itself or as its file."""
        for name in names:
            if (getattr(self, name) is None) == (getattr(self, f"{name}_file") is None):
                raise ValueError(f"give either {name} or {name}_file")


def resolve_secret(secret: SecretStr | None, file: Path | None) -> SecretStr:
    """The secret itself or the file's content; the section's validator requires exactly one."""
    if secret is not None:
        return secret
    assert file is not None
    return secret_from_file(file)


def secret_from_file(path: Path) -> SecretStr:
    """The text of a secret's file. Raises Misconfigured if others can read it or it is empty."""
    text = read_secret_text(path)
    if not text:
        raise Misconfigured(f"The secret file {path} is empty.")
    return SecretStr(text)
