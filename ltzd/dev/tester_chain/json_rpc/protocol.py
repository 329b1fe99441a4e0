"""JSON-RPC 2.0 over bytes: single calls, batches and notifications.

Every failure becomes an error object: -32700 for malformed JSON, -32600 for an invalid request,
-32601 for an unknown method, and the method's own code otherwise. The calls of a batch run in
order.
"""

import asyncio
import logging
from collections.abc import Mapping
from typing import cast

import msgspec

from ltzd.dev.tester_chain.errors import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    JsonRpcError,
)
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, RpcMethod
from ltzd.dev.tester_chain.json_rpc.params import Params

logger = logging.getLogger(__name__)

BATCH_AT_MOST = 5_000
_CALLS_BETWEEN_PAUSES = 20
_INVALID = "invalid request"
_SENDING = frozenset(
    {"eth_sendRawTransaction", "eth_sendTransaction", "eth_sendUnsignedTransaction"}
)


async def answer(
    context: MethodContext, methods: Mapping[str, RpcMethod], body: bytes | str
) -> bytes:
    """Return the reply to a message; empty if the message holds only notifications."""
    try:
        message = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _encoded(_failure(None, JsonRpcError(PARSE_ERROR, "parse error")))
    if not isinstance(message, list):
        reply = await _reply(context, methods, message)
        if reply is not None and "result" in reply and message["method"] in _SENDING:
            # With on-demand mining the caller expects the receipt to be there.
            await context.miner.catch_up()
        return b"" if reply is None else _encoded(reply)
    if not message:
        return _encoded(_failure(None, JsonRpcError(INVALID_REQUEST, "empty batch")))
    if len(message) > BATCH_AT_MOST:
        return _encoded(_failure(None, JsonRpcError(INVALID_REQUEST, "batch too large")))
    replies = await _replies(context, methods, message)
    return _encoded(replies) if replies else b""


async def _replies(
    context: MethodContext, methods: Mapping[str, RpcMethod], calls: list[object]
) -> list[dict[str, object]]:
    replies = []
    for number, call in enumerate(calls, start=1):
        reply = await _reply(context, methods, call)
        if reply is not None:
            replies.append(reply)
        if number % _CALLS_BETWEEN_PAUSES == 0:
            # A long batch must not block other callers.
            await asyncio.sleep(0)
    return replies


async def _reply(
    context: MethodContext, methods: Mapping[str, RpcMethod], call: object
) -> dict[str, object] | None:
    is_request = isinstance(call, dict)
    request = cast("dict[str, object]", call) if is_request else {}
    call_id, name = request.get("id"), request.get("method")
    has_id = isinstance(call_id, str | int | float | None) and not isinstance(call_id, bool)
    if request.get("jsonrpc") != "2.0" or not isinstance(name, str) or not has_id:
        return _failure(call_id if has_id else None, JsonRpcError(INVALID_REQUEST, _INVALID))
    try:
        result = await _result(context, methods, name, request.get("params"))
    except JsonRpcError as error:
        reply = _failure(call_id, error)
    except Exception:
        logger.exception("%s failed", name)
        reply = _failure(call_id, JsonRpcError(INTERNAL_ERROR, "internal error"))
    else:
        reply = {"jsonrpc": "2.0", "id": call_id, "result": result}
    return reply if "id" in request else None


async def _result(
    context: MethodContext, methods: Mapping[str, RpcMethod], name: str, params: object
) -> object:
    method = methods.get(name)
    if method is None:
        raise JsonRpcError(METHOD_NOT_FOUND, f"the method {name} does not exist/is not available")
    if not isinstance(params, list | None):
        raise JsonRpcError(INVALID_PARAMS, "params: expected a list")
    given = Params(params or [])
    if len(given) > method.params_at_most:
        raise JsonRpcError(
            INVALID_PARAMS, f"params: too many arguments, want at most {method.params_at_most}"
        )
    return await method.handle(context, given)


def _failure(call_id: object, error: JsonRpcError) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": call_id, "error": error.as_json()}


def _encoded(reply: object) -> bytes:
    return msgspec.json.encode(reply)
