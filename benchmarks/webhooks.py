"""Webhooks delivered a second to 100 brands, and to one whose receiver takes 50 ms; event answers
while a brand's receiver takes 30 s.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.harness import instance, processes, results, webhook_receiver
from benchmarks.harness.instance import Instance
from benchmarks.harness.load import Load
from benchmarks.harness.results import Measurement, Ratio
from benchmarks.harness.sides import USERS, first_events, timed
from ltzd.dev.services.ports import free_port
from ltzd.rules.brands.configuration import Brand
from ltzd.rules.webhooks import MOST_SLOTS
from ltzd.store.brands import configurations as brands
from ltzd.store.database import Connection, connect
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.webhooks import queue as webhooks

BRANDS = 100
EACH = 50
"""Webhooks of every brand."""
LONE = 2_000
"""Webhooks of the brand whose receiver takes 50 ms."""
WANTED, WANTED_BY_LONE = 5_000, 300
PATIENCE_SECONDS = 300.0


@dataclass(frozen=True, slots=True)
class Delivered:
    """`seconds` is the time from the first to the last arrival."""

    count: int
    seconds: float

    @property
    def per_second(self) -> float:
        return (self.count - 1) / self.seconds

    def as_json(self) -> dict[str, Any]:
        return {"count": self.count, "seconds": self.seconds, "per_second": self.per_second}


@dataclass(frozen=True, slots=True)
class Round:
    without: Load
    slow: Load
    delivered: Delivered
    lone: Delivered

    def as_json(self) -> dict[str, Any]:
        return {
            "without": self.without.as_json(),
            "slow": self.slow.as_json(),
            "delivered": self.delivered.as_json(),
            "lone": self.lone.as_json(),
        }


async def run(*, seconds: float, rounds: int, in_document: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        async with _sides(Path(name), seconds) as sides:
            measured = [await sides.round() for _ in range(rounds)]
    details = {"rounds": [round_.as_json() for round_ in measured]}
    results.record("webhooks", _measurements(measured), details, in_document=in_document)


@asynccontextmanager
async def _sides(folder: Path, seconds: float) -> AsyncIterator["_Sides"]:
    port, log = free_port(), folder / "receiver.log"
    receiver = ["-m", "benchmarks.harness.webhook_receiver", str(port)]
    async with instance.started(folder) as ltzd, processes.running(receiver, log) as process:
        await processes.until_it_listens(process, port, log)
        await first_events(ltzd, USERS)
        database = await connect(ltzd.dev_json["databaseUrl"], "benchmark")
        try:
            sides = _Sides(ltzd, database, f"http://127.0.0.1:{port}", seconds)
            await sides.fill()
            yield sides
        finally:
            await database.close()


class _Sides:
    def __init__(self, ltzd: Instance, database: Connection, receiver: str, seconds: float) -> None:
        self._ltzd = ltzd
        self._database = database
        self._receiver = receiver
        self._seconds = seconds
        self._sealer = Sealer.from_file(ltzd.data_dir / "master.key")

    async def fill(self) -> None:
        """Inserts brands with endpoints, and their minted rewards, which are not announced yet."""
        for number in range(BRANDS):
            await self._brand(f"Listener {number}", number, webhook_receiver.QUICK)
        await self._brand("Lone", BRANDS, webhook_receiver.SOON)
        await self._rewards("Listener %", EACH)
        await self._rewards("Lone", LONE)

    async def _brand(self, name: str, number: int, path: str) -> None:
        brand = Brand(
            id=f"0xbe4d{number:036x}",
            name=name,
            domains=(f"listener{number}.example",),
            webhook_url=self._receiver + path,
        )
        await brands.apply(self._database, brand, self._sealer)

    async def _rewards(self, names: str, each: int) -> None:
        await self._database.execute(
            """
            WITH made AS (
              INSERT INTO events (id, brand_id, event_type, email, user_id, domain, ltz)
              SELECT gen_random_uuid(), brands.id, 'form_submit', 'user@bench.example',
                     gen_random_uuid(), 'bench.example', 1
                FROM brands, generate_series(1, $1)
               WHERE brands.name LIKE $2
           RETURNING id, brand_id
            )
            INSERT INTO rewards (id, kind, brand_id, wallet, ltz, mint_block_number,
                                 mint_block_hash, mint_transaction_hash)
            SELECT id, 1, brand_id, substring(uuid_send(id) || uuid_send(id) FOR 20), 1, 1,
                   sha256(''), sha256(uuid_send(id))
              FROM made
            """,
            each,
            names,
        )

    async def round(self) -> Round:
        return Round(
            without=await self._events("no receiver", None),
            slow=await self._events("takes 30 s", webhook_receiver.SLOW),
            delivered=await self._delivered("Listener %", BRANDS * EACH),
            lone=await self._delivered("Lone", LONE),
        )

    async def _events(self, side: str, path: str | None) -> Load:
        """Measures events answered with their mint's hash, which the indexer then announces."""
        url = path and self._receiver + path
        brand = self._ltzd.brand.model_copy(update={"webhook_url": url})
        await brands.apply(self._database, brand, self._sealer)
        requests = self._ltzd.events(range(USERS))
        measured = await timed(
            side, self._ltzd.port, requests, self._seconds, instance.HASH_IN_ANSWER
        )
        await self._ltzd.settle()
        written = await self._database.execute(
            "DELETE FROM webhooks WHERE brand_id = $1", brand.address
        )
        if measured.errors or (written == "DELETE 0") != (path is None):
            raise SystemExit("not every event was answered, or not every mint announced")
        return measured

    async def _delivered(self, names: str, count: int) -> Delivered:
        await self._take_counts()
        await self._database.execute("DELETE FROM webhooks")
        async with self._database.transaction():
            await self._database.execute(
                """
                INSERT INTO webhooks (brand_id, kind, subject)
                SELECT brand_id, 'ltz_distributed', rewards.id
                  FROM rewards
                  JOIN brands ON brands.id = rewards.brand_id
                 WHERE brands.name LIKE $1
                """,
                names,
            )
            await webhooks.notify_senders(self._database)
        async with asyncio.timeout(PATIENCE_SECONDS):
            while await self._pending():  # noqa: ASYNC110 - polls another process
                await asyncio.sleep(0.1)
        delivered = await self._take_counts()
        if delivered.count != count:
            raise SystemExit(f"{delivered.count} webhooks arrived instead of {count}")
        print(f"  {names:14} {delivered.per_second:8,.0f}/s", flush=True)
        return delivered

    async def _pending(self) -> int:
        count: int = await self._database.fetchval(
            "SELECT count(*) FROM webhooks WHERE state = 'pending'"
        )
        return count

    async def _take_counts(self) -> Delivered:
        async with (
            aiohttp.ClientSession() as session,
            session.get(self._receiver + webhook_receiver.TAKEN) as answer,
        ):
            return Delivered(**await answer.json())


