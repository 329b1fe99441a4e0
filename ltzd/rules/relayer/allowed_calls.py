"""What may be relayed, and who must be the authenticated user. All else is refused.

The operator is the sender of all it relays, so that a whitelist of contracts would not do: what
acts for its caller (`transfer`, `approve`, `claim`, `lock`, `release`) would act for the operator.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

MAX_GAS_LIMIT: Final = 1_000_000
"""Of a relayed transaction (spec 8)."""


class DealParty(Enum):
    """Of a deal in BusinessEscrow, which its id stands for."""

    USER = "the deal's user"
    BUSINESS = "the deal's business"


class CallRole(Enum):
    CALL = "call"
    """Alone, or behind a permit."""
    PERMIT = "permit"
    """Alone, or before a call."""
    SPENDING = "spending"
    """In the transaction of the permit that allows it, whose value it uses up."""


@dataclass(frozen=True, slots=True)
class AllowedCall:
    """`principal` is the argument that must be the user, or his part in the deal.

    `signs` is the EIP-712 type of the message whose signature ends the arguments: it must be the
    user's. A permit's is checked against its nonce, which only the chain knows.
    """

    contract: str
    function: str
    principal: str | DealParty
    part: CallRole = CallRole.CALL
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
    return [row.function for row in ALLOWED_CALLS if row.contract == contract]
