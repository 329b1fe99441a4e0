"""While a node is away, a lane logs one line, and another one with counts when it is back."""

import asyncio
import gc

import pytest
from structlog.testing import capture_logs

from ltzd.errors import DatabaseUnavailable
from ltzd.operator.mints.signer import MintSigner
from tests.support.chain.mint_world import World
from tests.support.waiting import until

LINES = {
    "lane.waits_for_node",
    "lane.has_a_node",
    "lane.term_over",
    "lane.serving",
    "monitor.node_unavailable",
    "monitor.node_back",
}


def names(logs: list[dict[str, object]]) -> list[object]:
    return [line["event"] for line in logs if line["event"] in LINES]


async def calls(world: World, more: int) -> None:
    """Wait until the node was asked `more` times."""
    before = world.node.call_counts.total()

    async def were_made() -> bool:
        return world.node.call_counts.total() >= before + more

    await until(were_made)


async def test_a_node_that_goes_and_comes_back_is_two_lines(world: World) -> None:
    world.node.mines_at_once = True
    with capture_logs() as logs:
        async with world.serving():
            world.node.is_down = True
            await calls(world, 10)
            world.node.is_down = False
            await world.queue()
            await world.minted()
    assert names([dict(line) for line in logs]) == [
        *("lane.serving", "monitor.node_unavailable", "monitor.node_back"),
    ]
    (back,) = [line for line in logs if line["event"] == "monitor.node_back"]
    assert back["failures"] > 1
    assert back["kind"] == "mint"


async def test_a_node_that_is_away_at_the_start_is_two_lines(world: World) -> None:
    world.node.is_down = True
    with capture_logs() as logs:
        async with world.lane() as lane:
            await calls(world, 10)
            world.node.is_down = False

            async def serves() -> bool:
                return lane.is_serving

            await until(serves)
    assert names([dict(line) for line in logs]) == [
        *("lane.waits_for_node", "lane.has_a_node", "lane.serving"),
    ]


async def test_a_signing_that_loses_the_database_while_its_term_ends_is_no_line_of_asyncio(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The term's own line tells of the database."""
    lost = DatabaseUnavailable("The database was lost")
    reports: list[object] = []
    is_signing = asyncio.Event()

    async def lose_database(*_: object) -> int:
        is_signing.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise lost from None
        return 0

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _loop, context: reports.append(context.get("exception")))
    monkeypatch.setattr(MintSigner, "sign_next", lose_database)
    async with world.lane():
        await is_signing.wait()
    gc.collect()
    loop.set_exception_handler(None)
    assert lost not in reports
