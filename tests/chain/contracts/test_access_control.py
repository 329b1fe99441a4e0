"""The call and the answer of `hasRole`, and which roles the wallets of each kind need."""

import pytest

from ltzd.chain.contracts import contract_abi
from ltzd.chain.contracts.access_control import decode_has_role, has_role_call
from ltzd.chain.deployment.plan import hot_roles
from ltzd.values import Address

ACCOUNT = Address(b"\xa7" * 20)
ROLES = [*hot_roles(is_mint=True), *hot_roles(is_mint=False), ("LTZ", "DEFAULT_ADMIN")]


@pytest.mark.parametrize(("contract", "role"), ROLES)
def test_the_call_is_that_of_each_contracts_abi(contract: str, role: str) -> None:
    by_abi = contract_abi.encode_call(contract, "hasRole", contract_abi.role_id(role), ACCOUNT)
    assert has_role_call(role, ACCOUNT) == by_abi


def test_an_answer_is_one_boolean() -> None:
    assert decode_has_role(bytes(31) + b"\x01")
    assert not decode_has_role(bytes(32))
    for answer in (b"", bytes(31), bytes(33), bytes(31) + b"\x02", b"\x01" + bytes(31)):
        with pytest.raises(ValueError, match="one boolean"):
            decode_has_role(answer)


def test_a_mint_wallet_and_a_relay_wallet_share_no_role() -> None:
    assert hot_roles(is_mint=True) == [("LTZ", "MINTER")]
    assert hot_roles(is_mint=False) == [
        ("PerkNFT", "RELAYER"),
        ("PerkNFT", "REDEEMER"),
        ("PointsSale", "RELAYER"),
        ("BusinessEscrow", "RELAYER"),
    ]
