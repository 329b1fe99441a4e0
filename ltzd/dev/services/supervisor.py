"""Starts and watches the services of dev mode: database, cache and chain.

A service that the options name by URL is used as it is and neither started nor watched.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
from redis.asyncio import Redis
from redis.exceptions import RedisError

from ltzd.chain.node.node import Node
from ltzd.chain.node.opening import open_rpc
from ltzd.chain.node.rpc import Rpc, RpcError, RpcPolicy
from ltzd.daemon.indexer import DEV_CHAIN_IDS
from ltzd.dev.options import DevOptions
from ltzd.dev.services import anvil_pool, chain, postgres, processes, redis
from ltzd.errors import DatabaseUnavailable, Misconfigured, NodeUnavailable
from ltzd.store import database
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import ChainIdentity
from ltzd.values import bytes_of, hex_of

STOP_SECONDS = 6.0
_ANSWER_SECONDS = 5.0
_STRAGGLER_SECONDS = 1.0


class DevServices(msgspec.Struct, frozen=True):
    """`started` names the services that were started here, which must stay alive."""

    database_url: str
    redis_url: str
    rpc_urls: tuple[str, ...]
    """The nodes of the chain, at least one."""
    chain_id: int
    genesis: str
    started: tuple[str, ...]
    started_anvil: bool

    @property
    def rpc_url(self) -> str:
        """The first node."""
        return self.rpc_urls[0]


@asynccontextmanager
async def running(data_dir: Path, options: DevOptions) -> AsyncIterator[DevServices]:
    """Start or adopt the services; on exit stops every service of the directory."""
    try:
        yield await _start(data_dir, options)
    finally:
        await processes.stop_all(data_dir, STOP_SECONDS)


async def watch(data_dir: Path, services: DevServices) -> None:
    """Watch until cancelled; raises Misconfigured when a started service has ended."""
    async with asyncio.TaskGroup() as group:
        for name in services.started:
            group.create_task(_watch_service(data_dir, name))
        if services.started_anvil:
            group.create_task(anvil_pool.requeue_stranded(services.rpc_url))


async def _watch_service(data_dir: Path, name: str) -> None:
    service = processes.find_running(data_dir, name)
    if service is not None:
        await processes.until_ended(service)
    logs = data_dir / "logs"
    raise Misconfigured(
        f"The service {name} ended unexpectedly; see {logs}, then start `ltzd dev` again."
    )


async def _start(data_dir: Path, options: DevOptions) -> DevServices:
    async with asyncio.TaskGroup() as group:
        database_task = group.create_task(_database(data_dir, options))
        redis_task = group.create_task(_redis(data_dir, options))
        chain_task = group.create_task(_chain(data_dir, options))
    rpc_urls, chain_id, kind = chain_task.result()
    rpc_url = rpc_urls[0]
    genesis = await chain.genesis_hash(rpc_url)
    database_url = await _database_of_chain(
        data_dir, options, database_task.result(), chain_id, genesis, rpc_url
    )
    given = (options.database_url, options.redis_url, options.rpc_urls or None)
    names = (postgres.NAME, redis.NAME, chain.NAME)
    return DevServices(
        database_url=database_url,
        redis_url=redis_task.result(),
        rpc_urls=rpc_urls,
        chain_id=chain_id,
        genesis=genesis,
        started=tuple(name for name, urls in zip(names, given, strict=True) if urls is None),
        started_anvil=kind == "anvil",
    )


async def _database(data_dir: Path, options: DevOptions) -> str:
    if options.database_url is None:
        return (await postgres.start(data_dir)).url
    try:
        await (await database.connect(options.database_url, "dev")).close()
    except (DatabaseUnavailable, Misconfigured) as error:
        raise Misconfigured(
            "The database of --database-url does not answer; start it, or correct the URL."
        ) from error
    return options.database_url


async def _redis(data_dir: Path, options: DevOptions) -> str:
    if options.redis_url is None:
        return await redis.start(data_dir)
    await _ping(options.redis_url)
    return options.redis_url


async def _ping(url: str) -> None:
    try:
        client = Redis.from_url(url, socket_timeout=5, socket_connect_timeout=5)
        async with client:
            await client.echo("ltzd")
    except (RedisError, OSError, ValueError) as error:
        raise Misconfigured(
            "The Redis of --redis-url does not answer; start it, or correct the URL."
        ) from error


async def _chain(data_dir: Path, options: DevOptions) -> tuple[tuple[str, ...], int, str]:
    """Return the nodes' URLs, the chain's id and kind; refuses given nodes of a real chain."""
    if not options.rpc_urls:
        started = await chain.start(data_dir, options.chain, options.block_time_seconds, None)
        return (started.rpc_url,), started.chain_id, started.kind
    answering = await _answering(options.rpc_urls)
    if not answering:
        raise Misconfigured(
            f"The node at {options.rpc_urls[0]} does not answer; start it, or correct --rpc-url."
        )
    for url, chain_id in answering.items():
        if chain_id not in DEV_CHAIN_IDS:
            allowed = ", ".join(map(str, sorted(DEV_CHAIN_IDS)))
            raise Misconfigured(
                f"The node at {url} is chain {chain_id}, not a dev chain ({allowed}); "
                "use `ltzd run` for real chains."
            )
    first = next((url for url in answering if url.startswith("http")), None)
    if first is None:
        silent = next((url for url in options.rpc_urls if url.startswith("http")), None)
        raise Misconfigured(
            "The chain is set up over HTTP; give --rpc-url a node's http:// URL, too."
            if silent is None
            else f"The chain is set up over HTTP, and the node at {silent} does not answer; start "
            "it, or correct --rpc-url."
        )
    # The first node that answers comes first: the set-up uses it alone.
    urls = (first, *(url for url in options.rpc_urls if url != first))
    return urls, answering[first], "given"


async def _answering(urls: Sequence[str]) -> dict[str, int]:
    """The chain ids of the nodes that answer, in their order.

    Once a node has answered, the others have a second: a node that hangs must not delay the start.
    """
    requests = {url: asyncio.create_task(_given_chain_id(url)) for url in urls}
    try:
        pending = set(requests.values())
        has_answer = False
        while pending and not has_answer:
            done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            has_answer = any(task.result() is not None for task in done)
        if pending:
            await asyncio.wait(pending, timeout=_STRAGGLER_SECONDS)
        answers = {url: task.result() for url, task in requests.items() if task.done()}
        return {url: chain_id for url, chain_id in answers.items() if chain_id is not None}
    finally:
        for task in requests.values():
            task.cancel()


async def _given_chain_id(url: str) -> int | None:
    """None if the node does not answer now: the others may do without it."""
    try:
        async with open_rpc(url, RpcPolicy(timeout_seconds=_ANSWER_SECONDS)) as rpc:
            return await Node(rpc).chain_id()
    except (NodeUnavailable, RpcError):
        return None


async def _database_of_chain(
    data_dir: Path,
    options: DevOptions,
    url: str,
    chain_id: int,
    genesis: str,
    rpc_url: str,
) -> str:
    """Return a database that is new or follows this chain.

    An embedded database of another chain is renamed and replaced by a new one; a given one raises
    Misconfigured.
    """
    followed = await _followed_chain(url)
    if followed is None or await _is_that_chain(followed, chain_id, genesis, rpc_url):
        return url
    if options.database_url is not None:
        raise Misconfigured(
            f"The database of --database-url follows chain {followed.chain_id} with genesis "
            f"{hex_of(followed.genesis_hash)} and LTZ {hex_of(followed.ltz)}, which the node at "
            f"{rpc_url} is not; give an empty database, or that chain's node with --rpc-url."
        )
    aside = await postgres.rename_aside(data_dir)
    print(
        f"The database followed another chain; it is kept as {aside}, and a new one is used.",
        flush=True,
    )
    return (await postgres.start(data_dir)).url


async def _followed_chain(url: str) -> ChainIdentity | None:
    connection = await database.connect(url, "dev")
    try:
        if await connection.fetchval("SELECT to_regclass('chains')") is None:
            return None
        return await chains.identity(connection)
    finally:
        await connection.close()


async def _is_that_chain(
    followed: ChainIdentity, chain_id: int, genesis: str, rpc_url: str
) -> bool:
    if (followed.chain_id, followed.genesis_hash) != (chain_id, bytes_of(genesis)):
        return False
    async with Rpc(rpc_url) as rpc:
        return bool(await Node(rpc).code(followed.ltz))
