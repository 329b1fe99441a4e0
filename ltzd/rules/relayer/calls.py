"""The records of a relay: the request, the plan of its transaction, and its progress.

Amounts are in LTZ's smallest unit, times in Unix seconds, gas prices in wei per gas.
"""

from enum import Enum
from hashlib import sha256

import msgspec

from ltzd.values import Address, Hash32


class SignedPermit(msgspec.Struct, frozen=True):
    """An EIP-2612 permit beside the call (spec 2.7). `signature` has 65 bytes: r, s, v."""

    owner: Address
    spender: Address
    value: int
    deadline: int
    signature: bytes


class RelayRequest(msgspec.Struct, frozen=True):
    """A call that the operator is asked to send for `user`.

    `fingerprint` is the SHA-256 of the request's content: a request with the same
    `idempotency_key` and another fingerprint is refused.
    """

    to: Address
    data: bytes
    user: Address
    value: int = 0
    gas_limit: int | None = None
    permit: SignedPermit | None = None
    idempotency_key: str | None = None
    fingerprint: bytes = b""

    @property
    def call_digest(self) -> bytes:
        """`RelayPlan.digest` of the call as it was asked for."""
        return _digest(self.to, self.data)


class RequestedClaim(msgspec.Struct, frozen=True):
    """A claim from a collection.

    The claim succeeds only while exactly `expected_claims` of the user's claims are on chain, so
    it counts at most once.
    """

    collection_id: int
    expected_claims: int


class RelayPlan(msgspec.Struct, frozen=True):
    """The transaction that will be sent, with its permit, after every check of the request.

    `function` is `Contract.function` of `allowed_calls`. `wallet` is the only relay wallet that may
    send it, if the plan names one. Calls that are `serialized_per_user` spend or count something,
    so at most one of them is in flight for a user. `inner_call` (to, data) is a call inside, which
    is simulated by itself because its failure would go unnoticed: permitLTZ never reverts.
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
        """The SHA-256 of the call, which identifies duplicates among a user's relays.

        Two equal calls of one user are never both intended: every relayed function uses up a nonce,
        a count or an id that its arguments name.
        """
        return _digest(self.to, self.data)


def _digest(to: Address, data: bytes) -> bytes:
    return sha256(to + data).digest()


class RelayStatus(Enum):
    PENDING = "pending"
    CONFIRMED = "confirmed"
    """Mined, at least one block deep."""
    FINAL = "final"
    FAILED = "failed"


class RelayWindow(msgspec.Struct, frozen=True):
    """How many relays a user may still send in the current hour. `reset_at` is in Unix seconds."""

    limit: int
    remaining: int
    reset_at: float


class RelayProgress(msgspec.Struct, frozen=True):
    """How far a relay has come.

    `transaction_hash` and `sender` are None until a node has taken the transaction; a relay that
    failed without them was never sent. `block_number`, `gas_used` and `effective_gas_price` are
    None until it is mined. Only a failed relay has a `reason`. `is_cancelled`: a self-transfer with
    its nonce was mined instead of the call, which the network refused or a person cancelled.
    """

    id: int
    user: Address
    to: Address
    data: bytes
    status: RelayStatus
    transaction_hash: Hash32 | None = None
    sender: Address | None = None
    block_number: int | None = None
    gas_used: int | None = None
    effective_gas_price: int | None = None
    reason: str | None = None
    is_cancelled: bool = False
