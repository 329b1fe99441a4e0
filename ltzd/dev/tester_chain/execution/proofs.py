"""Merkle proofs of an account and of its storage (EIP-1186), and of their absence."""

from collections.abc import Sequence
from typing import Any

import msgspec
from eth.rlp.accounts import Account
from trie.hexary import HexaryTrie

from ltzd.dev.tester_chain.execution.rlp_codec import decode, encode
from ltzd.values import Address, Hash32, keccak


class SlotProof(msgspec.Struct, frozen=True):
    slot: int
    value: int
    nodes: tuple[bytes, ...]


class AccountProof(msgspec.Struct, frozen=True):
    """`nodes` are RLP, from the root down; amounts are in wei."""

    nonce: int
    balance: int
    storage_root: Hash32
    code_hash: Hash32
    nodes: tuple[bytes, ...]
    slots: tuple[SlotProof, ...]


def account_proof(
    database: Any, state_root: Hash32, address: Address, slots: Sequence[int]
) -> AccountProof:
    """An account that does not exist is proven absent, with the values of an empty one."""
    accounts = _trie(database, state_root)
    key = keccak(address)
    encoded = accounts.get(key)
    account = _account(encoded)
    storage = _trie(database, account.storage_root)
    return AccountProof(
        nonce=int(account.nonce),
        balance=int(account.balance),
        storage_root=Hash32(account.storage_root),
        code_hash=Hash32(account.code_hash),
        nodes=_nodes(accounts, key),
        slots=tuple(_slot(storage, slot) for slot in slots),
    )


def _account(encoded: bytes) -> Any:
    empty: Any = Account
    return Account.deserialize(decode(encoded)) if encoded else empty()


def _slot(storage: Any, slot: int) -> SlotProof:
    key = keccak(slot.to_bytes(32, "big"))
    encoded = storage.get(key)
    value = decode(encoded) if encoded else b""
    assert isinstance(value, bytes)
    return SlotProof(slot, int.from_bytes(value, "big"), _nodes(storage, key))


def _nodes(trie: Any, key: bytes) -> tuple[bytes, ...]:
    """The nodes on the way to the key; a node below 32 bytes is inside its parent."""
    encoded = (encode(node) for node in trie.get_proof(key) if node)
    return tuple(node for index, node in enumerate(encoded) if index == 0 or len(node) >= 32)


def _trie(database: Any, root: Hash32) -> Any:
    trie: Any = HexaryTrie
    return trie(database, root)
