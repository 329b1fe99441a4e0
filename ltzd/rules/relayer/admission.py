"""Whether a simulated relay may still be written, decided on one version of its user's rows.

The checks that ran before the simulation are repeated here: another request of the same user may
have been written meanwhile. The write that follows compares the version.
"""

from datetime import datetime

import msgspec

from ltzd.rules.relayer.calls import RelayPlan, RelayWindow
from ltzd.rules.relayer.gas_budgets import GasLedger
from ltzd.rules.relayer.limits import ClaimLimit, RelayUsage, check_claims, check_hour, check_key


class SimulatedOn(msgspec.Struct, frozen=True):
    """The version of a user's rows before a simulation, and the relays in flight then."""

    version: int
    in_flight: frozenset[int]

    @classmethod
    def of(cls, usage: RelayUsage) -> "SimulatedOn":
        return cls(usage.version, frozenset(usage.calls_in_flight.values()))

    def has_settled_since(self, usage: RelayUsage) -> bool:
        """Whether the relays that were written since are not all in flight.

        A relay that is mined may have changed what the simulation saw: it may be the same call.
        """
        new = set(usage.calls_in_flight.values()) - self.in_flight
        return usage.version - self.version > len(new)


class NewRelay(msgspec.Struct, frozen=True):
    """A simulated relay to be written.

    `failure` is the reason for which the call would revert: the relay is then written for its
    idempotency key alone, in the state FAILED, and counts in no window (`window_start` is None).
    `identity` is the subject whose gas budget it counts in. `last_serialized_id` is the newest
    serialized relay of the user that the simulation knew of. `version` is that of the user's rows
    on which the relay was decided, `simulated` is what the simulation knew of them, if anything.
    """

    plan: RelayPlan
    gas_limit: int
    max_cost_wei: int
    idempotency_key: str | None
    fingerprint: bytes
    claim_limit: ClaimLimit | None = None
    last_serialized_id: int | None = None
    window_start: datetime | None = None
    failure: str | None = None
    identity: str | None = None
    version: int = 0
    simulated: SimulatedOn | None = None


class Admitted(msgspec.Struct, frozen=True):
    """The relay's row. `is_new` is False if an earlier request with the same key wrote it."""

    id: int
    window: RelayWindow
    is_new: bool


class Conflict(msgspec.Struct, frozen=True):
    """Another relay of the same user was written since the simulation: decide again.

    `duplicate_id` is a relay in flight that is the same call; it is to be awaited first.
    """

    duplicate_id: int | None = None


Admission = Admitted | Conflict


def decide(relay: NewRelay, usage: RelayUsage, ledger: GasLedger | None) -> Admission | None:
    """Return None if the relay is to be inserted; `ledger` has counted it then.

    Raises RateLimited, ClaimLimitReached, IdempotencyKeyReused, and ValidationFailed when the total
    gas budget is spent.
    """
    check_key(usage, relay.fingerprint)
    if usage.earlier is not None:
        return Admitted(usage.earlier.id, usage.window(), is_new=False)
    if relay.failure is not None:
        return None
    check_hour(usage)
    if relay.claim_limit is not None:
        check_claims(usage, relay.claim_limit)
    if relay.plan.serialized_per_user and (
        usage.has_serialized_in_flight or usage.last_serialized_id != relay.last_serialized_id
    ):
        return Conflict()
    if relay.simulated is not None and relay.simulated.has_settled_since(usage):
        return Conflict()
    duplicate_id = usage.calls_in_flight.get(relay.plan.digest)
    if duplicate_id is not None:
        return Conflict(duplicate_id)
    if ledger is not None:
        ledger.admit(relay.identity, relay.max_cost_wei)
    return None
