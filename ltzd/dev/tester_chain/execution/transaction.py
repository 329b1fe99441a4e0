"""Transactions of types 0 (legacy), 1 (access list), 2 (dynamic fee) and 4 (set code).

The field names are those that py-evm's executor reads, so that it executes a `EvmTransaction`
without conversion. Amounts are in wei, fees in wei per gas.
"""

from collections.abc import Sequence
from functools import cached_property
from typing import cast

import msgspec
from coincurve import PrivateKey, PublicKey
from msgspec.structs import replace

from ltzd.dev.tester_chain.errors import invalid_parameter, refused
from ltzd.dev.tester_chain.execution.authorizations import GAS_EACH, Authorization
from ltzd.dev.tester_chain.execution.rlp_codec import Rlp, RlpFault, decode, encode
from ltzd.values import Address, Hash32, keccak

_GROUP_ORDER = 0xFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFFEBAAEDCE6AF48A03BBFD25E8CD0364141
_LEGACY_FIELDS = 9
_FIELDS_OF_TYPE = {1: 11, 2: 12, 4: 13}

AccessList = tuple[tuple[Address, tuple[int, ...]], ...]


class UndecodableError(ValueError):
    pass


class TransactionFields(msgspec.Struct, frozen=True):
    """A transaction without its signature; `to` is empty if it creates a contract."""

    type_id: int
    chain_id: int | None
    nonce: int
    max_priority_fee_per_gas: int
    max_fee_per_gas: int
    gas: int
    to: bytes
    value: int
    data: bytes
    access_list: AccessList = ()
    authorization_list: tuple[Authorization, ...] = ()

    @property
    def intrinsic_gas(self) -> int:
        """Without EIP-3860's initcode price, which py-evm charges during execution."""
        zeros = self.data.count(0)
        slots = sum(len(keys) for _, keys in self.access_list)
        return (
            (21_000 if self.to else 53_000)
            + 4 * zeros
            + 16 * (len(self.data) - zeros)
            + 2_400 * len(self.access_list)
            + 1_900 * slots
            + GAS_EACH * len(self.authorization_list)
        )

    @property
    def charged_gas(self) -> int:
        """The intrinsic gas with EIP-3860's initcode price."""
        initcode_words = 0 if self.to else (len(self.data) + 31) // 32
        return self.intrinsic_gas + 2 * initcode_words

    @property
    def floor_gas(self) -> int:
        """EIP-7623: the least gas that a transaction with this data pays for."""
        return 21_000 + 10 * (4 * len(self.data) - 3 * self.data.count(0))

    @property
    def min_gas_limit(self) -> int:
        return max(self.charged_gas, self.floor_gas)

    @property
    def cost(self) -> int:
        return self.gas * self.max_fee_per_gas + self.value

    def price(self, base_fee: int) -> int:
        return min(self.max_fee_per_gas, self.max_priority_fee_per_gas + base_fee)

    def fields(self) -> list[object]:
        """The unsigned RLP fields in the order of the transaction's type."""
        fees: list[object]
        if self.type_id >= 2:
            fees = [self.max_priority_fee_per_gas, self.max_fee_per_gas]
        else:
            fees = [self.max_fee_per_gas]
        body = [self.nonce, *fees, self.gas, self.to, self.value, self.data]
        if self.type_id == 0:
            return body
        accesses = [
            [address, [key.to_bytes(32, "big") for key in keys]]
            for address, keys in self.access_list
        ]
        if self.type_id < 4:
            return [self.chain_id, *body, accesses]
        authorizations = [each.fields() for each in self.authorization_list]
        return [self.chain_id, *body, accesses, authorizations]

    def signing_hash(self) -> bytes:
        if self.type_id:
            return bytes(keccak(bytes((self.type_id,)) + encode(self.fields())))
        replay = [] if self.chain_id is None else [self.chain_id, b"", b""]
        return bytes(keccak(encode([*self.fields(), *replay])))


class EvmTransaction(TransactionFields, frozen=True, dict=True):
    """`v` is the parity; for a legacy transaction it also encodes the chain id (EIP-155)."""

    v: int = 0
    r: int = 0
    s: int = 0
    sender: Address = Address(bytes(20))

    @cached_property
    def raw(self) -> bytes:
        encoded = encode([*self.fields(), self.v, self.r, self.s])
        return bytes((self.type_id,)) + encoded if self.type_id else encoded

    @cached_property
    def hash(self) -> Hash32:
        return Hash32(keccak(self.raw))


def decode_raw(raw: bytes) -> EvmTransaction:
    """Decode signed bytes and recover the sender. Raises JsonRpcError."""
    try:
        transaction = _decode(raw)
    except (UndecodableError, RlpFault) as error:
        raise invalid_parameter("data", f"not a signed transaction: {error}") from error
    if transaction.raw != raw:
        raise invalid_parameter("data", "not a signed transaction: rlp is not canonical")
    return transaction


def sign(unsigned: TransactionFields, key: PrivateKey) -> EvmTransaction:
    signature = key.sign_recoverable(unsigned.signing_hash(), hasher=None)
    r, s, parity = (
        int.from_bytes(signature[:32], "big"),
        int.from_bytes(signature[32:64], "big"),
        signature[64],
    )
    sender = Address(keccak(key.public_key.format(compressed=False)[1:])[12:])
    return _signed(unsigned, _v_of(unsigned, parity), r, s, sender)


def sign_as(unsigned: TransactionFields, sender: Address) -> EvmTransaction:
    """A transaction of an impersonated account, with a placeholder for its signature."""
    return _signed(unsigned, _v_of(unsigned, 0), int.from_bytes(sender, "big") or 1, 1, sender)


def without_signature(unsigned: TransactionFields, sender: Address) -> EvmTransaction:
    return _signed(unsigned, 0, 0, 0, sender)


