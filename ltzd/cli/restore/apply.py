"""`ltzd restore apply`: makes the database fit the chain, and says what happens next."""

import asyncio
from collections.abc import Sequence

from ltzd.cli.command_node import answering_nodes
from ltzd.cli.output import print_json, print_message
from ltzd.cli.restore import views as restore_views
from ltzd.cli.targets import Target, open_connection
from ltzd.errors import NodeUnavailable
from ltzd.operator import restoring
from ltzd.operator.restoring import Applied, Comparison


def apply(target: Target, urls: Sequence[str], options: str, *, as_json: bool) -> bool:
    """Return whether every lane that should continue does."""
    before, applied, after = asyncio.run(_apply(target, urls))
    if as_json:
        print_json(restore_views.applied_object(applied, after))
    else:
        lines = restore_views.applied_lines(before, applied, after, options)
        print(*lines, sep="\n", flush=True)
    return not applied.held_back


async def _apply(
    target: Target, urls: Sequence[str]
) -> tuple[Comparison, Applied, Comparison | None]:
    """The comparison before, what has changed, and the comparison after it.

    The last one is None if the nodes do not answer any more: the changes are made all the same.
    """
    async with open_connection(target, "restore apply") as connection:
        chain = await restoring.followed_chain(connection)
        async with answering_nodes(urls, chain.chain_id, chain.genesis_hash) as answering:
            for fault in answering.faults:
                print_message(f"Not asked: {fault}")
            before = await restoring.compare(connection, answering.nodes, answering.silent)
            applied = await restoring.apply(connection, before)
            try:
                after = await restoring.compare(connection, answering.nodes, answering.silent)
            except NodeUnavailable:
                return before, applied, None
            return before, applied, after
