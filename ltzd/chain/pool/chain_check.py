"""Checks that a node belongs to the chain that ltzd follows: chain id, genesis, LTZ's code."""

import msgspec

from ltzd.chain.node.node import Node
from ltzd.chain.pool.report import Unfit
from ltzd.errors import NodeUnavailable
from ltzd.values import Address, Hash32, hex_of, keccak


class ExpectedChain(msgspec.Struct, frozen=True):
    chain_id: int
    genesis: Hash32
    ltz: Address


class ChainMismatch(msgspec.Struct, frozen=True):
    verdict: Unfit
    detail: str


async def check_chain(node: Node, expected: ExpectedChain) -> ChainMismatch | Hash32:
    """The Keccak hash of LTZ's code at a node of the expected chain, or how the node differs.

    Raises NodeUnavailable.
    """
    chain_id, genesis, code = await node.chain_proof(expected.ltz)
    if chain_id != expected.chain_id:
        return ChainMismatch(
            Unfit.OTHER_CHAIN, f"its chain id is {chain_id}, expected {expected.chain_id}"
        )
    if genesis is None:
        raise NodeUnavailable("The node has no block 0")
    if genesis.hash != expected.genesis:
        return ChainMismatch(
            Unfit.OTHER_CHAIN,
            f"its genesis is {hex_of(genesis.hash)}, expected {hex_of(expected.genesis)}",
        )
    if not code:
        return ChainMismatch(Unfit.NO_CONTRACT, f"it has no contract at {hex_of(expected.ltz)}")
    return Hash32(keccak(code))
