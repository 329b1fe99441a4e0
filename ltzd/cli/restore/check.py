"""`ltzd restore check`: reads both sides and says what differs, and what `apply` would do."""

import asyncio
from collections.abc import Sequence

from ltzd.cli.command_node import answering_nodes
from ltzd.cli.output import print_json, print_message
from ltzd.cli.restore import views as restore_views
from ltzd.cli.targets import Target, open_connection
from ltzd.operator import restoring
from ltzd.operator.restoring import Comparison


def check(target: Target, urls: Sequence[str], options: str, *, as_json: bool) -> bool:
    """Return whether `ltzd restore apply` has something to do; it is told with `options`."""
    comparison = asyncio.run(_check(target, urls))
    if as_json:
        print_json(restore_views.as_object(comparison))
    else:
        print(*restore_views.lines(comparison, options), sep="\n", flush=True)
    return comparison.must_apply


async def _check(target: Target, urls: Sequence[str]) -> Comparison:
    async with open_connection(target, "restore check") as connection:
        chain = await restoring.followed_chain(connection)
        async with answering_nodes(urls, chain.chain_id, chain.genesis_hash) as answering:
            for fault in answering.faults:
                print_message(f"Not asked: {fault}")
            return await restoring.compare(connection, answering.nodes, answering.silent)
