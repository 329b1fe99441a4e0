"""The chain of a running instance, read and changed directly, without ltzd."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from eth_account.signers.local import LocalAccount

from tests.support.chain.tester import ETHER, GWEI
from tests.support.instances.instance import Instance
from tests.support.relays.calls import answer, call
from tests.support.waiting import until

HOUR = 3600
_GAS = 1_000_000
CONTRACTS = ("LTZ", "PerkNFT", "PointsSale", "BusinessEscrow")


class Chain:
    def __init__(self, instance: Instance) -> None:
        self.rpc = instance.rpc
        self.id: int = instance.dev_json["chainId"]
        self.contracts: dict[str, str] = {
            name: instance.dev_json["contracts"][name].lower() for name in CONTRACTS
        }
        self.operators: list[str] = [wallet.lower() for wallet in instance.dev_json["operators"]]

    # Reads

    async def view(self, contract: str, function: str, *arguments: object) -> Any:
        """Calls a view; returns its value, or a tuple of several."""
        data = "0x" + call(contract, function, *arguments).hex()
        request = {"to": self.contracts[contract], "data": data}
        result = bytes.fromhex((await self.rpc("eth_call", request, "latest"))[2:])
        values = answer(contract, function, result)
        return values[0] if len(values) == 1 else values

    async def balance(self, wallet: str) -> int:
        return int(await self.view("LTZ", "balanceOf", wallet))

    async def claims(self, wallet: str, collection: int) -> int:
        return int(await self.view("PerkNFT", "claimsOf", wallet, collection))

    async def now(self) -> int:
        """The later of the newest block's timestamp and the clock, for deadlines."""
        return max(int((await self.rpc.block())["timestamp"], 16), int(time.time()))

    async def nonces(self) -> dict[tuple[str, str], int]:
        """The nonces of all operators, mined and pending; any publication changes one."""
        return {
            (wallet, tag): int(await self.rpc("eth_getTransactionCount", wallet, tag), 16)
            for wallet in self.operators
            for tag in ("latest", "pending")
        }

    async def mined(self) -> int:
        """The number of the operators' transactions in blocks."""
        return sum(count for (_, tag), count in (await self.nonces()).items() if tag == "latest")

    async def published(self) -> int:
        return sum(count for (_, tag), count in (await self.nonces()).items() if tag == "pending")

    async def sent_since(self, block: int) -> list[dict[str, Any]]:
        """The operators' transactions after this block, with their `status`."""
        transactions = []
        for number in range(block + 1, await self.rpc.number() + 1):
            whole = await self.rpc("eth_getBlockByNumber", hex(number), True)
            for each in whole["transactions"]:
                if each["from"].lower() in self.operators:
                    receipt = await self.rpc.receipt(each["hash"])
                    transactions.append({**each, "status": receipt["status"]})
        return transactions

    # Writes

    async def send(self, by: LocalAccount, contract: str, data: bytes) -> None:
        """Sends a transaction from `by`, which is given its gas, and checks its success."""
        receipt = await self.rpc.receipt(await self.publish(by, contract, data))
        assert receipt["status"] == "0x1", receipt

    async def publish(self, by: LocalAccount, contract: str, data: bytes) -> str:
        """Adds a transaction to the pool with the highest tip; returns its hash."""
        await self.rpc("anvil_setBalance", by.address, hex(ETHER))
        nonce = int(await self.rpc("eth_getTransactionCount", by.address, "pending"), 16)
        parameters: dict[str, Any] = {
            "chainId": self.id,
            "nonce": nonce,
            "to": bytes.fromhex(self.contracts[contract][2:]),
            "value": 0,
            "data": data,
            "gas": _GAS,
            "maxFeePerGas": 100 * GWEI,
            "maxPriorityFeePerGas": 50 * GWEI,
        }
        raw = bytes(by.sign_transaction(parameters).raw_transaction)
        return str(await self.rpc("eth_sendRawTransaction", "0x" + raw.hex()))

    @asynccontextmanager
    async def nothing_published(self) -> AsyncIterator[None]:
        before = await self.nonces()
        yield
        assert await self.nonces() == before, "an operator published something"

    @asynccontextmanager
    async def published_exactly(self, count: int) -> AsyncIterator[None]:
        """Checks that the context publishes exactly `count` transactions, all mined at its end."""
        mined, published = await self.mined(), await self.published()
        assert mined == published, "a transaction is pending"
        yield
        now = (await self.mined(), await self.published())
        assert now == (mined + count, published + count)

    @asynccontextmanager
    async def mining_on_request(self) -> AsyncIterator[None]:
        """Mines only on request; at the end mines all pending transactions."""
        await self.rpc("evm_setAutomine", False)
        try:
            yield
        finally:
            await self.rpc("evm_setAutomine", True)
            async with self.ticking():
                await until(self._is_quiet, 60.0)

    @asynccontextmanager
    async def mining_every_second(self) -> AsyncIterator[None]:
        """Mines a block every second."""
        await self.rpc("evm_setAutomine", False)
        await self.rpc("evm_setIntervalMining", 1)
        try:
            yield
        finally:
            await self.rpc("evm_setIntervalMining", 0)
            await self.rpc("evm_setAutomine", True)

    @asynccontextmanager
    async def ticking(self) -> AsyncIterator[None]:
        """Mines ten blocks a second."""

        async def tick() -> None:
            while True:
                await self.rpc("evm_mine")
                await asyncio.sleep(0.1)

        task = asyncio.create_task(tick())
        try:
            yield
        finally:
            task.cancel()

    async def _is_quiet(self) -> bool:
        return await self.mined() == await self.published()
