"""Slots: a few for each brand, a bound for all; the brand with the fewest in flight is first."""

from datetime import UTC, datetime, timedelta

import pytest

from ltzd.deliveries.endpoints import EndpointSlots
from ltzd.values import Address
from tests.support.rows.core import a_wallet

NOW = datetime(2025, 3, 1, tzinfo=UTC)
QUICK, SLOW = timedelta(milliseconds=50), timedelta(seconds=5)
ONE, TWO, THREE = (a_wallet(number) for number in (1, 2, 3))


def begun(endpoints: EndpointSlots, brand: Address, number: int) -> None:
    for _ in range(number):
        endpoints.begin(brand)


def test_a_brand_without_waiting_webhooks_gets_no_slots() -> None:
    endpoints = EndpointSlots(1_000, 100)
    assert endpoints.free(NOW) == {}

    endpoints.add_due([ONE])
    assert endpoints.free(NOW) == {ONE: 4}


def test_a_brand_that_filled_fewer_slots_than_offered_gets_none_until_more_webhooks_are_found() -> (
    None
):
    endpoints = EndpointSlots(1_000, 100)
    endpoints.add_due([ONE, TWO])

    endpoints.note_claimed({ONE: 4, TWO: 4}, {ONE: 4, TWO: 3})

    assert endpoints.free(NOW) == {ONE: 4}
    endpoints.add_due([TWO])
    assert set(endpoints.free(NOW)) == {ONE, TWO}


def test_all_brands_together_get_at_most_the_bound() -> None:
    endpoints = EndpointSlots(6, 100)
    endpoints.add_due([ONE, TWO, THREE])
    assert sum(endpoints.free(NOW).values()) == 6

    begun(endpoints, ONE, 4)
    begun(endpoints, TWO, 1)
    assert sum(endpoints.free(NOW).values()) == 1

    begun(endpoints, TWO, 1)
    assert endpoints.free(NOW) == {}
    assert endpoints.in_flight == 6


def test_few_slots_are_given_at_once_and_the_brand_with_the_fewest_is_first() -> None:
    endpoints = EndpointSlots(1_000, 3)
    endpoints.add_due([ONE, TWO])
    begun(endpoints, ONE, 2)

    assert endpoints.free(NOW) == {TWO: 3}
    begun(endpoints, TWO, 3)
    assert endpoints.free(NOW) == {ONE: 2, TWO: 1}


@pytest.mark.parametrize(("most", "is_of_use"), [(4, True), (5, False)])
def test_a_free_slot_is_useful_to_others_if_the_bound_kept_them_waiting(
    most: int, is_of_use: bool
) -> None:
    endpoints = EndpointSlots(most, 100)
    begun(endpoints, ONE, 4)

    assert endpoints.end(ONE) == is_of_use


def test_a_free_slot_is_useful_to_a_brand_that_may_have_more() -> None:
    endpoints = EndpointSlots(1_000, 100)
    endpoints.add_due([ONE])
    begun(endpoints, ONE, 4)
    begun(endpoints, TWO, 1)

    assert endpoints.end(ONE)
    assert not endpoints.end(TWO)


def test_failures_and_rests_affect_one_brand_only() -> None:
    endpoints = EndpointSlots(1_000, 100)
    endpoints.add_due([ONE, TWO, THREE])
    minute = timedelta(minutes=1)

    endpoints.failed(ONE, 500, None, NOW)
    endpoints.failed(TWO, 429, minute, NOW)
    assert endpoints.free(NOW) == {ONE: 1, THREE: 4}
    assert endpoints.free(NOW + minute) == {ONE: 1, TWO: 1, THREE: 4}

    endpoints.succeeded(ONE, SLOW)
    endpoints.succeeded(ONE, SLOW)
    assert endpoints.free(NOW) == {ONE: 4, THREE: 4}


def answered(endpoints: EndpointSlots, brand: Address, number: int) -> None:
    for _ in range(number):
        endpoints.succeeded(brand, QUICK)


def test_an_endpoint_that_answers_quickly_has_more_slots_until_nothing_is_left() -> None:
    endpoints = EndpointSlots(1_000, 100)
    endpoints.add_due([ONE, TWO])
    begun(endpoints, ONE, 1)
    answered(endpoints, ONE, 10)
    assert endpoints.free(NOW) == {TWO: 4, ONE: 13}

    endpoints.end(ONE)
    assert endpoints.free(NOW) == {ONE: 14, TWO: 4}

    begun(endpoints, ONE, 1)
    endpoints.note_claimed({ONE: 14}, {ONE: 1})
    endpoints.end(ONE)
    endpoints.add_due([ONE])
    assert endpoints.free(NOW) == {ONE: 4, TWO: 4}


def test_quick_endpoints_leave_half_of_all_slots_to_the_few_of_each_brand() -> None:
    endpoints = EndpointSlots(20, 100)
    endpoints.add_due([ONE])
    begun(endpoints, ONE, 6)
    answered(endpoints, ONE, 40)
    assert endpoints.free(NOW) == {ONE: 4}, "ten are half of all"

    begun(endpoints, ONE, 4)
    assert endpoints.free(NOW) == {}
    endpoints.add_due([TWO, THREE])
    assert endpoints.free(NOW) == {TWO: 4, THREE: 4}
