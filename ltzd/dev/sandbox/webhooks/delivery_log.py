"""A log of the newest MAX_DELIVERIES webhook deliveries, each on disk before it is answered.

The journal is compacted once it has more than twice as many lines as deliveries are kept.
"""

import asyncio
import os
from pathlib import Path
from typing import Final, Self

import msgspec
from msgspec.structs import asdict, replace

from ltzd.dev.sandbox.journal import Journal, Record
from ltzd.errors import Misconfigured

MAX_DELIVERIES: Final = 10_000

_CAME, _ANSWERED, _EMPTIED = "came", "answered", "emptied"


class ReceivedDelivery(msgspec.Struct, frozen=True):
    """`status` is None until the answer is sent; it stays None if the sender disconnected."""

    brand_id: str
    received_at: str
    headers: dict[str, str]
    body: str
    status: int | None


class DeliveryLog:
    def __init__(self, path: Path, max_deliveries: int = MAX_DELIVERIES) -> None:
        self._path = path
        self._max_deliveries = max_deliveries
        self._journal: Journal | None = None
        self._deliveries: dict[int, ReceivedDelivery] = {}
        self._next = 0
        self._lines = 0
        self._write_lock = asyncio.Lock()

    def open(self) -> Self:
        """Raises Misconfigured."""
        self._journal, records = Journal.open(self._path)
        try:
            for record in records:
                self._apply(record)
        except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
            raise Misconfigured(
                "The sandbox's webhook inbox is damaged; start once with --clean to delete it."
            ) from error
        return self

    async def close(self) -> None:
        journal, self._journal = self._journal, None
        if journal is not None:
            await journal.close()

    def deliveries(self) -> list[ReceivedDelivery]:
        """All deliveries, the oldest first."""
        return list(self._deliveries.values())

    async def record_arrival(self, delivery: ReceivedDelivery) -> int:
        """Return the delivery's number once it is on disk."""
        number = self._next
        self._next += 1
        await self._write({"kind": _CAME, "number": number, "delivery": asdict(delivery)})
        return number

    async def record_answer(self, number: int, status: int) -> None:
        await self._write({"kind": _ANSWERED, "number": number, "status": status})

    async def clear(self) -> None:
        await self._write({"kind": _EMPTIED})

    async def _write(self, record: Record) -> None:
        async with self._write_lock:
            if self._lines > 2 * self._max_deliveries:
                await self._compact()
            journal = self._open_journal()
            sequence = journal.append(record)
            self._apply(record)
        await journal.wait_durable(sequence)

    def _apply(self, record: Record) -> None:
        """Apply one record, new or read from the journal."""
        self._lines += 1
        if record["kind"] == _EMPTIED:
            self._deliveries.clear()
            return
        number = msgspec.convert(record["number"], int)
        if record["kind"] == _CAME:
            self._deliveries[number] = msgspec.convert(record["delivery"], ReceivedDelivery)
            self._next = max(self._next, number + 1)
            if len(self._deliveries) > self._max_deliveries:
                del self._deliveries[next(iter(self._deliveries))]
        elif number in self._deliveries:
            status = msgspec.convert(record["status"], int)
            self._deliveries[number] = replace(self._deliveries[number], status=status)

    async def _compact(self) -> None:
        """Rewrite the journal; closing the old one completes all writes that are waited for."""
        await self._open_journal().close()
        records: list[Record] = [
            {"kind": _CAME, "number": number, "delivery": asdict(delivery)}
            for number, delivery in self._deliveries.items()
        ]
        await asyncio.to_thread(_replace, self._path, records)
        self._journal, _ = Journal.open(self._path)
        self._lines = len(records)

    def _open_journal(self) -> Journal:
        assert self._journal is not None, "the sandbox has not started"
        return self._journal


def _replace(path: Path, records: list[Record]) -> None:
    """Replace the file atomically."""
    unfinished = path.with_suffix(".new")
    with unfinished.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.writelines(msgspec.json.encode(record) + b"\n" for record in records)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
