"""Relayed calls a second with eight relay wallets, compared with one, where a wallet may have few
transactions in flight.

Some chains and providers take only a few pending transactions of a wallet, and then a wallet relays
no more than these in each block. Here it is 16 with blocks of one second. All lanes are in one
process. For a round with one wallet `ltzd lane pause` holds the others. The call is LTZ's
transferWithAuthorization; relays are counted in the blocks.
"""

import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import relay_calls
from benchmarks.harness import blocks, instance, load, results
from benchmarks.harness.blocks import Blocks
from benchmarks.harness.instance import Instance
from benchmarks.harness.load import Load, Plan
from benchmarks.harness.processes import running
from benchmarks.harness.results import Ratio
from benchmarks.harness.sides import check, first_events, show
from benchmarks.limits import inclusion
from benchmarks.relay_calls import Calls
from ltzd.chain.node.rpc import Rpc

WALLETS = 8
MAX_IN_FLIGHT = 16
"""The transactions of one wallet that may wait for their blocks."""
CLIENTS = 256
"""Twice as many as all wallets send in a block."""
WARM_UP_SECONDS = 3.0
_PREPARED_A_SECOND = 2 * WALLETS * MAX_IN_FLIGHT
"""The number of calls prepared per second, above what a side relays."""


@dataclass(frozen=True, slots=True)
class Side:
    """`per_second` and `per_block` are counted from the first block of the period to the last."""

    per_second: float
    per_block: float
    load: Load

    def as_json(self) -> dict[str, Any]:
        return {
            "per_second": self.per_second,
            "per_block": self.per_block,
            "load": self.load.as_json(),
        }


async def run(*, seconds: float, rounds: int, in_document: bool) -> None:
    a_side = _requests(seconds)
    users = max(CLIENTS, -(-2 * rounds * a_side // relay_calls.TRANSFERS_OF_USER))
    options = ["--relay-wallets", str(WALLETS), "--max-in-flight", str(MAX_IN_FLIGHT)]
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        async with (
            instance.started(Path(name), *options) as ltzd,
            Rpc(ltzd.dev_json["rpcUrl"]) as rpc,
        ):
            await first_events(ltzd, users)
            calls = Calls(ltzd, await relay_calls.logged_in(ltzd, users))
            sides = _Sides(ltzd, rpc, calls, seconds)
            measured = [await sides.round() for _ in range(rounds)]
    details = {
        "rounds": [{"one": single.as_json(), "all": fleet.as_json()} for single, fleet in measured]
    }
    results.record("relay-fleet", [_ratio(measured)], details, in_document=in_document)


def _requests(seconds: float) -> int:
    return int((WARM_UP_SECONDS + seconds) * _PREPARED_A_SECOND) + CLIENTS


class _Sides:
    def __init__(self, ltzd: Instance, rpc: Rpc, calls: Calls, seconds: float) -> None:
        self._ltzd = ltzd
        self._rpc = rpc
        self._calls = calls
        self._seconds = seconds
        self._wallets: list[str] = ltzd.dev_json["operators"]

    async def round(self) -> tuple[Side, Side]:
        for wallet in self._wallets[1:]:
            await self._lane("pause", wallet, "--reason", "the benchmark measures one wallet")
        single = await self._side("one wallet")
        for wallet in self._wallets[1:]:
            await self._lane("resume", wallet)
        return single, await self._side(f"{WALLETS} wallets")

    async def _side(self, name: str) -> Side:
        plan = Plan(
            port=self._ltzd.port,
            requests=self._calls.transfer_requests(_requests(self._seconds)),
            clients=CLIENTS,
            warm_up_seconds=WARM_UP_SECONDS,
            seconds=self._seconds,
            must_hold=relay_calls.CONFIRMED,
            own_addresses=True,
        )
        async with blocks.watched(self._rpc) as seen:
            measured = check(await load.measure(plan))
        show(name, measured)
        side = await self._counted(seen, measured)
        print(f"                 {side.per_second:,.1f}/s in blocks", flush=True)
        for wallet in self._wallets:
            await inclusion.until_mined(self._rpc, wallet)
        return side

    async def _counted(self, seen: Blocks, measured: Load) -> Side:
        first, last = seen.between(measured.began, measured.began + self._seconds)
        numbers = range(first.number + 1, last.number + 1)
        counts = await self._rpc.batch(
            [("eth_getBlockTransactionCountByNumber", (hex(number),)) for number in numbers]
        )
        relayed = sum(int(count, 16) for count in counts)
        return Side(relayed / (last.at - first.at), relayed / len(numbers), measured)

    async def _lane(self, *command: str) -> None:
        """Runs `ltzd lane COMMAND`."""
        log = self._ltzd.data_dir.parent / "lane.log"
        arguments = ["-m", "ltzd", "lane", *command, "--data-dir", str(self._ltzd.data_dir)]
        async with running(arguments, log) as process:
            if await process.wait() != 0:
                raise SystemExit(log.read_text())


def _ratio(measured: list[tuple[Side, Side]]) -> Ratio:
    single, fleet = sorted(measured, key=lambda round_: round_[1].per_second)[len(measured) // 2]
    return Ratio(
        name=f"relayed calls with {WALLETS} wallets ÷ with one, {MAX_IN_FLIGHT} in flight each",
        rounds=tuple(fleet.per_second / single.per_second for single, fleet in measured),
        figures=f"{fleet.per_second:,.0f} ÷ {single.per_second:,.0f} a second; "
        f"{fleet.per_block:,.0f} and {single.per_block:,.0f} a block",
        must=6,
        aim=7.5,
    )
