"""Checkout sessions that are minted, the provider's events, and each reversal counted once."""

import json
import random
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ltzd.errors import InvalidFields, PaymentRefused
from ltzd.rules.payments.provider_events import (
    PaymentDispute,
    PaymentRefund,
    ProviderNotice,
    RefundedCharge,
    RefundFailed,
    SessionPaid,
    Unrelated,
    parse_event,
)
from ltzd.rules.payments.reversals import reversal_of
from ltzd.rules.payments.sessions import (
    MOST_CENTS,
    NO_BRAND,
    CheckoutOrder,
    CheckoutSession,
    Payment,
    dollars_text,
    payment_of,
    refuse_over_capacity,
)
from ltzd.values import Address, address_of
from tests.support.services.payment_provider import (
    WALLET_TEXT,
    a_dispute,
    a_failed_refund,
    a_refund,
    a_refunded_charge,
    a_session_event,
    an_event,
    metadata,
)

BRAND_TEXT = "0x" + "ab" * 20
WALLET = address_of(WALLET_TEXT)


def a_session(fields: Mapping[str, str] | None = None, **changes: Any) -> CheckoutSession:
    session = CheckoutSession(
        id="cs_test_1",
        mode="payment",
        status="complete",
        payment_status="paid",
        currency="usd",
        amount_total=500,
        payment_intent_id="pi_1",
        refunded_cents=0,
        metadata=metadata() if fields is None else fields,
    )
    return replace(session, **changes)


def refusal_of(session: CheckoutSession) -> tuple[object, str]:
    with pytest.raises(PaymentRefused) as refused:
        payment_of(session)
    return refused.value.details["reason"], refused.value.message


def test_a_paid_session_is_minted_as_its_metadata_says() -> None:
    payment = payment_of(a_session(metadata(brand_id=BRAND_TEXT)))

    assert payment == Payment("cs_test_1", address_of(BRAND_TEXT), WALLET, 500, "pi_1")
    assert payment.ltz == 5_000


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"mode": "subscription"}, "mode"),
        ({"mode": None}, "mode"),
        ({"status": "expired", "payment_status": "unpaid"}, "expired"),
        ({"payment_status": "unpaid"}, "not_completed"),
        ({"payment_status": "unpaid", "status": "open"}, "not_completed"),
        ({"payment_status": None}, "not_completed"),
        ({"payment_status": "no_payment_required"}, "no_payment_required"),
        ({"currency": "eur"}, "currency"),
        ({"currency": "USD"}, "currency"),
        ({"amount_total": 501}, "amount_mismatch"),
        ({"amount_total": 5}, "amount_mismatch"),
        ({"amount_total": None}, "amount_mismatch"),
        ({"refunded_cents": 500}, "refunded"),
        ({"payment_intent_id": None}, "no_payment"),
        ({"payment_intent_id": "pi 1"}, "no_payment"),
    ],
    ids=str,
)
def test_a_session_that_contradicts_its_payment_is_refused(
    changes: dict[str, Any], reason: str
) -> None:
    assert refusal_of(a_session(**changes))[0] == reason


def test_a_partial_refund_before_the_mint_does_not_stop_it() -> None:
    assert payment_of(a_session(refunded_cents=499)).usd_cents == 500


@pytest.mark.parametrize(
    "wallet",
    [
        None,
        "",
        "0x" + "00" * 20,
        WALLET_TEXT[2:],
        WALLET_TEXT[:-1],
        WALLET_TEXT + "0",
        WALLET_TEXT + "\n",
        WALLET_TEXT.replace("aAeb", "aaeb"),
        WALLET_TEXT.replace("0x", "0X"),
        "0x" + "g" * 40,
        "0x" + "5a " * 13 + "a",
        "0x" + "\uff15" * 40,
    ],
)
def test_a_malformed_wallet_is_refused(wallet: str | None) -> None:
    reason, message = refusal_of(a_session(metadata(wallet=wallet)))
    assert (reason, message) == ("wallet", "Invalid wallet address in metadata")


@pytest.mark.parametrize("wallet", [WALLET_TEXT.lower(), "0x" + WALLET_TEXT[2:].upper()])
def test_a_wallet_in_letters_of_one_case_has_no_checksum(wallet: str) -> None:
    assert payment_of(a_session(metadata(wallet=wallet))).wallet == WALLET


@pytest.mark.parametrize(
    "brand", [None, "", BRAND_TEXT[:-1], "0x" + " a" * 20, "demo", BRAND_TEXT + "\n"]
)
def test_a_session_without_a_brand_belongs_to_no_brand(brand: str | None) -> None:
    assert payment_of(a_session(metadata(brand_id=brand))).brand_id == NO_BRAND


