"""LTZ-HMAC v1 against its test vectors, and requests that must be refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from ltzd.errors import SignatureRefused
from ltzd.rules.request_signatures import (
    NONCE_SECONDS,
    VALID_SECONDS,
    SignedRequest,
    check_form,
    is_signed_with,
    signature,
)

KEY = "ltzsk_test_0123456789abcdef0123456789abcdef"
NOW = 1_767_225_600
NONCE = "nonce-0123456789"
BODY = b'{"collectionId":7,"tokenId":"12"}'


def signed(body: bytes = BODY, key: str = KEY, timestamp: int = NOW) -> SignedRequest:
    made = signature(key, str(timestamp), NONCE, "POST", b"/redeem-perk", body)
    return SignedRequest(
        brand_id="0x" + "ab" * 20,
        timestamp=str(timestamp),
        nonce=NONCE,
        signatures=made,
        method="POST",
        target=b"/redeem-perk",
        body=body,
    )


@pytest.mark.parametrize(
    ("nonce", "method", "target", "body", "expected"),
    [
        (
            "n-0001",
            "GET",
            b"/list-perk-holders?collectionId=7&limit=50",
            b"",
            "0bf51cdcbb37469576ea272346227f10a57d8cb43c553b091c15878575d325e1",
        ),
        (
            "n-0002",
            "POST",
            b"/redeem-perk",
            BODY,
            "7a6b1d02fedeac46c2cffd6f164be88a351cb178b8e10618e1869c47f97410ad",
        ),
    ],
)
def test_the_signatures_equal_the_vectors(
    nonce: str, method: str, target: bytes, body: bytes, expected: str
) -> None:
    assert signature(KEY, "1767225600", nonce, method, target, body) == "v1=" + expected


def test_a_valid_signature_passes() -> None:
    check_form(signed(), NOW)
    assert is_signed_with(signed(), [KEY])


@pytest.mark.parametrize(
    "changes",
    [
        {"timestamp": str(NOW + 1)},
        {"nonce": "nonce-0123456780"},
        {"method": "GET"},
        {"target": b"/redeem-perk?"},
        {"body": BODY + b" "},
        {"signatures": "v1=" + "0" * 64},
    ],
)
def test_any_change_invalidates_the_signature(changes: dict[str, object]) -> None:
    assert not is_signed_with(replace(signed(), **changes), [KEY])


def test_the_previous_key_is_valid_beside_the_current_one() -> None:
    assert is_signed_with(signed(key="old"), ["new", "old"])
    assert not is_signed_with(signed(key="older"), ["new", "old"])
    assert not is_signed_with(signed(), [])


def test_a_caller_in_the_middle_of_a_rotation_may_send_both_signatures() -> None:
    both = f"{signed(key='old').signatures}, {signed(key='new').signatures}"
    request = replace(signed(), signatures=both)
    check_form(request, NOW)
    assert is_signed_with(request, ["new"])
    check_form(replace(request, signatures=f"{both}, {both}"), NOW)


@pytest.mark.parametrize(
    ("changes", "names"),
    [
        ({"timestamp": ""}, "X-LTZ-Timestamp"),
        ({"timestamp": "-5"}, "X-LTZ-Timestamp"),
        ({"timestamp": "١٧٦٧٢٢٥٦٠٠"}, "X-LTZ-Timestamp"),
        ({"timestamp": "1767225600.0"}, "X-LTZ-Timestamp"),
        ({"timestamp": "9" * 13}, "X-LTZ-Timestamp"),
        ({"nonce": ""}, "X-LTZ-Nonce"),
        ({"nonce": "a" * 15}, "X-LTZ-Nonce"),
        ({"nonce": "a" * 65}, "X-LTZ-Nonce"),
        ({"nonce": "a" * 15 + "é"}, "X-LTZ-Nonce"),
        ({"signatures": ""}, "X-LTZ-Signature"),
        ({"signatures": "v1="}, "X-LTZ-Signature"),
        ({"signatures": "v2=" + "0" * 64}, "X-LTZ-Signature"),
        ({"signatures": "v1=" + "A" * 64}, "X-LTZ-Signature"),
        ({"signatures": ",".join(["v1=" + "0" * 64] * 5)}, "X-LTZ-Signature"),
        ({"timestamp": str(NOW - 301)}, "X-LTZ-Timestamp"),
        ({"timestamp": str(NOW + 301)}, "X-LTZ-Timestamp"),
    ],
)
def test_a_fault_of_form_names_its_header(changes: dict[str, object], names: str) -> None:
    with pytest.raises(SignatureRefused, match=names):
        check_form(replace(signed(), **changes), NOW)


@pytest.mark.parametrize("off", [-300, 0, 300])
def test_a_clock_may_be_five_minutes_off(off: int) -> None:
    check_form(signed(timestamp=NOW + off), NOW)


@given(st.text(max_size=80), st.text(max_size=80), st.text(max_size=200))
def test_any_header_is_accepted_or_refused_without_another_error(
    timestamp: str, nonce: str, signatures: str
) -> None:
    request = replace(signed(), timestamp=timestamp, nonce=nonce, signatures=signatures)
    try:
        check_form(request, NOW)
    except SignatureRefused:
        return
    assert not is_signed_with(request, [KEY])


def test_a_nonce_is_remembered_for_longer_than_its_signature_is_valid() -> None:
    first, last = NOW - VALID_SECONDS, NOW + VALID_SECONDS
    check_form(signed(), first)
    check_form(signed(), last)
    with pytest.raises(SignatureRefused, match="X-LTZ-Timestamp"):
        check_form(signed(), first + NONCE_SECONDS)
