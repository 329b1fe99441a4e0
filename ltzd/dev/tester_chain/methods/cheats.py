"""Changes by decree: balances, nonces, code, impersonation and the pool's contents."""

from ltzd.dev.tester_chain.methods.network import CLIENT
from ltzd.dev.tester_chain.node import Node, method
from ltzd.dev.tester_chain.objects import JsonObject
from ltzd.dev.tester_chain.params import Params
from ltzd.dev.tester_chain.state import State
from ltzd.values import hex_of


@method("anvil_setBalance", "hardhat_setBalance", "evm_setAccountBalance", params_at_most=2)
async def set_balance(node: Node, params: Params) -> None:
    address, balance = params.address(0), params.quantity(1, "balance")

    def change(state: State) -> None:
        state.set_balance(address, balance)

    await node.chain.decree(change)


@method("anvil_setNonce", "hardhat_setNonce", "evm_setAccountNonce", params_at_most=2)
async def set_nonce(node: Node, params: Params) -> None:
    address, nonce = params.address(0), params.quantity(1, "nonce", at_most=2**64 - 2)

    def change(state: State) -> None:
        state.set_nonce(address, nonce)

    await node.chain.decree(change)
    node.chain.pool.forget_below(address, nonce)


@method("anvil_setCode", "hardhat_setCode", "evm_setAccountCode", params_at_most=2)
async def set_code(node: Node, params: Params) -> None:
    address, code = params.address(0), params.data(1, "code")

    def change(state: State) -> None:
        state.set_code(address, code)

    await node.chain.decree(change)


@method("anvil_setStorageAt", "hardhat_setStorageAt", "evm_setAccountStorageAt", params_at_most=3)
async def set_storage_at(node: Node, params: Params) -> bool:
    address, slot = params.address(0), params.quantity(1, "slot")
    value = params.quantity(2, "value")

    def change(state: State) -> None:
        state.set_storage(address, slot, value)

    await node.chain.decree(change)
    return True


@method("anvil_impersonateAccount", "hardhat_impersonateAccount", params_at_most=1)
async def impersonate(node: Node, params: Params) -> None:
    node.chain.impersonated.add(params.address(0))


@method("anvil_stopImpersonatingAccount", "hardhat_stopImpersonatingAccount", params_at_most=1)
async def stop_impersonating(node: Node, params: Params) -> None:
    node.chain.impersonated.discard(params.address(0))


@method("anvil_autoImpersonateAccount", params_at_most=1)
async def auto_impersonate(node: Node, params: Params) -> None:
    params.required(0, "enabled")
    node.chain.impersonates_all = params.flag(0, "enabled", default=True)


@method("anvil_dropTransaction", "hardhat_dropTransaction", params_at_most=1)
async def drop(node: Node, params: Params) -> str | None:
    found = node.chain.pool.find(params.hash32(0, "hash"))
    if found is None:
        return None
    node.chain.pool.forget([found])
    return hex_of(found.hash)


@method("anvil_dropAllTransactions")
async def drop_all(node: Node, _: Params) -> None:
    node.chain.pool.clear()


@method("anvil_removePoolTransactions", params_at_most=1)
async def drop_of_sender(node: Node, params: Params) -> None:
    waiting = node.chain.pool.by_sender().get(params.address(0), {})
    node.chain.pool.forget(list(waiting.values()))


@method("anvil_nodeInfo", "hardhat_metadata")
async def node_info(node: Node, _: Params) -> JsonObject:
    head = node.chain.ledger.head
    return {
        "clientVersion": CLIENT,
        "currentBlockNumber": head.number,
        "currentBlockTimestamp": head.timestamp,
        "currentBlockHash": hex_of(head.hash),
        "hardFork": "cancun",
        "transactionOrder": "fees",
        "environment": {
            "baseFee": node.chain.base_fee(),
            "chainId": node.chain.chain_id,
            "gasLimit": int(head.header.gas_limit),
            "gasPrice": node.chain.base_fee(),
        },
        "forkConfig": {"forkUrl": None, "forkBlockNumber": None, "forkRetryBackoff": None},
    }
