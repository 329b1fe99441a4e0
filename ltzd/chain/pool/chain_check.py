"""Checks that a node belongs to the chain that ltzd follows: chain id, genesis, LTZ's code."""

from dataclasses import dataclass

from eth_hash.auto import keccak

from ltzd.chain.node.node import Node
from ltzd.chain.pool.report import Unfit
from ltzd.errors import NodeUnavailable
from ltzd.values import Address, Hash32, hex_of


@dataclass(frozen=True, slots=True)
class ExpectedChain:
    """`code_hash` is the Keccak hash of LTZ's code at the first node that proved the chain."""

    chain_id: int
    genesis: Hash32
    ltz: Address
    code_hash: Hash32 | None = None


@dataclass(frozen=True, slots=True)
class ChainMismatch:
    verdict: Unfit
    detail: str


async def check_chain(node: Node, expected: ExpectedChain) -> ChainMismatch | Hash32:
    """The hash of LTZ's code at a node of the expected chain, or how the node differs.

    Raises NodeUnavailable.
    """
    chain_id = await node.chain_id()
    if chain_id != expected.chain_id:
        return ChainMismatch(
            Unfit.OTHER_CHAIN, f"its chain id is {chain_id}, expected {expected.chain_id}"
        )
    genesis = await node.block(0)
    if genesis is None:
        raise NodeUnavailable("The node has no block 0")
    if genesis.hash != expected.genesis:
        return ChainMismatch(
            Unfit.OTHER_CHAIN,
            f"its genesis is {hex_of(genesis.hash)}, expected {hex_of(expected.genesis)}",
        )
    code = await node.code(expected.ltz)
    if not code:
        return ChainMismatch(Unfit.NO_CONTRACT, f"it has no contract at {hex_of(expected.ltz)}")
    code_hash = Hash32(keccak(code))
    if expected.code_hash is not None and code_hash != expected.code_hash:
        return ChainMismatch(
            Unfit.NO_CONTRACT, f"its code of LTZ at {hex_of(expected.ltz)} is another one"
        )
    return code_hash
