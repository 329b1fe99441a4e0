"""Going back: snapshots, rollbacks and reorgs."""

from collections.abc import Sequence
from typing import cast

from ltzd.dev.tester_chain.call_request import call_request
from ltzd.dev.tester_chain.errors import invalid_parameter
from ltzd.dev.tester_chain.evm import BLOCK_GAS_LIMIT
from ltzd.dev.tester_chain.methods.transactions import signed
from ltzd.dev.tester_chain.node import Node, method
from ltzd.dev.tester_chain.params import Params, data, quantity
from ltzd.dev.tester_chain.transaction import Transaction, decode_raw
from ltzd.values import Address

_DEFAULT_GAS = BLOCK_GAS_LIMIT // 20


@method("evm_snapshot", "anvil_snapshot")
async def snapshot(node: Node, _: Params) -> str:
    return hex(node.chain.snapshot())


@method("evm_revert", "anvil_revert", params_at_most=1)
async def revert(node: Node, params: Params) -> bool:
    return await node.chain.revert(params.quantity(0, "id"))


@method("anvil_rollback", params_at_most=1)
async def rollback(node: Node, params: Params) -> None:
    await node.chain.rollback(params.quantity(0, "depth", 1))


@method("anvil_reorg", params_at_most=2)
async def reorg(node: Node, params: Params) -> None:
    """Replaces the last `depth` blocks; `txBlockPairs` says what the new ones hold."""
    first = params.required(0, "depth")
    pairs = params.given(1)
    if isinstance(first, dict):
        pairs = first.get("tx_block_pairs", first.get("txBlockPairs"))
        first = first.get("depth")
    depth = quantity(first, "depth")
    node.chain.ancestor(depth, "Reorg")
    await node.chain.reorg(depth, _replacements(node, depth, pairs))


def _replacements(node: Node, depth: int, pairs: object) -> Sequence[Sequence[Transaction]]:
    """For each new block its transactions, in the order given."""
    if pairs is None:
        return ()
    if not isinstance(pairs, list):
        raise invalid_parameter("txBlockPairs", "expected a list")
    blocks: list[list[Transaction]] = [[] for _ in range(depth)]
    nonces: dict[Address, int] = {}
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise invalid_parameter("txBlockPairs", "expected pairs of transaction and block")
        offset = quantity(pair[1], "txBlockPairs.block")
        if offset >= depth:
            raise invalid_parameter(
                "txBlockPairs.block", f"block number cannot exceed depth - 1, which is {depth - 1}"
            )
        blocks[offset].append(_transaction(node, depth, pair[0], nonces))
    return blocks


def _transaction(node: Node, depth: int, said: object, nonces: dict[Address, int]) -> Transaction:
    """Signed bytes as they are; an object is signed with the nonce after the fork."""
    if not isinstance(said, dict):
        return decode_raw(data(said, "txBlockPairs.transaction"))
    default_sender = next(iter(node.chain.evm.dev_keys))
    request = call_request(cast("dict[str, object]", said), default_sender)
    fork = node.chain.ancestor(depth, "Reorg")
    nonce = nonces.get(request.sender)
    if nonce is None:
        nonce = node.chain.state(fork).nonce(request.sender)
    nonces[request.sender] = nonce + 1
    gas = _DEFAULT_GAS if request.gas is None else request.gas
    return signed(node, request, nonce if request.nonce is None else request.nonce, gas)
