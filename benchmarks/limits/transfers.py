"""The limits of the backfill, each measured in a process of its own.

`fetch`: `eth_getLogs` of 100 blocks, one after the other, decoded by msgspec into typed logs and
made tuples by hand; nothing is checked or written. `write`: PostgreSQL's transactions of 10,000
transfers, by COPY into a table, an insert from it into the indexed table, and an upsert of the
balances that they change. Both print one JSON object: seconds and events.
"""

import sys
from decimal import Decimal
from time import perf_counter, process_time

import aiohttp
import asyncpg
import msgspec
import uvloop

from benchmarks.harness import processes

_BLOCKS = 100
_EVENTS = 10_000
_TABLES = """
CREATE SCHEMA limits;
CREATE UNLOGGED TABLE limits.incoming (
  block_hash bytea, log_index integer, block_number bigint, transaction_hash bytea,
  sender bytea, recipient bytea, amount numeric(78, 0)
);
CREATE TABLE limits.transfers (
  block_hash bytea NOT NULL, log_index integer NOT NULL, block_number bigint NOT NULL,
  transaction_hash bytea NOT NULL, sender bytea NOT NULL, recipient bytea NOT NULL,
  amount numeric(78, 0) NOT NULL, PRIMARY KEY (block_number, block_hash, log_index)
);
CREATE TABLE limits.balances (wallet bytea PRIMARY KEY, amount numeric(78, 0) NOT NULL)
"""
_INSERT = """
INSERT INTO limits.transfers SELECT * FROM limits.incoming
"""
_UPSERT = """
INSERT INTO limits.balances AS b
SELECT wallet, sum(amount)
  FROM (SELECT sender AS wallet, -amount AS amount FROM limits.incoming
        UNION ALL
        SELECT recipient, amount FROM limits.incoming) AS moves
 GROUP BY wallet
    ON CONFLICT (wallet) DO UPDATE SET amount = b.amount + excluded.amount
"""


class TransferWork(msgspec.Struct, frozen=True):
    """`database_url` is empty for the limit of fetching."""

    rpc_url: str
    contract: str
    last: int
    database_url: str = ""


class Handled(msgspec.Struct, frozen=True):
    """`cpu_seconds` are the process's own."""

    events: int
    seconds: float
    cpu_seconds: float

    @property
    def per_second(self) -> float:
        return self.events / self.seconds


class _Log(msgspec.Struct, gc=False, rename="camel"):
    topics: list[str]
    data: str
    block_number: str
    block_hash: str
    transaction_hash: str
    log_index: str


class _Reply(msgspec.Struct):
    result: list[_Log]


Row = tuple[bytes, int, int, bytes, bytes, bytes, int]


async def measure(work: TransferWork) -> Handled:
    answer = await processes.answer_of("benchmarks.limits.transfers", msgspec.json.encode(work))
    return msgspec.json.decode(answer, type=Handled)


async def _ranges(work: TransferWork, session: aiohttp.ClientSession, first: int) -> bytes:
    last = min(first + _BLOCKS - 1, work.last)
    where = {"address": work.contract, "fromBlock": hex(first), "toBlock": hex(last)}
    call = {"jsonrpc": "2.0", "id": 1, "method": "eth_getLogs", "params": [where]}
    async with session.post(work.rpc_url, json=call) as answer:
        return await answer.read()


def _row(log: _Log) -> Row:
    return (
        bytes.fromhex(log.block_hash[2:]),
        int(log.log_index, 16),
        int(log.block_number, 16),
        bytes.fromhex(log.transaction_hash[2:]),
        bytes.fromhex(log.topics[1][26:]),
        bytes.fromhex(log.topics[2][26:]),
        int(log.data, 16),
    )


async def _fetched(work: TransferWork) -> list[Row]:
    decoder = msgspec.json.Decoder(_Reply)
    rows: list[Row] = []
    async with aiohttp.ClientSession() as session:
        for first in range(0, work.last + 1, _BLOCKS):
            logs = decoder.decode(await _ranges(work, session, first)).result
            # A transfer has three topics; the mint's second event and the roles are left out.
            rows += [_row(log) for log in logs if len(log.topics) == 3 and len(log.data) == 66]
    return rows


async def _written(url: str, rows: list[Row]) -> None:
    connection = await asyncpg.connect(url)
    try:
        for at in range(0, len(rows), _EVENTS):
            async with connection.transaction():
                await connection.execute("TRUNCATE limits.incoming")
                await connection.copy_records_to_table(
                    "incoming", schema_name="limits", records=rows[at : at + _EVENTS]
                )
                await connection.execute(_INSERT)
                await connection.execute(_UPSERT)
    finally:
        await connection.close()


async def _run(work: TransferWork) -> Handled:
    if not work.database_url:
        begun, used = perf_counter(), process_time()
        rows = await _fetched(work)
        return Handled(len(rows), perf_counter() - begun, process_time() - used)
    rows = [(*row[:6], Decimal(row[6])) for row in await _fetched(work)]  # type: ignore[misc]
    connection = await asyncpg.connect(work.database_url)
    await connection.execute(_TABLES)
    await connection.close()
    begun, used = perf_counter(), process_time()
    await _written(work.database_url, rows)
    return Handled(len(rows), perf_counter() - begun, process_time() - used)


if __name__ == "__main__":
    handled = uvloop.run(_run(msgspec.json.decode(sys.stdin.buffer.read(), type=TransferWork)))
    sys.stdout.buffer.write(msgspec.json.encode(handled))
