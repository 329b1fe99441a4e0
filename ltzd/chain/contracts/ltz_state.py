"""Reads LTZ's supply and used references after a given block, to compare them with the index."""

from collections.abc import Hashable, Mapping, Sequence

import msgspec

from ltzd.chain.contracts import abi_words, ltz
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import RpcCall, RpcClient, RpcError
from ltzd.errors import NodeUnavailable
from ltzd.values import Address, Hash32, hex_of

_TOTAL_SUPPLY = abi_words.selector("totalSupply()")
_WORDS_PER_BATCH = 100


class LtzState(msgspec.Struct, frozen=True):
    """`supply` is in the smallest unit; `used` holds the bitmap's non-zero words by index."""

    supply: int
    used: Mapping[int, int]

    @property
    def key(self) -> Hashable:
        """Equal for equal states."""
        return self.supply, frozenset(self.used.items())


async def read_state_at(
    rpc: RpcClient, contract: Address, number: int, block_hash: Hash32, wanted: Sequence[int]
) -> LtzState:
    """Read the supply and the `wanted` words of the bitmap after a block.

    Raises NodeUnavailable with the reason if the node cannot answer for exactly this block: it lags
    behind, has pruned the state, or has another block at this height.
    """
    node = Node(rpc)
    tag = await _tag(rpc, node, contract, number, block_hash)
    (supply,) = await _numbers(rpc, contract, [_TOTAL_SUPPLY], tag)
    used: dict[int, int] = {}
    for start in range(0, len(wanted), _WORDS_PER_BATCH):
        words = wanted[start : start + _WORDS_PER_BATCH]
        answers = await _numbers(rpc, contract, list(map(ltz.ref_word_call, words)), tag)
        used |= {word: bits for word, bits in zip(words, answers, strict=True) if bits}
    # Read last: if the block is still there, all answers before belong to it.
    header = await node.block(number if tag != "latest" else tag)
    if header is None or header.hash != block_hash:
        raise NodeUnavailable(f"it has another block {number} than the index, or a newer one")
    return LtzState(supply, used)


async def _tag(
    rpc: RpcClient, node: Node, contract: Address, number: int, block_hash: Hash32
) -> str:
    """The block tag to ask with: `latest` if the block is the head and its state has no number."""
    (answer,) = await rpc.batch([_call(contract, _TOTAL_SUPPLY, hex(number))])
    if not isinstance(answer, RpcError):
        return hex(number)
    head, _ = await node.head_and_final()
    if head.hash != block_hash:
        raise NodeUnavailable(
            f"it has no state of block {number}: it is behind, or keeps only newer states"
        )
    return "latest"


async def _numbers(
    rpc: RpcClient, contract: Address, calls: Sequence[bytes], tag: str
) -> list[int]:
    answers = await rpc.batch([_call(contract, data, tag) for data in calls])
    try:
        return [ltz.decode_uint(bytes.fromhex(answer[2:])) for answer in answers]
    except (TypeError, ValueError) as error:
        raise NodeUnavailable("its answers are not those of LTZ") from error


def _call(contract: Address, data: bytes, tag: str) -> RpcCall:
    return "eth_call", ({"to": hex_of(contract), "data": hex_of(data)}, tag)
