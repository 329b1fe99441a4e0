"""eth_createAccessList: the access list (EIP-2930) that a transaction would need."""

from msgspec.structs import replace

from ltzd.dev.tester_chain.execution.evm import CallOutcome
from ltzd.dev.tester_chain.execution.transaction import AccessList
from ltzd.dev.tester_chain.json_rpc.call_request import call_request
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, method
from ltzd.dev.tester_chain.json_rpc.methods.calls import gas_given, run
from ltzd.dev.tester_chain.json_rpc.objects import JsonObject, access_list_object
from ltzd.dev.tester_chain.json_rpc.override_params import overrides
from ltzd.dev.tester_chain.json_rpc.params import Params

_RUNS_AT_MOST = 8


@method("eth_createAccessList", params_at_most=4)
async def create_access_list(context: MethodContext, params: Params) -> JsonObject:
    """Run the transaction until its list no longer changes what it accesses, as in geth.

    A transaction that fails has an `error` beside its list.
    """
    request = call_request(params.mapping(0, "transaction"))
    block, assumed = await context.block(params.block(1)), overrides(params, 2)
    for _ in range(_RUNS_AT_MOST):
        gas = gas_given(context, request)
        outcome = await run(context, block, request, gas, assumed)
        if _is_same(outcome.accessed, request.access_list):
            break
        request = replace(request, access_list=outcome.accessed)
    return _answer(outcome)


def _is_same(first: AccessList, second: AccessList) -> bool:
    def as_sets(accesses: AccessList) -> dict[bytes, set[int]]:
        return {bytes(address): set(slots) for address, slots in accesses}

    return as_sets(first) == as_sets(second)


def _answer(outcome: CallOutcome) -> JsonObject:
    answer: JsonObject = {
        "accessList": access_list_object(outcome.accessed),
        "gasUsed": hex(outcome.gas_used),
    }
    if outcome.error is not None:
        answer["error"] = outcome.error
    return answer
