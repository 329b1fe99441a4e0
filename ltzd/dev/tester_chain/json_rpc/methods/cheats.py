"""Cheat codes: balances, nonces, code, storage, impersonation and the pool's contents."""

from ltzd.dev.tester_chain.execution.state import EvmState
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, method
from ltzd.dev.tester_chain.json_rpc.methods.network import CLIENT
from ltzd.dev.tester_chain.json_rpc.objects import JsonObject
from ltzd.dev.tester_chain.json_rpc.params import Params
from ltzd.values import hex_of


@method("anvil_setBalance", "hardhat_setBalance", "evm_setAccountBalance", params_at_most=2)
async def set_balance(context: MethodContext, params: Params) -> None:
    address, balance = params.address(0), params.quantity(1, "balance")

    def change(state: EvmState) -> None:
        state.set_balance(address, balance)

    await context.chain.change_state(change)


@method("anvil_addBalance", params_at_most=2)
async def add_balance(context: MethodContext, params: Params) -> None:
    """Add wei to a balance, which stops at 2^256 - 1."""
    address, wei = params.address(0), params.quantity(1, "balance")

    def change(state: EvmState) -> None:
        state.set_balance(address, min(state.balance(address) + wei, 2**256 - 1))

    await context.chain.change_state(change)


@method("anvil_setCoinbase", "hardhat_setCoinbase", params_at_most=1)
async def set_coinbase(context: MethodContext, params: Params) -> None:
    """Set the account that gets the tips of the blocks from the next one on."""
    context.chain.coinbase = params.address(0)


@method("anvil_setLoggingEnabled", "hardhat_setLoggingEnabled", params_at_most=1)
async def set_logging_enabled(_context: MethodContext, params: Params) -> None:
    """Changes nothing: this chain logs only its own failures."""
    params.flag(0, "enabled", default=True)


@method("anvil_setRpcUrl", params_at_most=1)
async def set_rpc_url(_context: MethodContext, params: Params) -> None:
    """Changes nothing, as in an anvil that is no fork."""
    params.required(0, "url")


@method("anvil_setNonce", "hardhat_setNonce", "evm_setAccountNonce", params_at_most=2)
async def set_nonce(context: MethodContext, params: Params) -> None:
    address, nonce = params.address(0), params.quantity(1, "nonce", at_most=2**64 - 2)

    def change(state: EvmState) -> None:
        state.set_nonce(address, nonce)

    await context.chain.change_state(change)
    context.chain.pool.forget_below(address, nonce)


@method("anvil_setCode", "hardhat_setCode", "evm_setAccountCode", params_at_most=2)
async def set_code(context: MethodContext, params: Params) -> None:
    address, code = params.address(0), params.data(1, "code")

    def change(state: EvmState) -> None:
        state.set_code(address, code)

    await context.chain.change_state(change)


@method("anvil_setStorageAt", "hardhat_setStorageAt", "evm_setAccountStorageAt", params_at_most=3)
async def set_storage_at(context: MethodContext, params: Params) -> bool:
    address, slot = params.address(0), params.quantity(1, "slot")
    value = params.quantity(2, "value")

    def change(state: EvmState) -> None:
        state.set_storage(address, slot, value)

    await context.chain.change_state(change)
    return True


@method("anvil_impersonateAccount", "hardhat_impersonateAccount", params_at_most=1)
async def impersonate(context: MethodContext, params: Params) -> None:
    context.chain.impersonated.add(params.address(0))


@method("anvil_stopImpersonatingAccount", "hardhat_stopImpersonatingAccount", params_at_most=1)
async def stop_impersonating(context: MethodContext, params: Params) -> None:
    context.chain.impersonated.discard(params.address(0))


@method("anvil_autoImpersonateAccount", params_at_most=1)
async def auto_impersonate(context: MethodContext, params: Params) -> None:
    params.required(0, "enabled")
    context.chain.impersonates_all = params.flag(0, "enabled", default=True)


@method("anvil_dropTransaction", "hardhat_dropTransaction", params_at_most=1)
async def drop(context: MethodContext, params: Params) -> str | None:
    transaction = context.chain.pool.find(params.hash32(0, "hash"))
    if transaction is None:
        return None
    context.chain.pool.forget([transaction])
    return hex_of(transaction.hash)


@method("anvil_dropAllTransactions")
async def drop_all(context: MethodContext, _: Params) -> None:
    context.chain.pool.clear()


@method("anvil_removePoolTransactions", params_at_most=1)
async def drop_sender_transactions(context: MethodContext, params: Params) -> None:
    waiting = context.chain.pool.by_sender().get(params.address(0), {})
    context.chain.pool.forget(list(waiting.values()))


@method("anvil_nodeInfo", "hardhat_metadata")
async def node_info(context: MethodContext, _: Params) -> JsonObject:
    head = context.chain.block_tree.head
    return {
        "clientVersion": CLIENT,
        "currentBlockNumber": head.number,
        "currentBlockTimestamp": head.timestamp,
        "currentBlockHash": hex_of(head.hash),
        "hardFork": "prague",
        "transactionOrder": "fees",
        "environment": {
            "baseFee": context.chain.base_fee(),
            "chainId": context.chain.chain_id,
            "gasLimit": int(head.header.gas_limit),
            "gasPrice": context.chain.base_fee(),
        },
        "forkConfig": {"forkUrl": None, "forkBlockNumber": None, "forkRetryBackoff": None},
    }
