"""Reads of the state by address at any block: balance, nonce, code, storage."""

from ltzd.dev.tester_chain.execution.state import EvmState
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, method
from ltzd.dev.tester_chain.json_rpc.params import Params
from ltzd.values import hex_of


@method("eth_accounts", "eth_requestAccounts")
async def accounts(context: MethodContext, _: Params) -> list[str]:
    return [hex_of(address) for address in context.chain.evm.dev_keys]


@method("eth_getBalance", params_at_most=2)
async def balance(context: MethodContext, params: Params) -> str:
    address = params.address(0)
    return hex((await _state(context, params, 1)).balance(address))


@method("eth_getTransactionCount", params_at_most=2)
async def transaction_count(context: MethodContext, params: Params) -> str:
    address = params.address(0)
    if params.block(1).is_pending:
        return hex(context.chain.next_nonce(address))
    return hex((await _state(context, params, 1)).nonce(address))


@method("eth_getCode", params_at_most=2)
async def code(context: MethodContext, params: Params) -> str:
    address = params.address(0)
    return hex_of((await _state(context, params, 1)).code(address))


@method("eth_getStorageAt", params_at_most=3)
async def storage_at(context: MethodContext, params: Params) -> str:
    address, slot = params.address(0), params.quantity(1, "slot")
    value = (await _state(context, params, 2)).storage(address, slot)
    return hex_of(value.to_bytes(32, "big"))


async def _state(context: MethodContext, params: Params, position: int) -> EvmState:
    return context.chain.state(await context.block(params.block(position)))
