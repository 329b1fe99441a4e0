"""100 wallets pregenerated at once, compared with the time that the identity provider needs.

The sandbox answers each of the provider's requests after 50 ms, and its limit of users a minute is
off. ltzd has so many requests to it under way at most: 100 wallets take as many rounds of those as
it needs for 100 requests, times the requests that a wallet takes, and a round takes 50 ms.

A brand may ask 100 times a minute, and an address 200 times: each load has a brand of its own, and
each of its clients an address.
"""

import asyncio
import json
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.harness import identity_provider, instance, load, results
from benchmarks.harness.identity_provider import DELAY_SECONDS, MOST_PLACES
from benchmarks.harness.instance import BRAND_FILE, Instance
from benchmarks.harness.load import Load, Plan
from benchmarks.harness.processes import START_SECONDS, check_alive, running
from benchmarks.harness.results import Figure, Measurement, Ratio
from benchmarks.harness.sides import check, show

PATH = "/service-api/pregenerate-user"
AT_ONCE = 100
CREATED = '"created_new":true'
FOUND = '"created_new":false'
_FIRST_ID = 5_394_817_206


@dataclass(frozen=True, slots=True)
class Round:
    """`calls` counts requests at the provider; `existing` measures the same accounts again."""

    created: Load
    calls: int
    existing: Load

    @property
    def milliseconds(self) -> float:
        """The milliseconds until the last of the concurrent requests was answered."""
        return self.created.p99_ms

    @property
    def bound_ms(self) -> float:
        return self.calls / AT_ONCE * math.ceil(AT_ONCE / MOST_PLACES) * DELAY_SECONDS * 1000

    def as_json(self) -> dict[str, Any]:
        return {
            "created": self.created.as_json(),
            "calls": self.calls,
            "bound_ms": self.bound_ms,
            "found": self.existing.as_json(),
        }


async def run(*, rounds: int, in_document: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        async with instance.started(Path(name)) as ltzd, aiohttp.ClientSession() as client:
            loads = _Loads(ltzd, client)
            await identity_provider.slow_down(ltzd, client)
            await loads.round(0)  # opens connections, and is not counted
            measured = [await loads.round(number) for number in range(1, rounds + 1)]
    details = {"rounds": [round_.as_json() for round_ in measured]}
    results.record("pregeneration", _measurements(measured), details, in_document=in_document)


class _Loads:
    def __init__(self, ltzd: Instance, client: aiohttp.ClientSession) -> None:
        self._ltzd = ltzd
        self._client = client

    async def round(self, number: int) -> Round:
        before = await self._calls()
        created = await self._measure("created", number, 2 * number, CREATED)
        calls = await self._calls() - before
        return Round(created, calls, await self._measure("found", number, 2 * number + 1, FOUND))

    async def _calls(self) -> int:
        return await identity_provider.count_calls(self._ltzd, self._client)

    async def _measure(self, side: str, accounts: int, brand: int, must_hold: str) -> Load:
        """Measures concurrent requests, each on a connection of its own."""
        plan = Plan(
            port=self._ltzd.port,
            requests=self._requests(accounts, await self._brand(brand)),
            clients=AT_ONCE,
            must_hold=must_hold,
            own_addresses=True,
        )
        measured = check(await load.measure(plan))
        if measured.errors:
            raise SystemExit("not every request was answered rightly")
        show(side, measured)
        return measured

    def _requests(self, accounts: int, brand_id: str) -> list[str]:
        numbers = range(accounts * AT_ONCE, (accounts + 1) * AT_ONCE)
        bodies = [
            {
                "brand_id": brand_id,
                "oauth_provider": "telegram",
                "oauth_user_id": str(_FIRST_ID + number),
            }
            for number in numbers
        ]
        return [load.post(self._ltzd.port, PATH, json.dumps(body)) for body in bodies]

    async def _brand(self, number: int) -> str:
        """An account that no request has named before."""
        brand_id = f"0xbe4d{number:036x}"
        folder = self._ltzd.data_dir.parent
        file = folder / "pregeneration.toml"
        text = BRAND_FILE.read_text(encoding="utf-8")
        file.write_text(text.replace(self._ltzd.brand.id, brand_id), encoding="utf-8")
        command = ["-m", "ltzd", "brand", "apply", str(file)]
        log = folder / "pregeneration.log"
        async with running([*command, "--data-dir", str(self._ltzd.data_dir)], log) as process:
            if await process.wait() != 0:
                check_alive(process, log)
        await self._until_it_is_known(brand_id)
        return brand_id

    async def _until_it_is_known(self, brand_id: str) -> None:
        url = f"{self._ltzd.dev_json['baseUrl']}/service-api/event-config?brandId={brand_id}"
        async with asyncio.timeout(START_SECONDS):
            while True:
                async with self._client.get(url) as answer:
                    if answer.status == 200:
                        return
                await asyncio.sleep(0.1)


def _measurements(measured: list[Round]) -> list[Measurement]:
    typical = sorted(measured, key=lambda round_: round_.milliseconds)[len(measured) // 2]
    created, existing = typical.created, typical.existing
    return [
        Ratio(
            name=f"{AT_ONCE} pregenerations at once ÷ the identity provider's own time",
            rounds=tuple(round_.milliseconds / round_.bound_ms for round_ in measured),
            must=2,
            is_lower_better=True,
            figures=(
                f"{typical.milliseconds:.0f} ÷ {typical.bound_ms:.0f} ms: "
                f"{typical.calls / AT_ONCE:g} requests a wallet of {DELAY_SECONDS * 1000:.0f} ms, "
                f"{MOST_PLACES} at once; p50 {created.p50_ms:.0f} ms, "
                f"{AT_ONCE / typical.milliseconds * 1000:,.0f} a second"
            ),
        ),
        Figure(
            name=f"{AT_ONCE} pregenerations at once of accounts that have a wallet",
            figures=(
                f"p50 {existing.p50_ms:.0f}, p99 {existing.p99_ms:.0f} ms, "
                f"{AT_ONCE / existing.p99_ms * 1000:,.0f} a second"
            ),
        ),
    ]
