"""Bloom filters read as eth_bloom writes them."""

from eth_bloom.bloom import BloomFilter
from hypothesis import given
from hypothesis import strategies as st

from ltzd.chain.node.bloom import may_hold

values = st.binary(min_size=20, max_size=20) | st.binary(min_size=32, max_size=32)


def a_bloom(held: list[bytes]) -> bytes:
    return int(BloomFilter.from_iterable(held)).to_bytes(256, "big")


@given(st.lists(values, max_size=20), values)
def test_a_bloom_holds_what_eth_bloom_says(held: list[bytes], queried: bytes) -> None:
    bloom = BloomFilter.from_iterable(held)

    assert may_hold(a_bloom(held), queried) == (queried in bloom)
    assert may_hold(a_bloom(held), *held)


def test_one_missing_value_is_certain() -> None:
    assert not may_hold(a_bloom([b"\x01" * 20]), b"\x01" * 20, b"\x02" * 32)


def test_an_empty_bloom_holds_nothing() -> None:
    assert not may_hold(bytes(256), b"\x01" * 20)
