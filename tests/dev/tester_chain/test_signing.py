"""Signatures that the tester chain's unlocked accounts give."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from eth_account import Account
from eth_account.messages import encode_defunct, encode_typed_data

from tests.support.chain.tester import GWEI, Rpc, RpcRefusedError, a_tester

TYPED: dict[str, Any] = {
    "types": {
        "EIP712Domain": [
            {"name": "name", "type": "string"},
            {"name": "chainId", "type": "uint256"},
        ],
        "Claim": [{"name": "user", "type": "address"}, {"name": "ids", "type": "uint256[]"}],
    },
    "primaryType": "Claim",
    "domain": {"name": "LTZ", "chainId": 31337},
    "message": {"user": "0x" + "11" * 20, "ids": [1, 2]},
}


@pytest.fixture
async def rpc() -> AsyncIterator[Rpc]:
    async with a_tester() as rpc:
        yield rpc


async def test_a_message_is_signed_with_its_prefix(rpc: Rpc) -> None:
    account, message = await rpc.dev_account(), "0x" + b"a message".hex()
    signatures = {
        await rpc("personal_sign", message, account),
        await rpc("personal_sign", message, account, "password"),
        await rpc("eth_sign", account, message),
    }
    (signature,) = signatures
    signer = Account.recover_message(encode_defunct(b"a message"), signature=signature)
    assert signer.lower() == account


@pytest.mark.parametrize("as_text", [True, False])
async def test_typed_data_is_signed_as_an_object_and_as_text(rpc: Rpc, *, as_text: bool) -> None:
    account = await rpc.dev_account()
    typed_data = json.dumps(TYPED) if as_text else TYPED
    signature = await rpc("eth_signTypedData_v4", account, typed_data)
    message = encode_typed_data(full_message=TYPED)
    assert Account.recover_message(message, signature=signature).lower() == account


async def test_a_signed_transaction_is_not_sent_and_can_be(rpc: Rpc) -> None:
    account = await rpc.dev_account()
    raw = await rpc("eth_signTransaction", {"from": account, "to": account, "value": "0x1"})
    assert Account.recover_transaction(raw).lower() == account
    assert await rpc("txpool_status") == {"pending": "0x0", "queued": "0x0"}
    receipt = await rpc.receipt(await rpc("eth_sendRawTransaction", raw))
    assert receipt["status"] == "0x1"


async def test_an_unsigned_transaction_is_sent_for_any_account(rpc: Rpc) -> None:
    wallet = await rpc.funded()
    sent = await rpc(
        "eth_sendUnsignedTransaction",
        {"from": wallet.address, "to": "0x" + "11" * 20, "value": hex(GWEI)},
    )
    assert (await rpc.receipt(sent))["from"] == wallet.address


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("personal_sign", ["0x12", "0x" + "22" * 20], -32000),
        ("eth_signTypedData_v4", ["0x" + "22" * 20, TYPED], -32000),
        ("personal_sign", ["a message", "0x" + "22" * 20], -32602),
        ("eth_signTypedData_v4", ["0x" + "22" * 20, "{}"], -32602),
        ("eth_signTypedData_v4", ["0x" + "22" * 20, 7], -32602),
    ],
)
async def test_unknown_accounts_and_malformed_messages_are_refused(
    rpc: Rpc, method: str, params: list[object], code: int
) -> None:
    with pytest.raises(RpcRefusedError) as fault:
        await rpc(method, *params)
    assert fault.value.code == code


async def test_an_impersonated_account_sends_but_never_signs(rpc: Rpc) -> None:
    wallet = await rpc.funded()
    await rpc("anvil_impersonateAccount", wallet.address)
    with pytest.raises(RpcRefusedError, match="unknown account"):
        await rpc("personal_sign", "0x12", wallet.address)