def _measurements(measured: list[Round]) -> list[Measurement]:
    typical = sorted(measured, key=lambda round_: round_.slow.p50_ms / round_.without.p50_ms)
    slow, without = typical[len(typical) // 2].slow, typical[len(typical) // 2].without
    return [
        Ratio(
            name="event answers: p50 with a receiver that takes 30 s ÷ without one",
            rounds=tuple(round_.slow.p50_ms / round_.without.p50_ms for round_ in measured),
            must=1.1,
            is_lower_better=True,
            figures=(
                f"{slow.p50_ms:.1f} ÷ {without.p50_ms:.1f} ms (p99 {slow.p99_ms:.1f} and "
                f"{without.p99_ms:.1f} ms, {slow.per_second:,.0f} and "
                f"{without.per_second:,.0f} a second)"
            ),
        ),
        Ratio(
            name=f"webhooks delivered a second to {BRANDS} brands ÷ {WANTED:,}",
            rounds=tuple(round_.delivered.per_second / WANTED for round_ in measured),
            must=1.0,
            figures="signed and posted by the process that also serves HTTP",
        ),
        Ratio(
            name=f"webhooks delivered a second to a receiver that takes 50 ms ÷ {WANTED_BY_LONE}",
            rounds=tuple(round_.lone.per_second / WANTED_BY_LONE for round_ in measured),
            must=1.0,
            figures=f"up to {MOST_SLOTS} at a time",
        ),
    ]
