"""The time from a block that anvil mines until its rows are visible in PostgreSQL.

Each block holds a transfer of LTZ. The block is ordered from the node at a random moment, and a
second connection reads `transfers` again and again until the row is there. The time to mine the
block counts too.
"""

import asyncio
import random
import tempfile
from array import array
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.harness import instance, results
from benchmarks.harness.load import percentile_ms
from benchmarks.harness.results import Figure, Ratio
from benchmarks.harness.sides import first_events
from ltzd.chain.contracts import contract_abi
from ltzd.chain.node.rpc import Rpc
from ltzd.store.database import Connection, connect
from ltzd.values import hex_of

BLOCKS = 200
"""In each round: p99 is the second-largest of a hundred."""
_WALLETS = 2
_FUNDS = 10**20
_GAS = 200_000
_MOST_PAUSE_SECONDS = 0.2
_POLL_SECONDS = 0.0005
_PATIENCE_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Round:
    """`mined` is the time until the node answers that the block is mined, `visible` until its rows
    are, both from the order to mine it."""

    visible_p50_ms: float
    visible_p99_ms: float
    mined_p50_ms: float
    mined_p99_ms: float

    def as_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}


async def run(*, rounds: int, in_document: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        async with (
            instance.started(Path(name)) as ltzd,
            Rpc(ltzd.dev_json["rpcUrl"]) as rpc,
        ):
            await first_events(ltzd, _WALLETS)
            database = await connect(ltzd.dev_json["databaseUrl"], "benchmark")
            try:
                blocks = await _Blocks.ready(rpc, database, ltzd.dev_json["contracts"]["LTZ"])
                measured = [await blocks.round() for _ in range(rounds)]
            finally:
                await database.close()
    details = {"blocks": BLOCKS, "rounds": [each.as_json() for each in measured]}
    results.record("head-latency", _measurements(measured), details, in_document=in_document)


class _Blocks:
    def __init__(self, rpc: Rpc, database: Connection, ltz: str, wallets: list[bytes]) -> None:
        self._rpc = rpc
        self._database = database
        self._ltz = ltz
        self._wallets = wallets

    @classmethod
    async def ready(cls, rpc: Rpc, database: Connection, ltz: str) -> "_Blocks":
        """From here on anvil mines on request, and impersonates wallets that hold LTZ."""
        rows = await database.fetch("SELECT wallet FROM balances WHERE amount > 1000 LIMIT 2")
        wallets = [bytes(row["wallet"]) for row in rows]
        if len(wallets) < _WALLETS:
            raise SystemExit("no wallets hold LTZ")
        for wallet in wallets:
            await rpc.call("anvil_setBalance", hex_of(wallet), hex(_FUNDS))
            await rpc.call("anvil_impersonateAccount", hex_of(wallet))
        await rpc.call("evm_setIntervalMining", 0)
        return cls(rpc, database, ltz, wallets)

    async def round(self) -> Round:
        visible, mined = array("d"), array("d")
        for _ in range(BLOCKS):
            seconds = await self._block()
            visible.append(seconds[0])
            mined.append(seconds[1])
        return Round(
            percentile_ms(sorted(visible), 0.5),
            percentile_ms(sorted(visible), 0.99),
            percentile_ms(sorted(mined), 0.5),
            percentile_ms(sorted(mined), 0.99),
        )

    async def _block(self) -> tuple[float, float]:
        """Returns the seconds until the transfer's row is visible, and until the node answers."""
        sender, recipient = random.sample(self._wallets, 2)
        call = contract_abi.encode_call("LTZ", "transfer", recipient, 1)
        sent = {"from": hex_of(sender), "to": self._ltz, "data": hex_of(call), "gas": hex(_GAS)}
        await self._rpc.call("eth_sendTransaction", sent)
        number = 1 + int(await self._rpc.call("eth_blockNumber"), 16)
        await asyncio.sleep(random.uniform(0, _MOST_PAUSE_SECONDS))
        ordered_at = perf_counter()
        mining = asyncio.create_task(self._mined())
        async with asyncio.timeout(_PATIENCE_SECONDS):
            while not await self._is_visible(number):  # noqa: ASYNC110 - polls the database
                await asyncio.sleep(_POLL_SECONDS)
        visible_at = perf_counter()
        return visible_at - ordered_at, await mining - ordered_at

    async def _mined(self) -> float:
        await self._rpc.call("evm_mine")
        return perf_counter()

    async def _is_visible(self, number: int) -> bool:
        is_visible: bool = await self._database.fetchval(
            "SELECT EXISTS (SELECT FROM transfers WHERE block_number = $1)", number
        )
        return is_visible


def _measurements(rounds: list[Round]) -> tuple[Ratio, Ratio, Figure]:
    middle = sorted(rounds, key=lambda each: each.visible_p50_ms)[len(rounds) // 2]
    figures = f"{BLOCKS} blocks a round, each with a transfer of LTZ; anvil, WebSocket heads"
    return (
        Ratio(
            "block ordered from anvil → its rows visible, p50 in ms",
            tuple(each.visible_p50_ms for each in rounds),
            figures,
            must=40.0,
            aim=20.0,
            is_lower_better=True,
        ),
        Ratio(
            "block ordered from anvil → its rows visible, p99 in ms",
            tuple(each.visible_p99_ms for each in rounds),
            figures,
            must=150.0,
            aim=100.0,
            is_lower_better=True,
        ),
        Figure(
            "of it: until anvil answers that the block is mined",
            f"p50 {middle.mined_p50_ms:.1f} ms, p99 {middle.mined_p99_ms:.1f} ms",
        ),
    )
