"""Leaderboards of 1,000,000 users compared with 1,000; and the cost of mints that move ranks.

Each size has a database of its own, so that their tables differ in size. The benchmark calls the
action behind `GET /leaderboard`, since the HTTP around it is the same for both sides.
"""

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, get_args
from uuid import uuid4

import msgspec

from benchmarks.harness import results
from benchmarks.harness.instance import BRAND_FILE
from benchmarks.harness.load import percentile_ms
from benchmarks.harness.results import Figure, Measurement, Ratio
from benchmarks.harness.sides import WARM_UP_SECONDS
from ltzd.actions.site_plugin.leaderboards import Leaderboards
from ltzd.dev.services import postgres
from ltzd.rules.brands.configuration import Brand, parse_brand_file
from ltzd.rules.event_handler.brand_limits import local_day
from ltzd.rules.indexer.log_position import LogPosition
from ltzd.rules.indexer.mint_facts import RewardMinted
from ltzd.rules.site_plugin.leaderboards import Metric, first_day
from ltzd.store.brands import configurations as brands
from ltzd.store.database import Pool, connect, open_pool, session, transaction
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.indexer import mint_facts as facts
from ltzd.store.replica import ReplicaReads
from ltzd.store.schema_revisions import migrate
from ltzd.values import LTZ, Address, Hash32, reward_reference

FEW, MANY = 1_000, 1_000_000
CLIENTS = 16
PLACES = 10
"""The default number of users on a page."""
MINTS = 2_000
_MINTS_A_TURN = 500
"""The number that the indexer writes in one batch."""
_FILL_SECONDS = 1_800.0

METRICS: tuple[Metric, ...] = get_args(Metric)


class Reads(msgspec.Struct, frozen=True):
    per_second: float
    p50_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Round:
    """`minted_ms` is the time of MINTS rewards of users who are ranked already."""

    few: dict[Metric, Reads]
    many: dict[Metric, Reads]
    few_minted_ms: float
    many_minted_ms: float

    def as_json(self) -> dict[str, Any]:
        content: dict[str, Any] = msgspec.to_builtins(self)
        return content


async def run(*, seconds: float, rounds: int, in_document: bool) -> None:
    with tempfile.TemporaryDirectory(prefix="ltzd-bench-") as name:
        async with _server(Path(name)) as url, _side(url, FEW) as few, _side(url, MANY) as many:
            measured = [await _round(few, many, seconds) for _ in range(rounds)]
    details = {"rounds": [round_.as_json() for round_ in measured]}
    results.record("leaderboard", _measurements(measured), details, in_document=in_document)


@asynccontextmanager
async def _server(folder: Path) -> AsyncIterator[str]:
    server = await postgres.start(folder)
    try:
        yield server.url
    finally:
        await postgres.stop(folder)


@asynccontextmanager
async def _side(server_url: str, users: int) -> AsyncIterator["_Side"]:
    """A database with a brand of this many users."""
    connection = await connect(server_url, "benchmark")
    await connection.execute(f"CREATE DATABASE users_{users}")
    await connection.close()
    url = f"{server_url.rpartition('/')[0]}/users_{users}"
    await migrate(url)
    pool = await open_pool(url)
    try:
        brand = parse_brand_file(BRAND_FILE.read_text(encoding="utf-8"), BRAND_FILE.name)
        side = _Side(pool, brand, users)
        await side.fill()
        yield side
    finally:
        await pool.close()


class _Side:
    def __init__(self, pool: Pool, brand: Brand, users: int) -> None:
        self._pool = pool
        self._brand = brand
        self._users = users
        self._boards = Leaderboards(ReplicaReads(pool))
        self._block = 0
        self._seq = 0

    async def fill(self) -> None:
        """Inserts users who are ranked on all of the week's boards and members of the site."""
        started = perf_counter()
        async with session(self._pool) as connection:
            await brands.apply(connection, self._brand, Sealer([secrets.token_bytes(32)]))
            now = await connection.fetchval("SELECT now()")
            week = first_day("week", local_day(now, self._brand.time_zone))
            await connection.execute(
                FILL, self._brand.address, week, self._users, timeout=_FILL_SECONDS
            )
            for statement in ("VACUUM ANALYZE", "CHECKPOINT"):
                await connection.execute(statement, timeout=_FILL_SECONDS)
        print(f"  {self._users:,} users in {perf_counter() - started:.0f} s", flush=True)

    async def read(self, metric: Metric, seconds: float) -> Reads:
        """Measures concurrent clients, each of which repeats its request after the answer."""
        await self._measure(metric, WARM_UP_SECONDS)
        taken = sorted(await self._measure(metric, seconds))
        reads = Reads(len(taken) / seconds, percentile_ms(taken, 0.50), percentile_ms(taken, 0.99))
        print(
            f"  {metric:10} of {self._users:9,} {reads.per_second:8,.0f}/s  "
            f"p50 {reads.p50_ms:6.2f} ms  p99 {reads.p99_ms:6.2f} ms",
            flush=True,
        )
        return reads

    async def _measure(self, metric: Metric, seconds: float) -> list[float]:
        taken: list[float] = []
        end = perf_counter() + seconds

        async def client() -> None:
            while (before := perf_counter()) < end:
                board = await self._boards.read(self._brand, "site.example", metric, "week", PLACES)
                taken.append(perf_counter() - before)
                if len(board.entries) != PLACES or board.total != self._users:
                    raise SystemExit(f"{len(board.entries)} of {board.total} are shown")

        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        return taken

    async def mint(self) -> float:
        """The milliseconds in which the indexer writes MINTS mints and commits."""
        mints = await self._owed()
        before = perf_counter()
        async with transaction(self._pool) as connection:
            for turn in range(0, MINTS, _MINTS_A_TURN):
                await facts.insert_mints(connection, mints[turn : turn + _MINTS_A_TURN])
        taken = (perf_counter() - before) * 1000
        print(f"  {MINTS:,} mints beside {self._users:9,}: {taken:.0f} ms", flush=True)
        return taken

    async def _owed(self) -> Sequence[RewardMinted]:
        self._block += 1
        async with session(self._pool) as connection:
            wallets = await connection.fetch(
                "SELECT wallet FROM users WHERE id >= gen_random_uuid() ORDER BY id LIMIT $1", MINTS
            )
            owed = [
                (
                    uuid4(),
                    self._brand.address,
                    wallets[number % len(wallets)]["wallet"],
                    self._seq + number,
                )
                for number in range(MINTS)
            ]
            self._seq += MINTS
            await connection.executemany(
                "INSERT INTO rewards (id, kind, brand_id, wallet, ltz, seq) "
                "VALUES ($1, 1, $2, $3, 1, $4)",
                owed,
            )
        block = Hash32(self._block.to_bytes(32, "big"))
        return [
            RewardMinted(
                LogPosition(self._block, block, index, block),
                Address(wallet),
                reward_reference(id_, 1, seq),
                LTZ,
            )
            for index, (id_, _, wallet, seq) in enumerate(owed)
        ]


