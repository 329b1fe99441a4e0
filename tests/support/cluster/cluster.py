"""Several processes of `ltzd run` behind one address, on a replicated PostgreSQL and Redis.

A dev instance makes wallets, contracts, schema and brands, and is killed; its chain stays, and
`ltzd sandbox` serves its outside services. The address of the instance is then that of the proxy,
so what tests ask of an `Instance` goes to the cluster. nginx stands before the processes if it is
installed, else a TCP proxy; PgBouncer stands before PostgreSQL only if it is installed.
"""

import asyncio
import os
import shutil
import signal
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import asyncpg
from redis.asyncio import Redis

from ltzd.dev.services import postgres, processes
from tests.support.folders import a_data_directory
from tests.support.instances.fork_server import ForkedProcess
from tests.support.instances.instance import START_SECONDS, Instance, an_instance
from tests.support.ports import free_port
from tests.support.secret_files import write_secret
from tests.support.services import pgbouncer
from tests.support.services.nginx import an_nginx
from tests.support.services.pgbouncer import PgBouncer, a_pgbouncer
from tests.support.services.redis import RedisServer, a_redis_server
from tests.support.services.replicas import a_copy
from tests.support.services.tcp_front import a_tcp_front
from tests.support.waiting import Stopwatch, until

_TOP = """
database_url = "{database_url}"
redis_url = "{redis_url}"
master_key_file = "{data_dir}/master.key"
roles = [{roles}]
"""
_SECTIONS = """
[node]
urls = ["{rpc_url}"]
poll_seconds = 0.1
[contracts]
ltz = "{LTZ}"
perk_nft = "{PerkNFT}"
points_sale = "{PointsSale}"
business_escrow = "{BusinessEscrow}"
first_block = {first_block}
[http]
port = {port}
drain_seconds = 1
proxies_count = 1
trusted_proxies = ["127.0.0.1"]
[admin]
port = {admin_port}
"""
_OPERATOR = """
[operator]
minter_key_file = "{data_dir}/keys/minter"
relay_key_file = "{data_dir}/keys/operator"
"""
_DATABASE = """
[database]
replica_url = "{replica_url}"
"""
_POOLED = 'pooled_url = "{pooled_url}"\n'
_END_SECONDS = 30.0
Process = asyncio.subprocess.Process | ForkedProcess


@dataclass(frozen=True)
class Shape:
    """How many processes there are of each set of roles."""

    http: int
    workers: tuple[tuple[str, ...], ...]


SMALL = Shape(2, (("operator", "indexer", "deliveries"),) * 2)
FULL = Shape(3, (("operator",),) * 2 + (("indexer",),) * 2 + (("deliveries",),) * 2)


class Member:
    """A process of the cluster, which a test kills, freezes, ends and starts again."""

    def __init__(
        self, instance: Instance, name: str, roles: tuple[str, ...], checkout: Path | None = None
    ) -> None:
        self._instance = instance
        self.checkout = checkout
        """The source tree of the older version that runs, with settings that it knows."""
        self.name = name
        self.roles = roles
        self.port, self.admin_port = free_port(), free_port()
        self.process: Process | None = None

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    @property
    def config(self) -> Path:
        version = "" if self.checkout is None else ".older"
        return self._instance.folder / f"{self.name}{version}.toml"

    def printed(self) -> str:
        return (self._instance.folder / f"{self.name}.log").read_text()[-5000:]

    async def start(self) -> None:
        """Starts the process, and waits until it answers."""
        await self._begin()
        await until(self._answers, START_SECONDS)

    async def refused(self) -> str:
        """Starts a process that must refuse to run; returns what it prints."""
        log = self._instance.folder / f"{self.name}.log"
        offset = log.stat().st_size
        await self._begin()
        assert self.process is not None
        assert await asyncio.wait_for(self.process.wait(), START_SECONDS) == 1
        return log.read_bytes()[offset:].decode()

    async def _begin(self) -> None:
        run = ("run", "--config", str(self.config))
        with (self._instance.folder / f"{self.name}.log").open("ab") as output:
            if self.checkout is None:
                self.process = await self._instance.forked(*run, output=output)
            else:
                self.process = await self._instance.command(
                    *run, output=output, checkout=self.checkout
                )

    async def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.returncode is None, self.printed()
        path = "/readyz?role=http" if "http" in self.roles else "/healthz"
        url = f"http://127.0.0.1:{self.admin_port}{path}"
        try:
            async with self._instance.http.get(url) as answer:
                return answer.status == 200
        except aiohttp.ClientError:
            return False

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        assert self.process.returncode is None, self.printed()
        self.process.send_signal(number)

    async def kill9(self) -> None:
        self.send(signal.SIGKILL)
        await self.ended()

    async def end(self) -> None:
        """Ends the process as a restart by systemd does."""
        self.send(signal.SIGTERM)
        assert await self.ended() == 0, self.printed()

    async def ended(self) -> int:
        """The exit code, once the process has ended."""
        assert self.process is not None
        return await asyncio.wait_for(self.process.wait(), _END_SECONDS)


