"""Signatures of the unlocked accounts: messages (EIP-191), typed data (EIP-712), transactions."""

import json
from typing import cast

from eth_account import Account
from eth_account.messages import SignableMessage, encode_defunct, encode_typed_data

from ltzd.dev.tester_chain.errors import invalid_parameter, refused
from ltzd.dev.tester_chain.json_rpc.method_table import MethodContext, method
from ltzd.dev.tester_chain.json_rpc.methods.transactions import completed
from ltzd.dev.tester_chain.json_rpc.params import Params
from ltzd.values import Address, checksummed, hex_of


@method("personal_sign", params_at_most=3)
async def personal_sign(context: MethodContext, params: Params) -> str:
    """Ignore the password in the third place: the account is unlocked."""
    message, account = params.data(0, "data"), params.address(1)
    return _signature(context, account, encode_defunct(message))


@method("eth_sign", params_at_most=2)
async def sign(context: MethodContext, params: Params) -> str:
    account, message = params.address(0), params.data(1, "data")
    return _signature(context, account, encode_defunct(message))


@method("eth_signTypedData_v4", "eth_signTypedData_v3", "eth_signTypedData", params_at_most=2)
async def sign_typed_data(context: MethodContext, params: Params) -> str:
    """Take the typed data as an object or as its JSON text; clients send both."""
    account = params.address(0)
    return _signature(context, account, _typed_data(params.required(1, "typedData")))


@method("eth_signTransaction", params_at_most=1)
async def sign_transaction(context: MethodContext, params: Params) -> str:
    """Return the signed bytes without sending them, as anvil does; geth returns an object."""
    return hex_of((await completed(context, params)).raw)


def _typed_data(value: object) -> SignableMessage:
    try:
        fields = json.loads(value) if isinstance(value, str) else value
        return encode_typed_data(full_message=cast("dict[str, object]", fields))
    except Exception as error:  # eth-account raises many classes, some of them bare
        raise invalid_parameter("typedData", f"not EIP-712 typed data: {error}") from error


def _signature(context: MethodContext, account: Address, message: SignableMessage) -> str:
    key = context.chain.evm.dev_keys.get(account)
    if key is None:
        raise refused(f"unknown account {checksummed(account)}")
    return hex_of(Account.sign_message(message, key.secret).signature)
