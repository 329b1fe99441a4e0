"""What LTZ itself says of its supply and its used references, as of one block that we name."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ltzd.chain.contracts import abi_words, ltz
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import Rpc, RpcCall, RpcError
from ltzd.errors import NodeUnavailable
from ltzd.values import Address, Hash32, hex_of

_TOTAL_SUPPLY = abi_words.selector("totalSupply()")
_WORDS_A_BATCH = 100


@dataclass(frozen=True, slots=True)
class LtzState:
    """`supply` in the smallest unit; `used` holds LTZ's words of used references by their place."""

    supply: int
    used: Mapping[int, int]


async def read_state_at(
    rpc: Rpc, contract: Address, number: int, block_hash: Hash32, wanted: Sequence[int]
) -> LtzState:
    """The supply and the `wanted` words after a block.

    Raises NodeUnavailable with the reason where the node cannot tell it of exactly this block: it
    lags behind it, has forgotten its state, or has another block in its place.
    """
    node = Node(rpc)
    tag = await _tag(rpc, node, contract, number, block_hash)
    (supply,) = await _numbers(rpc, contract, [_TOTAL_SUPPLY], tag)
    used: dict[int, int] = {}
    for start in range(0, len(wanted), _WORDS_A_BATCH):
        some = wanted[start : start + _WORDS_A_BATCH]
        answers = await _numbers(rpc, contract, list(map(ltz.ref_word_call, some)), tag)
        used |= {word: bits for word, bits in zip(some, answers, strict=True) if bits}
    # Asked last: what was answered before then belongs to this block.
    header = await node.block(number if tag != "latest" else tag)
    if header is None or header.hash != block_hash:
        raise NodeUnavailable(f"it has another block {number} than the index, or a newer one")
    return LtzState(supply, used)


async def _tag(rpc: Rpc, node: Node, contract: Address, number: int, block_hash: Hash32) -> str:
    """How the node is asked for the block; a node without its state may have it as its newest."""
    (answer,) = await rpc.batch([_call(contract, _TOTAL_SUPPLY, hex(number))])
    if not isinstance(answer, RpcError):
        return hex(number)
    head, _ = await node.head_and_final()
    if head.hash != block_hash:
        raise NodeUnavailable(
            f"it does not tell the state of block {number}: it is behind, or keeps only newer ones"
        )
    return "latest"


async def _numbers(rpc: Rpc, contract: Address, asked: Sequence[bytes], tag: str) -> list[int]:
    answers = await rpc.batch([_call(contract, data, tag) for data in asked])
    try:
        return [ltz.decode_uint(bytes.fromhex(answer[2:])) for answer in answers]
    except (TypeError, ValueError) as error:
        raise NodeUnavailable("its answers are not those of LTZ") from error


def _call(contract: Address, data: bytes, tag: str) -> RpcCall:
    return "eth_call", ({"to": hex_of(contract), "data": hex_of(data)}, tag)