@dataclass
class Cluster:
    instance: Instance
    primary: Path
    standby: Path
    redis: RedisServer
    redis_standby: RedisServer
    pooler: PgBouncer | None = None
    members: list[Member] = field(default_factory=list)

    def with_role(self, role: str) -> list[Member]:
        return [member for member in self.members if role in member.roles]

    async def holder(self, lease: str) -> Member:
        """The member that holds the leases whose names begin with `lease`."""

        async def held() -> Member | None:
            pids = await self._holders(lease)
            return next((each for each in self.members if {each.pid} == pids), None)

        member = await until(held, START_SECONDS)
        assert member is not None
        return member

    async def taken_over(self, lease: str, from_pid: int) -> float:
        """Waits until another process holds these leases; returns how many seconds that took."""
        watch = Stopwatch()

        async def is_taken() -> bool:
            pids = await self._holders(lease)
            return bool(pids) and from_pid not in pids

        await until(is_taken, 60.0)
        return watch.seconds()

    async def _holders(self, lease: str) -> set[int]:
        async with self.instance.database() as connection:
            rows = await connection.fetch(
                "SELECT process FROM leases"
                " WHERE starts_with(name, $1) AND expires_at > clock_timestamp()",
                lease,
            )
        return {int(row["process"].rpartition("/")[2]) for row in rows}

    async def promote_postgres(self) -> None:
        """Kills the primary, promotes the standby, and points the pooler to it."""
        await kill_service(self.primary)
        server = await postgres.start(self.standby, {})
        connection = await asyncpg.connect(server.url)
        try:
            assert await connection.fetchval("SELECT pg_promote()")
        finally:
            await connection.close()
        if self.pooler is not None:
            self.pooler.point_to(server.url)

    async def promote_redis(self) -> None:
        await self.redis.kill()
        async with Redis.from_url(self._redis_standby_url) as client:
            await client.replicaof("NO", "ONE")

    @property
    def _redis_standby_url(self) -> str:
        return _at_port(self.redis.url, urlsplit(self.redis_standby.url).port or 0)

    async def follow_redis(self) -> None:
        """Makes the second Redis a replica, with the password of the first."""
        parts = urlsplit(self.redis.url)
        async with self.redis_standby.client() as client:
            await client.config_set("masterauth", parts.password)
            await client.replicaof("127.0.0.1", str(parts.port))
            await client.config_set("requirepass", parts.password)


async def kill_service(folder: Path) -> None:
    """Kills the PostgreSQL of a data directory as a power failure does."""
    service = processes.find_running(folder, postgres.NAME)
    assert service is not None
    os.kill(service.pid, signal.SIGKILL)
    assert await processes.ended_within(service, _END_SECONDS)


def _at_port(url: str, port: int) -> str:
    parts = urlsplit(url)
    user = parts.netloc.rpartition("@")[0]
    return parts._replace(netloc=f"{user}@127.0.0.1:{port}").geturl()


def _either(first: str, second: str) -> str:
    """The URL of whichever of the two servers is the primary."""
    parts, port = urlsplit(first), urlsplit(second).port
    hosts = f"{parts.netloc},127.0.0.1:{port}"
    return parts._replace(netloc=hosts, query="target_session_attrs=primary").geturl()


@asynccontextmanager
async def a_cluster(shape: Shape, checkout: Path | None = None) -> AsyncIterator[Cluster]:
    """A cluster whose processes answer. Every commit waits for the standby's disk.

    With `checkout`, the source tree of an older version, that version makes the schema and runs in
    all processes.
    """
    async with AsyncExitStack() as stack:
        primary = await stack.enter_async_context(a_data_directory())
        standby = await stack.enter_async_context(a_data_directory())
        first_redis = await stack.enter_async_context(a_redis_server())
        second_redis = await stack.enter_async_context(a_redis_server())
        server = await postgres.start(primary, {})
        urls = ("--database-url", server.url, "--redis-url", first_redis.url)
        instance = await stack.enter_async_context(
            an_instance("--chain", "anvil", *urls, first_checkout=checkout)
        )
        await instance.kill9()

        await a_copy(primary, server.url, standby, follows=True)
        second = await postgres.start(standby, {})
        await _wait_for_standby(server.url)
        instance.dev_json["databaseUrl"] = _either(server.url, second.url)
        cluster = Cluster(instance, primary, standby, first_redis, second_redis)
        if pgbouncer.PROGRAM is not None:
            cluster.pooler = await stack.enter_async_context(a_pgbouncer(server.url))
        await cluster.follow_redis()
        redis_ports = [urlsplit(each.url).port or 0 for each in (first_redis, second_redis)]
        _, redis_port = await stack.enter_async_context(a_tcp_front(redis_ports))
        instance.dev_json["redisUrl"] = _at_port(first_redis.url, redis_port)

        await stack.enter_async_context(_a_sandbox(instance))
        await _make_members(cluster, shape, server.url, second.url, checkout)
        stack.push_async_callback(_kill_all, cluster.members)
        await asyncio.gather(*(member.start() for member in cluster.members))
        await stack.enter_async_context(_a_proxy(cluster))
        yield cluster


