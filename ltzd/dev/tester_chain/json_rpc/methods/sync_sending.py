"""Sending that answers with the receipt (EIP-7966)."""

import asyncio

from ltzd.dev.tester_chain.block_tree import HeadChange
from ltzd.dev.tester_chain.errors import JsonRpcError
from ltzd.dev.tester_chain.execution.transaction import EvmTransaction, decode_raw
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, method
from ltzd.dev.tester_chain.json_rpc.methods.transactions import completed
from ltzd.dev.tester_chain.json_rpc.objects import JsonObject, receipt_object
from ltzd.dev.tester_chain.json_rpc.params import Params
from ltzd.values import hex_of

_TIMED_OUT = 4
_DEFAULT_MS = 30_000
_MS_AT_MOST = 120_000


@method("eth_sendRawTransactionSync", params_at_most=2)
async def send_raw(context: MethodContext, params: Params) -> JsonObject:
    """Wait for the receipt: 30 s, or the milliseconds in the second place."""
    return await _receipt(context, params, decode_raw(params.data(0, "data")))


@method("eth_sendTransactionSync", params_at_most=2)
async def send(context: MethodContext, params: Params) -> JsonObject:
    return await _receipt(context, params, await completed(context, params))


async def _receipt(
    context: MethodContext, params: Params, transaction: EvmTransaction
) -> JsonObject:
    milliseconds = params.quantity(1, "timeout", _DEFAULT_MS, at_most=_MS_AT_MOST)
    chain, mined = context.chain, asyncio.Event()

    def on_head_change(_: HeadChange) -> None:
        if chain.block_tree.mined(transaction.hash) is not None:
            mined.set()

    chain.head_changed.append(on_head_change)
    try:
        chain.send(transaction)
        async with asyncio.timeout(milliseconds / 1_000):
            await mined.wait()
    except TimeoutError as error:
        data = hex_of(transaction.hash)
        raise JsonRpcError(_TIMED_OUT, "the transaction has not been mined yet", data) from error
    finally:
        chain.head_changed.remove(on_head_change)
    inclusion = chain.block_tree.mined(transaction.hash)
    assert inclusion is not None
    return receipt_object(*inclusion)
