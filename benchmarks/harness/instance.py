"""A whole ltzd under test: `ltzd dev` on anvil with one-second blocks, and the benchmarks' brand.

anvil's automine strands transactions of concurrent senders, so blocks are mined at an interval.
anvil runs without `--state`, which would write the whole chain to disk every second.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import aiohttp

from benchmarks.harness import load
from benchmarks.harness.processes import (
    START_SECONDS,
    check_alive,
    running,
    running_program,
    until_it_listens,
)
from ltzd.dev.services.chain import find_anvil
from ltzd.dev.services.ports import free_port
from ltzd.rules.brands.configuration import Brand, parse_brand_file

BRAND_FILE = Path(__file__).with_name("brand.toml")
EVENT_PATH = "/service-api/manual-event"
BULK_PATH = "/service-api/bulk-events"
BULK_EVENTS = 50
"""The maximum number of events in a request."""
MOST_BYTES = 10_240
"""The maximum size of a request's body."""
USER_DOMAIN = "bench.example"
MINTED = "custom_bench"
"""The type of events that earn 1 LTZ."""
UNREWARDED = "custom_bench_unrewarded"
"""The type of events that are recorded without a reward."""
RECORDED = '"success":true'
HASH_IN_ANSWER = '"transactionHash":"0x'
FINAL_IN_BULK = '"status":"final"'
PUBLISHED_IN_BULK = '"status":"published"'
"""The part of a bulk answer that each event has: recorded without a reward, or with a hash."""
BULK_PROCESSED = f'"processed":{BULK_EVENTS},'
BLOCK_SECONDS = 1
SETTLE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Instance:
    pid: int
    anvil_pid: int
    port: int
    data_dir: Path
    dev_json: dict[str, Any]
    """The content of dev.json."""
    brand: Brand

    def events(self, users: range, kind: str = MINTED) -> list[str]:
        """Prepares a request for each user."""
        return [load.post(self.port, EVENT_PATH, body) for body in self.event_bodies(users, kind)]

    def event_bodies(self, users: range, kind: str) -> list[str]:
        """The bodies of requests, for other processes than this instance's own."""
        return [json.dumps(self._event(number, kind)) for number in users]

    def bulks(self, users: range, kind: str = MINTED) -> list[str]:
        """Prepares requests with an event for each user, BULK_EVENTS in each."""
        requests = []
        for at in range(0, len(users), BULK_EVENTS):
            events = [self._event(number, kind) for number in users[at : at + BULK_EVENTS]]
            body = json.dumps({"events": events}, separators=(",", ":"))
            if len(body) > MOST_BYTES:
                raise SystemExit(f"{len(events)} events are {len(body)} bytes")
            requests.append(load.post(self.port, BULK_PATH, body))
        return requests

    def _event(self, number: int, kind: str) -> dict[str, str]:
        return {
            "brandId": self.brand.id,
            "eventType": kind,
            "userEmail": f"user{number}@{USER_DOMAIN}",
            "domain": self.brand.domains[0],
        }

    async def add_brand(self, number: int) -> "Instance":
        """This instance as another brand sees it, which has the same events."""
        text = BRAND_FILE.read_text(encoding="utf-8")
        text = text.replace(self.brand.id, f"0x{number + 1:08x}{self.brand.id[10:]}")
        text = text.replace("bench.example", f"bench{number}.example")
        file = self.data_dir.parent / f"brand{number}.toml"
        file.write_text(text, encoding="utf-8")
        await _brand(self.data_dir, "apply", str(file))
        other = replace(self, brand=parse_brand_file(text, file.name))
        await _until_brand_is_known(other)
        return other

    async def backlog(self) -> int:
        """The number of rewards that are not minted in any indexed block."""
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{self.dev_json['adminUrl']}/status") as answer,
        ):
            rewards = (await answer.json())["rewards"]
            return int(rewards["queued"]) + int(rewards["inFlight"])

    @asynccontextmanager
    async def paused(self) -> AsyncIterator[None]:
        """Within the context, events are accepted but not minted; all are minted at its end."""
        await _brand(self.data_dir, "pause", self.brand.id)
        yield
        await _brand(self.data_dir, "resume", self.brand.id)

    async def settle(self) -> None:
        """Waits until every reward is minted and ltzd is idle."""
        async with asyncio.timeout(SETTLE_SECONDS):
            while await self.backlog():  # noqa: ASYNC110 - polls another process
                await asyncio.sleep(0.2)