BAD_NUMBERS = [
    *("", " ", "x", "NaN", "nan", "Infinity", "-Infinity", "1e1", "5E0", "1e999999999", "0x5"),
    *("+5", "-5", " 5", "5 ", "5\n", "5_0", "5,0", "1,000", ".5", "5.", "5..0", "5.0.0", "$5"),
    *("\u0665", "\uff15", "5\u0660", "\u00b2", "9" * 79, "5." + "0" * 79, "5" * 5_000),
]


@pytest.mark.parametrize("text", BAD_NUMBERS, ids=lambda text: repr(text)[:20])
@pytest.mark.parametrize("name", ["usd_amount", "ltz_amount"])
def test_a_number_that_is_no_plain_decimal_is_an_invalid_amount(name: str, text: str) -> None:
    assert refusal_of(a_session(metadata(**{name: text})))[0] == "amount"


@pytest.mark.parametrize("name", ["usd_amount", "ltz_amount"])
def test_a_missing_amount_is_an_invalid_amount(name: str) -> None:
    assert refusal_of(a_session(metadata(**{name: None})))[0] == "amount"


@pytest.mark.parametrize(
    ("usd", "ltz", "reason"),
    [
        ("5.001", "5001", "amount"),  # not whole cents
        ("5.005", "5005", "amount"),
        ("5.00", "5000.5", "amount"),  # not whole LTZ
        ("0", "0", "amount"),
        ("0.00", "0", "amount"),
        ("1000000", "1000000000", "amount"),  # above what the provider takes
        ("9" * 70, "9" * 70 + "000", "amount"),
        ("5", "500", "amount_mismatch"),
        ("5", "5001", "amount_mismatch"),
        ("5", "50000", "amount_mismatch"),
        ("5.00", "4999", "amount_mismatch"),
        # As floats these would be equal.
        ("999999.99", "999999990.000000001", "amount"),
        ("5.000000000000000001", "5000", "amount"),
    ],
)
def test_amounts_that_do_not_agree_are_refused(usd: str, ltz: str, reason: str) -> None:
    fields = metadata(usd_amount=usd, ltz_amount=ltz)
    assert refusal_of(a_session(fields))[0] == reason


@pytest.mark.parametrize("usd", ["5", "5.0", "5.00", "5.000000", "005", "05.00"])
@pytest.mark.parametrize("ltz", ["5000", "5000.0", "05000", "5000.000000000000000000"])
def test_an_amount_may_be_written_in_many_ways(usd: str, ltz: str) -> None:
    assert payment_of(a_session(metadata(usd_amount=usd, ltz_amount=ltz))).usd_cents == 500


@given(st.integers(1, MOST_CENTS))
def test_every_order_is_minted_for_what_was_paid(cents: int) -> None:
    brand = address_of(BRAND_TEXT)
    order = CheckoutOrder(
        brand, WALLET, cents, "ann@shop.example", "https://a.example", "https://b.example"
    )

    payment = payment_of(a_session(order.metadata(), amount_total=cents))

    assert payment == Payment("cs_test_1", brand, WALLET, cents, "pi_1")
    assert payment.ltz == order.ltz == Decimal(dollars_text(cents)) * 1_000


NEAR = st.sampled_from([0, 0, 0, 1, -1, 10, 100])


@given(st.integers(1, MOST_CENTS), NEAR, NEAR, NEAR)
def test_only_amounts_that_all_three_agree_on_are_minted(
    cents: int, more_hundredths: int, more_ltz: int, more: int
) -> None:
    """`more_hundredths` is in hundredths of a cent."""
    usd = Decimal(cents) / 100 + Decimal(more_hundredths) / 10_000
    ltz, total = cents * 10 + more_ltz, cents + more
    session = a_session(metadata(usd_amount=f"{usd:f}", ltz_amount=str(ltz)), amount_total=total)
    agree = usd * 1_000 == ltz and usd * 100 == total and 0 < total <= MOST_CENTS
    try:
        payment = payment_of(session)
    except PaymentRefused:
        assert not agree
    else:
        assert agree
        assert (payment.usd_cents, payment.ltz) == (total, ltz)


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_metadata_is_minted_or_refused(usd: str, wallet: str) -> None:
    fields = metadata(usd_amount=usd, wallet=wallet, brand_id=usd)
    with pytest.raises(PaymentRefused):
        payment_of(a_session(fields))


