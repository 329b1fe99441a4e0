"""The mirror of a lane's transactions: which bytes are due, and what they may cost together."""

from collections.abc import AsyncIterator

import pytest_asyncio

from ltzd.operator.fleet import lane_gauges
from ltzd.operator.in_flight import InFlightTransactions
from ltzd.operator.lane_work import OutcomeSink
from ltzd.operator.policy import FEES as HELD_FOR_FEES
from ltzd.rules.operator.l1_costs import L1Costs
from ltzd.rules.operator.transactions import State
from ltzd.store.database import Pool
from ltzd.store.operator.transactions import OpenTransaction, newly_signed
from tests.support.rows.core import FEES, a_lane, an_attempt

GAS = 100_000
COST_WEI = GAS * FEES.max_fee_per_gas


def signed(nonce: int) -> OpenTransaction:
    return newly_signed(nonce + 1, nonce, GAS, an_attempt(f"attempt of {nonce}"), ltz=5)


def nonces(transactions: list[OpenTransaction]) -> list[int]:
    return [tx.nonce for tx in transactions]


@pytest_asyncio.fixture
async def in_flight(pool: Pool) -> AsyncIterator[InFlightTransactions]:
    """Of three transactions, the newest added first."""
    lane = await a_lane(pool)
    in_flight = InFlightTransactions(pool, lane, OutcomeSink())
    in_flight.add(signed(2), signed(1), signed(0))
    yield in_flight
    lane_gauges.remove(lane)


async def test_the_lowest_nonces_are_published_first_and_once(
    in_flight: InFlightTransactions,
) -> None:
    assert nonces(in_flight.due(2)) == [0, 1]
    in_flight.mark_published(signed(0))
    assert nonces(in_flight.due(9)) == [1, 2]
    first = in_flight.with_id(1)
    assert first is not None
    assert first.tx.state is State.PUBLISHED
    assert in_flight.count() == 3, "its receipt is awaited"
    in_flight.wait_for_receipt(signed(1))
    assert nonces(in_flight.due(9)) == [2]
    in_flight.add_replacement(first, an_attempt("dearer"))
    assert nonces(in_flight.due(9)) == [0, 2]


async def test_bytes_that_are_settled_meanwhile_are_neither_published_nor_marked(
    in_flight: InFlightTransactions,
) -> None:
    settled = signed(7)
    in_flight.publish_again([settled])
    in_flight.mark_published(settled)
    in_flight.reject(settled, "too late")
    assert nonces(in_flight.due(9)) == [0, 1, 2]
    assert not in_flight.is_rejected(settled)
    assert in_flight.blocked_reason is None
    assert not in_flight.contains(7)


async def test_a_refused_price_holds_later_nonces_until_it_is_tried_again(
    in_flight: InFlightTransactions,
) -> None:
    in_flight.refuse_price(signed(0))
    assert nonces(in_flight.due(9)) == [1, 2]
    assert in_flight.is_refused(signed(0))
    assert in_flight.held_reason == HELD_FOR_FEES
    assert in_flight.are_lower_nonces_accepted(signed(0))
    assert not in_flight.are_lower_nonces_accepted(signed(1))
    in_flight.retry_refused([signed(0)])
    assert nonces(in_flight.due(9)) == [0, 1, 2], "at once, and not with the next repetition"
    assert not in_flight.is_refused(signed(0))
    for nonce in range(3):
        in_flight.mark_published(signed(nonce))
    assert in_flight.are_lower_nonces_accepted(signed(2))


async def test_bytes_refused_for_good_go_out_again_only_when_asked(
    in_flight: InFlightTransactions,
) -> None:
    in_flight.reject(signed(0), "a node refuses them for good")
    in_flight.publish_again([signed(0), signed(1)])
    assert nonces(in_flight.due(9)) == [1, 2]
    assert nonces(in_flight.rejected()) == [0]
    assert "a node refuses them for good" in (in_flight.blocked_reason or "")
    assert not in_flight.are_lower_nonces_accepted(signed(2))
    in_flight.retry_refused([signed(0)])
    assert nonces(in_flight.due(9)) == [0, 1, 2]
    in_flight.mark_published(signed(0))
    assert in_flight.blocked_reason is None
    assert in_flight.rejected() == []


async def test_the_answer_to_old_bytes_says_nothing_of_their_replacement(
    in_flight: InFlightTransactions,
) -> None:
    old = signed(0)
    in_flight.add_replacement(old, an_attempt("dearer"))
    for answer in (in_flight.refuse_price, in_flight.wait_for_receipt, in_flight.mark_published):
        answer(old)
    in_flight.reject(old, "refused")
    assert nonces(in_flight.due(9)) == [0, 1, 2]
    assert not in_flight.is_refused(old)
    assert not in_flight.is_rejected(old)
    assert in_flight.current(old) is None
    (newest, *_) = in_flight.oldest_first()
    assert newest.hashes == (an_attempt("dearer").hash, *old.hashes)


async def test_all_that_is_in_flight_or_being_signed_is_reserved(
    in_flight: InFlightTransactions,
) -> None:
    assert in_flight.reserved_wei() == 3 * COST_WEI
    assert in_flight.reserved_wei(beside=signed(1)) == 2 * COST_WEI
    assert in_flight.reserved_wei(beside=signed(7)) == 3 * COST_WEI
    assert (in_flight.gas(), in_flight.minted_units()) == (3 * GAS, 15 * 10**18)
    with in_flight.reserving(7):
        assert in_flight.reserved_wei() == 3 * COST_WEI + 7
    assert in_flight.reserved_wei() == 3 * COST_WEI
    in_flight.add_replacement(signed(0), an_attempt("as dear"))
    assert in_flight.reserved_wei() == 3 * COST_WEI, "one of two attempts is mined"
    assert in_flight.gas() == 3 * GAS


async def test_a_rollups_fees_for_data_and_gas_are_reserved_too(
    in_flight: InFlightTransactions,
) -> None:
    costs = L1Costs(10**9, 10**12, 0, 0, 10**6, 10**10)
    in_flight.set_l1_costs(costs)
    size = len(signed(0).raw)
    assert len({size, GAS}) == 2, "an interchange of both would show"
    assert in_flight.reserved_wei() == 3 * COST_WEI + costs.max_fee_wei(3 * size, 3 * GAS, 3)
    beside = 2 * COST_WEI + costs.max_fee_wei(2 * size, 2 * GAS, 2)
    assert in_flight.reserved_wei(beside=signed(1)) == beside
    longer = an_attempt("a dearer attempt, with longer bytes")
    in_flight.add_replacement(signed(0), longer)
    size = 2 * size + len(longer.raw)
    assert in_flight.reserved_wei() == 3 * COST_WEI + costs.max_fee_wei(size, 3 * GAS, 3)
