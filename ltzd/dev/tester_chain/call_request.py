"""The object that eth_call, eth_estimateGas and eth_sendTransaction take.

Fees default to what a sender would get into the next block with; `gas` and `nonce` stay None where
the caller names none, since each method fills them in its own way.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ltzd.dev.tester_chain.errors import invalid_parameter, refused
from ltzd.dev.tester_chain.params import address, data, hash32, quantity
from ltzd.dev.tester_chain.transaction import AccessList, Unsigned
from ltzd.values import ZERO_ADDRESS, Address


@dataclass(frozen=True)
class CallRequest:
    sender: Address
    to: bytes
    data: bytes
    value: int
    gas: int | None
    nonce: int | None
    gas_price: int | None
    max_fee_per_gas: int | None
    max_priority_fee_per_gas: int | None
    access_list: AccessList

    @property
    def fee_cap(self) -> int:
        """What the sender has said to pay at most; zero where nothing is said."""
        return self.gas_price or self.max_fee_per_gas or 0

    def as_unsigned(
        self, *, chain_id: int, nonce: int, gas: int, base_fee: int, tip: int
    ) -> Unsigned:
        type_id, priority, cap = self._fees(base_fee, tip)
        return Unsigned(
            type_id=type_id,
            chain_id=chain_id,
            nonce=nonce,
            max_priority_fee_per_gas=priority,
            max_fee_per_gas=cap,
            gas=gas,
            to=self.to,
            value=self.value,
            data=self.data,
            access_list=self.access_list,
        )

    def _fees(self, base_fee: int, tip: int) -> tuple[int, int, int]:
        """The type that these fees need, the tip and the cap."""
        if self.gas_price is not None:
            return (1 if self.access_list else 0), self.gas_price, self.gas_price
        priority = self.max_priority_fee_per_gas
        if priority is None:
            priority = tip if self.max_fee_per_gas is None else min(tip, self.max_fee_per_gas)
        cap = priority + 2 * base_fee if self.max_fee_per_gas is None else self.max_fee_per_gas
        return 2, priority, cap


def call_request(
    asked: Mapping[str, object], default_sender: Address = ZERO_ADDRESS
) -> CallRequest:
    gas_price = _optional(asked, "gasPrice")
    max_fee = _optional(asked, "maxFeePerGas")
    tip = _optional(asked, "maxPriorityFeePerGas")
    if gas_price is not None and (max_fee is not None or tip is not None):
        raise refused("both gasPrice and (maxFeePerGas or maxPriorityFeePerGas) specified")
    sender, to = asked.get("from"), asked.get("to")
    return CallRequest(
        sender=default_sender if sender is None else address(sender, "from"),
        to=b"" if to is None or to == "0x" else address(to, "to"),
        data=_input(asked),
        value=_optional(asked, "value") or 0,
        gas=_optional(asked, "gas"),
        nonce=_optional(asked, "nonce"),
        gas_price=gas_price,
        max_fee_per_gas=max_fee,
        max_priority_fee_per_gas=tip,
        access_list=_access_list(asked.get("accessList")),
    )


def _optional(asked: Mapping[str, object], name: str) -> int | None:
    value = asked.get(name)
    return None if value is None else quantity(value, name)


def _input(asked: Mapping[str, object]) -> bytes:
    given = [data(asked[name], name) for name in ("input", "data") if asked.get(name) is not None]
    if len(given) == 2 and given[0] != given[1]:
        raise refused(
            'both "data" and "input" are set and not equal. '
            'Please use "input" to pass transaction call data'
        )
    return given[0] if given else b""


def _access_list(value: object) -> AccessList:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise invalid_parameter("accessList", "expected a list")
    return tuple(_access(entry) for entry in value)


def _access(entry: object) -> tuple[Address, tuple[int, ...]]:
    if not isinstance(entry, dict):
        raise invalid_parameter("accessList", "expected objects with address and storageKeys")
    keys = entry.get("storageKeys") or []
    if not isinstance(keys, list):
        raise invalid_parameter("accessList.storageKeys", "expected a list")
    return (
        address(entry.get("address"), "accessList.address"),
        tuple(int.from_bytes(hash32(key, "accessList.storageKeys"), "big") for key in keys),
    )