@asynccontextmanager
async def started(folder: Path, *options: str) -> AsyncIterator[Instance]:
    """`ltzd dev` with these options more."""
    async with (
        anvil_of_blocks(folder) as (anvil, rpc_url),
        on_chain(folder, anvil, rpc_url, *options) as instance,
    ):
        yield instance


@asynccontextmanager
async def on_chain(
    folder: Path, anvil: asyncio.subprocess.Process, rpc_url: str, *options: str
) -> AsyncIterator[Instance]:
    """`ltzd dev` on a chain of `anvil_of_blocks`, which outlives it."""
    data_dir, log = folder / "ltzd", folder / "ltzd.log"
    port = free_port()
    arguments = ["-m", "ltzd", "dev", "--data-dir", str(data_dir), "--port", str(port)]
    arguments += ["--admin-port", str(free_port()), *options, "--rpc-url", rpc_url]
    async with running(arguments, log) as process:
        dev_json = await _opened(process, data_dir / "dev.json", log)
        await _brand(data_dir, "apply", str(BRAND_FILE))
        brand = parse_brand_file(BRAND_FILE.read_text(encoding="utf-8"), BRAND_FILE.name)
        instance = Instance(process.pid, anvil.pid, port, data_dir, dev_json, brand)
        await _until_brand_is_known(instance)
        yield instance


@asynccontextmanager
async def anvil_of_blocks(
    folder: Path,
) -> AsyncIterator[tuple[asyncio.subprocess.Process, str]]:
    """A chain with a block every BLOCK_SECONDS; yields its process and its URL."""
    program = await asyncio.to_thread(find_anvil)
    if program is None:
        raise SystemExit("there is no anvil here: `make bench` installs it")
    port, log = free_port(), folder / "anvil.log"
    options = ["--port", str(port), "--chain-id", "31337", "--block-time", str(BLOCK_SECONDS)]
    options += ["--order", "fifo", "--gas-limit", "300000000", "--quiet"]
    async with running_program([program, *options], log) as process:
        await until_it_listens(process, port, log)
        yield process, f"http://127.0.0.1:{port}"


async def _opened(process: asyncio.subprocess.Process, dev_json: Path, log: Path) -> dict[str, Any]:
    async with asyncio.timeout(START_SECONDS):
        while (content := _read(dev_json)) is None:
            check_alive(process, log)
            await asyncio.sleep(0.1)
    return content


def _read(dev_json: Path) -> dict[str, Any] | None:
    content: dict[str, Any] | None = (
        json.loads(dev_json.read_bytes()) if dev_json.exists() else None
    )
    return content


async def _brand(data_dir: Path, *command: str) -> None:
    """Runs `ltzd brand COMMAND`."""
    log = data_dir.parent / "brand.log"
    arguments = ["-m", "ltzd", "brand", *command, "--data-dir", str(data_dir)]
    async with running(arguments, log) as process:
        if await process.wait() != 0:
            check_alive(process, log)


async def _until_brand_is_known(instance: Instance) -> None:
    url = f"{instance.dev_json['baseUrl']}/service-api/event-config?brandId={instance.brand.id}"
    async with asyncio.timeout(START_SECONDS), aiohttp.ClientSession() as session:
        while True:
            async with session.get(url) as answer:
                if answer.status == 200:
                    return
            await asyncio.sleep(0.1)
