"""Authorizations of a type 4 transaction (EIP-7702): an account gives itself a contract's code.

The attribute names and `validate` are those that py-evm's executor uses. The executor skips an
authorization that does not hold, so decoding checks the form alone.
"""

import msgspec

GAS_EACH = 25_000
"""The intrinsic gas of each authorization, in part refunded if the account exists."""

_HALF_GROUP_ORDER = 0x7FFFFFFFFFFFFFFFFFFFFFFFFFFFFFFF5D576E7357A4501DDFE92F46681B20A0
_NONCE_LIMIT = 2**64 - 1


class Authorization(msgspec.Struct, frozen=True):
    """`address` holds the code; the zero address takes the code away."""

    chain_id: int
    address: bytes
    nonce: int
    y_parity: int
    r: int
    s: int

    def validate(self, chain_id: int) -> None:
        """Raises ValueError if the authorization can hold on no block of this chain."""
        if self.chain_id not in {0, chain_id}:
            raise ValueError("another chain's")
        if self.nonce >= _NONCE_LIMIT:
            raise ValueError("nonce has max value")
        if self.s > _HALF_GROUP_ORDER:
            raise ValueError("s is too high")

    def fields(self) -> list[object]:
        return [self.chain_id, self.address, self.nonce, self.y_parity, self.r, self.s]
