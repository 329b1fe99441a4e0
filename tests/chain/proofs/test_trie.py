"""The ordered trie's root is that of the library `trie`."""

from hypothesis import given
from hypothesis import strategies as st
from trie.hexary import HexaryTrie

from ltzd.chain.proofs.trie import EMPTY_ROOT, ordered_root
from ltzd.chain.rlp import encode_integer


def root_by_the_library(values: list[bytes]) -> bytes:
    trie = HexaryTrie({})
    for position, value in enumerate(values):
        trie[encode_integer(position)] = value
    return bytes(trie.root_hash)


@given(st.lists(st.binary(min_size=1, max_size=70), max_size=30))
def test_any_values_have_the_librarys_root(values: list[bytes]) -> None:
    assert ordered_root(values) == root_by_the_library(values)


def test_every_number_of_receipts_has_the_librarys_root() -> None:
    """Beside 127, 128, 255 and 256 the keys become longer."""
    trie = HexaryTrie({})
    values: list[bytes] = []
    assert ordered_root(values) == EMPTY_ROOT == trie.root_hash
    for position in range(300):
        values.append(position.to_bytes(2, "big") * (1 + position % 40))
        trie[encode_integer(position)] = values[-1]
        assert ordered_root(values) == trie.root_hash, position
