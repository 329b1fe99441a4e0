"""Rewards minted a second with two mint wallets, compared with one, from a queue that is full.

All lanes are in one process. For a round with one wallet `ltzd lane pause` holds the other one. A
side counts LTZ's total supply from the first block with its mints to the last full one: a reward is
1 LTZ. In the end every queued reward must be minted exactly once.
"""

import asyncio
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from time import monotonic
from typing import Any

import asyncpg

from benchmarks.harness import instance, resources, results
from benchmarks.harness.instance import Instance
from benchmarks.harness.processes import running
from benchmarks.harness.results import Figure, Measurement, Ratio
from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import Rpc
from ltzd.values import LTZ, address_of, bytes_of

USERS = 5_000
"""The wallets that the rewards of a brand go to, in turn; most of them hold LTZ already."""
LEAST_A_SECOND = 4_000
_PREPARED_A_SECOND = 6_500
"""The number of rewards prepared for each second of a side, above what two wallets mint."""
_TOTAL_SUPPLY = bytes.fromhex("18160ddd")
_POLL_SECONDS = 0.02
_DRAIN_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Minted:
    """`per_second` is between the first and the last block of the side with mints."""

    rewards: int
    seconds: float
    per_second: float
    transactions: int
    cpu: dict[str, float]
    """Microseconds of each program for a reward."""


async def run(*, seconds: float, rounds: int, in_document: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        async with (
            instance.started(Path(name), "--mint-wallets", "2") as ltzd,
            Rpc(ltzd.dev_json["rpcUrl"]) as rpc,
        ):
            sides = _Sides(ltzd, Node(rpc), int(seconds * _PREPARED_A_SECOND))
            await sides.warm_up()
            measured = [await sides.round() for _ in range(rounds)]
    details = {
        "rounds": [{"single": asdict(side), "both": asdict(other)} for side, other in measured]
    }
    results.record("mint-fleet", _measurements(measured), details, in_document=in_document)


class _Sides:
    def __init__(self, ltzd: Instance, node: Node, rewards: int) -> None:
        self._ltzd = ltzd
        self._node = node
        self._rewards = rewards
        self._programs = resources.programs(ltzd.pid, ltzd.data_dir, ltzd.anvil_pid)

    async def warm_up(self) -> None:
        """Mint once to every user, so that both sides mint to holders."""
        await self._queue(USERS)
        await self._ltzd.settle()

    async def round(self) -> tuple[Minted, Minted]:
        second = self._ltzd.dev_json["minters"][1]
        await self._lane("pause", second, "--reason", "the benchmark measures one wallet")
        single = await self._minted("one wallet")
        await self._lane("resume", second)
        return single, await self._minted("two wallets")

    async def _minted(self, side: str) -> Minted:
        async with self._ltzd.paused():
            await self._queue(self._rewards)
            supply, transactions = await self._supply(), await self._transactions()
        target = supply + self._rewards
        before = resources.cpu_seconds(self._programs)
        samples = await self._sample(supply, target)
        after = resources.cpu_seconds(self._programs)
        await self._ltzd.settle()
        if await self._supply() != target:
            raise SystemExit(
                f"{self._rewards} rewards were queued, {await self._supply() - supply} were minted"
            )
        # The last block may be filled by half.
        (began, first), (ended, last) = samples[0], samples[-2]
        minted = Minted(
            rewards=self._rewards,
            seconds=ended - began,
            per_second=(last - first) / (ended - began),
            transactions=await self._transactions() - transactions,
            cpu={name: 1e6 * (after[name] - before[name]) / self._rewards for name in after},
        )
        used = ", ".join(f"{name} {microseconds:.0f}" for name, microseconds in minted.cpu.items())
        print(
            f"  {side:11} {minted.per_second:6,.0f} rewards a second in {minted.transactions} "
            f"transactions; CPU µs a reward: {used}",
            flush=True,
        )
        return minted

    async def _sample(self, supply: int, target: int) -> list[tuple[float, int]]:
        """The time and total supply of each block with mints, until all are minted."""
        samples: list[tuple[float, int]] = []
        async with asyncio.timeout(_DRAIN_SECONDS):
            while supply < target:
                await asyncio.sleep(_POLL_SECONDS)
                now = await self._supply()
                if now != supply:
                    supply = now
                    samples.append((monotonic(), supply))
        return samples

    async def _queue(self, count: int) -> None:
        """Queue rewards of 1 LTZ of the benchmarks' brand."""
        connection = await asyncpg.connect(self._ltzd.dev_json["databaseUrl"])
        try:
            await connection.execute(
                """
                INSERT INTO rewards (id, kind, brand_id, wallet, ltz)
                SELECT gen_random_uuid(), 4, $1,
                       decode(lpad(to_hex(4096 + number % $3), 40, '0'), 'hex'), 1
                  FROM generate_series(1, $2::int) AS each (number)
                """,
                bytes_of(self._ltzd.brand.id),
                count,
                USERS,
            )
        finally:
            await connection.close()

    async def _transactions(self) -> int:
        connection = await asyncpg.connect(self._ltzd.dev_json["databaseUrl"])
        try:
            count: int = await connection.fetchval(
                "SELECT count(*) FROM transactions WHERE kind = 'mint'"
            )
        finally:
            await connection.close()
        return count

    async def _supply(self) -> int:
        ltz = address_of(self._ltzd.dev_json["contracts"]["LTZ"].lower())
        return int.from_bytes(await self._node.view(ltz, _TOTAL_SUPPLY), "big") // LTZ

    async def _lane(self, *command: str) -> None:
        """Runs `ltzd lane COMMAND`."""
        log = self._ltzd.data_dir.parent / "lane.log"
        arguments = ["-m", "ltzd", "lane", *command, "--data-dir", str(self._ltzd.data_dir)]
        async with running(arguments, log) as process:
            if await process.wait() != 0:
                raise SystemExit(log.read_text())


def _measurements(measured: list[tuple[Minted, Minted]]) -> list[Measurement]:
    middle = sorted(measured, key=lambda round_: round_[1].per_second)[len(measured) // 2]
    single, both = middle
    return [
        Ratio(
            name="rewards minted with two wallets ÷ with one",
            rounds=tuple(both.per_second / single.per_second for single, both in measured),
            figures=f"{both.per_second:,.0f} ÷ {single.per_second:,.0f} a second",
        ),
        Ratio(
            name=f"rewards minted a second with two wallets ÷ {LEAST_A_SECOND:,}",
            rounds=tuple(both.per_second / LEAST_A_SECOND for _, both in measured),
            figures=_cpu(both),
            must=1,
        ),
        Figure(
            name="rewards in a transaction, with one wallet and with two",
            figures=f"{_batch(single for single, _ in measured)} and "
            f"{_batch(both for _, both in measured)}",
        ),
    ]


def _batch(sides: Any) -> str:
    return f"{median(each.rewards / each.transactions for each in sides):.0f}"


def _cpu(minted: Minted) -> str:
    used = ", ".join(f"{name} {microseconds:.0f} µs" for name, microseconds in minted.cpu.items())
    return f"CPU time of a reward: {used}"