# The values are scattered over the wallets; of rewards and days many wallets have as many.
FILL = """
WITH everybody AS MATERIALIZED (
  SELECT n, substring(sha256(int8send(n)) FOR 20) AS wallet,
         'user' || n AS name, 'user' || n || '@bench.example' AS email
    FROM generate_series(1, $3::bigint) AS n
), met AS (
  INSERT INTO users (id, email_key, identity_subject, wallet)
  SELECT gen_random_uuid(), email, '', wallet FROM everybody
), logged_in AS (
  INSERT INTO site_members (brand_id, host, site_user_id, username, email_key, user_id, wallet)
  SELECT $1, 'site.example', n, name, email, gen_random_uuid(), wallet FROM everybody
), earned AS (
  INSERT INTO earnings (brand_id, period, starts, wallet, ltz, rewards)
  SELECT $1, 'week', $2, wallet, 1 + abs(hashint8(n)::bigint), 1 + n % 50 FROM everybody
), checked_in AS (
  INSERT INTO leaderboard_streaks (brand_id, period, starts, wallet, days)
  SELECT $1, 'week', $2, wallet, 1 + n % 7 FROM everybody
)
INSERT INTO leaderboard_totals (brand_id, board, period, starts, slot, ranked)
SELECT $1::bytea, 'streaks', 'week', $2::date, n % 16, count(*) FROM everybody GROUP BY n % 16
 UNION ALL
SELECT $1, 'earnings', 'week', $2, 0, $3
"""
"""Ranks $3 members of the brand $1 on the boards of the week that begins on $2."""


async def _round(few: _Side, many: _Side, seconds: float) -> Round:
    reads_few: dict[Metric, Reads] = {}
    reads_many: dict[Metric, Reads] = {}
    for metric in METRICS:
        reads_few[metric] = await few.read(metric, seconds)
        reads_many[metric] = await many.read(metric, seconds)
    return Round(reads_few, reads_many, await few.mint(), await many.mint())


def _measurements(measured: list[Round]) -> list[Measurement]:
    return [*(_by_size(metric, measured) for metric in METRICS), _of_mints(measured)]


def _by_size(metric: Metric, measured: list[Round]) -> Ratio:
    def quotient(round_: Round) -> float:
        return round_.many[metric].p99_ms / round_.few[metric].p99_ms

    typical = sorted(measured, key=quotient)[len(measured) // 2]
    many, few = typical.many[metric], typical.few[metric]
    return Ratio(
        name=f"leaderboard by {metric}: p99 of {MANY:,} users ÷ of {FEW:,}, {CLIENTS} clients",
        rounds=tuple(map(quotient, measured)),
        must=2,
        is_lower_better=True,
        figures=(
            f"{many.p99_ms:.1f} ÷ {few.p99_ms:.1f} ms (p50 {many.p50_ms:.1f} and "
            f"{few.p50_ms:.1f} ms, {many.per_second:,.0f} and {few.per_second:,.0f} a second)"
        ),
    )


def _of_mints(measured: list[Round]) -> Figure:
    def middle(side: Callable[[Round], float]) -> float:
        return median(map(side, measured))

    return Figure(
        name=f"{MINTS:,} mints written, told to their rewards and ranked, in one transaction",
        figures=(
            f"{middle(lambda round_: round_.many_minted_ms):.0f} ms beside {MANY:,} users, "
            f"{middle(lambda round_: round_.few_minted_ms):.0f} ms beside {FEW:,}"
        ),
    )
