"""What a user asks the operator to send for him, and what becomes of it: values, no decisions.

Amounts are LTZ's smallest unit; times Unix seconds; gas in gas.
"""

from dataclasses import dataclass
from enum import Enum
from hashlib import sha256

from ltzd.values import Address, Hash32


@dataclass(frozen=True, slots=True)
class SignedPermit:
    """An EIP-2612 permit beside the call (spec 2.7). `signature` has 65 bytes: r, s, v."""

    owner: Address
    spender: Address
    value: int
    deadline: int
    signature: bytes


@dataclass(frozen=True, slots=True)
class RelayAsk:
    """A call that `user`, who has shown a token, would like the operator to send."""

    to: Address
    data: bytes
    user: Address
    value: int = 0
    gas_limit: int | None = None
    permit: SignedPermit | None = None


@dataclass(frozen=True, slots=True)
class RequestedClaim:
    """A claim counts once `expected_claims` of the user's claims are on chain, and never again."""

    collection_id: int
    expected_claims: int


@dataclass(frozen=True, slots=True)
class RelayPlan:
    """What will be sent: checked whole, permit included.

    `function` is `Contract.function`, from a closed set. `wallet` is the only one that may send it,
    where one is named. Turns are taken by what spends or counts, one of a user at a time.
    `swallows` is a call (to, data) inside whose failure would go unnoticed: permitLTZ never
    reverts.
    """

    to: Address
    data: bytes
    user: Address
    function: str
    serialized_per_user: bool
    wallet: Address | None = None
    claim: RequestedClaim | None = None
    inner_call: tuple[Address, bytes] | None = None

    @property
    def digest(self) -> bytes:
        """Of what is called. The same call of the same user is never meant twice: every function
        of the table names a nonce, a count or an id that it uses up."""
        return sha256(self.to + self.data).digest()


class RelayStatus(Enum):
    PENDING = "pending"
    CONFIRMED = "confirmed"
    """Mined, one block deep at least."""
    FINAL = "final"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RelayWindow:
    """How many relays a user may still have in the hour. `reset_at` is in Unix seconds."""

    limit: int
    remaining: int
    reset_at: float


@dataclass(frozen=True, slots=True)
class Relayed:
    """How far a relay has come. What follows the status is None until it is mined.

    `reason` is told of a failure alone. Prices are in wei per gas. `is_cancelled`: the network
    refused the call, and a self-transfer with its nonce is mined.
    """

    transaction_hash: Hash32
    sender: Address
    to: Address
    status: RelayStatus
    block_number: int | None = None
    gas_used: int | None = None
    effective_gas_price: int | None = None
    reason: str | None = None
    is_cancelled: bool = False