def _v_of(unsigned: TransactionFields, parity: int) -> int:
    if unsigned.type_id:
        return parity
    return 27 + parity if unsigned.chain_id is None else 35 + 2 * unsigned.chain_id + parity


def _signed(unsigned: TransactionFields, v: int, r: int, s: int, sender: Address) -> EvmTransaction:
    return EvmTransaction(
        unsigned.type_id,
        unsigned.chain_id,
        unsigned.nonce,
        unsigned.max_priority_fee_per_gas,
        unsigned.max_fee_per_gas,
        unsigned.gas,
        unsigned.to,
        unsigned.value,
        unsigned.data,
        unsigned.access_list,
        unsigned.authorization_list,
        v,
        r,
        s,
        sender,
    )


def _decode(raw: bytes) -> EvmTransaction:
    if not raw:
        raise UndecodableError("no bytes")
    if raw[0] >= 0xC0:
        return _with_sender(_legacy(_list(raw, _LEGACY_FIELDS)))
    if raw[0] not in _FIELDS_OF_TYPE:
        raise refused("transaction type not supported")
    return _with_sender(_typed(raw[0], _list(raw[1:], _FIELDS_OF_TYPE[raw[0]])))


def _list(encoded: bytes, length: int) -> list[Rlp]:
    fields = decode(encoded)
    if not isinstance(fields, list) or len(fields) != length:
        raise UndecodableError(f"expected a list of {length} fields")
    return fields


def _legacy(fields: list[Rlp]) -> EvmTransaction:
    nonce, price, gas, to, value, data, v, r, s = fields
    number = _integer(v)
    if number not in {27, 28} and number < 35:
        raise refused("invalid sender: invalid transaction v, r, s values")
    return EvmTransaction(
        type_id=0,
        chain_id=None if number < 35 else (number - 35) // 2,
        nonce=_integer(nonce),
        max_priority_fee_per_gas=_integer(price),
        max_fee_per_gas=_integer(price),
        gas=_integer(gas),
        to=_recipient(to),
        value=_integer(value),
        data=_bytes(data),
        v=number,
        r=_integer(r),
        s=_integer(s),
    )


def _typed(type_id: int, fields: list[Rlp]) -> EvmTransaction:
    *head, parity, r, s = fields
    authorizations = _authorizations(head.pop()) if type_id == 4 else ()
    chain_id, nonce, *fees, gas, to, value, data, accesses = head
    return EvmTransaction(
        type_id=type_id,
        chain_id=_integer(chain_id),
        nonce=_integer(nonce),
        max_priority_fee_per_gas=_integer(fees[0]),
        max_fee_per_gas=_integer(fees[-1]),
        gas=_integer(gas),
        to=_recipient(to),
        value=_integer(value),
        data=_bytes(data),
        access_list=_access_list(accesses),
        authorization_list=authorizations,
        v=_integer(parity),
        r=_integer(r),
        s=_integer(s),
    )


def _with_sender(transaction: EvmTransaction) -> EvmTransaction:
    parity = transaction.v
    if transaction.type_id == 0:
        parity = transaction.v - 27 if transaction.v < 35 else (transaction.v - 35) % 2
    if parity > 1 or not 0 < transaction.r < _GROUP_ORDER or not _is_low(transaction.s):
        raise refused("invalid sender: invalid transaction v, r, s values")
    signature = (
        transaction.r.to_bytes(32, "big") + transaction.s.to_bytes(32, "big") + bytes((parity,))
    )
    try:
        key = PublicKey.from_signature_and_message(
            signature, transaction.signing_hash(), hasher=None
        )
    except Exception as error:  # coincurve raises the bare class
        raise refused("invalid sender: recovery failed") from error
    return replace(transaction, sender=Address(keccak(key.format(compressed=False)[1:])[12:]))


def _is_low(s: int) -> bool:
    return 0 < s <= _GROUP_ORDER // 2


def _bytes(field: Rlp) -> bytes:
    if isinstance(field, list):
        raise UndecodableError("expected bytes where a list is")
    return field


def _integer(field: Rlp) -> int:
    raw = _bytes(field)
    if len(raw) > 32:
        raise UndecodableError("a number has more than 32 bytes")
    return int.from_bytes(raw, "big")


def _recipient(field: Rlp) -> bytes:
    raw = _bytes(field)
    if len(raw) not in {0, 20}:
        raise UndecodableError("the recipient is neither empty nor 20 bytes")
    return raw


def _authorizations(field: Rlp) -> tuple[Authorization, ...]:
    if not isinstance(field, list):
        raise UndecodableError("the authorization list is not a list")
    return tuple(_authorization(entry) for entry in field)


def _authorization(entry: Rlp) -> Authorization:
    match entry:
        case [chain_id, bytes(address), nonce, parity, r, s] if len(address) == 20:
            return Authorization(
                _integer(chain_id),
                address,
                _integer(nonce),
                _integer(parity),
                _integer(r),
                _integer(s),
            )
    raise UndecodableError("an authorization does not have six fields")


def _access_list(field: Rlp) -> AccessList:
    if not isinstance(field, list):
        raise UndecodableError("the access list is not a list")
    return tuple(_access(entry) for entry in field)


def _access(entry: Rlp) -> tuple[Address, tuple[int, ...]]:
    match entry:
        case [bytes(address), list(keys)] if len(address) == 20:
            return Address(address), tuple(_key(key) for key in cast("Sequence[Rlp]", keys))
    raise UndecodableError("an access list entry is not an address with keys")


def _key(field: Rlp) -> int:
    raw = _bytes(field)
    if len(raw) != 32:
        raise UndecodableError("a storage key does not have 32 bytes")
    return int.from_bytes(raw, "big")
