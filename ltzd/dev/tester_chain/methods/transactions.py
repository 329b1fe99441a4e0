"""Sending transactions and finding them and their receipts again."""

from ltzd.dev.tester_chain.call_request import CallRequest, call_request
from ltzd.dev.tester_chain.errors import invalid_parameter, refused
from ltzd.dev.tester_chain.fees import TIP_SUGGESTED
from ltzd.dev.tester_chain.methods.calls import gas_needed
from ltzd.dev.tester_chain.node import Node, method
from ltzd.dev.tester_chain.objects import JsonObject, receipt_object, transaction_object
from ltzd.dev.tester_chain.params import Params
from ltzd.dev.tester_chain.transaction import Transaction, decode_raw, pretend, sign
from ltzd.values import checksummed, hex_of


@method("eth_sendRawTransaction", params_at_most=1)
async def send_raw(node: Node, params: Params) -> str:
    return hex_of(node.chain.send(decode_raw(params.data(0, "data"))))


@method("eth_sendTransaction", params_at_most=1)
async def send(node: Node, params: Params) -> str:
    request = call_request(params.mapping(0, "transaction"))
    _check_can_sign(node, request)
    gas = request.gas
    if gas is None:
        gas = await gas_needed(node, node.chain.ledger.head, request)
    # The nonce is read after the estimate, so concurrent callers never get the same one.
    nonce = request.nonce
    if nonce is None:
        nonce = node.chain.next_nonce(request.sender)
    return hex_of(node.chain.send(signed(node, request, nonce, gas)))


@method("eth_getTransactionByHash", params_at_most=1)
async def by_hash(node: Node, params: Params) -> JsonObject | None:
    wanted = params.hash32(0, "hash")
    if (found := node.chain.ledger.mined(wanted)) is not None:
        block, index = found
        return transaction_object(block.transactions[index], block, index)
    waiting = node.chain.pool.find(wanted)
    return None if waiting is None else transaction_object(waiting)


@method("eth_getRawTransactionByHash", params_at_most=1)
async def raw_by_hash(node: Node, params: Params) -> str:
    wanted = params.hash32(0, "hash")
    if (found := node.chain.ledger.mined(wanted)) is not None:
        block, index = found
        return hex_of(block.transactions[index].raw)
    waiting = node.chain.pool.find(wanted)
    return "0x" if waiting is None else hex_of(waiting.raw)


@method("eth_getTransactionReceipt", params_at_most=1)
async def receipt(node: Node, params: Params) -> JsonObject | None:
    found = node.chain.ledger.mined(params.hash32(0, "hash"))
    return None if found is None else receipt_object(*found)


def signed(node: Node, request: CallRequest, nonce: int, gas: int) -> Transaction:
    """By an unlocked account, or as if by an impersonated one. Raises RpcError."""
    _check_can_sign(node, request)
    unsigned = request.as_unsigned(
        chain_id=node.chain.chain_id,
        nonce=nonce,
        gas=gas,
        base_fee=node.chain.base_fee(),
        tip=TIP_SUGGESTED,
    )
    key = node.chain.evm.dev_keys.get(request.sender)
    return pretend(unsigned, request.sender) if key is None else sign(unsigned, key)


def _check_can_sign(node: Node, request: CallRequest) -> None:
    if request.sender in node.chain.evm.dev_keys or node.chain.can_pretend(request.sender):
        return
    if request.sender == bytes(20):
        raise invalid_parameter("from", "missing value")
    raise refused(f"unknown account {checksummed(request.sender)}")
