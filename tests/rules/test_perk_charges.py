"""The charges of a token that a brand may redeem."""

from datetime import UTC, datetime
from uuid import RFC_4122

import pytest
from msgspec.structs import replace

from ltzd.errors import (
    CollectionNotFound,
    HolderChanged,
    NoChargesRemaining,
    TokenNotFound,
    ValidationFailed,
)
from ltzd.rules.perk_charges import (
    Token,
    check_collection_owner,
    keyed_id,
    remaining_before,
    token_of,
    wallet_of,
)
from ltzd.values import Address, checksummed

BRAND, HOLDER, OTHER = (Address(bytes([number]) * 20) for number in (0xB, 0xA1, 0xA2))
TOKEN = Token(
    id=2**60,
    collection_id=7,
    holder=HOLDER,
    max_charges=5,
    used=2,
    claimed_at=datetime(2026, 3, 10, tzinfo=UTC),
    last_redeemed_at=None,
    block_number=9,
)


@pytest.mark.parametrize("byte", [0x00, 0xFF, 0xA5])
def test_the_id_of_a_keyed_redemption_is_a_uuid_of_version_8(byte: int) -> None:
    digest = bytes([byte]) * 32
    id_ = keyed_id(digest)
    assert (id_.version, id_.variant) == (8, RFC_4122)
    kept = ~(0xF << 76 | 0x3 << 62)
    assert id_.int & kept == int.from_bytes(digest[:16]) & kept


def test_a_brand_has_its_own_collections_alone() -> None:
    check_collection_owner(7, BRAND, BRAND)
    with pytest.raises(ValidationFailed):
        check_collection_owner(7, OTHER, BRAND)
    with pytest.raises(CollectionNotFound):
        check_collection_owner(7, None, BRAND)


def test_a_token_of_another_collection_is_not_found() -> None:
    assert token_of(TOKEN, TOKEN.id, 7) is TOKEN
    for token in (None, replace(TOKEN, collection_id=8)):
        with pytest.raises(TokenNotFound) as refused:
            token_of(token, TOKEN.id, 7)
        assert refused.value.details == {"collectionId": 7, "tokenId": str(2**60)}


@pytest.mark.parametrize(
    ("amount", "pending", "left"), [(3, 0, 3), (1, 2, 1), (1, 0, 3), (2, 1, 2), (3, -1, 4)]
)
def test_charges_that_are_being_redeemed_are_gone(amount: int, pending: int, left: int) -> None:
    assert remaining_before(TOKEN, amount, HOLDER, pending) == left
    assert remaining_before(TOKEN, amount, None, pending) == left


@pytest.mark.parametrize(
    ("amount", "pending", "left"), [(4, 0, 3), (1, 3, 0), (2, 2, 1), (1, 9, 0)]
)
def test_no_more_charges_are_redeemed_than_are_left(amount: int, pending: int, left: int) -> None:
    with pytest.raises(NoChargesRemaining) as refused:
        remaining_before(TOKEN, amount, HOLDER, pending)
    assert refused.value.details == {
        "tokenId": str(TOKEN.id),
        "chargesRemaining": left,
        "requested": amount,
    }


def test_a_former_holder_redeems_nothing() -> None:
    with pytest.raises(HolderChanged) as refused:
        remaining_before(TOKEN, 1, OTHER, 0)
    assert refused.value.details["holder"] == checksummed(HOLDER)


def test_a_token_has_one_wallet_whatever_the_order_of_the_wallets() -> None:
    wallets = [OTHER, BRAND, HOLDER]
    assert [wallet_of(id_, wallets) for id_ in range(4)] == [BRAND, HOLDER, OTHER, BRAND]
    assert [wallet_of(id_, wallets[::-1]) for id_ in range(4)] == [BRAND, HOLDER, OTHER, BRAND]
    assert wallet_of(5, []) is None
