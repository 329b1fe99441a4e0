"""Snapshots, rollbacks and reorgs."""

from collections.abc import Sequence
from typing import cast

from ltzd.dev.tester_chain.errors import invalid_parameter
from ltzd.dev.tester_chain.execution.evm import BLOCK_GAS_LIMIT
from ltzd.dev.tester_chain.execution.transaction import EvmTransaction, decode_raw
from ltzd.dev.tester_chain.json_rpc.call_request import call_request
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, method
from ltzd.dev.tester_chain.json_rpc.methods.transactions import signed
from ltzd.dev.tester_chain.json_rpc.params import Params, data, quantity
from ltzd.values import Address

_DEFAULT_GAS = BLOCK_GAS_LIMIT // 20


@method("evm_snapshot", "anvil_snapshot")
async def snapshot(context: MethodContext, _: Params) -> str:
    return hex(context.chain.snapshot())


@method("evm_revert", "anvil_revert", params_at_most=1)
async def revert(context: MethodContext, params: Params) -> bool:
    return await context.chain.revert(params.quantity(0, "id"))


@method("anvil_reset", "hardhat_reset", params_at_most=1)
async def reset(context: MethodContext, params: Params) -> None:
    """Return to genesis. Refuses to fork another chain."""
    options = params.given(0)
    forking = options.get("forking") if isinstance(options, dict) else None
    if isinstance(forking, dict) and forking.get("jsonRpcUrl") is not None:
        raise invalid_parameter("forking", "this chain cannot fork another")
    await context.chain.reset()


@method("anvil_rollback", params_at_most=1)
async def rollback(context: MethodContext, params: Params) -> None:
    await context.chain.rollback(params.quantity(0, "depth", 1))


@method("anvil_reorg", params_at_most=2)
async def reorg(context: MethodContext, params: Params) -> None:
    """Replace the last `depth` blocks; `txBlockPairs` fills the new ones."""
    first = params.required(0, "depth")
    pairs = params.given(1)
    if isinstance(first, dict):
        pairs = first.get("tx_block_pairs", first.get("txBlockPairs"))
        first = first.get("depth")
    depth = quantity(first, "depth")
    context.chain.ancestor(depth, "Reorg")
    await context.chain.reorg(depth, _replacements(context, depth, pairs))


def _replacements(
    context: MethodContext, depth: int, pairs: object
) -> Sequence[Sequence[EvmTransaction]]:
    """The transactions of each new block, in the given order."""
    if pairs is None:
        return ()
    if not isinstance(pairs, list):
        raise invalid_parameter("txBlockPairs", "expected a list")
    blocks: list[list[EvmTransaction]] = [[] for _ in range(depth)]
    nonces: dict[Address, int] = {}
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2:
            raise invalid_parameter("txBlockPairs", "expected pairs of transaction and block")
        offset = quantity(pair[1], "txBlockPairs.block")
        if offset >= depth:
            raise invalid_parameter(
                "txBlockPairs.block", f"block number cannot exceed depth - 1, which is {depth - 1}"
            )
        blocks[offset].append(_transaction(context, depth, pair[0], nonces))
    return blocks


def _transaction(
    context: MethodContext, depth: int, value: object, nonces: dict[Address, int]
) -> EvmTransaction:
    """Decode signed bytes; signs a transaction object with the sender's nonce at the fork."""
    if not isinstance(value, dict):
        return decode_raw(data(value, "txBlockPairs.transaction"))
    default_sender = next(iter(context.chain.evm.dev_keys))
    request = call_request(cast("dict[str, object]", value), default_sender)
    fork = context.chain.ancestor(depth, "Reorg")
    nonce = nonces.get(request.sender)
    if nonce is None:
        nonce = context.chain.state(fork).nonce(request.sender)
    nonces[request.sender] = nonce + 1
    gas = _DEFAULT_GAS if request.gas is None else request.gas
    return signed(context, request, nonce if request.nonce is None else request.nonce, gas)
