"""A server that serves TLS itself, and a certificate that is renewed while requests run."""

import asyncio
import json
import re
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from ltzd import telemetry
from ltzd.errors import Misconfigured
from ltzd.http.app import build_app
from ltzd.http.connections.limit import ConnectionLimit
from ltzd.http.server import serve
from ltzd.http.services import HttpPolicy
from ltzd.http.tls import ServerCertificate
from tests.support.certificates import DAY, Pair, a_pair, served_at, trusting
from tests.support.secret_files import write_secret
from tests.support.surfaces.http_surface import FakeEvents, an_event, services_over
from tests.support.waiting import until

OLD, NEW = a_pair(), a_pair()
MEBIBYTE = 1024 * 1024


@dataclass
class TlsSurface:
    folder: Path
    certificate: ServerCertificate
    port: int
    client: aiohttp.ClientSession
    events: FakeEvents
    limit: ConnectionLimit
    stop: asyncio.Event
    serving: asyncio.Task[None]

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.port}/service-api"

    async def serves(self) -> bytes:
        return (await served_at(self.port))[0]


@asynccontextmanager
async def a_tls_surface(
    folder: Path, handshake_seconds: float = 10.0, max_connections: int = 1_000
) -> AsyncIterator[TlsSurface]:
    certificate = ServerCertificate("public", *OLD.write(folder))
    events, stop = FakeEvents(), asyncio.Event()
    app: Any = build_app(
        services_over(events), HttpPolicy(grace_seconds=5, max_connections=max_connections)
    )
    port: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    set_port = port.set_result
    serving = asyncio.create_task(
        serve(
            app,
            "127.0.0.1",
            0,
            stop,
            on_listening=set_port,
            tls=certificate.context,
            tls_handshake_seconds=handshake_seconds,
        )
    )
    connector = aiohttp.TCPConnector(ssl=trusting(OLD, NEW), limit=0)
    async with aiohttp.ClientSession(connector=connector) as client:
        limit = app.ctx.connection_limit
        yield TlsSurface(folder, certificate, await port, client, events, limit, stop, serving)
    stop.set()
    await asyncio.wait_for(serving, 20)


@pytest_asyncio.fixture
async def surface(tmp_path: Path) -> AsyncIterator[TlsSurface]:
    async with a_tls_surface(tmp_path) as surface:
        yield surface


async def test_requests_are_answered_over_tls(surface: TlsSurface) -> None:
    async with surface.client.post(f"{surface.url}/manual-event", json=an_event()) as answer:
        assert answer.status == 200
    assert await served_at(surface.port) == (OLD.der, "TLSv1.3", "http/1.1")


async def test_tls_below_1_2_is_refused_and_1_2_is_not(surface: TlsSurface) -> None:
    _, version, protocol = await served_at(surface.port, maximum_version=ssl.TLSVersion.TLSv1_2)
    assert (version, protocol) == ("TLSv1.2", "http/1.1")
    assert surface.certificate.context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert surface.certificate.context.options & ssl.OP_NO_RENEGOTIATION


async def test_plain_http_gets_no_answer_on_the_same_port(surface: TlsSurface) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", surface.port)
    writer.write(b"GET /service-api/health HTTP/1.1\r\nHost: x\r\n\r\n")
    received = await asyncio.wait_for(reader.read(), 20)
    writer.close()
    assert b"HTTP/1.1" not in received


