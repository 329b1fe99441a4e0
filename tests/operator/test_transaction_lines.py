"""The log names the rewards and relays of each transaction, and what becomes of it."""

from typing import Any

from structlog.testing import capture_logs

from tests.support.chain.mint_world import World
from tests.support.rows.core import value
from tests.support.waiting import until


def the_line(logs: list[Any], name: str) -> dict[str, Any]:
    (line,) = [line for line in logs if line["event"] == name]
    return dict(line)


async def is_logged(logs: list[Any], name: str) -> bool:
    return any(line["event"] == name for line in logs)


async def test_a_mint_is_logged_with_its_rewards_and_its_states_with_its_id(world: World) -> None:
    world.node.mines_at_once = True
    rewards = await world.queue(3)
    with capture_logs() as logs:
        async with world.serving():
            await world.minted()
            await world.settled("mined")
            world.node.mine(3)
            await world.settled("confirmed")
            await until(lambda: is_logged(logs, "mint.confirmed"))
    id_ = await value(world.observer, "SELECT id FROM transactions")
    signed = the_line(list(logs), "mint.signed")
    assert signed["transaction"] == id_
    assert signed["rewards"] == [str(reward) for reward in rewards]
    assert signed["hash"] == await value(world.observer, "SELECT hash FROM attempts")
    assert the_line(list(logs), "mint.mined")["transactions"] == [id_]
    assert the_line(list(logs), "mint.confirmed")["transactions"] == [id_]
