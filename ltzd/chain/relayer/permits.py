"""Checks the EIP-2612 permit of a relay: its owner, its spender, and whether it is used.

Anybody may submit a permit to LTZ, so a permit may already be used when it arrives: then its
owner's nonce is higher. Every check raises ValidationFailed.
"""

from collections.abc import Sequence
from typing import Final

from ltzd.chain.relayer.decoding import DecodedCall
from ltzd.chain.relayer.signatures import is_signed_by, refuse_malformed
from ltzd.chain.typed_data import Permit
from ltzd.errors import ValidationFailed
from ltzd.rules.relayer.calls import SignedPermit
from ltzd.values import Address, checksummed

MAX_USED_NONCES_BACK: Final = 8
"""Nonces below the owner's current one at which a used permit is still recognised."""


def permit_in(call: DecodedCall, to: Address) -> SignedPermit:
    """The permit of a `permit` or `permitLTZ` call; the latter's spender is the called contract."""
    arguments, (_, signature) = call.arguments, call.signed()
    spender = arguments.get("spender", to)
    return SignedPermit(
        arguments["owner"], spender, arguments["value"], arguments["deadline"], signature
    )


def check_owner(permit: SignedPermit, user: Address) -> None:
    if permit.owner != user:
        raise ValidationFailed(
            "The permit's owner must be the authenticated user", owner=checksummed(permit.owner)
        )


def check_spender(permit: SignedPermit, allowed: Sequence[Address]) -> None:
    if permit.spender not in allowed:
        raise ValidationFailed(
            "The permit's spender is not allowed here",
            spender=checksummed(permit.spender),
            allowed=[checksummed(address) for address in allowed],
        )


def check_spent_whole(permit: SignedPermit, call: DecodedCall) -> None:
    """Require that no allowance to the operator's wallet outlives the transaction."""
    if permit.value != call.arguments["value"]:
        raise ValidationFailed(
            "The permit's value must equal the value of transferFrom",
            permitted=str(permit.value),
            moved=str(call.arguments["value"]),
        )


def signed_permit(permit: SignedPermit, nonce: int, separator: bytes) -> Permit:
    """The permit with the nonce it was signed for: `nonce`, the owner's next, or a used one."""
    refuse_malformed("The permit's signature", permit.signature)
    for signed_for in range(nonce, max(nonce - MAX_USED_NONCES_BACK, 0) - 1, -1):
        signed = Permit(permit.owner, permit.spender, permit.value, signed_for, permit.deadline)
        if is_signed_by(permit.owner, signed, permit.signature, separator):
            return signed
    raise ValidationFailed(
        "The permit's signature is not its owner's", owner=checksummed(permit.owner), nonce=nonce
    )


def check_used(permit: SignedPermit, allowance: int | None) -> None:
    """Require that a used permit still allows exactly its value.

    A larger allowance would outlive the transaction, a smaller one would not suffice.
    `allowance` is None for a permit without a call, which has nothing left to do.
    """
    if allowance != permit.value:
        raise ValidationFailed(
            "The permit has been used already", spender=checksummed(permit.spender)
        )
