"""The contract functions that may be relayed, and which argument must be the authenticated user.

Every other function is refused. A whitelist of contracts would not be enough: the operator is the
sender of every relayed transaction, so a function that acts for its caller (`transfer`, `approve`,
`claim`, `lock`, `release`) would act for the operator.
"""

from enum import Enum
from typing import Final

import msgspec

MAX_GAS_LIMIT: Final = 1_000_000
"""The most gas that a relayed transaction may have (spec 8)."""


class DealParty(Enum):
    """A party of the BusinessEscrow deal that the call names by its id."""

    USER = "the deal's user"
    BUSINESS = "the deal's business"


class CallRole(Enum):
    """Where a function may stand in a relayed transaction."""

    CALL = "call"
    """Alone, or after a permit."""
    PERMIT = "permit"
    """Alone, or before a call."""
    SPENDING = "spending"
    """Only after the permit that allows it, and for that permit's whole value."""


class AllowedCall(msgspec.Struct, frozen=True):
    """A function that may be relayed.

    `principal` is the argument that must be the user, or the party of the deal that the user must
    be. `signs` is the EIP-712 type of the message whose signature is the last argument; the user
    must have signed it. A permit's signature is checked later, since only the chain knows its
    nonce.
    """

    contract: str
    function: str
    principal: str | DealParty
    role: CallRole = CallRole.CALL
    signs: str | None = None
    serialized_per_user: bool = False

    @property
    def name(self) -> str:
        return f"{self.contract}.{self.function}"


ALLOWED_CALLS: Final = (
    AllowedCall("PerkNFT", "claimFor", "user", serialized_per_user=True),
    AllowedCall("PerkNFT", "claimWithSig", "user", signs="Claim", serialized_per_user=True),
    AllowedCall("PerkNFT", "permitLTZ", "owner", CallRole.PERMIT),
    AllowedCall("PointsSale", "buyFor", "buyer", serialized_per_user=True),
    AllowedCall("PointsSale", "buyWithSig", "buyer", signs="Buy", serialized_per_user=True),
    AllowedCall("PointsSale", "permitLTZ", "owner", CallRole.PERMIT),
    AllowedCall("BusinessEscrow", "lockFor", "user"),
    AllowedCall("BusinessEscrow", "releaseWithSig", DealParty.USER, signs="Release"),
    AllowedCall("BusinessEscrow", "refundWithSig", DealParty.BUSINESS, signs="Refund"),
    AllowedCall("BusinessEscrow", "reclaim", DealParty.USER),
    AllowedCall("BusinessEscrow", "permitLTZ", "owner", CallRole.PERMIT),
    AllowedCall("LTZ", "permit", "owner", CallRole.PERMIT),
    AllowedCall("LTZ", "transferWithAuthorization", "from", signs="TransferWithAuthorization"),
    AllowedCall("LTZ", "transferFrom", "from", CallRole.SPENDING),
)


def functions_of(contract: str) -> list[str]:
    return [call.function for call in ALLOWED_CALLS if call.contract == contract]
