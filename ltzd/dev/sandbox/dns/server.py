"""The sandbox's name server: UDP and TCP on one port of the loopback address.

Faults ordered for "dns" apply here: any status is SERVFAIL, and a drop is no answer. A malformed
query gets no answer either.
"""

import asyncio
from pathlib import Path

import dns.exception
import dns.flags
import dns.message
import dns.rcode
from aiohttp import web
from dns.message import Message

from ltzd.dev.sandbox.dns.records import TxtRecordStore, name_of
from ltzd.dev.sandbox.faults import DNS, Faults
from ltzd.dev.sandbox.journal import Journal
from ltzd.dev.sandbox.requests import (
    BadInputError,
    Body,
    allow_only,
    control_body,
    json_reply,
    list_in,
    text_in,
)
from ltzd.errors import Misconfigured
from ltzd.providers.dns_txt import DnsPolicy

_HOST = "127.0.0.1"
_TCP_BYTES = 65_535
_MIN_UDP_BYTES = 512
_IDLE_SECONDS = 10.0
_MAX_VALUES = 256
_MAX_BYTES = 32_768
_ATTEMPTS = 5


class DnsServer:
    """The port is known after `start`: the last start's port if it is free."""

    def __init__(self, folder: Path, faults: Faults) -> None:
        self._folder = folder
        self._faults = faults
        self._journal: Journal | None = None
        self._store: TxtRecordStore | None = None
        self._port = 0
        self._tcp: asyncio.Server | None = None
        self._udp: asyncio.DatagramTransport | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Raises Misconfigured."""
        self._journal, records = Journal.open(self._folder / "dns.jsonl")
        self._store = TxtRecordStore(self._journal)
        try:
            for record in records:
                self._store.apply_record(record)
        except (KeyError, TypeError, ValueError) as error:
            raise Misconfigured(
                "The sandbox's DNS records are damaged; start once with --clean to delete them."
            ) from error
        await self._listen()

    async def stop(self) -> None:
        if self._udp is not None:
            self._udp.close()
        if self._tcp is not None:
            self._tcp.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        journal, self._journal = self._journal, None
        if journal is not None:
            await journal.close()

    def policy(self) -> DnsPolicy:
        return DnsPolicy((_HOST,), self._port)

    async def set_txt(self, name: str, values: list[str]) -> None:
        """Set a default; does nothing if the control endpoint has set this name."""
        assert self._store is not None, "the sandbox has not started"
        await self._store.set(name_of(name), tuple(values), "start")

    async def handle_control(self, request: web.Request) -> web.Response:
        """POST {"name", "txt": […]}; an empty list removes the record."""
        assert self._store is not None, "the sandbox has not started"
        body = await control_body(request)
        allow_only(body, "name", "txt")
        try:
            name = name_of(text_in(body, "name", longest=1024))
        except ValueError as error:
            raise BadInputError("name", str(error)) from error
        values = _values_in(body)
        await self._store.set(name, values, "control")
        return json_reply({"name": name.to_text(omit_final_dot=True), "txt": values})

    async def reply(self, raw: bytes, max_bytes: int) -> bytes | None:
        """Return the answer, or None for no answer.

        `max_bytes` 0 takes the limit of the query's own EDNS payload size.
        """
        assert self._store is not None
        query = _query_in(raw)
        if query is None:
            return None
        fault = self._faults.consume(DNS)
        if fault is not None:
            is_cut = fault.drops_request or await self._faults.stopped_within(fault.delay_seconds)
            if is_cut or fault.drops_reply:
                return None
        response = self._store.answer(query)
        if fault is not None and fault.status is not None:
            response = dns.message.make_response(query, recursion_available=True)
            response.set_rcode(dns.rcode.SERVFAIL)
        return _wire(response, max_bytes or max(query.payload, _MIN_UDP_BYTES))

    def answer_datagram(self, raw: bytes, address: tuple[str, int]) -> None:
        task = asyncio.create_task(self._answer_datagram(raw, address), name="sandbox dns")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer_datagram(self, raw: bytes, address: tuple[str, int]) -> None:
        reply = await self.reply(raw, 0)
        if reply is not None and self._udp is not None:
            self._udp.sendto(reply, address)

    async def _serve_connection(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        try:
            while (reply := await self.reply(await _read_message(reader), _TCP_BYTES)) is not None:
                writer.write(len(reply).to_bytes(2, "big") + reply)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass  # the client has disconnected or is idle
        finally:
            writer.close()

    async def _listen(self) -> None:
        remembered = self._folder / "dns.port"
        port = _remembered_port(remembered)
        for _ in range(_ATTEMPTS):
            try:
                self._port = await self._bind(port)
            except OSError:
                port = 0
                continue
            remembered.write_text(str(self._port))
            return
        raise Misconfigured("The sandbox's name server finds no free port.")

    async def _bind(self, port: int) -> int:
        """Bind TCP and UDP to one port; 0 takes a free one. Returns the port."""
        self._tcp = await asyncio.start_server(self._serve_connection, _HOST, port)
        port = self._tcp.sockets[0].getsockname()[1]
        try:
            self._udp, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: _Datagrams(self), local_addr=(_HOST, port)
            )
        except OSError:
            self._tcp.close()
            raise
        return port


class _Datagrams(asyncio.DatagramProtocol):
    def __init__(self, server: DnsServer) -> None:
        self._server = server

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self._server.answer_datagram(data, addr)


def _remembered_port(file: Path) -> int:
    """Return the port of the last start, or 0."""
    try:
        return int(file.read_text())
    except (OSError, ValueError):
        return 0


async def _read_message(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(_IDLE_SECONDS):
        return await reader.readexactly(int.from_bytes(await reader.readexactly(2), "big"))


def _query_in(raw: bytes) -> Message | None:
    try:
        message = dns.message.from_wire(raw)
    except dns.exception.DNSException:
        return None
    return None if message.flags & dns.flags.QR else message


def _wire(response: Message, max_bytes: int) -> bytes:
    try:
        return response.to_wire(max_size=max_bytes)
    except dns.exception.TooBig:
        response.answer.clear()
        response.flags |= dns.flags.TC
        return response.to_wire(max_size=max_bytes)


def _values_in(body: Body) -> tuple[str, ...]:
    values = tuple(value for value in list_in(body, "txt", _MAX_VALUES) if isinstance(value, str))
    if len(values) < len(list_in(body, "txt", _MAX_VALUES)):
        raise BadInputError("txt", "must be a list of strings")
    if sum(len(value.encode()) for value in values) > _MAX_BYTES:
        raise BadInputError("txt", f"must hold at most {_MAX_BYTES} bytes in all")
    return values