async def _wait_for_standby(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        await connection.execute("SELECT pg_reload_conf()")

        async def is_synchronous() -> bool:
            state = "SELECT bool_or(sync_state = 'sync') FROM pg_stat_replication"
            return bool(await connection.fetchval(state))

        await until(is_synchronous)
    finally:
        await connection.close()


@asynccontextmanager
async def _a_sandbox(instance: Instance) -> AsyncIterator[None]:
    """The outside services of the instance, with their data and at their address."""
    port = urlsplit(instance.dev_json["sandboxUrl"]).port
    arguments = ("--port", str(port), "--data-dir", str(instance.data_dir))
    urls = ("--ltzd-url", instance.base_url, "--rpc-url", instance.dev_json["rpcUrl"])
    with (instance.folder / "sandbox.log").open("wb") as output:
        process = await instance.forked("sandbox", *arguments, *urls, output=output)
    try:

        async def answers() -> bool:
            log = instance.folder / "sandbox.log"
            assert process.returncode is None, log.read_text()
            return "# Ctrl-C" in log.read_text()

        await until(answers, START_SECONDS)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        await asyncio.wait_for(process.wait(), _END_SECONDS)


async def _make_members(
    cluster: Cluster, shape: Shape, primary_url: str, replica_url: str, checkout: Path | None
) -> None:
    """Each member has settings for this version; with `checkout` others for the older version,
    which knows neither a pooler nor a replica nor several servers in one URL."""
    instance = cluster.instance
    block = (instance.data_dir / "settings.toml").read_text()
    roles_of_all = (("http",),) * shape.http + shape.workers
    first_block = await instance.ask("SELECT first_block FROM chains")
    for number, roles in enumerate(roles_of_all):
        member = Member(instance, f"{roles[0]}-{number}", roles, checkout)
        values: dict[str, Any] = instance.dev_json["contracts"] | {
            "database_url": instance.dev_json["databaseUrl"],
            "redis_url": instance.dev_json["redisUrl"],
            "data_dir": instance.data_dir,
            "roles": ", ".join(f'"{role}"' for role in roles),
            "rpc_url": instance.dev_json["rpcUrl"],
            "first_block": first_block,
            "port": member.port,
            "admin_port": member.admin_port,
            "replica_url": replica_url,
        }
        sections = _SECTIONS + (_OPERATOR if "operator" in roles else "")
        if checkout is not None:
            older = values | {"database_url": primary_url}
            write_secret(member.config, _TOP.format(**older) + block + sections.format(**older))
        sections += _DATABASE
        if cluster.pooler is not None:
            values["pooled_url"] = cluster.pooler.url_of(instance.dev_json["databaseUrl"])
            sections += _POOLED
        config = instance.folder / f"{member.name}.toml"
        write_secret(config, _TOP.format(**values) + block + sections.format(**values))
        cluster.members.append(member)


@asynccontextmanager
async def _a_proxy(cluster: Cluster) -> AsyncIterator[None]:
    port = cluster.instance.port
    backends = [member.port for member in cluster.with_role("http")]
    program = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin")
    if program is not None:
        folder = cluster.instance.folder / "nginx"
        folder.mkdir()
        async with an_nginx(Path(program), folder, port, backends):
            await until(_reaches(cluster.instance))
            yield
    else:
        async with a_tcp_front(backends, port, is_fair=True):
            yield


def _reaches(instance: Instance) -> Callable[[], Any]:
    async def reaches() -> bool:
        try:
            async with instance.http.get(f"{instance.base_url}/openapi.json") as answer:
                return answer.status < 500
        except aiohttp.ClientError:
            return False

    return reaches


async def _kill_all(members: list[Member]) -> None:
    for member in members:
        if member.process is not None and member.process.returncode is None:
            member.process.send_signal(signal.SIGCONT)
            await member.kill9()
