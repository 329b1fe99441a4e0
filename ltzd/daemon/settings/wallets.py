"""The operator's wallets in the settings, and where the key of each wallet is.

A signer is described by the same keys in the settings and in the row of a wallet that `ltzd wallet
add` has added. The keys that are given tell its kind.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import msgspec
from pydantic import AfterValidator, Field, ValidationError, model_validator

from ltzd.daemon.settings.section import Section
from ltzd.daemon.settings.value_types import ReadableFile, SecretFile, SignerUrl
from ltzd.errors import Misconfigured
from ltzd.providers.signers.web3signer import parse_public_key
from ltzd.rules.brands.toml_documents import dotted, reason_of

WalletKind = Literal["mint", "relay"]


_REGION = r"^[a-z]{2,}(-[a-z]+)+-[0-9]+$"


def _public_key(text: str) -> str:
    return "0x" + parse_public_key(text).hex()


class KmsSettings(Section):
    """A key of AWS KMS, of the type ECC_SECG_P256K1; botocore finds the credentials."""

    key_id: Annotated[str, Field(min_length=1, max_length=2048, pattern=r"^[!-~]+$")]
    """The key's id, its ARN or an alias."""
    region: Annotated[str, Field(pattern=_REGION)]
    endpoint: SignerUrl | None = None
    """Replaces the region's public endpoint, such as a VPC's own."""

    @model_validator(mode="after")
    def _has_one_region(self) -> Self:
        parts = self.key_id.split(":")
        if parts[0] == "arn" and len(parts) > 3 and parts[3] != self.region:
            raise ValueError("key_id is the ARN of a key in another region than region")
        return self


class Web3SignerSettings(Section):
    """A web3signer in its eth1 mode."""

    url: SignerUrl
    public_key: Annotated[str, AfterValidator(_public_key)] | None = None
    """The wallet's, in hex; needed if the signer has several keys."""
    ca_file: ReadableFile | None = None
    """The authority of the signer's certificate, instead of the machine's authorities."""
    certificate_file: ReadableFile | None = None
    certificate_key_file: SecretFile | None = None
    """The certificate by which the signer knows ltzd, and its key."""

    @model_validator(mode="after")
    def _has_certificate_and_key(self) -> Self:
        if (self.certificate_file is None) != (self.certificate_key_file is None):
            raise ValueError("give both certificate_file and certificate_key_file")
        return self


class SignerSettings(Section):
    """Where a wallet's key is: exactly one of the kinds of signers."""

    key_file: SecretFile | None = None
    password_file: SecretFile | None = None
    """For a keystore."""
    kms: KmsSettings | None = None
    web3signer: Web3SignerSettings | None = None

    @model_validator(mode="after")
    def _has_one_signer(self) -> Self:
        kinds = (self.key_file, self.kms, self.web3signer)
        if sum(kind is not None for kind in kinds) != 1:
            raise ValueError(
                "give one of key_file (the file with the wallet's key), kms and web3signer"
            )
        if self.password_file is not None and self.key_file is None:
            raise ValueError("password_file is for the keystore that key_file names")
        return self

    def reference(self) -> dict[str, Any]:
        """The row's form of these settings; it holds no secret. `signer_of` reads it again."""
        return self.model_dump(
            mode="json", include=set(SignerSettings.model_fields), exclude_none=True
        )


class WalletSettings(SignerSettings):
    """A section of `[[operator.wallets]]`."""

    kind: WalletKind


class TreasurySettings(SignerSettings):
    """The wallet that fills the others when their balance is below its floor."""

    top_up_wei: Annotated[int, Field(ge=1)]
    """The amount of each top-up."""
    max_wei_per_day: Annotated[int, Field(ge=1)]
    """The most that all top-ups of a UTC day may send together."""

    @model_validator(mode="after")
    def _can_send_one(self) -> Self:
        if self.max_wei_per_day < self.top_up_wei:
            raise ValueError("max_wei_per_day is below top_up_wei, so that no top-up could be sent")
        return self


class NamedWallet(msgspec.Struct, frozen=True):
    """A wallet that the settings name. `setting` is the setting's name, for messages."""

    setting: str
    kind: WalletKind | Literal["treasury"]
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
