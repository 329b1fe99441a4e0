"""The chain behind a running instance, asked and told directly, past all of ltzd."""

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

    # What it holds

    async def view(self, contract: str, function: str, *arguments: object) -> Any:
        """One value, or a tuple of several."""
        data = "0x" + call(contract, function, *arguments).hex()
        asked = {"to": self.contracts[contract], "data": data}
        given = bytes.fromhex((await self.rpc("eth_call", asked, "latest"))[2:])
        values = answer(contract, function, given)
        return values[0] if len(values) == 1 else values

    async def balance(self, wallet: str) -> int:
        return int(await self.view("LTZ", "balanceOf", wallet))

    async def claims(self, wallet: str, collection: int) -> int:
        return int(await self.view("PerkNFT", "claimsOf", wallet, collection))

    async def now(self) -> int:
        """Later than the newest block and than the clock: for deadlines."""
        return max(int((await self.rpc.block())["timestamp"], 16), int(time.time()))

    async def nonces(self) -> dict[tuple[str, str], int]:
        """Of all operators, mined and with what waits; any publication moves one."""
        return {
            (wallet, tag): int(await self.rpc("eth_getTransactionCount", wallet, tag), 16)
            for wallet in self.operators
            for tag in ("latest", "pending")
        }

    async def mined(self) -> int:
        """How many transactions of the operators are in blocks."""
        return sum(count for (_, tag), count in (await self.nonces()).items() if tag == "latest")

    async def published(self) -> int:
        return sum(count for (_, tag), count in (await self.nonces()).items() if tag == "pending")

    async def sent_since(self, block: int) -> list[dict[str, Any]]:
        """The operators' transactions in the blocks after this one, with their `status`."""
        found = []
        for number in range(block + 1, await self.rpc.number() + 1):
            whole = await self.rpc("eth_getBlockByNumber", hex(number), True)
            for each in whole["transactions"]:
                if each["from"].lower() in self.operators:
                    receipt = await self.rpc.receipt(each["hash"])
                    found.append({**each, "status": receipt["status"]})
        return found

    # What somebody else may do to it

    async def send(self, by: LocalAccount, contract: str, data: bytes) -> None:
        """A successful transaction of somebody who is given the gas for it."""
        receipt = await self.rpc.receipt(await self.publish(by, contract, data))
        assert receipt["status"] == "0x1", receipt

    async def publish(self, by: LocalAccount, contract: str, data: bytes) -> str:
        """Put it into the node's pool, with a tip that goes before all others; its hash."""
        await self.rpc("anvil_setBalance", by.address, hex(ETHER))
        nonce = int(await self.rpc("eth_getTransactionCount", by.address, "pending"), 16)
        said: dict[str, Any] = {
            "chainId": self.id,
            "nonce": nonce,
            "to": bytes.fromhex(self.contracts[contract][2:]),
            "value": 0,
            "data": data,
            "gas": _GAS,
            "maxFeePerGas": 100 * GWEI,
            "maxPriorityFeePerGas": 50 * GWEI,
        }
        raw = bytes(by.sign_transaction(said).raw_transaction)
        return str(await self.rpc("eth_sendRawTransaction", "0x" + raw.hex()))

    @asynccontextmanager
    async def nothing_published(self) -> AsyncIterator[None]:
        before = await self.nonces()
        yield
        assert await self.nonces() == before, "an operator published something"

    @asynccontextmanager
    async def published_exactly(self, count: int) -> AsyncIterator[None]:
        """So many transactions, all of them mined by then."""
        mined, published = await self.mined(), await self.published()
        assert mined == published, "something is under way"
        yield
        now = (await self.mined(), await self.published())
        assert now == (mined + count, published + count)

    @asynccontextmanager
    async def by_hand(self) -> AsyncIterator[None]:
        """It mines only when told; at the end everything is mined."""
        await self.rpc("evm_setAutomine", False)
        try:
            yield
        finally:
            await self.rpc("evm_setAutomine", True)
            async with self.ticking():
                await until(self._is_quiet, 20.0)

    @asynccontextmanager
    async def every_second(self) -> AsyncIterator[None]:
        """It mines a block each second."""
        await self.rpc("evm_setAutomine", False)
        await self.rpc("evm_setIntervalMining", 1)
        try:
            yield
        finally:
            await self.rpc("evm_setIntervalMining", 0)
            await self.rpc("evm_setAutomine", True)

    @asynccontextmanager
    async def ticking(self) -> AsyncIterator[None]:
        """Blocks come, ten a second."""

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
