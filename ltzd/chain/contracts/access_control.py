"""`hasRole`, a function of all four contracts (OpenZeppelin's AccessControl)."""

from ltzd.chain.contracts import abi_words, contract_abi
from ltzd.values import Address

_HAS_ROLE = abi_words.selector("hasRole(bytes32,address)")


def has_role_call(role: str, account: Address) -> bytes:
    """The call that asks whether the account has `role`, a name such as `MINTER`."""
    return _HAS_ROLE + contract_abi.role_id(role) + abi_words.encode_address(account)


def decode_has_role(answer: bytes) -> bool:
    """Raises ValueError."""
    flag = int.from_bytes(answer)
    if len(answer) != 32 or flag > 1:
        raise ValueError("the result of hasRole is one boolean")
    return flag == 1
