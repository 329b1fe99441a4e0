"""eth_simulateV1: calls in blocks that would follow, each with overrides of state and block.

Transfers are not traced and nonces not validated: both options are refused.
"""

from collections.abc import Mapping
from typing import cast

from ltzd.dev.tester_chain.errors import (
    INVALID_PARAMS,
    JsonRpcError,
    invalid_parameter,
    refused,
    reverted,
)
from ltzd.dev.tester_chain.execution.evm import CallOutcome, outcome_of
from ltzd.dev.tester_chain.execution.simulation import (
    PlannedBlock,
    SimulatedBlock,
    SimulatedCall,
)
from ltzd.dev.tester_chain.json_rpc.call_request import call_request
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, method
from ltzd.dev.tester_chain.json_rpc.objects import JsonObject, block_object, log_object
from ltzd.dev.tester_chain.json_rpc.override_params import overrides
from ltzd.dev.tester_chain.json_rpc.params import Params
from ltzd.values import hex_of

_BLOCKS_AT_MOST = 256


@method("eth_simulateV1", params_at_most=2)
async def simulate(context: MethodContext, params: Params) -> list[JsonObject]:
    options = params.mapping(0, "options")
    for unsupported in ("validation", "traceTransfers"):
        if options.get(unsupported):
            raise invalid_parameter(unsupported, "not supported here")
    blocks = _list(options.get("blockStateCalls"), "blockStateCalls")
    if len(blocks) > _BLOCKS_AT_MOST:
        raise JsonRpcError(INVALID_PARAMS, f"too many blocks, at most {_BLOCKS_AT_MOST}")
    planned = [_planned(context, _object(block, "blockStateCalls")) for block in blocks]
    parent = await context.block(params.block(1))
    full = options.get("returnFullTransactions") is True
    simulated = await context.chain.simulate(parent, planned)
    return [_answer(block, full=full) for block in simulated]


def _planned(context: MethodContext, block: Mapping[str, object]) -> PlannedBlock:
    given = Params([block.get("stateOverrides"), block.get("blockOverrides")])
    calls = _list(block.get("calls") or [], "calls")
    return PlannedBlock(
        overrides(given, 0), [_call(context, _object(call, "calls")) for call in calls]
    )


def _call(context: MethodContext, fields: Mapping[str, object]) -> SimulatedCall:
    request = call_request(fields)
    unsigned = request.as_call(context.chain.chain_id, request.gas or 0)
    return SimulatedCall(unsigned, request.sender, request.nonce)


def _answer(simulated: SimulatedBlock, *, full: bool) -> JsonObject:
    block = simulated.block
    calls = []
    for receipt, execution in zip(block.receipts, simulated.executions, strict=True):
        outcome = outcome_of(execution)
        calls.append(
            {
                "returnData": hex_of(outcome.output),
                "logs": [log_object(block, log) for log in receipt.logs],
                "gasUsed": hex(receipt.gas_used),
                "status": hex(receipt.succeeded),
                **_error(outcome),
            }
        )
    return {**block_object(block, full=full), "calls": calls}


def _error(outcome: CallOutcome) -> JsonObject:
    if outcome.error is None:
        return {}
    error = reverted(outcome.output) if outcome.is_revert else refused(outcome.error)
    return {"error": error.as_json()}


def _list(value: object, name: str) -> list[object]:
    if not isinstance(value, list):
        raise invalid_parameter(name, "expected a list")
    return value


def _object(value: object, name: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise invalid_parameter(name, "expected objects")
    return cast("dict[str, object]", value)
