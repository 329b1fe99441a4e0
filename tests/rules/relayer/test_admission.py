"""A relay that was simulated before another of its user's had settled is simulated again."""

from datetime import UTC, datetime

import pytest
from msgspec.structs import replace

from ltzd.rules.relayer.admission import Conflict, NewRelay, SimulatedOn, decide
from ltzd.rules.relayer.limits import RelayUsage
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