async def test_a_forwarded_protocol_counts_for_nothing_without_proxies(
    surface: TlsSurface,
) -> None:
    headers = {"X-Forwarded-Proto": "http", "X-Forwarded-For": "192.0.2.7"}
    async with surface.client.get(f"{surface.url}/health", headers=headers) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("maximum", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_new_connections_get_a_renewed_certificate_by_either_protocol(
    surface: TlsSurface, maximum: ssl.TLSVersion
) -> None:
    NEW.write(surface.folder)
    assert (await served_at(surface.port, maximum_version=maximum))[0] == OLD.der

    surface.certificate.renew()
    assert (await served_at(surface.port, maximum_version=maximum))[0] == NEW.der


async def test_a_request_in_flight_and_its_connection_outlive_a_renewal(
    surface: TlsSurface,
) -> None:
    surface.events.gate = asyncio.Event()
    body = json.dumps(an_event()).encode()
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", surface.port, ssl=trusting(OLD), server_hostname="127.0.0.1"
    )
    head = "POST /service-api/manual-event HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
    writer.write(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await until(lambda: _is(bool(surface.events.requests)))

    NEW.write(surface.folder)
    surface.certificate.renew()
    assert await surface.serves() == NEW.der
    surface.events.gate.set()
    assert (await _answer(reader)).startswith(b"HTTP/1.1 200 ")
    writer.write(b"GET /service-api/health HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await _answer(reader)).startswith(b"HTTP/1.1 200 "), "its connection goes on"
    writer.close()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), 20)
    length = re.search(rb"(?i)content-length: (\d+)", head)
    assert length is not None
    await reader.readexactly(int(length[1]))
    return head


async def test_bytes_that_nobody_reads_stay_in_the_kernel(surface: TlsSurface) -> None:
    surface.events.gate = asyncio.Event()
    body = json.dumps(an_event()).encode()
    client = await asyncio.to_thread(_connected, surface.port)
    head = "POST /service-api/manual-event HTTP/1.1\r\nHost: x\r\nContent-Type: application/json"
    client.sendall(f"{head}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await until(lambda: _is(bool(surface.events.requests)))
    (connection,) = surface.limit.all()

    with pytest.raises(TimeoutError):  # the kernel takes no more
        await asyncio.to_thread(client.sendall, bytes(32 * MEBIBYTE))
    assert connection.transport.get_read_buffer_size() < MEBIBYTE // 4
    client.close()
    surface.events.gate.set()


def _connected(port: int) -> ssl.SSLSocket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=1)
    return trusting(OLD).wrap_socket(connection, server_hostname="127.0.0.1")


async def test_no_request_is_lost_while_certificates_are_renewed(surface: TlsSurface) -> None:
    statuses: list[int] = []
    enough = asyncio.Event()

    async def ask_on(keeps_connection: bool) -> None:
        headers = {} if keeps_connection else {"Connection": "close"}
        while not enough.is_set():
            async with surface.client.get(f"{surface.url}/health", headers=headers) as answer:
                await answer.read()
                statuses.append(answer.status)

    async with asyncio.TaskGroup() as group:
        for number in range(8):
            group.create_task(ask_on(keeps_connection=number % 2 == 0))
        for number in range(10):
            (NEW, OLD)[number % 2].write(surface.folder)
            surface.certificate.renew()
            so_far = len(statuses)
            await until(partial(_has, statuses, so_far + 20))
        enough.set()
    assert set(statuses) == {200}


def _another_key(folder: Path) -> None:
    write_secret(folder / "tls.key", a_pair().key)


def _key_for_others(folder: Path) -> None:
    NEW.write(folder)
    (folder / "tls.key").chmod(0o640)


BROKEN = {
    "another key": (_another_key, "does not belong to the certificate in"),
    "no certificate": (lambda folder: (folder / "tls.crt").unlink(), "cannot be read: No such"),
    "no key": (lambda folder: (folder / "tls.key").unlink(), "cannot be read: No such file"),
    "rubbish": (lambda folder: (folder / "tls.crt").write_text("x"), "no certificate in PEM"),
    "no PEM key": (lambda folder: write_secret(folder / "tls.key", "x"), "cannot be used"),
    "a key for others": (_key_for_others, "can be read by others; run: chmod 600"),
    "expired": (lambda folder: a_pair(-2 * DAY, -DAY).write(folder), "expired at"),
    "of tomorrow": (lambda folder: a_pair(DAY).write(folder), "is not valid before"),
    "encrypted": (lambda folder: a_pair(password=b"x").write(folder), "is encrypted"),
}


