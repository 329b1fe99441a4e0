"""A wallet's transactions in the blocks that a node shows, with proof of their signatures.

A node can show a block that never was, but it cannot sign: a transaction whose signature is the
wallet's was sent by the key's holder.
"""

from collections.abc import Sequence
from typing import Any

from ltzd.chain.node.answers.typed import LARGEST_COUNT, quantity
from ltzd.chain.node.node import Node
from ltzd.chain.rlp import encode_integer, encode_list, encode_text
from ltzd.chain.signing import signer_of
from ltzd.errors import NodeUnavailable
from ltzd.rules.operator.evidence import NonceUse
from ltzd.values import Address, Hash32, address_of, bytes_of, hash_of, keccak

_VERIFIABLE = (0, 1, 2)
"""Types of transactions whose signature is checked; a deposit from an L1 has none."""


async def uses_of_nonce(
    node: Node, wallet: Address, chain_id: int, nonce: int, numbers: Sequence[int]
) -> list[NonceUse]:
    """The wallet's transactions with this nonce in the node's blocks at these heights.

    Raises NodeUnavailable, also for a block that the node lacks.
    """
    blocks = await node.full_blocks(numbers)
    try:
        return [
            _use(fields, block, wallet, chain_id)
            for block in blocks
            for fields in block["transactions"]
            if address_of(fields["from"]) == wallet and quantity(fields["nonce"]) == nonce
        ]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise NodeUnavailable("The node's block is malformed", kind="malformed") from error


def _use(fields: dict[str, Any], block: dict[str, Any], wallet: Address, chain_id: int) -> NonceUse:
    claimed, is_verifiable = hash_of(fields["hash"]), _kind(fields) in _VERIFIABLE
    return NonceUse(
        hash=claimed,
        block_number=quantity(block["number"], LARGEST_COUNT),
        block_hash=hash_of(block["hash"]),
        is_forged=is_verifiable and signed_hash(fields, wallet, chain_id) != claimed,
    )


def signed_hash(fields: dict[str, Any], wallet: Address, chain_id: int) -> Hash32 | None:
    """The hash of a transaction of type 0, 1 or 2 if `wallet` signed it for this chain, or None.

    The hash is computed from the fields alone. Raises KeyError, TypeError, ValueError for malformed
    fields.
    """
    kind = _kind(fields)
    r, s = quantity(fields["r"]), quantity(fields["s"])
    if kind == 0:
        return _legacy_hash(fields, wallet, chain_id, (quantity(fields["v"]), r, s))
    v = quantity(fields.get("yParity") or fields["v"])
    if quantity(fields["chainId"]) != chain_id:
        return None
    prefix, body = bytes((kind,)), _typed_body(fields, kind)
    digest = keccak(prefix + encode_list(body))
    if v not in (0, 1) or _signer(digest, v, r, s) != wallet:
        return None
    signature = b"".join(map(encode_integer, (v, r, s)))
    return Hash32(keccak(prefix + encode_list(body + signature)))


def _kind(fields: dict[str, Any]) -> int:
    return quantity(fields.get("type") or "0x0")


def _legacy_hash(
    fields: dict[str, Any], wallet: Address, chain_id: int, signature: tuple[int, int, int]
) -> Hash32 | None:
    """With or without EIP-155: a transaction that names no chain is valid on every chain."""
    v, r, s = signature
    payload = body = _quantities(fields, "nonce", "gasPrice", "gas") + _call(fields)
    parity = v - 27
    if v not in (27, 28):
        payload += encode_integer(chain_id) + encode_integer(0) + encode_integer(0)
        parity = v - 35 - 2 * chain_id
    if parity not in (0, 1) or _signer(keccak(encode_list(payload)), parity, r, s) != wallet:
        return None
    return Hash32(keccak(encode_list(body + b"".join(map(encode_integer, signature)))))


def _typed_body(fields: dict[str, Any], kind: int) -> bytes:
    fees = ("gasPrice",) if kind == 1 else ("maxPriorityFeePerGas", "maxFeePerGas")
    numbers = _quantities(fields, "chainId", "nonce", *fees, "gas")
    return numbers + _call(fields) + _access_list(fields.get("accessList") or ())


def _quantities(fields: dict[str, Any], *names: str) -> bytes:
    return b"".join(encode_integer(quantity(fields[name])) for name in names)


def _call(fields: dict[str, Any]) -> bytes:
    to = bytes_of(fields["to"]) if fields.get("to") else b""
    value = encode_integer(quantity(fields["value"]))
    return encode_text(to) + value + encode_text(bytes_of(fields["input"]))


def _access_list(entries: Sequence[dict[str, Any]]) -> bytes:
    return encode_list(
        b"".join(
            encode_list(
                encode_text(bytes_of(entry["address"]))
                + encode_list(b"".join(encode_text(bytes_of(k)) for k in entry["storageKeys"]))
            )
            for entry in entries
        )
    )


def _signer(digest: bytes, parity: int, r: int, s: int) -> Address | None:
    try:
        signature = r.to_bytes(32, "big") + s.to_bytes(32, "big") + bytes((parity,))
    except OverflowError:
        return None
    return signer_of(digest, signature)
