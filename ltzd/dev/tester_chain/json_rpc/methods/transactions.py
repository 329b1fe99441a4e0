"""Sends transactions and reads them and their receipts."""

from ltzd.dev.tester_chain.errors import invalid_parameter, refused
from ltzd.dev.tester_chain.execution.fees import TIP_SUGGESTED
from ltzd.dev.tester_chain.execution.transaction import (
    EvmTransaction,
    TransactionFields,
    decode_raw,
    sign,
    sign_as,
    without_signature,
)
from ltzd.dev.tester_chain.json_rpc.call_request import CallRequest, call_request
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, method
from ltzd.dev.tester_chain.json_rpc.methods.calls import gas_needed
from ltzd.dev.tester_chain.json_rpc.objects import JsonObject, receipt_object, transaction_object
from ltzd.dev.tester_chain.json_rpc.params import Params
from ltzd.values import Address, checksummed, hex_of


@method("eth_sendRawTransaction", params_at_most=1)
async def send_raw(context: MethodContext, params: Params) -> str:
    return hex_of(context.chain.send(decode_raw(params.data(0, "data"))))


@method("eth_sendTransaction", params_at_most=1)
async def send(context: MethodContext, params: Params) -> str:
    return hex_of(context.chain.send(await completed(context, params)))


@method("eth_sendUnsignedTransaction", params_at_most=1)
async def send_unsigned(context: MethodContext, params: Params) -> str:
    """Send for any account, as if it were impersonated."""
    sender = call_request(params.mapping(0, "transaction")).sender
    transaction = await completed(context, params, impersonated=sender)
    return hex_of(context.chain.send(transaction))


@method("eth_fillTransaction", params_at_most=1)
async def fill(context: MethodContext, params: Params) -> JsonObject:
    """The transaction that eth_sendTransaction would sign for this account, without signature."""
    request = call_request(params.mapping(0, "transaction"))
    transaction = without_signature(await _filled(context, request), request.sender)
    return {"raw": hex_of(transaction.raw), "tx": transaction_object(transaction)}


async def completed(
    context: MethodContext, params: Params, impersonated: Address | None = None
) -> EvmTransaction:
    """The signed transaction, with defaults for the gas, nonce and fees that the caller omits."""
    request = call_request(params.mapping(0, "transaction"))
    if request.sender != impersonated:
        _check_can_sign(context, request)
    return _signed(context, await _filled(context, request), request.sender)


async def _filled(context: MethodContext, request: CallRequest) -> TransactionFields:
    gas = request.gas
    if gas is None:
        gas = await gas_needed(context, await context.chain.pending_block(), request)
    # The nonce is read after the estimate, so concurrent callers never get the same one.
    nonce = request.nonce
    if nonce is None:
        nonce = context.chain.next_nonce(request.sender)
    return _unsigned(context, request, nonce, gas)


@method("eth_getTransactionByHash", params_at_most=1)
async def by_hash(context: MethodContext, params: Params) -> JsonObject | None:
    transaction_hash = params.hash32(0, "hash")
    if (inclusion := context.chain.block_tree.mined(transaction_hash)) is not None:
        block, index = inclusion
        return transaction_object(block.transactions[index], block, index)
    waiting = context.chain.pool.find(transaction_hash)
    return None if waiting is None else transaction_object(waiting)


@method("eth_getRawTransactionByHash", "debug_getRawTransaction", params_at_most=1)
async def raw_by_hash(context: MethodContext, params: Params) -> str:
    transaction_hash = params.hash32(0, "hash")
    if (inclusion := context.chain.block_tree.mined(transaction_hash)) is not None:
        block, index = inclusion
        return hex_of(block.transactions[index].raw)
    waiting = context.chain.pool.find(transaction_hash)
    return "0x" if waiting is None else hex_of(waiting.raw)


@method("eth_getTransactionReceipt", params_at_most=1)
async def receipt(context: MethodContext, params: Params) -> JsonObject | None:
    inclusion = context.chain.block_tree.mined(params.hash32(0, "hash"))
    return None if inclusion is None else receipt_object(*inclusion)


def signed(context: MethodContext, request: CallRequest, nonce: int, gas: int) -> EvmTransaction:
    """Sign for an unlocked or impersonated account. Raises JsonRpcError for any other."""
    _check_can_sign(context, request)
    return _signed(context, _unsigned(context, request, nonce, gas), request.sender)


def _unsigned(
    context: MethodContext, request: CallRequest, nonce: int, gas: int
) -> TransactionFields:
    return request.as_unsigned(
        chain_id=context.chain.chain_id,
        nonce=nonce,
        gas=gas,
        base_fee=context.chain.base_fee(),
        tip=TIP_SUGGESTED,
    )


def _signed(context: MethodContext, unsigned: TransactionFields, sender: Address) -> EvmTransaction:
    key = context.chain.evm.dev_keys.get(sender)
    return sign_as(unsigned, sender) if key is None else sign(unsigned, key)


def _check_can_sign(context: MethodContext, request: CallRequest) -> None:
    if request.sender in context.chain.evm.dev_keys or context.chain.can_impersonate(
        request.sender
    ):
        return
    if request.sender == bytes(20):
        raise invalid_parameter("from", "missing value")
    raise refused(f"unknown account {checksummed(request.sender)}")
