"""web3.py's actions on a chain: for each its JSON-RPC methods, and what it answers, without values.

The counterpart of `tests/clients/viem.mjs`, with the same form of outcomes.
"""

import json
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from web3 import AsyncHTTPProvider, AsyncWeb3
from web3.exceptions import Web3RPCError

from tests.support.chain.tester import EMITTER, REVERTER, topic, word

Outcome = dict[str, Any]
Act = Callable[[], Awaitable[Any]]

SOMEBODY = "0x00000000000000000000000000000000000000A1"
TYPED_DATA = {
    "types": {
        "EIP712Domain": [{"name": "name", "type": "string"}],
        "Claim": [{"name": "user", "type": "address"}],
    },
    "primaryType": "Claim",
    "domain": {"name": "LTZ"},
    "message": {"user": SOMEBODY},
}


class _RecordingProvider(AsyncHTTPProvider):
    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.methods: dict[str, None] = {}

    async def make_request(self, method: Any, params: Any) -> Any:
        self.methods[str(method)] = None
        return await super().make_request(method, params)


@dataclass
class _Scene:
    """Contracts and a transaction that the actions read."""

    web3: Any
    account: str
    emitter: str
    reverter: str
    sent: Any

    def emission(self) -> dict[str, Any]:
        data = "0x" + word(1) + word(2)
        return {"from": self.account, "to": self.emitter, "data": data}


async def web3_outcomes(url: str) -> list[Outcome]:
    provider = _RecordingProvider(url)
    try:
        web3: Any = AsyncWeb3(provider)
        scene = await _scene(web3)
        return [await _outcome(provider, name, act) for name, act in _actions(scene).items()]
    finally:
        await provider.disconnect()


async def _scene(web3: Any) -> _Scene:
    account = (await web3.eth.accounts)[0]
    emitter, reverter = [await _deployed(web3, account, code) for code in (EMITTER, REVERTER)]
    scene = _Scene(web3, account, emitter, reverter, sent=None)
    scene.sent = await web3.eth.send_transaction(scene.emission())
    await web3.eth.wait_for_transaction_receipt(scene.sent, poll_latency=0.02)
    return scene


async def _deployed(web3: Any, account: str, creation: str) -> str:
    sent = await web3.eth.send_transaction({"from": account, "data": creation})
    receipt = await web3.eth.wait_for_transaction_receipt(sent, poll_latency=0.02)
    return str(receipt["contractAddress"])


def _actions(scene: _Scene) -> Mapping[str, Act]:
    eth, account, emitter = scene.web3.eth, scene.account, scene.emitter
    override = {SOMEBODY: {"code": "0x4760005260206000f3", "balance": hex(5)}}
    reverting = {"from": account, "to": scene.reverter, "data": "0x08c379a0"}
    block_filter: list[Any] = []

    async def new_block_filter() -> Any:
        block_filter.append(await eth.filter("latest"))
        return block_filter[0].filter_id

    async def new_log_filter() -> Any:
        return (await eth.filter({"address": emitter})).filter_id

    return {
        "is_connected": scene.web3.is_connected,
        "client_version": lambda: scene.web3.client_version,
        "net.version": lambda: scene.web3.net.version,
        "eth.chain_id": lambda: eth.chain_id,
        "eth.block_number": lambda: eth.block_number,
        "eth.accounts": lambda: eth.accounts,
        "eth.syncing": lambda: eth.syncing,
        "eth.gas_price": lambda: eth.gas_price,
        "eth.max_priority_fee": lambda: eth.max_priority_fee,
        "eth.fee_history": lambda: eth.fee_history(2, "latest", [10.0, 90.0]),
        "eth.get_block": lambda: eth.get_block("latest", full_transactions=True),
        "eth.get_block (pending)": lambda: eth.get_block("pending"),
        "eth.get_block (unknown)": lambda: eth.get_block(99_999),
        "eth.get_block_receipts": lambda: eth.get_block_receipts("latest"),
        "eth.get_balance": lambda: eth.get_balance(account),
        "eth.get_transaction_count": lambda: eth.get_transaction_count(account, "pending"),
        "eth.get_code": lambda: eth.get_code(emitter),
        "eth.get_storage_at": lambda: eth.get_storage_at(emitter, 0),
        "eth.get_transaction": lambda: eth.get_transaction(scene.sent),
        "eth.get_transaction (unknown)": lambda: eth.get_transaction(topic(7)),
        "eth.get_transaction_receipt": lambda: eth.get_transaction_receipt(scene.sent),
        "eth.get_transaction_receipt (unknown)": lambda: eth.get_transaction_receipt(topic(7)),
        "eth.get_raw_transaction": lambda: eth.get_raw_transaction(scene.sent),
        "eth.get_logs": lambda: eth.get_logs({"address": emitter, "fromBlock": 0}),
        "eth.call": lambda: eth.call(scene.emission()),
        "eth.call (revert)": lambda: eth.call(reverting),
        "eth.call (state override)": lambda: eth.call({"to": SOMEBODY}, "latest", override),
        "eth.estimate_gas": lambda: eth.estimate_gas(scene.emission()),
        "eth.estimate_gas (revert)": lambda: eth.estimate_gas(reverting),
        "eth.create_access_list": lambda: eth.create_access_list(scene.emission()),
        "eth.filter (blocks)": new_block_filter,
        "eth.get_filter_changes": lambda: eth.get_filter_changes(block_filter[0].filter_id),
        "eth.uninstall_filter": lambda: eth.uninstall_filter(block_filter[0].filter_id),
        "eth.filter (logs)": new_log_filter,
        "eth.sign": lambda: eth.sign(account, text="hello"),
        "eth.sign_typed_data": lambda: eth.sign_typed_data(account, json.dumps(TYPED_DATA)),
        "eth.send_transaction": lambda: eth.send_transaction(scene.emission()),
        "eth.send_transaction (unknown account)": lambda: eth.send_transaction(
            {"from": SOMEBODY, "to": account, "gas": 21_000}
        ),
        "eth.send_raw_transaction (malformed)": lambda: eth.send_raw_transaction("0x02c0"),
        "geth.txpool.status": scene.web3.geth.txpool.status,
        "geth.txpool.content": scene.web3.geth.txpool.content,
        "geth.txpool.inspect": scene.web3.geth.txpool.inspect,
    }


async def _outcome(provider: _RecordingProvider, action: str, act: Act) -> Outcome:
    provider.methods.clear()
    answer: Outcome
    try:
        answer = {"shape": shape_of(await act())}
    except Web3RPCError as error:
        response: Any = error.rpc_response or {}
        code = response.get("error", {}).get("code")
        name = type(error).__name__
        answer = {"refusal": f"fails with {name}" if code is None else f"refuses with {code}"}
    except Exception as error:  # noqa: BLE001 - the class is the outcome
        answer = {"refusal": f"fails with {type(error).__name__}"}
    return {"action": action, "methods": list(provider.methods), **answer}


def shape_of(value: Any) -> Any:
    match value:
        case None:
            return "nothing"
        case Mapping():
            return {str(name): shape_of(value[name]) for name in sorted(value)}
        case list() | tuple():
            return [shape_of(value[0])] if value else []
        case bytes():
            return "hex"
        case str():
            return "hex" if value.startswith("0x") else "string"
    return type(value).__name__
