"""Execution without keeping changes: eth_call and eth_estimateGas."""

from ltzd.dev.tester_chain.errors import refused, reverted
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
    choice = params.block(1)
    block = choice.existing(context.chain.block_tree)
    outcome = await run(
        context,
        block,
        request,
        _gas_given(context, request),
        pending=choice.is_pending,
        assumed=overrides(params, 2),
    )
    return hex_of(_output(outcome))


@method("eth_estimateGas", params_at_most=4)
async def estimate_gas(context: MethodContext, params: Params) -> str:
    request = call_request(params.mapping(0, "transaction"))
    block = params.block(1).existing(context.chain.block_tree)
    return hex(await gas_needed(context, block, request, overrides(params, 2)))


async def gas_needed(
    context: MethodContext,
    block: MinedBlock,
    request: CallRequest,
    assumed: Overrides = NO_OVERRIDES,
) -> int:
    """The least gas, within 1.5 %, with which the transaction succeeds. Raises JsonRpcError."""
    state = context.chain.assumed_state(block, assumed)
    highest = _allowance(state, request, _gas_given(context, request))
    _check(state, request, _unsigned(context, request, highest))
    if not request.data and request.to and not state.code(Address(request.to)):
        return _TRANSFER_GAS
    first = await run(context, block, request, highest, assumed=assumed)
    if first.error == "out of gas":
        raise refused(f"gas required exceeds allowance ({highest})")
    _output(first)
    lowest = max(first.gas_used - 1, _TRANSFER_GAS - 1)
    # EIP-150 withholds a 64th of the gas at each nested call.
    guess = (first.gas_used + first.gas_refunded + _CALL_STIPEND) * 64 // 63
    while lowest + 1 < highest and (highest - lowest) / highest > _TOLERANCE:
        middle = guess if lowest < guess < highest else (lowest + highest) // 2
        guess = 0
        if (await run(context, block, request, middle, assumed=assumed)).error is None:
            highest = middle
        else:
            lowest = middle
    return highest


async def run(
    context: MethodContext,
    block: MinedBlock,
    request: CallRequest,
    gas: int,
    *,
    pending: bool = False,
    assumed: Overrides = NO_OVERRIDES,
) -> CallOutcome:
    unsigned = _unsigned(context, request, gas)
    _check(context.chain.assumed_state(block, assumed), request, unsigned)
    return await context.chain.call(
        block, unsigned, request.sender, pending=pending, overrides=assumed
    )


def _unsigned(context: MethodContext, request: CallRequest, gas: int) -> TransactionFields:
    return request.as_unsigned(chain_id=context.chain.chain_id, nonce=0, gas=gas, base_fee=0, tip=0)


def _gas_given(context: MethodContext, request: CallRequest) -> int:
    """The gas that the caller names, also 0, but at most the block limit, as in geth."""
    limit = context.chain.pool.gas_limit
    return limit if request.gas is None else min(request.gas, limit)


def _check(state: EvmState, request: CallRequest, unsigned: TransactionFields) -> None:
    balance = state.balance(request.sender)
    if balance < request.value:
        raise refused(
            "insufficient funds for gas * price + value: "
            f"address {checksummed(request.sender)} have {balance} want {request.value}"
        )
    if unsigned.gas < unsigned.min_gas_limit:
        raise refused(f"intrinsic gas too low: have {unsigned.gas}, want {unsigned.min_gas_limit}")


def _allowance(state: EvmState, request: CallRequest, gas: int) -> int:
    """The gas that the sender can pay for, if a price is named."""
    if not request.fee_cap:
        return gas
    balance = state.balance(request.sender)
    affordable = max(0, balance - request.value) // request.fee_cap
    if affordable < _TRANSFER_GAS:
        raise refused(f"gas required exceeds allowance ({affordable})")
    return min(gas, affordable)


def _output(outcome: CallOutcome) -> bytes:
    if outcome.is_revert:
        raise reverted(outcome.output)
    if outcome.error is not None:
        raise refused(outcome.error)
    return outcome.output
