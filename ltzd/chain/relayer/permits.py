"""EIP-2612 permits of a relay: whose they are, whom they allow, whether they are used up.

Anybody may hand a permit to LTZ, so that one may arrive used: its owner's nonce is further then.
Every check raises ValidationFailed.
"""

from collections.abc import Sequence
from typing import Final

from ltzd.chain.relayer.decoding import DecodedCall
from ltzd.chain.relayer.signatures import is_signed_by
from ltzd.chain.typed_data import Permit
from ltzd.errors import ValidationFailed
from ltzd.rules.relayer.calls import SignedPermit
from ltzd.values import Address, checksummed

MAX_USED_NONCES_BACK: Final = 8
"""How many permits back a used one is still recognised."""


def permit_in(call: DecodedCall, to: Address) -> SignedPermit:
    """Of a `permit` or a `permitLTZ`; the latter's spender is the contract called."""
    said, (_, signature) = call.arguments, call.signed()
    spender = said.get("spender", to)
    return SignedPermit(said["owner"], spender, said["value"], said["deadline"], signature)


def check_owner(permit: SignedPermit, user: Address) -> None:
    if permit.owner != user:
        raise ValidationFailed(
            "The permit's owner must be the authenticated user", owner=checksummed(permit.owner)
        )


def check_spender(permit: SignedPermit, allowed: Sequence[Address]) -> None:
    if permit.spender not in allowed:
        raise ValidationFailed(
            "This spender may not be permitted here",
            spender=checksummed(permit.spender),
            allowed=[checksummed(one) for one in allowed],
        )


def check_spent_whole(permit: SignedPermit, call: DecodedCall) -> None:
    """No allowance to a wallet of the operator's outlives the transaction."""
    if permit.value != call.arguments["value"]:
        raise ValidationFailed(
            "The permit's value must be what transferFrom moves",
            permitted=str(permit.value),
            moved=str(call.arguments["value"]),
        )


def signed_permit(permit: SignedPermit, nonce: int, separator: bytes) -> Permit:
    """The permit with the nonce it was signed for: `nonce`, the owner's next, or a used one."""
    for signed_for in range(nonce, max(nonce - MAX_USED_NONCES_BACK, 0) - 1, -1):
        signed = Permit(permit.owner, permit.spender, permit.value, signed_for, permit.deadline)
        if is_signed_by(permit.owner, signed, permit.signature, separator):
            return signed
    raise ValidationFailed(
        "The permit's signature is not its owner's", owner=checksummed(permit.owner), nonce=nonce
    )


def check_used(permit: SignedPermit, allowance: int | None) -> None:
    """Whether a used permit still allows what it says: more would outlive the transaction, less
    would not do. `allowance` is None for a permit alone, which has nothing left to do."""
    if allowance != permit.value:
        raise ValidationFailed(
            "The permit has been used already", spender=checksummed(permit.spender)
        )
