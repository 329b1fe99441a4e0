"""PostgreSQL's own limit: rows that plain asyncpg inserts a second, measured in a separate process.

Each connection sends its next statement, a transaction by itself, when the last one is committed,
or after a random pause: a server whose caches have cooled meanwhile takes three times as long.
The table has a key and the columns of a short event. `measure` starts the process, gives it its
InsertLoad and reads what was Inserted; both travel as JSON.
"""

import asyncio
import itertools
import random
import sys
from array import array
from collections.abc import Iterator
from time import perf_counter, process_time
from typing import Any
from uuid import UUID

import asyncpg
import msgspec
import uvloop

from benchmarks.harness import processes
from benchmarks.harness.load import percentile_ms

_TABLE = """
CREATE SCHEMA IF NOT EXISTS benchmark;
DROP TABLE IF EXISTS benchmark.inserts;
CREATE TABLE benchmark.inserts (
  id         uuid PRIMARY KEY,
  brand_id   bytea NOT NULL,
  event_type text NOT NULL,
  email      text NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now()
)
"""
_ONE = """
INSERT INTO benchmark.inserts (id, brand_id, event_type, email) VALUES ($1, $2, $3, $4)
"""
_SEVERAL = """
INSERT INTO benchmark.inserts (id, brand_id, event_type, email)
SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::text[], $4::text[])
"""
_NOTIFYING = f"""
WITH inserted AS ({_ONE.strip()})
SELECT pg_notify('benchmark', '')
"""
_ROW = (b"\x11" * 20, "custom_bench", "user@bench.example")


class InsertLoad(msgspec.Struct, frozen=True):
    """Each statement inserts `rows` rows; one of a single row may also notify.

    Between two statements of a connection is a random pause up to `most_pause_seconds`.
    """

    url: str
    connections: int
    rows: int
    warm_up_seconds: float
    seconds: float
    notifies: bool = False
    most_pause_seconds: float = 0.0


class Inserted(msgspec.Struct, frozen=True):
    """`per_second` counts rows, the latencies are of statements. `client_share` is the part of a
    core that the process itself used.
    """

    per_second: float
    p50_ms: float
    p99_ms: float
    client_share: float

    def as_json(self) -> dict[str, Any]:
        content: dict[str, Any] = msgspec.to_builtins(self)
        return content


async def measure(work: InsertLoad) -> Inserted:
    answer = await processes.answer_of("benchmarks.limits.inserts", msgspec.json.encode(work))
    return msgspec.json.decode(answer, type=Inserted)


async def _run(work: InsertLoad) -> Inserted:
    connections = [await asyncpg.connect(work.url) for _ in range(work.connections)]
    await connections[0].execute(_TABLE)
    latencies, ids = array("d"), itertools.count()
    used, start = process_time(), perf_counter()
    begin = start + work.warm_up_seconds
    end = begin + work.seconds
    async with asyncio.TaskGroup() as group:
        for connection in connections:
            group.create_task(_insert(connection, work, ids, (begin, end), latencies))
    share = (process_time() - used) / (perf_counter() - start)
    await connections[0].execute("DROP TABLE benchmark.inserts")
    for connection in connections:
        await connection.close()
    ordered = sorted(latencies)
    return Inserted(
        per_second=len(ordered) * work.rows / work.seconds,
        p50_ms=percentile_ms(ordered, 0.50),
        p99_ms=percentile_ms(ordered, 0.99),
        client_share=share,
    )


async def _insert(
    connection: "asyncpg.Connection[Any]",
    work: InsertLoad,
    ids: Iterator[int],
    counted: tuple[float, float],
    latencies: "array[float]",
) -> None:
    begin, end = counted
    rows, single = work.rows, _NOTIFYING if work.notifies else _ONE
    now = perf_counter()
    while now < end:
        sent_at = now
        keys = [UUID(int=next(ids)) for _ in range(rows)]
        if rows == 1:
            await connection.execute(single, keys[0], *_ROW)
        else:
            await connection.execute(_SEVERAL, keys, *([value] * rows for value in _ROW))
        now = perf_counter()
        if begin <= now < end:
            latencies.append(now - sent_at)
        if work.most_pause_seconds:
            await asyncio.sleep(random.uniform(0, work.most_pause_seconds))
            now = perf_counter()


if __name__ == "__main__":
    _work = msgspec.json.decode(sys.stdin.buffer.read(), type=InsertLoad)
    sys.stdout.buffer.write(msgspec.json.encode(uvloop.run(_run(_work))))
