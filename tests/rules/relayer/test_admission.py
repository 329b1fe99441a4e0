"""A relay is decided anew on its user's rows once more: others may have been written meanwhile."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from ltzd.errors import ClaimLimitReached, IdempotencyKeyReused, RateLimited, Refused
from ltzd.rules.relayer.admission import Admitted, Conflict, NewRelay, SimulatedOn, decide
from ltzd.rules.relayer.calls import RequestedClaim
from ltzd.rules.relayer.gas_budgets import GasBudgets, GasLedger, GasSpent
from ltzd.rules.relayer.limits import ClaimLimit, EarlierRelay, RelayUsage
from tests.support.relays.lanes import a_plan, a_relay

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def usage(*in_flight: int, version: int) -> RelayUsage:
    return RelayUsage(
        now=NOW,
        window_start=None,
        used=0,
        earlier=None,
        has_serialized_in_flight=False,
        last_serialized_id=None,
        claims=(),
        calls_in_flight={id_.to_bytes(32, "big"): id_ for id_ in in_flight},
        version=version,
    )


def simulated(*in_flight: int, version: int) -> NewRelay:
    known = SimulatedOn(version, frozenset(in_flight))
    return replace(a_relay(a_plan()), simulated=known)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ((), ()),  # nothing was written
        ((), (8,)),  # another relay is in flight
        ((7,), (7, 8)),
        ((7,), (8,)),  # the simulation knew of relay 7
        ((7,), ()),
    ],
)
def test_a_relay_is_admitted_while_later_ones_are_in_flight(
    before: tuple[int, ...], after: tuple[int, ...]
) -> None:
    relay = simulated(*before, version=3)
    written = len(set(after) - set(before))
    assert decide(relay, usage(*after, version=3 + written), None) is None


@pytest.mark.parametrize("after", [(), (7,), (7, 9)])
def test_a_relay_is_decided_again_if_a_later_one_has_settled(after: tuple[int, ...]) -> None:
    """Relay 8 was written and mined since: it may be the same call."""
    relay = simulated(7, version=3)
    written = len(set(after) - {7}) + 1
    assert decide(relay, usage(*after, version=3 + written), None) == Conflict()


# --- in the order of the checks ---------------------------------------------------------------

FREE = usage(version=3)
FULL = replace(FREE, used=35, window_start=NOW)
CALL = a_relay(a_plan())
FAILURE = a_relay(a_plan(), failure="ClaimsPaused()")
CLAIM = replace(
    a_relay(a_plan(claim=(7, 0))), claim_limit=ClaimLimit(RequestedClaim(7, 0), on_chain=0, most=1)
)
SAME_CLAIM = (RequestedClaim(7, 0),)


def a_ledger(wei: int) -> GasLedger:
    return GasLedger(GasBudgets(total_wei=wei), GasSpent(NOW, {}, 0))


@pytest.mark.parametrize("relay", [CALL, FAILURE, CLAIM])
def test_a_relay_with_room_in_every_limit_is_inserted(relay: NewRelay) -> None:
    assert decide(relay, FREE, a_ledger(relay.max_cost_wei)) is None


@pytest.mark.parametrize("relay", [CALL, FAILURE, CLAIM])
def test_a_key_joins_its_first_relay_whatever_the_limits_are_by_then(relay: NewRelay) -> None:
    known = replace(FULL, earlier=EarlierRelay(5, relay.fingerprint), claims=SAME_CLAIM)
    assert decide(relay, known, a_ledger(1)) == Admitted(5, FULL.window(), is_new=False)
    with pytest.raises(IdempotencyKeyReused):
        decide(replace(relay, fingerprint=b"another"), known, None)


def test_a_failure_counts_in_no_limit() -> None:
    failure = replace(FAILURE, claim_limit=CLAIM.claim_limit, simulated=SimulatedOn(1, frozenset()))
    busy = replace(FULL, claims=SAME_CLAIM, calls_in_flight={failure.plan.digest: 8})
    assert decide(failure, busy, a_ledger(1)) is None


@pytest.mark.parametrize(
    ("relay", "known", "refusal"),
    [
        (CALL, FULL, RateLimited),
        (CLAIM, replace(FULL, claims=SAME_CLAIM), RateLimited),
        (CLAIM, replace(FREE, claims=SAME_CLAIM, has_serialized_in_flight=True), ClaimLimitReached),
    ],
)
def test_a_relay_beyond_a_limit_is_refused(
    relay: NewRelay, known: RelayUsage, refusal: type[Refused]
) -> None:
    with pytest.raises(refusal):
        decide(relay, known, None)


@pytest.mark.parametrize(
    ("relay", "known", "conflict"),
    [
        (CLAIM, replace(FREE, has_serialized_in_flight=True), Conflict()),
        (CLAIM, replace(FREE, last_serialized_id=6), Conflict()),
        (CALL, replace(FREE, calls_in_flight={CALL.plan.digest: 8}), Conflict(8)),
    ],
)
def test_a_relay_that_others_have_overtaken_is_decided_again_and_costs_nothing(
    relay: NewRelay, known: RelayUsage, conflict: Conflict
) -> None:
    ledger = a_ledger(relay.max_cost_wei)
    assert decide(relay, known, ledger) == conflict
    ledger.admit(None, relay.max_cost_wei)


def test_a_call_without_an_order_waits_for_no_serialized_one() -> None:
    assert decide(CALL, replace(FREE, has_serialized_in_flight=True), None) is None
    assert decide(CALL, replace(FREE, last_serialized_id=6), None) is None
    seen = replace(CLAIM, last_serialized_id=6)
    assert decide(seen, replace(FREE, last_serialized_id=6), None) is None


def test_an_inserted_relay_counts_in_the_budget() -> None:
    ledger = a_ledger(2 * CALL.max_cost_wei - 1)
    assert decide(CALL, FREE, ledger) is None
    with pytest.raises(Refused):
        decide(CALL, FREE, ledger)