@pytest.mark.parametrize(
    ("capacity", "error"),
    [
        (5_001, "amount: buys more LTZ than can be minted at once; at most 500 cents"),
        (0, "amount: no LTZ can be bought while minting is switched off"),
    ],
)
def test_only_an_amount_above_the_mint_limit_is_over_capacity(capacity: int, error: str) -> None:
    refuse_over_capacity(500, 5_000)
    refuse_over_capacity(500, None)
    with pytest.raises(InvalidFields) as refused:
        refuse_over_capacity(501, capacity)
    assert refused.value.details["errors"] == [error]


# --- events -------------------------------------------------------------------------------------

PAID_TYPES = ("checkout.session.completed", "checkout.session.async_payment_succeeded")


@pytest.mark.parametrize("kind", PAID_TYPES)
def test_an_event_of_a_paid_session_is_recognized(kind: str) -> None:
    assert parse_event(a_session_event("cs_test_1", kind)) == SessionPaid("cs_test_1")


@pytest.mark.parametrize("kind", PAID_TYPES)
@pytest.mark.parametrize("status", ["unpaid", "no_payment_required", None, True])
def test_an_event_of_an_unpaid_session_is_ignored(kind: str, status: str) -> None:
    assert parse_event(a_session_event("cs_test_1", kind, status)) == Unrelated(kind)


@pytest.mark.parametrize(
    ("event", "notice"),
    [
        (a_refund("pi_1", 200), PaymentRefund("re_1", "pi_1", 200, None)),
        (a_refund("pi_1", status="pending"), PaymentRefund("re_1", "pi_1", 500, None)),
        (a_refund("pi_1", reason="duplicate"), PaymentRefund("re_1", "pi_1", 500, "duplicate")),
        (a_refund("pi_1", reason="nul \x00 and more"), PaymentRefund("re_1", "pi_1", 500, None)),
        (a_failed_refund("pi_1", 200), RefundFailed("re_1", "pi_1", 200)),
        (a_failed_refund("pi_1", 10**12), RefundFailed("re_1", "pi_1", 10**12)),
        (a_refunded_charge("pi_1", 700), RefundedCharge("ch_1", "pi_1", 700)),
        (
            a_refunded_charge("pi_1", payment_intent={"id": "pi_2"}),
            RefundedCharge("ch_1", "pi_2", 500),
        ),
        (a_dispute("pi_1", 300), PaymentDispute("dp_1", "pi_1", 300, "fraudulent")),
        (
            a_dispute("pi_1", 300, kind="charge.dispute.funds_withdrawn"),
            PaymentDispute("dp_1", "pi_1", 300, "fraudulent"),
        ),
    ],
)
def test_an_event_of_a_reversal_is_recognized(event: object, notice: ProviderNotice) -> None:
    assert parse_event(event) == notice


@pytest.mark.parametrize(
    "event",
    [
        an_event("payment_intent.succeeded", {"id": "pi_1", "amount": 500}),
        an_event("checkout.session.expired", {"id": "cs_1"}),
        an_event("checkout.session.async_payment_failed", {"id": "cs_1"}),
        an_event("balance.available", {"object": "balance"}),  # it has no id
        an_event("charge.dispute.closed", {"id": "dp_1", "status": "won"}),
        an_event("", {}),
        a_refund("pi_1", status="failed"),
        a_refund("pi_1", status="canceled"),
        a_refund("pi_1", currency="eur"),
        a_refund("pi_1", payment_intent=None),
        a_failed_refund("pi_1", currency="eur"),
        a_refunded_charge("pi_1", 0),
        a_dispute("pi_1", payment_intent={}),
        # The bank asks, and no money has moved.
        a_dispute("pi_1", status="warning_needs_response"),
        a_dispute("pi_1", kind="charge.dispute.updated"),
        a_dispute("pi 1"),
        a_dispute("pi_1", payment_intent={"id": 5}),
    ],
    ids=lambda event: str(event["type"]),
)
def test_an_event_that_is_not_about_a_sessions_money_is_ignored(event: dict[str, object]) -> None:
    assert isinstance(parse_event(event), Unrelated)