@pytest.mark.parametrize("name", BROKEN)
async def test_a_broken_renewal_is_told_and_the_old_certificate_serves_on(
    surface: TlsSurface, name: str
) -> None:
    spoil, reason = BROKEN[name]
    spoil(surface.folder)
    refused = telemetry.CERTIFICATE_RENEWALS.labels("public", "refused")
    before = refused._value.get()

    with capture_logs() as lines:
        surface.certificate.renew()

    [line] = [line for line in lines if line["event"] == "tls.not_renewed"]
    assert reason in line["reason"]
    assert "PRIVATE KEY" not in str(line)
    assert refused._value.get() == before + 1
    assert await surface.serves() == OLD.der

    NEW.write(surface.folder)
    surface.certificate.renew()
    assert await surface.serves() == NEW.der


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_certificate_is_a_sentence_at_start(tmp_path: Path, name: str) -> None:
    OLD.write(tmp_path)
    spoil, reason = BROKEN[name]
    spoil(tmp_path)

    with pytest.raises(Misconfigured) as caught:
        ServerCertificate("public", tmp_path / "tls.crt", tmp_path / "tls.key")
    assert reason in caught.value.message


@pytest.mark.parametrize(("ends", "event"), [(13, "expires_soon"), (15, "loaded")])
def test_a_certificate_that_expires_soon_is_warned_of_and_measured(
    tmp_path: Path, ends: int, event: str
) -> None:
    pair: Pair = a_pair(ends=ends * DAY)
    with capture_logs() as lines:
        ServerCertificate("admin", *pair.write(tmp_path))

    assert [line["event"] for line in lines] == [f"tls.certificate_{event}"]
    gauge = telemetry.CERTIFICATE_EXPIRY.labels("admin")._value.get()
    assert lines[0]["expires_at"].startswith(_day(gauge))


def _day(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).date().isoformat()


async def test_stopping_answers_what_is_in_flight_over_tls_and_ends_idle_connections(
    tmp_path: Path,
) -> None:
    async with a_tls_surface(tmp_path) as surface:
        async with surface.client.get(f"{surface.url}/health") as idle:
            assert idle.status == 200
        surface.events.gate = asyncio.Event()
        call = asyncio.create_task(
            surface.client.post(f"{surface.url}/manual-event", json=an_event())
        )
        await until(lambda: _is(bool(surface.events.requests)))
        surface.stop.set()
        surface.events.gate.set()
        async with await call as answer:
            assert answer.status == 200
        await asyncio.wait_for(surface.serving, 2)


async def test_a_client_that_begins_no_handshake_is_hung_up_on_and_holds_up_nobody(
    tmp_path: Path,
) -> None:
    async with a_tls_surface(tmp_path, handshake_seconds=0.5) as surface:
        reader, writer = await asyncio.open_connection("127.0.0.1", surface.port)
        async with surface.client.get(f"{surface.url}/health") as answer:
            assert answer.status == 200
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()


async def test_connections_without_a_handshake_count_towards_the_limit(tmp_path: Path) -> None:
    """Otherwise clients that stay silent use up the process's files."""
    async with a_tls_surface(tmp_path, handshake_seconds=60, max_connections=3) as surface:
        silent = [await asyncio.open_connection("127.0.0.1", surface.port) for _ in range(4)]
        async with surface.client.get(f"{surface.url}/health") as answer:
            assert answer.status == 200
        for reader, _ in silent[:2]:
            assert await asyncio.wait_for(reader.read(), 20) == b""
        assert len(surface.limit) == 3
        for _, writer in silent:
            writer.close()
        await until(lambda: _is(len(surface.limit) == 1))


async def test_stopping_ends_handshakes(tmp_path: Path) -> None:
    async with a_tls_surface(tmp_path, handshake_seconds=60) as surface:
        reader, writer = await asyncio.open_connection("127.0.0.1", surface.port)
        await until(lambda: _is(len(surface.limit) == 1))
        surface.stop.set()
        assert await asyncio.wait_for(reader.read(), 20) == b""
        writer.close()


async def test_a_failed_handshake_is_forgotten(surface: TlsSurface) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", surface.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    await asyncio.wait_for(reader.read(), 20)
    writer.close()
    await until(lambda: _is(len(surface.limit) == 0))


async def _has(statuses: list[int], number: int) -> bool:
    return len(statuses) >= number


async def _is(fact: bool) -> bool:
    return fact
