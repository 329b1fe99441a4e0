"""Checks that the user signed the EIP-712 message of a call."""

from collections.abc import Callable, Mapping
from typing import Final

from ltzd.chain.relayer.decoding import DecodedCall
from ltzd.chain.typed_data import (
    Buy,
    Claim,
    Refund,
    Release,
    TransferWithAuthorization,
    TypedMessage,
    check_form,
    digest,
    recover,
)
from ltzd.errors import ValidationFailed
from ltzd.values import Address, checksummed

MESSAGES: Final[Mapping[str, Callable[..., TypedMessage]]] = {
    message.__name__: message
    for message in (Claim, Buy, Release, Refund, TransferWithAuthorization)
}
"""By EIP-712 type. The fields are the function's arguments before the signature, in order."""


def check_signature(call: DecodedCall, message: str, user: Address, separator: bytes) -> None:
    """Raises ValidationFailed."""
    fields, signature = call.signed()
    refuse_malformed(f"The signature of {call.row.name}", signature)
    if not is_signed_by(user, MESSAGES[message](*fields), signature, separator):
        raise ValidationFailed(
            f"The signature of {call.row.name} is not the authenticated user's",
            contract=call.row.contract,
            function=call.row.function,
            userAddress=checksummed(user),
        )


def refuse_malformed(name: str, signature: bytes) -> None:
    """Raises ValidationFailed with the fault of a signature that no contract accepts, since some
    wallets write a v of 0 or 1: the caller shall not look for another signer.
    """
    try:
        check_form(signature)
    except ValueError as error:
        raise ValidationFailed(f"{name} is malformed: {error}") from error


def is_signed_by(
    signer: Address, message: TypedMessage, signature: bytes, separator: bytes
) -> bool:
    try:
        return recover(digest(message, separator), signature) == signer
    except ValueError:
        return False
