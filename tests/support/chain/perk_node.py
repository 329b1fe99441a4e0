"""A node whose PerkNFT redeems charges as contracts/src/PerkNFT.sol does; reorgs undo them."""

from collections.abc import Sequence

from eth_abi.abi import decode, encode
from eth_hash.auto import keccak

from ltzd.values import Address
from tests.support.chain.fake_node import (
    OTHERS_AT,
    FakeNode,
    Log,
    Reverted,
    claim_logs,
    collection_log,
    custom_error,
)

_REDEEM = keccak(b"redeemCharge(uint256,address,uint256,uint256,bytes32)")[:4]
_REDEEMED = keccak(b"ChargeRedeemed(uint256,address,bytes32,uint256,uint256)")


class PerkNode(FakeNode):
    def __init__(self) -> None:
        super().__init__()
        self.holders: dict[int, Address] = {}
        self.charges = 0

    def claim(self, brand: Address, holder: Address, *tokens: int, charges: int = 3) -> None:
        """Mines a block with a collection and tokens of it."""
        self.charges = charges
        self.holders |= dict.fromkeys(tokens, holder)
        claims = [log for token in tokens for log in claim_logs(holder, token)]
        self.mine(logs=[collection_log(tokens[0] >> 32, brand, charges), *claims])

    def left(self, token: int) -> int:
        return self._left(token, self.head.used)

    def _left(self, token: int, used: dict[int, bytes]) -> int:
        return int.from_bytes(used.get(-token, self.charges.to_bytes(2, "big")), "big")

    def _run(
        self, to: Address, data: bytes, used: dict[int, bytes], available: int
    ) -> Sequence[Log]:
        if to != OTHERS_AT[0] or data[:4] != _REDEEM:
            return super()._run(to, data, used, available)
        types = ["uint256", "address", "uint256", "uint256", "bytes32"]
        token, holder, amount, expected, reference = decode(types, data[4:])
        current, left = self.holders[token], self._left(token, used)
        if bytes.fromhex(holder[2:]) != current:
            raise Reverted(custom_error("HolderChanged(uint256,address)", token, current))
        if left != expected:
            details = (token, expected, left)
            raise Reverted(custom_error("ChargesMismatch(uint256,uint256,uint256)", *details))
        if amount > left:
            raise Reverted(custom_error("InsufficientCharges(uint256,uint256)", token, left))
        # LTZ's references have their places from 0 on.
        used[-token] = (left - amount).to_bytes(2, "big")
        topics = [_REDEEMED, token.to_bytes(32, "big"), current.rjust(32, b"\0"), reference]
        return [Log(topics, encode(["uint256"] * 2, [amount, left - amount]), OTHERS_AT[0])]
