"""Execution without keeping changes: eth_call and eth_estimateGas."""

from msgspec.structs import replace

from ltzd.dev.tester_chain.errors import (
    JsonRpcError,
    cap_too_low,
    refused,
    reverted,
    tip_above_cap,
)
from ltzd.dev.tester_chain.execution.block import MinedBlock
from ltzd.dev.tester_chain.execution.evm import CallOutcome
from ltzd.dev.tester_chain.execution.overrides import NO_OVERRIDES, Overrides
from ltzd.dev.tester_chain.execution.state import EvmState
from ltzd.dev.tester_chain.execution.transaction import TransactionFields
from ltzd.dev.tester_chain.json_rpc.call_request import CallRequest, call_request
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, method
from ltzd.dev.tester_chain.json_rpc.override_params import overrides
from ltzd.dev.tester_chain.json_rpc.params import Params
from ltzd.values import Address, checksummed, hex_of

_TRANSFER_GAS = 21_000
_CALL_STIPEND = 2_300
# As in geth: the last per cent costs more executions than it saves gas.
_TOLERANCE = 0.015


@method("eth_call", params_at_most=4)
async def call(context: MethodContext, params: Params) -> str:
    request = call_request(params.mapping(0, "transaction"))
    block = await context.block(params.block(1))
    gas = gas_given(context, request)
    outcome = await run(context, block, request, gas, overrides(params, 2))
    return hex_of(_output(outcome))


@method("eth_estimateGas", params_at_most=4)
async def estimate_gas(context: MethodContext, params: Params) -> str:
    """By default for the next block, after the transactions of the pool, as in anvil."""
    request = call_request(params.mapping(0, "transaction"))
    block = await context.block(params.block(1, default="pending"))
    return hex(await gas_needed(context, block, request, overrides(params, 2)))


async def gas_needed(
    context: MethodContext,
    block: MinedBlock,
    request: CallRequest,
    assumed: Overrides = NO_OVERRIDES,
) -> int:
    """The least gas, within 1.5 %, with which the transaction succeeds. Raises JsonRpcError."""
    chain, sender = context.chain, request.sender
    state = chain.assumed_state(block, assumed)
    highest = _allowance(state, request, gas_given(context, request))
    fields = request.as_call(chain.chain_id, highest)
    if highest < fields.min_gas_limit:
        raise refused(f"gas required exceeds allowance ({highest})")
    try:
        _check(state, _base_fee(block, assumed), fields, sender)
    except JsonRpcError as error:
        raise refused(f"failed with {highest} gas: {error.message}") from error
    if not request.data and request.to and not state.code(Address(request.to)):
        return _TRANSFER_GAS
    first = await chain.call(block, fields, sender, assumed)
    if first.error == "out of gas":
        raise refused(f"gas required exceeds allowance ({highest})")
    _output(first)
    lowest = first.gas_used - 1
    # EIP-150 withholds a 64th of the gas at each nested call.
    guess = (first.gas_used + first.gas_refunded + _CALL_STIPEND) * 64 // 63
    while lowest + 1 < highest and (highest - lowest) / highest > _TOLERANCE:
        middle = guess if lowest < guess < highest else (lowest + highest) // 2
        guess = 0
        attempt = await chain.call(block, replace(fields, gas=middle), sender, assumed)
        if attempt.error is None:
            highest = middle
        else:
            lowest = middle
    return highest


async def run(
    context: MethodContext,
    block: MinedBlock,
    request: CallRequest,
    gas: int,
    assumed: Overrides = NO_OVERRIDES,
) -> CallOutcome:
    """Execute after the transactions of `block`. Raises JsonRpcError if no node would run it."""
    chain = context.chain
    fields = request.as_call(chain.chain_id, gas)
    state = chain.assumed_state(block, assumed)
    try:
        _check(state, _base_fee(block, assumed), fields, request.sender)
    except JsonRpcError as error:
        raise refused(f"err: {error.message} (supplied gas {gas})") from error
    return await chain.call(block, fields, request.sender, assumed)


def gas_given(context: MethodContext, request: CallRequest) -> int:
    """The gas that the caller names, also 0, but at most the block limit, as in geth."""
    limit = context.chain.pool.gas_limit
    return limit if request.gas is None else min(request.gas, limit)


def _base_fee(block: MinedBlock, assumed: Overrides) -> int:
    return int(assumed.changed(block.header).base_fee_per_gas)


def _check(state: EvmState, base_fee: int, fields: TransactionFields, sender: Address) -> None:
    """The checks of a transaction, in geth's order, except for nonce and signature."""
    cap, tip = fields.max_fee_per_gas, fields.max_priority_fee_per_gas
    if tip > cap:
        raise tip_above_cap(sender, tip, cap)
    if 0 < cap < base_fee:
        raise cap_too_low(sender, cap, base_fee)
    balance = state.balance(sender)
    if balance < fields.cost:
        raise refused(
            "insufficient funds for gas * price + value: "
            f"address {checksummed(sender)} have {balance} want {fields.cost}"
        )
    if fields.gas < fields.charged_gas:
        raise refused(f"intrinsic gas too low: have {fields.gas}, want {fields.charged_gas}")
    if fields.gas < fields.floor_gas:
        raise refused(
            f"insufficient gas for floor data gas cost: have {fields.gas}, want {fields.floor_gas}"
        )


def _allowance(state: EvmState, request: CallRequest, gas: int) -> int:
    """The gas that the sender can pay for, if a price is named."""
    if not request.fee_cap:
        return gas
    balance = state.balance(request.sender)
    if balance < request.value:
        raise refused("insufficient funds for transfer")
    return min(gas, (balance - request.value) // request.fee_cap)


def _output(outcome: CallOutcome) -> bytes:
    if outcome.is_revert:
        raise reverted(outcome.output)
    if outcome.error is not None:
        raise refused(outcome.error)
    return outcome.output
