"""The webhook deliveries that came, the newest MOST of them, on disk before they are answered.

The journal is written anew, without what is forgotten, when that has grown to more than is kept.
"""

import asyncio
import os
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Final, Self

import msgspec

from ltzd.dev.sandbox.journal import Journal, Record
from ltzd.errors import Misconfigured

MOST: Final = 10_000

_CAME, _ANSWERED, _EMPTIED = "came", "answered", "emptied"


@dataclass(frozen=True, slots=True)
class ReceivedDelivery:
    """`status` is None until it is answered, and for good if the sender has not waited."""

    brand_id: str
    received_at: str
    headers: dict[str, str]
    body: str
    status: int | None


class DeliveryLog:
    def __init__(self, path: Path, most: int = MOST) -> None:
        self._path = path
        self._most = most
        self._journal: Journal | None = None
        self._kept: dict[int, ReceivedDelivery] = {}
        self._next = 0
        self._lines = 0
        self._turn = asyncio.Lock()

    def open(self) -> Self:
        """Raises Misconfigured."""
        self._journal, records = Journal.open(self._path)
        try:
            for record in records:
                self._apply(record)
        except (KeyError, TypeError, ValueError, msgspec.ValidationError) as error:
            raise Misconfigured(
                "The sandbox's webhook inbox is damaged: start once with --clean to begin anew."
            ) from error
        return self

    async def close(self) -> None:
        journal, self._journal = self._journal, None
        if journal is not None:
            await journal.close()

    def deliveries(self) -> list[ReceivedDelivery]:
        """The oldest first."""
        return list(self._kept.values())

    async def came(self, delivery: ReceivedDelivery) -> int:
        """The number under which it is on disk now."""
        number = self._next
        self._next += 1
        await self._write({"kind": _CAME, "number": number, "delivery": asdict(delivery)})
        return number

    async def answered(self, number: int, status: int) -> None:
        await self._write({"kind": _ANSWERED, "number": number, "status": status})

    async def empty(self) -> None:
        await self._write({"kind": _EMPTIED})

    async def _write(self, record: Record) -> None:
        async with self._turn:
            if self._lines > 2 * self._most:
                await self._compact()
            journal = self._opened()
            sequence = journal.append(record)
            self._apply(record)
        await journal.wait_durable(sequence)

    def _apply(self, record: Record) -> None:
        """One line of the journal, new or remembered."""
        self._lines += 1
        if record["kind"] == _EMPTIED:
            self._kept.clear()
            return
        number = msgspec.convert(record["number"], int)
        if record["kind"] == _CAME:
            self._kept[number] = msgspec.convert(record["delivery"], ReceivedDelivery)
            self._next = max(self._next, number + 1)
            if len(self._kept) > self._most:
                del self._kept[next(iter(self._kept))]
        elif number in self._kept:
            status = msgspec.convert(record["status"], int)
            self._kept[number] = replace(self._kept[number], status=status)

    async def _compact(self) -> None:
        """Whoever waits for the old journal's disk is served by its end."""
        await self._opened().close()
        records: list[Record] = [
            {"kind": _CAME, "number": number, "delivery": asdict(delivery)}
            for number, delivery in self._kept.items()
        ]
        await asyncio.to_thread(_replace, self._path, records)
        self._journal, _ = Journal.open(self._path)
        self._lines = len(records)

    def _opened(self) -> Journal:
        assert self._journal is not None, "the sandbox has not started"
        return self._journal


def _replace(path: Path, records: list[Record]) -> None:
    """The file is the old or the new one, whenever the machine stops."""
    unfinished = path.with_suffix(".new")
    with unfinished.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.writelines(msgspec.json.encode(record) + b"\n" for record in records)
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
