"""What may be relayed, and who must be the authenticated user. All else is refused.

The operator is the sender of all it relays, so that a whitelist of contracts would not do: what
acts for its caller (`transfer`, `approve`, `claim`, `lock`, `release`) would act for the operator.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

MAX_GAS_LIMIT: Final = 1_000_000
"""Of a relayed transaction (spec 8)."""


class Party(Enum):
    """Of a deal in BusinessEscrow, which its id stands for."""

    USER = "the deal's user"
    BUSINESS = "the deal's business"


class Part(Enum):
    CALL = "call"
    """Alone, or behind a permit."""
    PERMIT = "permit"
    """Alone, or before a call."""
    SPENDING = "spending"
    """In the transaction of the permit that allows it, whose value it uses up."""


@dataclass(frozen=True, slots=True)
class Row:
    """`principal` is the argument that must be the user, or his part in the deal.

    `signs` is the EIP-712 type of the message whose signature ends the arguments: it must be the
    user's. A permit's is checked against its nonce, which only the chain knows.
    """

    contract: str
    function: str
    principal: str | Party
    part: Part = Part.CALL
    signs: str | None = None
    takes_turns: bool = False

    @property
    def name(self) -> str:
        return f"{self.contract}.{self.function}"


TABLE: Final = (
    Row("PerkNFT", "claimFor", "user", takes_turns=True),
    Row("PerkNFT", "claimWithSig", "user", signs="Claim", takes_turns=True),
    Row("PerkNFT", "permitLTZ", "owner", Part.PERMIT),
    Row("PointsSale", "buyFor", "buyer", takes_turns=True),
    Row("PointsSale", "buyWithSig", "buyer", signs="Buy", takes_turns=True),
    Row("PointsSale", "permitLTZ", "owner", Part.PERMIT),
    Row("BusinessEscrow", "lockFor", "user"),
    Row("BusinessEscrow", "releaseWithSig", Party.USER, signs="Release"),
    Row("BusinessEscrow", "refundWithSig", Party.BUSINESS, signs="Refund"),
    Row("BusinessEscrow", "reclaim", Party.USER),
    Row("BusinessEscrow", "permitLTZ", "owner", Part.PERMIT),
    Row("LTZ", "permit", "owner", Part.PERMIT),
    Row("LTZ", "transferWithAuthorization", "from", signs="TransferWithAuthorization"),
    Row("LTZ", "transferFrom", "from", Part.SPENDING),
)


def functions_of(contract: str) -> list[str]:
    return [row.function for row in TABLE if row.contract == contract]
