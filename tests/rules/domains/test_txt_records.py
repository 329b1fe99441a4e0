"""TXT records: their content, the check of their key, and the domains that can have one."""

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ltzd.rules.domains.txt_records import (
    DomainRecord,
    is_key_among,
    parse_record,
    record_name,
    refuse_public_suffix,
)
from ltzd.values import address_of, checksummed

BRAND = address_of("0x" + "ab" * 20)
ID = "0x" + "ab" * 20
KEY = "ltzvt_" + "1" * 40
RIGHT = DomainRecord(BRAND, KEY)


@pytest.mark.parametrize(
    "text",
    [
        f"brand_id={ID};api_key={KEY}",
        f"api_key={KEY};brand_id={ID}",
        f"  brand_id = {ID} ;  api_key =  {KEY}  ",
        f"brand_id={ID};api_key={KEY};",
        f";;brand_id={ID};;api_key={KEY}",
        f"v=ltz1;brand_id={ID};note=a=b;api_key={KEY}",
        f"brand_id={checksummed(BRAND)};api_key={KEY}",
        f"brand_id={ID.upper()};api_key={KEY}",
        f"BRAND_ID={ID};Api_Key={KEY}",
        f"brand_id={ID}\t;\tapi_key={KEY}",
    ],
)
def test_a_record_is_read_in_any_order_and_spacing(text: str) -> None:
    assert parse_record(text) == RIGHT


@pytest.mark.parametrize(
    "text",
    [
        "",
        ";",
        "=",
        "v=spf1 -all",
        "google-site-verification=abc",
        f"brand_id={ID}",
        f"api_key={KEY}",
        f"brand_id={ID};api_key=",
        f"brand_id={ID};api_key= ",
        f"brand_id={ID[2:]};api_key={KEY}",
        f"brand_id={ID}0;api_key={KEY}",
        f"brand_id={ID[:-1]}g;api_key={KEY}",
        f"brand_id={ID},api_key={KEY}",
        f"brand_id:{ID};api_key:{KEY}",
        f"brand_id={ID};brand_id={ID};api_key={KEY}",
        f"brand_id={ID};api_key={KEY};api_key=ltzvt_other",
        f"brand_id={ID};api_key={KEY};API_KEY=ltzvt_other",
    ],
)
def test_a_foreign_or_contradictory_record_is_none(text: str) -> None:
    assert parse_record(text) is None


@given(st.text())
def test_any_text_at_all_is_a_record_or_none(text: str) -> None:
    record = parse_record(text)
    assert record is None or (len(record.brand) == 20 and record.key)


def test_a_key_keeps_its_letter_case_and_whatever_follows_the_first_sign() -> None:
    record = parse_record(f"brand_id={ID};api_key=aB=cD==")
    assert record == DomainRecord(BRAND, "aB=cD==")


def test_the_key_is_not_shown_with_the_record() -> None:
    assert KEY not in repr(RIGHT)


def test_a_key_is_found_at_any_position_among_digests() -> None:
    digests = [hashlib.sha256(text.encode()).digest() for text in ("a", KEY, "b")]
    for order in (digests, digests[::-1], digests[1:2]):
        assert is_key_among(KEY, order)
    assert not is_key_among(KEY, digests[:1])
    assert not is_key_among(KEY.upper(), digests)
    assert not is_key_among("", digests)
    assert not is_key_among(KEY, ())


def test_the_record_of_a_subdomain_is_at_its_own_name() -> None:
    assert record_name("www.shop.example") == "_ltz.www.shop.example"


@pytest.mark.parametrize(
    "name",
    [
        "com",
        "localhost",
        "example",
        "co.uk",
        "ck",
        "a.ck",
        "xn--p1ai",
        "xn--55qx5d.cn",
        "github.io",
    ],
)
def test_a_bare_public_suffix_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="below a public suffix"):
        refuse_public_suffix(name)


@pytest.mark.parametrize(
    "name",
    [
        "shop.example",
        "www.shop.example",
        "shop.co.uk",
        "www.ck",
        "xn--e1afmkfd.xn--p1ai",
        "ann.github.io",
    ],
)
def test_a_name_below_one_is_not(name: str) -> None:
    refuse_public_suffix(name)
