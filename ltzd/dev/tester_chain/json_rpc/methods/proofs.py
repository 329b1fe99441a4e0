"""Accounts with their proofs, and the accounts and slots that a transaction accesses."""

from ltzd.dev.tester_chain.errors import invalid_parameter
from ltzd.dev.tester_chain.execution.block import MinedBlock
from ltzd.dev.tester_chain.execution.proofs import AccountProof
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, method
from ltzd.dev.tester_chain.json_rpc.objects import JsonObject
from ltzd.dev.tester_chain.json_rpc.params import Params, quantity
from ltzd.values import Address, hex_of

_SLOTS_AT_MOST = 1_024


@method("eth_getProof", params_at_most=3)
async def proof(context: MethodContext, params: Params) -> JsonObject:
    address, slots = params.address(0), params.required(1, "storageKeys")
    if not isinstance(slots, list) or len(slots) > _SLOTS_AT_MOST:
        raise invalid_parameter("storageKeys", f"expected a list of at most {_SLOTS_AT_MOST}")
    block = await context.block(params.block(2))
    numbers = [quantity(slot, "storageKeys") for slot in slots]
    proven = _proof(context, block, address, *numbers)
    return {
        "address": hex_of(address),
        "balance": hex(proven.balance),
        "nonce": hex(proven.nonce),
        "codeHash": hex_of(proven.code_hash),
        "storageHash": hex_of(proven.storage_root),
        "accountProof": [hex_of(node) for node in proven.nodes],
        "storageProof": [
            {
                # The key in the caller's own form, as in geth.
                "key": key,
                "value": hex(slot.value),
                "proof": [hex_of(node) for node in slot.nodes],
            }
            for key, slot in zip(slots, proven.slots, strict=True)
        ],
    }


@method("eth_getAccount", params_at_most=2)
async def account(context: MethodContext, params: Params) -> JsonObject:
    block = await context.block(params.block(1))
    proven = _proof(context, block, params.address(0))
    return {
        "nonce": hex(proven.nonce),
        "balance": hex(proven.balance),
        "storageRoot": hex_of(proven.storage_root),
        "codeHash": hex_of(proven.code_hash),
    }


@method("eth_getAccountInfo", params_at_most=2)
async def account_info(context: MethodContext, params: Params) -> JsonObject:
    block, address = await context.block(params.block(1)), params.address(0)
    state = context.chain.state(block)
    return {
        "nonce": hex(state.nonce(address)),
        "balance": hex(state.balance(address)),
        "code": hex_of(state.code(address)),
    }


def _proof(
    context: MethodContext, block: MinedBlock, address: Address, *slots: int
) -> AccountProof:
    return context.chain.evm.proof(block, address, slots)
