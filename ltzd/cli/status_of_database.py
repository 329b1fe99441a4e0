"""Reads the status from the database alone, for `ltzd status` while no process answers."""

import os
import socket
from typing import Any
from uuid import uuid4

from ltzd import __version__
from ltzd.cli.targets import connection_to
from ltzd.daemon.indexer import DEV_CHAIN_IDS
from ltzd.http.admin.handlers import AdminHandlers, AdminPolicy, AdminSources
from ltzd.rules.conditions.facts import ClusterFacts, ProcessIdentity
from ltzd.rules.conditions.kinds import Condition, ConditionKind
from ltzd.rules.conditions.policy import ConditionPolicy
from ltzd.store.cluster import read_cluster
from ltzd.store.database import takes_writes
from ltzd.store.status import StatusFacts, read_status

_READ_ONLY = Condition(
    ConditionKind.DATABASE_UNAVAILABLE, "The database takes no writes: see `ltzd check`"
)


async def read(database_url: str) -> dict[str, Any]:
    """The answer of `/status`, with `readFrom` in place of `process`.

    Raises DatabaseUnavailable, Misconfigured.
    """
    async with connection_to(database_url, "status") as connection:
        cluster = await read_cluster(connection)
        own = () if await takes_writes(connection) else (_READ_ONLY,)

        async def read_again() -> ClusterFacts:
            return cluster

        async def figures() -> StatusFacts:
            return await read_status(connection)

        command = ProcessIdentity(uuid4(), socket.gethostname(), os.getpid(), (), __version__)
        is_dev_chain = cluster.chain is not None and cluster.chain.chain_id in DEV_CHAIN_IDS
        policy = AdminPolicy(conditions=ConditionPolicy(mines_on_demand=is_dev_chain))
        answer = await AdminHandlers(
            AdminSources(command, read_again, figures, own=lambda: own), policy
        ).read_status()
    del answer["process"]
    return answer | {"readFrom": "database"}
