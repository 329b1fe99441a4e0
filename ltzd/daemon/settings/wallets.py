"""The operator's wallets in the settings, and where the key of each wallet is.

A signer is described by the same keys in the settings and in the row of a wallet that `ltzd wallet
add` has added. The keys that are given tell its kind.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, Self

from pydantic import ValidationError, model_validator

from ltzd.daemon.settings.section import Section
from ltzd.daemon.settings.value_types import SecretFile
from ltzd.errors import Misconfigured
from ltzd.rules.brands.toml_documents import dotted, reason_of

WalletKind = Literal["mint", "relay"]


class SignerSettings(Section):
    """Where a wallet's key is: exactly one of the kinds of signers."""

    key_file: SecretFile | None = None
    password_file: SecretFile | None = None
    """For a keystore."""

    @model_validator(mode="after")
    def _has_one_signer(self) -> Self:
        if self.key_file is None:
            raise ValueError("give key_file, the file with the wallet's key")
        return self

    def reference(self) -> dict[str, Any]:
        """The row's form of these settings; it holds no secret. `signer_of` reads it again."""
        return self.model_dump(
            mode="json", include=set(SignerSettings.model_fields), exclude_none=True
        )


class WalletSettings(SignerSettings):
    """A section of `[[operator.wallets]]`."""

    kind: WalletKind


@dataclass(frozen=True, slots=True)
class NamedWallet:
    """A wallet that the settings name. `place` is the setting's name, for messages."""

    place: str
    kind: WalletKind
    signer: SignerSettings


def signer_of(reference: Mapping[str, Any]) -> SignerSettings:
    """Read a wallet's row. Raises Misconfigured if this process cannot use the signer."""
    try:
        return SignerSettings.model_validate(reference)
    except ValidationError as error:
        faults = (
            f"{dotted(fault['loc'])}: {reason_of(fault)}" if fault["loc"] else reason_of(fault)
            for fault in error.errors(include_url=False, include_input=False)
        )
        raise Misconfigured(f"The signer cannot be used: {'; '.join(faults)}.") from None
