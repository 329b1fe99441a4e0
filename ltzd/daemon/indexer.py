"""Builds the role indexer: what follows the chain, rebuilds the index and changes large tables."""

from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from ltzd.chain.node.new_heads import NewHeads
from ltzd.chain.node.node import Node
from ltzd.concurrency.kept_loops import Loop
from ltzd.daemon.settings.settings import Settings
from ltzd.daemon.settings.value_types import is_loopback
from ltzd.indexer.contracts import indexed_contracts
from ltzd.indexer.follower import Follower
from ltzd.indexer.policy import SLOWEST_POLL_SECONDS, IndexerPolicy
from ltzd.indexer.rebuild import Rebuilder
from ltzd.store.background_migrations import BackgroundMigrations
from ltzd.store.database import Pool
from ltzd.store.indexer.chains import ChainIdentity
from ltzd.store.operator.leases import Leases
from ltzd.store.wakeups import WakeupHub

DEV_CHAIN_IDS = frozenset((31337, 1337, 131277322940537))
"""Chains of one machine. Elsewhere a reorg below finality stops the index."""


def head_urls(urls: Sequence[str], *, is_dev: bool) -> list[str]:
    """The WebSocket URLs among the nodes' URLs.

    In dev mode a node of this machine is also asked at its HTTP URL: dev chains take WebSockets on
    the same port.
    """
    sockets = [url for url in urls if urlsplit(url).scheme in {"ws", "wss"}]
    if is_dev:
        sockets += [f"ws{url.removeprefix('http')}" for url in urls if _is_local_http(url)]
    return sockets


class IndexerRole(msgspec.Struct, frozen=True):
    heads: NewHeads
    follower: Follower
    migrations: BackgroundMigrations
    rebuilder: Rebuilder

    def loops(self) -> list[tuple[str, Loop]]:
        return [
            ("indexer", self.follower.run),
            ("heads", self.heads.run),
            ("migrations", self.migrations.run),
            ("rebuild", self.rebuilder.run),
        ]


def build_indexer(
    settings: Settings,
    pool: Pool,
    leases: Leases,
    node: Node,
    chain: ChainIdentity,
    wakeups: WakeupHub,
    open_fresh_pool: Callable[[str], Awaitable[Pool]],
    *,
    is_dev: bool,
) -> IndexerRole:
    """`open_fresh_pool` opens connections to fresh tables, whose search path it is given."""
    contracts = indexed_contracts(settings.contracts.addresses())
    policy = _policy(settings, chain)
    fills_fresh_tables = replace(policy, is_rebuild=True)
    heads = NewHeads(head_urls(settings.node.plain_urls(), is_dev=is_dev))
    follower = Follower(pool, leases, node, chain, contracts, wakeups, policy)
    follower.listen_to(heads)

    def follower_of(fresh_pool: Pool) -> Follower:
        return Follower(fresh_pool, leases, node, chain, contracts, wakeups, fills_fresh_tables)

    return IndexerRole(
        heads,
        follower,
        BackgroundMigrations(settings.database_url.get_secret_value(), lambda: follower.is_serving),
        Rebuilder(pool, leases, chain, contracts, open_fresh_pool, follower_of, wakeups),
    )


def _policy(settings: Settings, chain: ChainIdentity) -> IndexerPolicy:
    is_dev_chain = chain.chain_id in DEV_CHAIN_IDS
    poll_seconds = settings.node.poll_seconds
    return IndexerPolicy(
        poll_seconds=poll_seconds,
        # A dev chain's block time says nothing about when its next block comes.
        slowest_poll_seconds=poll_seconds if is_dev_chain else SLOWEST_POLL_SECONDS,
        final_depth=settings.node.final_depth,
        final_seconds=settings.node.final_seconds,
        follows_deep_reorgs=is_dev_chain,
    )


def _is_local_http(url: str) -> bool:
    parts = urlsplit(url)
    return parts.scheme == "http" and is_loopback(parts.hostname or "")
