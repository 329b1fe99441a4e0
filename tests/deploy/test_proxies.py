"""config/proxy: nginx and Caddy in front of two real servers of ltzd."""

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from sanic.request import Request

from ltzd.http.app import build_app
from ltzd.http.requests.client_address import Proxies, client_network
from ltzd.http.responses import Reply, json_reply
from ltzd.http.server import serve
from ltzd.http.services import HttpPolicy
from tests.support.certificates import a_pair, trusting
from tests.support.ports import free_port
from tests.support.surfaces.http_surface import BRAND_ID, FakeEvents, an_event, services_over
from tests.support.tools import caddy_path, nginx_path
from tests.support.waiting import until

PROXY = Path(__file__).resolve().parents[2] / "config" / "proxy"
POLICY = HttpPolicy(proxies=Proxies(1, (ip_network("127.0.0.1/32"),)))
CLIENT = "127.0.0.2"
"""The proxies speak to ltzd from 127.0.0.1."""
BODY_LIMIT = 10_240
EVENTS = "/service-api/manual-event"
STOP_SECONDS = 60
DRAIN_SECONDS = 0.5
BUSY = 30
"""Requests after which every caller has had an answer of this process."""


class Backend:
    """A process with the role http: it can end as on SIGTERM, and start again on its port."""

    def __init__(self, events: FakeEvents) -> None:
        self.port = free_port()
        self._events = events
        self.answered = 0
        self._draining, self._stop = asyncio.Event(), asyncio.Event()
        self._serving: asyncio.Task[None] | None = None

    async def start(self) -> None:
        app = build_app(services_over(self._events), POLICY)

        async def mirror(request: Request) -> Reply:
            return json_reply({"network": client_network(request)})

        app.add_route(mirror, "/mirror")
        app.register_middleware(self._count, "response")
        self.answered = 0
        self._draining, self._stop = asyncio.Event(), asyncio.Event()
        listening = asyncio.Event()
        self._serving = asyncio.create_task(
            serve(
                *(app, "127.0.0.1", self.port, self._stop),
                on_listening=lambda _port: listening.set(),
                draining=self._draining,
            )
        )
        await asyncio.wait_for(listening.wait(), timeout=30)

    def _count(self, _request: Request, _response: object) -> None:
        self.answered += 1

    async def has_answered(self) -> bool:
        return self.answered > BUSY

    async def drain(self) -> None:
        """As a process does for [http] drain_seconds."""
        self._draining.set()
        await asyncio.sleep(DRAIN_SECONDS)

    async def end(self) -> None:
        self._stop.set()
        if self._serving is not None:
            await self._serving


@dataclass
class Proxied:
    """Requests through a proxy, over TLS and from CLIENT."""

    https_port: int
    http_port: int
    client: aiohttp.ClientSession
    backends: list[Backend]
    events: FakeEvents

    @property
    def url(self) -> str:
        return f"https://127.0.0.1:{self.https_port}"

    async def post_event(self, email: str) -> int:
        async with self.client.post(self.url + EVENTS, json=an_event(userEmail=email)) as answer:
            return answer.status

    async def is_up(self) -> bool:
        try:
            async with self.client.get(self.url + "/mirror") as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False


def replaced(text: str, *changes: tuple[str, str]) -> str:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


async def run(*command: object, **variables: str) -> None:
    process = await asyncio.create_subprocess_exec(
        *map(str, command),
        env=os.environ | variables,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    output, _ = await asyncio.wait_for(process.communicate(), timeout=60)
    assert process.returncode == 0, output.decode()


@asynccontextmanager
async def running(*command: object, folder: Path, **variables: str) -> AsyncIterator[None]:
    with (folder / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *map(str, command), env=os.environ | variables, stdout=log, stderr=log
        )
    try:
        yield
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), timeout=STOP_SECONDS)


@asynccontextmanager
async def nginx(
    folder: Path, backends: list[Backend], https_port: int, http_port: int
) -> AsyncIterator[ssl.SSLContext]:
    program, pair = nginx_path(), a_pair()
    certificate, key = pair.write(folder)
    servers = "\n".join(
        f"    server 127.0.0.1:{backend.port} max_fails=3 fail_timeout=1s;" for backend in backends
    )
    site = replaced(
        (PROXY / "nginx.conf").read_text(),
        ("    server 127.0.0.1:8000 max_fails=3 fail_timeout=1s;", servers),
        ("listen 443 ", f"listen 127.0.0.1:{https_port} "),
        ("listen 80;", f"listen 127.0.0.1:{http_port};"),
        ("    listen [::]:80;\n", ""),
        ("    listen [::]:443 ssl http2;\n", ""),
        ("/etc/letsencrypt/live/api.shop.example/fullchain.pem", str(certificate)),
        ("/etc/letsencrypt/live/api.shop.example/privkey.pem", str(key)),
    )
    paths = "\n".join(
        f"{kind}_temp_path {folder};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off;\nuser root;\npid {folder}/pid;\nerror_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{paths}\n{site}\n}}\n"
    )
    command = (program, "-c", folder / "nginx.conf", "-p", folder)
    await run(*command, "-t", "-q")
    async with running(*command, folder=folder):
        yield trusting(pair)


