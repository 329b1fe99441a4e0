"""State by address: balances, nonces, code and storage, at any block."""

from ltzd.dev.tester_chain.node import Node, method
from ltzd.dev.tester_chain.params import Params
from ltzd.dev.tester_chain.state import State
from ltzd.values import hex_of


@method("eth_accounts")
async def accounts(node: Node, _: Params) -> list[str]:
    return [hex_of(address) for address in node.chain.evm.dev_keys]


@method("eth_getBalance", params_at_most=2)
async def balance(node: Node, params: Params) -> str:
    address = params.address(0)
    return hex(_state(node, params, 1).balance(address))


@method("eth_getTransactionCount", params_at_most=2)
async def transaction_count(node: Node, params: Params) -> str:
    address = params.address(0)
    if params.block(1).is_pending:
        return hex(node.chain.next_nonce(address))
    return hex(_state(node, params, 1).nonce(address))


@method("eth_getCode", params_at_most=2)
async def code(node: Node, params: Params) -> str:
    address = params.address(0)
    return hex_of(_state(node, params, 1).code(address))


@method("eth_getStorageAt", params_at_most=3)
async def storage_at(node: Node, params: Params) -> str:
    address, slot = params.address(0), params.quantity(1, "slot")
    value = _state(node, params, 2).storage(address, slot)
    return hex_of(value.to_bytes(32, "big"))


def _state(node: Node, params: Params, position: int) -> State:
    block = params.block(position).existing(node.chain.ledger)
    return node.chain.state(block)
