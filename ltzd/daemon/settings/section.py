"""The base class of every section of the settings, and how secrets are read."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, SecretStr

from ltzd.errors import Misconfigured
from ltzd.secret_files import read_secret_text


class Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

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
