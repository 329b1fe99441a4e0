"""The transaction object that eth_call, eth_estimateGas and eth_sendTransaction take.

Missing fees default to fees that the next block would include. Missing `gas` and `nonce` stay None,
since each method has its own default.
"""

from collections.abc import Mapping

import msgspec

from ltzd.dev.tester_chain.errors import invalid_parameter, refused
from ltzd.dev.tester_chain.execution.authorizations import Authorization
from ltzd.dev.tester_chain.execution.transaction import AccessList, TransactionFields
from ltzd.dev.tester_chain.json_rpc.params import address, data, hash32, quantity
from ltzd.values import ZERO_ADDRESS, Address


class CallRequest(msgspec.Struct, frozen=True):
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
    chain_id: int | None = None
    authorization_list: tuple[Authorization, ...] = ()

    @property
    def fee_cap(self) -> int:
        """The named maximum price per gas; zero if the caller names none."""
        return self.gas_price or self.max_fee_per_gas or 0

    def as_call(self, chain_id: int, gas: int) -> TransactionFields:
        """The transaction that eth_call executes; fees that the caller does not name are zero."""
        self._check_chain(chain_id)
        return TransactionFields(
            type_id=4 if self.authorization_list else 2,
            chain_id=chain_id,
            nonce=0,
            max_priority_fee_per_gas=self.gas_price or self.max_priority_fee_per_gas or 0,
            max_fee_per_gas=self.fee_cap,
            gas=gas,
            to=self.to,
            value=self.value,
            data=self.data,
            access_list=self.access_list,
            authorization_list=self.authorization_list,
        )

    def as_unsigned(
        self, *, chain_id: int, nonce: int, gas: int, base_fee: int, tip: int
    ) -> TransactionFields:
        self._check_chain(chain_id)
        type_id, priority, cap = self._fees(base_fee, tip)
        return TransactionFields(
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
            authorization_list=self.authorization_list,
        )

    def _check_chain(self, chain_id: int) -> None:
        if self.chain_id not in {None, chain_id}:
            raise refused(f"chainId does not match node's (have={self.chain_id}, want={chain_id})")

    def _fees(self, base_fee: int, tip: int) -> tuple[int, int, int]:
        """The transaction type that these fees need, the tip and the cap."""
        if self.gas_price is not None:
            return (1 if self.access_list else 0), self.gas_price, self.gas_price
        priority = self.max_priority_fee_per_gas
        if priority is None:
            priority = tip if self.max_fee_per_gas is None else min(tip, self.max_fee_per_gas)
        cap = priority + 2 * base_fee if self.max_fee_per_gas is None else self.max_fee_per_gas
        return (4 if self.authorization_list else 2), priority, cap


def call_request(
    fields: Mapping[str, object], default_sender: Address = ZERO_ADDRESS
) -> CallRequest:
    gas_price = _optional(fields, "gasPrice")
    max_fee = _optional(fields, "maxFeePerGas")
    tip = _optional(fields, "maxPriorityFeePerGas")
    if gas_price is not None and (max_fee is not None or tip is not None):
        raise refused("both gasPrice and (maxFeePerGas or maxPriorityFeePerGas) specified")
    sender, to = fields.get("from"), fields.get("to")
    return CallRequest(
        sender=default_sender if sender is None else address(sender, "from"),
        to=b"" if to is None or to == "0x" else address(to, "to"),
        data=_input(fields),
        value=_optional(fields, "value") or 0,
        gas=_optional(fields, "gas"),
        nonce=_optional(fields, "nonce"),
        gas_price=gas_price,
        max_fee_per_gas=max_fee,
        max_priority_fee_per_gas=tip,
        access_list=_access_list(fields.get("accessList")),
        chain_id=_optional(fields, "chainId"),
        authorization_list=_authorization_list(fields.get("authorizationList")),
    )


def _optional(fields: Mapping[str, object], name: str) -> int | None:
    value = fields.get(name)
    return None if value is None else quantity(value, name)


def _input(fields: Mapping[str, object]) -> bytes:
    given = [data(fields[name], name) for name in ("input", "data") if fields.get(name) is not None]
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


def _authorization_list(value: object) -> tuple[Authorization, ...]:
    if value is None:
        return ()
    if not isinstance(value, list):
        raise invalid_parameter("authorizationList", "expected a list")
    return tuple(_authorization(entry) for entry in value)


def _authorization(entry: object) -> Authorization:
    if not isinstance(entry, dict):
        raise invalid_parameter("authorizationList", "expected objects")
    parity = entry.get("yParity", entry.get("v"))
    return Authorization(
        quantity(entry.get("chainId"), "authorizationList.chainId"),
        address(entry.get("address"), "authorizationList.address"),
        quantity(entry.get("nonce"), "authorizationList.nonce"),
        quantity(parity, "authorizationList.yParity"),
        quantity(entry.get("r"), "authorizationList.r"),
        quantity(entry.get("s"), "authorizationList.s"),
    )


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