@asynccontextmanager
async def caddy(
    folder: Path, backends: list[Backend], https_port: int, http_port: int
) -> AsyncIterator[ssl.SSLContext]:
    program, pair = caddy_path(), a_pair()
    certificate, key = pair.write(folder)
    file = folder / "Caddyfile"
    text = (PROXY / "Caddyfile").read_text()
    # A certificate of the test's own, instead of one from a certificate authority.
    site = "{$LTZD_DOMAIN} {\n"
    changes = (("admin 127.0.0.1:2019", "admin off"), (site, f"{site}\ttls {certificate} {key}\n"))
    file.write_text(replaced(text, *changes))
    variables = {
        "LTZD_DOMAIN": "127.0.0.1",
        "LTZD_BACKENDS": " ".join(f"127.0.0.1:{backend.port}" for backend in backends),
        "LTZD_HTTPS_PORT": str(https_port),
        "LTZD_HTTP_PORT": str(http_port),
        "HOME": str(folder),
        "XDG_DATA_HOME": str(folder),
        "XDG_CONFIG_HOME": str(folder),
    }
    options = ("--config", file, "--adapter", "caddyfile")
    await run(program, "validate", *options, **variables)
    async with running(program, "run", *options, folder=folder, **variables):
        yield trusting(pair)


@pytest_asyncio.fixture(params=[nginx, caddy], ids=["nginx", "caddy"])
async def proxied(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Proxied]:
    events = FakeEvents()
    backends = [Backend(events), Backend(events)]
    https_port, http_port = free_port(), free_port()
    async with AsyncExitStack() as stack:
        for backend in backends:
            await backend.start()
            stack.push_async_callback(backend.end)
        trust = await stack.enter_async_context(
            request.param(tmp_path, backends, https_port, http_port)
        )
        connector = aiohttp.TCPConnector(local_addr=(CLIENT, 0), ssl=trust)
        client = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        proxied = Proxied(https_port, http_port, client, backends, events)
        await until(proxied.is_up)
        yield proxied


async def test_the_client_is_the_one_that_the_proxy_saw(proxied: Proxied) -> None:
    headers = {"X-Forwarded-For": "203.0.113.9", "X-Forwarded-Proto": "http"}
    async with proxied.client.get(proxied.url + "/mirror", headers=headers) as answer:
        assert (answer.status, await answer.json()) == (200, {"network": CLIENT})
        assert "max-age" in answer.headers["Strict-Transport-Security"]


async def test_plain_http_is_refused_and_not_redirected(proxied: Proxied) -> None:
    url = f"http://127.0.0.1:{proxied.http_port}{EVENTS}"
    async with proxied.client.post(url, json=an_event(), allow_redirects=False) as answer:
        assert answer.status == 403
    assert proxied.events.requests == []


async def test_bodies_and_heads_meet_the_limits_of_ltzd_not_the_proxys(proxied: Proxied) -> None:
    body = b'{"brandId": "%s"}' % BRAND_ID.encode()
    headers = {"Content-Type": "application/json"}

    async def answered(length: int) -> tuple[int, str]:
        data = body + b" " * (length - len(body))
        async with proxied.client.post(proxied.url + EVENTS, data=data, headers=headers) as answer:
            return answer.status, answer.content_type

    assert await answered(BODY_LIMIT) == (400, "application/json")
    assert await answered(BODY_LIMIT + 1) == (413, "application/json")
    assert await answered(64 * 1024) == (413, "application/json")
    token = {"Authorization": "Bearer " + "x" * 16_000}
    async with proxied.client.get(proxied.url + "/mirror", headers=token) as answer:
        assert answer.status == 200


async def test_no_caller_notices_that_one_process_after_the_other_is_restarted(
    proxied: Proxied,
) -> None:
    """A release on one machine after the other, while events come."""
    is_over = False
    refused: list[object] = []
    accepted: list[int] = []

    async def call(worker: int) -> None:
        number = 0
        while not is_over:
            number += 1
            email = f"user{number}@worker{worker}.example"
            try:
                status = await proxied.post_event(email)
            except aiohttp.ClientError as error:
                refused.append(error)
                continue
            if status == 200:
                accepted.append(status)
            else:
                refused.append(status)

    callers = [asyncio.create_task(call(worker)) for worker in range(4)]
    for backend in proxied.backends:
        await until(backend.has_answered)
        await backend.drain()
        await backend.end()
        so_far = len(accepted)
        await backend.start()
        await until(backend.has_answered)
        assert len(accepted) > so_far
    is_over = True
    await asyncio.gather(*callers)
    assert refused == []
    assert len(proxied.events.requests) == len(accepted)
