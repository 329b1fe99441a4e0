"""Four thousand queued rewards of one brand, and an event of another brand."""

from uuid import UUID

import pytest

from ltzd.values import address_of
from tests.support.instances.instance import Instance, an_instance
from tests.support.waiting import until

MANY = 4_000
DELAY_BLOCKS = 2

QUEUE = """
WITH queued AS (
  INSERT INTO rewards (id, kind, brand_id, wallet, ltz)
  SELECT gen_random_uuid(), 1, $1, decode(lpad(to_hex(n), 40, '0'), 'hex'), 1
    FROM generate_series(1000, 999 + $2::bigint) AS each (n)
)
SELECT pg_notify('ltzd_rewards', 'a test')
"""


async def queue_many(instance: Instance) -> None:
    """Queues rewards of the other brand, all at once, each for a different wallet."""
    brand = address_of(instance.dev_json["otherBrand"]["brandId"])
    await instance.ask(QUEUE, brand, MANY)


async def delay_of_an_event(instance: Instance, email: str) -> int:
    """Returns the blocks that a mint missed: 0 if it is in the block after the event."""
    head = int(await instance.rpc("eth_blockNumber"), 16)
    answer = await instance.post_event(email)
    event = UUID(answer.event_id)

    async def minted_in() -> int:
        number: int | None = await instance.ask(
            "SELECT mint_block_number FROM rewards WHERE id = $1", event
        )
        return number or 0

    return await until(minted_in, 60.0) - (head + 1)


@pytest.mark.parametrize("chain", ["anvil", "tester"])
async def test_thousands_of_queued_rewards_delay_other_brands_by_at_most_two_blocks(
    chain: str,
) -> None:
    async with an_instance("--chain", chain, "--block-time", "2") as instance:
        await queue_many(instance)
        waiting = "SELECT count(*) FROM rewards WHERE mint_block_hash IS NULL"

        assert await delay_of_an_event(instance, "ann@shop.example") <= DELAY_BLOCKS
        assert await delay_of_an_event(instance, "bob@shop.example") <= DELAY_BLOCKS
        if chain == "anvil":
            await queue_many(instance)
            await instance.kill9()
            await instance.start_again()
            assert await delay_of_an_event(instance, "eve@shop.example") <= DELAY_BLOCKS

            async def all_minted() -> bool:
                return bool(await instance.ask(waiting) == 0)

            await until(all_minted, 120.0)
