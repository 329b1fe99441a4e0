"""A fake node whose blocks are named by the hash of their header, which proves their receipts."""

from dataclasses import replace
from typing import Any, ClassVar

import rlp.codec
from eth_hash.auto import keccak
from trie.hexary import HexaryTrie

from ltzd.values import Hash32, bytes_of, hex_of
from tests.support.chain.fake_node import Block, FakeNode

_OF_BYTES = (
    *("parentHash", "sha3Uncles", "miner", "stateRoot", "transactionsRoot", "receiptsRoot"),
    "logsBloom",
)
_OF_NUMBERS = ("difficulty", "number", "gasLimit", "gasUsed", "timestamp")


class ProvingNode(FakeNode):
    _extra_data: ClassVar[dict[Hash32, bytes]] = {}
    """By block, which is of all nodes: makes blocks differ that are alike in all else."""

    def _next_block(self, *arguments: Any) -> Block:
        block = super()._next_block(*arguments)
        proving = replace(block, hash=Hash32(keccak(_header(self.block_json(block)))))
        self._extra_data[proving.hash] = block.hash
        return proving

    def block_json(self, block: Block, *, full: bool = False) -> dict[str, Any]:
        zeros = hex_of(bytes(32))
        return super().block_json(block, full=full) | {
            "sha3Uncles": zeros,
            "miner": hex_of(bytes(20)),
            "stateRoot": zeros,
            "transactionsRoot": zeros,
            "receiptsRoot": hex_of(_receipts_root(self.receipts_json(block))),
            "difficulty": "0x0",
            "gasUsed": "0x0",
            "extraData": hex_of(self._extra_data.get(block.hash, block.hash)),
            "mixHash": zeros,
            "nonce": "0x0000000000000000",
        }

    def receipts_json(self, block: Block) -> list[dict[str, Any]]:
        outcome = {"status": "0x1", "cumulativeGasUsed": "0x0", "logsBloom": "0x"}
        return [outcome | receipt for receipt in super().receipts_json(block)]


def _header(block: dict[str, Any]) -> bytes:
    fields = [bytes_of(block[name]) for name in _OF_BYTES]
    fields += [_number(block[name]) for name in _OF_NUMBERS]
    fields += [bytes_of(block[name]) for name in ("extraData", "mixHash", "nonce")]
    return _rlp([*fields, _number(block["baseFeePerGas"])])


def _receipts_root(receipts: list[dict[str, Any]]) -> bytes:
    trie = HexaryTrie({})
    for position, receipt in enumerate(receipts):
        logs = [
            [bytes_of(log["address"]), list(map(bytes_of, log["topics"])), bytes_of(log["data"])]
            for log in receipt["logs"]
        ]
        trie[_rlp(position)] = _rlp([b"\x01", b"", b"", logs])
    return bytes(trie.root_hash)


def _number(text: str) -> bytes:
    number = int(text, 16)
    return number.to_bytes((number.bit_length() + 7) // 8, "big")


def _rlp(value: Any) -> bytes:
    return bytes(rlp.codec.encode(value))  # type: ignore[no-untyped-call]
