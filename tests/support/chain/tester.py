"""A tester chain for one test, over real HTTP; wallets sign with eth-account.

`EMITTER` counts its calls in slot 0 and logs its calldata with the first two words as topics;
`REVERTER` reverts with its calldata, `BURNER` burns all gas at once, `ENDLESS` does so slowly.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import aiohttp
from eth_account import Account
from eth_account.signers.local import LocalAccount

from ltzd.dev.tester_chain import DEFAULT_CHAIN_ID, running
from ltzd.values import bytes_of, hex_of
from tests.support.waiting import until

GWEI = 10**9
ETHER = 10**18


def _creation(runtime: str) -> str:
    """Returns creation code for `runtime`, which has fewer than 256 bytes."""
    return f"0x60{len(runtime) // 2:02x}80600b6000396000f3{runtime}"


EMITTER = _creation("366000600037600160005401600055602035600035366000a200")
REVERTER = _creation("36600060003736" + "6000fd")
ENDLESS = _creation("5b600056")
BURNER = _creation("fe")


class RpcRefusedError(Exception):
    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(error["message"])
        self.code: int = error["code"]
        self.message: str = error["message"]
        self.data: str | None = error.get("data")


@dataclass
class Rpc:
    url: str
    http: aiohttp.ClientSession
    chain_id: int = DEFAULT_CHAIN_ID

    async def __call__(self, method: str, *params: object) -> Any:
        reply = await self.post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
        if "error" in reply:
            raise RpcRefusedError(reply["error"])
        return reply["result"]

    async def post(self, body: object) -> Any:
        async with self.http.post(self.url, json=body) as response:
            return await response.json()

    async def post_text(self, body: str) -> Any:
        async with self.http.post(self.url, data=body) as response:
            return await response.json()

    async def number(self) -> int:
        return int(await self("eth_blockNumber"), 16)

    async def block(self, which: int | str = "latest") -> Any:
        name = hex(which) if isinstance(which, int) else which
        return await self("eth_getBlockByNumber", name, False)

    async def receipt(self, transaction_hash: str) -> Any:
        return await until(lambda: self("eth_getTransactionReceipt", transaction_hash))

    async def dev_account(self) -> str:
        return str((await self("eth_accounts"))[0])

    async def deploy(self, creation: str) -> str:
        """Deploys from the dev account; returns the contract's address."""
        sent = await self(
            "eth_sendTransaction", {"from": await self.dev_account(), "data": creation}
        )
        return str((await self.receipt(sent))["contractAddress"])

    async def funded(self, ether: int = 100) -> "Wallet":
        wallet = Wallet(chain_id=self.chain_id)
        await self("anvil_setBalance", wallet.address, hex(ether * ETHER))
        return wallet


@dataclass
class Wallet:
    account: LocalAccount = field(default_factory=Account.create)
    chain_id: int = DEFAULT_CHAIN_ID

    @property
    def address(self) -> str:
        return str(self.account.address).lower()

    def signed(self, nonce: int, **changes: Any) -> str:
        """Signs a transfer of 1 wei to an arbitrary address; `fields` replace the defaults."""
        settings: dict[str, Any] = {
            "chainId": self.chain_id,
            "nonce": nonce,
            "to": "0x" + "11" * 20,
            "value": 1,
            "data": "0x",
            "gas": 21_000,
            "maxFeePerGas": 10 * GWEI,
            "maxPriorityFeePerGas": GWEI,
        } | changes
        if settings.get("gasPrice") is not None:
            del settings["maxFeePerGas"], settings["maxPriorityFeePerGas"]
        to = settings.pop("to")
        if to is not None:
            settings["to"] = bytes_of(to)
        return hex_of(self.account.sign_transaction(settings).raw_transaction)


@asynccontextmanager
async def a_tester(block_time: float = 0) -> AsyncIterator[Rpc]:
    async with (
        running(block_time=block_time) as server,
        aiohttp.ClientSession() as http,
    ):
        yield Rpc(server.url, http)


@asynccontextmanager
async def a_tester_mined_by_hand() -> AsyncIterator[Rpc]:
    async with a_tester() as rpc:
        await rpc("evm_setAutomine", False)
        yield rpc


def word(number: int) -> str:
    return f"{number:064x}"


def topic(number: int) -> str:
    return "0x" + word(number)