RUBBISH: list[object] = [
    *(None, 5, "x", [], {}, {"type": "x"}, {"type": "x", "data": {}}, {"type": "x", "data": None}),
    *({"type": 5, "data": {"object": {}}}, {"type": "x", "data": {"object": "cs_1"}}),
    {"data": {"object": {"id": "cs_1"}}},
    a_session_event(""),
    a_session_event("pi_1"),
    a_session_event("cs_1\x00"),
    a_session_event("cs_" + "x" * 251),
    an_event("checkout.session.completed", {"payment_status": "paid"}),
    an_event("checkout.session.completed", {"id": 5, "payment_status": "paid"}),
    an_event("refund.created", {}),
    a_refund("pi_1", id_="re 1"),
    a_refund("pi_1", amount=None),
    a_refund("pi_1", amount=True),
    a_refund("pi_1", amount=5.0),
    a_refund("pi_1", amount=-5),
    a_refund("pi_1", amount=10**12 + 1),
    a_refunded_charge("pi_1", amount_refunded="500"),
    a_dispute("pi_1", id_=""),
]


@pytest.mark.parametrize("event", RUBBISH, ids=lambda event: json.dumps(event)[:60])
def test_a_malformed_event_is_refused(event: object) -> None:
    with pytest.raises(PaymentRefused, match=r"^The event is malformed"):
        parse_event(event)


ANY_JSON: tuple[object, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    10**30,
    "",
    "x" * 300,
    [],
    [1],
    {},
    {"id": 1},
)


@pytest.mark.parametrize("value", ANY_JSON, ids=str)
def test_any_value_in_an_event_is_understood_or_refused(value: object) -> None:
    for event in (a_session_event("cs_1"), a_refund("pi_1"), a_dispute("pi_1")):
        about: dict[str, object] = event["data"]["object"]
        for name in {*about, "status", "payment_status", "reason"}:
            with suppress(PaymentRefused):
                parse_event(event | {"data": {"object": about | {name: value}}})


# --- reversals ----------------------------------------------------------------------------------


def recorded(notices: list[PaymentRefund | RefundedCharge]) -> dict[str, int]:
    """Cents by the provider's id, after all notices in this order."""
    known: dict[str, int] = {}
    for notice in notices:
        reversal = reversal_of(notice, known)
        if reversal is not None:
            assert reversal.provider_id not in known
            known[reversal.provider_id] = reversal.usd_cents
    return known


def both_kinds(amounts: list[int]) -> tuple[list[PaymentRefund], list[RefundedCharge]]:
    refunds = [PaymentRefund(f"re_{n}", "pi_1", cents, None) for n, cents in enumerate(amounts)]
    sums = [RefundedCharge("ch_1", "pi_1", sum(amounts[: n + 1])) for n, _ in enumerate(amounts)]
    return refunds, sums


@pytest.mark.parametrize("comes_first", ["refund", "sum"])
def test_a_refund_reported_by_both_kinds_of_events_counts_once(comes_first: str) -> None:
    (refund,), (charge,) = both_kinds([500])
    order: list[PaymentRefund | RefundedCharge] = [refund, charge, refund, charge]
    if comes_first == "sum":
        order.reverse()
    assert sum(recorded(order).values()) == 500
    assert len(recorded(order)) == 1


def test_partial_refunds_count_each() -> None:
    refunds, sums = both_kinds([100, 100, 300])
    assert list(recorded([*refunds]).values()) == [100, 100, 300]
    assert list(recorded([*sums]).values()) == [100, 100, 300]
    assert list(recorded([*refunds, *sums]).values()) == [100, 100, 300]


AMOUNTS = st.lists(st.integers(1, 300), min_size=1, max_size=6)


@given(AMOUNTS, st.sampled_from(["refunds", "sums", "both"]), st.randoms(), st.data())
def test_reversals_are_recorded_exactly_in_any_order_and_with_repeats(
    amounts: list[int], sent: str, order: random.Random, data: st.DataObject
) -> None:
    refunds, sums = both_kinds(amounts)
    notices: list[PaymentRefund | RefundedCharge] = []
    notices += refunds if sent != "sums" else []
    notices += sums if sent != "refunds" else []
    notices += data.draw(st.lists(st.sampled_from(notices), max_size=4))
    order.shuffle(notices)

    for count in range(len(notices)):
        assert sum(recorded(notices[:count]).values()) <= sum(amounts)
    assert sum(recorded(notices).values()) == sum(amounts)


def test_a_dispute_is_recorded_independently_of_refunds() -> None:
    reversal = reversal_of(PaymentDispute("dp_1", "pi_1", 500, "fraudulent"), {"re_1": 500})
    assert reversal is not None
    assert (reversal.kind, reversal.usd_cents, reversal.reason) == ("dispute", 500, "fraudulent")


def test_the_zero_brand_is_twenty_zero_bytes() -> None:
    assert Address(bytes(20)) == NO_BRAND
