"""Running code without keeping it: eth_call and eth_estimateGas."""

from ltzd.dev.tester_chain.block import Block
from ltzd.dev.tester_chain.call_request import CallRequest, call_request
from ltzd.dev.tester_chain.errors import refused, reverted
from ltzd.dev.tester_chain.evm import BLOCK_GAS_LIMIT, Outcome
from ltzd.dev.tester_chain.node import Node, method
from ltzd.dev.tester_chain.params import Params
from ltzd.dev.tester_chain.transaction import Unsigned
from ltzd.values import Address, checksummed, hex_of

_TRANSFER_GAS = 21_000
_CALL_STIPEND = 2_300
# geth stops here too: the last per cent costs more executions than it saves gas.
_TOLERANCE = 0.015


@method("eth_call", params_at_most=2)
async def call(node: Node, params: Params) -> str:
    request = call_request(params.mapping(0, "transaction"))
    choice = params.block(1)
    block = choice.existing(node.chain.ledger)
    outcome = await run(node, block, request, _gas_given(request), pending=choice.is_pending)
    return hex_of(_output(outcome))


@method("eth_estimateGas", params_at_most=2)
async def estimate_gas(node: Node, params: Params) -> str:
    request = call_request(params.mapping(0, "transaction"))
    block = params.block(1).existing(node.chain.ledger)
    return hex(await gas_needed(node, block, request))


async def gas_needed(node: Node, block: Block, request: CallRequest) -> int:
    """The least gas, within 1.5 %, with which the transaction succeeds. Raises RpcError."""
    highest = _allowance(node, block, request)
    _check(node, block, request, _said(node, request, highest))
    if not request.data and request.to and not node.chain.state(block).code(Address(request.to)):
        return _TRANSFER_GAS
    first = await run(node, block, request, highest)
    if first.error == "out of gas":
        raise refused(f"gas required exceeds allowance ({highest})")
    _output(first)
    lowest = max(first.gas_used - 1, _TRANSFER_GAS - 1)
    # EIP-150 keeps back a 64th of the gas at each nested call.
    guess = (first.gas_used + first.gas_refunded + _CALL_STIPEND) * 64 // 63
    while lowest + 1 < highest and (highest - lowest) / highest > _TOLERANCE:
        middle = guess if lowest < guess < highest else (lowest + highest) // 2
        guess = 0
        if (await run(node, block, request, middle)).error is None:
            highest = middle
        else:
            lowest = middle
    return highest


async def run(
    node: Node, block: Block, request: CallRequest, gas: int, *, pending: bool = False
) -> Outcome:
    said = _said(node, request, gas)
    _check(node, block, request, said)
    return await node.chain.call(block, said, request.sender, pending=pending)


def _said(node: Node, request: CallRequest, gas: int) -> Unsigned:
    return request.as_unsigned(chain_id=node.chain.chain_id, nonce=0, gas=gas, base_fee=0, tip=0)


def _gas_given(request: CallRequest) -> int:
    """Exactly what the caller names, 0 too; as geth, no more than a block holds."""
    return BLOCK_GAS_LIMIT if request.gas is None else min(request.gas, BLOCK_GAS_LIMIT)


def _check(node: Node, block: Block, request: CallRequest, said: Unsigned) -> None:
    balance = node.chain.state(block).balance(request.sender)
    if balance < request.value:
        raise refused(
            "insufficient funds for gas * price + value: "
            f"address {checksummed(request.sender)} have {balance} want {request.value}"
        )
    if said.gas < said.least_gas:
        raise refused(f"intrinsic gas too low: have {said.gas}, want {said.least_gas}")


def _allowance(node: Node, block: Block, request: CallRequest) -> int:
    """The gas that the sender can pay for, where a price is named."""
    gas = _gas_given(request)
    if not request.fee_cap:
        return gas
    balance = node.chain.state(block).balance(request.sender)
    affordable = max(0, balance - request.value) // request.fee_cap
    if affordable < _TRANSFER_GAS:
        raise refused(f"gas required exceeds allowance ({affordable})")
    return min(gas, affordable)


def _output(outcome: Outcome) -> bytes:
    if outcome.is_revert:
        raise reverted(outcome.output)
    if outcome.error is not None:
        raise refused(outcome.error)
    return outcome.output
