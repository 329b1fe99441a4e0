"""Finds the database, the nodes and the contracts of an index, and opens them for a command."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from ltzd.chain.node.node import Node
from ltzd.chain.pool.chain_check import ExpectedChain
from ltzd.chain.pool.pool import NodePool
from ltzd.chain.pool.watch import NodeWatch
from ltzd.cli import dev_json
from ltzd.cli.targets import Target, open_connection, resolve_target
from ltzd.daemon.settings.contracts import CONTRACT_NAMES
from ltzd.daemon.settings.settings import read_settings
from ltzd.errors import Misconfigured
from ltzd.indexer.contracts import IndexedContract, indexed_contracts
from ltzd.store import database
from ltzd.store.database import Pool
from ltzd.store.indexer import chains
from ltzd.store.indexer.chains import ChainIdentity
from ltzd.values import Address


@dataclass(frozen=True, slots=True)
class IndexTarget:
    """`addresses` are the contracts' under the names of the section `contracts`."""

    target: Target
    rpc_urls: tuple[str, ...] = field(repr=False)
    addresses: Mapping[str, Address]


class OpenIndex(msgspec.Struct, frozen=True):
    """`node` is the best node now; the others are asked for second opinions."""

    pool: Pool
    chain: ChainIdentity
    node: Node
    contracts: tuple[IndexedContract, ...]


def resolve_index_target(data_dir: Path, config: Path | None) -> IndexTarget:
    """The settings file's target if `config` is given, else the dev instance's.

    Raises Misconfigured.
    """
    target = resolve_target(data_dir, config)
    if config is None:
        chain = dev_json.read_chain(data_dir)
        addresses = {key: chain.contracts[name] for key, name in CONTRACT_NAMES.items()}
        return IndexTarget(target, (chain.rpc_url,), addresses)
    settings = read_settings(config)
    return IndexTarget(target, settings.node.plain_urls(), settings.contracts.addresses())


@asynccontextmanager
async def open_index(where: IndexTarget) -> AsyncIterator[OpenIndex]:
    """Raises Misconfigured, DatabaseUnavailable, NodeUnavailable."""
    async with open_connection(where.target, "index") as connection:
        chain = await chains.identity(connection)
        if chain is None:
            raise Misconfigured("The database follows no chain yet: start ltzd first.")
        await chains.stopped_reason(connection, chain.chain_id)  # tells whether the schema is new
    pool = await database.open_pool(
        where.target.database_url, name="ltzd index", size=2, check=database.end_with_client
    )
    try:
        async with NodePool(where.rpc_urls) as nodes:
            nodes.expect(ExpectedChain(chain.chain_id, chain.genesis_hash, chain.ltz))
            await NodeWatch(nodes).check_all()
            node = Node(nodes.client("indexer")).pinned()
            yield OpenIndex(pool, chain, node, indexed_contracts(where.addresses))
    finally:
        await pool.close()
