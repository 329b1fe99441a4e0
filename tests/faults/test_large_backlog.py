"""Four thousand queued rewards of one brand, and an event of another brand."""

from uuid import UUID

from ltzd.values import address_of
from tests.support.instances.instance import Instance, an_instance
from tests.support.waiting import until

MANY = 4_000
FULL_BLOCKS = 2
"""The mints that may be signed before an event's own, at most, fill this many blocks."""

QUEUE = """
WITH queued AS (
  INSERT INTO rewards (id, kind, brand_id, wallet, ltz)
  SELECT gen_random_uuid(), 1, $1, decode(lpad(to_hex(n), 40, '0'), 'hex'), 1
    FROM generate_series(1000, 999 + $2::bigint) AS each (n)
)
SELECT pg_notify('ltzd_rewards', 'a test')
"""
SIGNED = """
SELECT count(*) AS number,
       coalesce(sum(gas_limit) FILTER (WHERE state IN ('signed', 'published')), 0) AS gas,
       (SELECT count(*) FROM rewards WHERE transaction_id IS NULL) AS waiting
  FROM transactions
 WHERE kind = 'mint'
"""
NONCE = """
SELECT nonce
  FROM rewards
  JOIN transactions ON transactions.id = rewards.transaction_id
 WHERE rewards.id = $1
"""


async def queue_many(instance: Instance) -> None:
    """Queues rewards of the other brand, all at once, each for a different wallet."""
    brand = address_of(instance.dev_json["otherBrand"]["brandId"])
    await instance.ask(QUEUE, brand, MANY)


async def is_minted_next(instance: Instance, email: str) -> None:
    """Checks that an event's mint waits for nothing but the transactions signed before it.

    These fill two blocks at most, however slow the machine is and however many blocks it mines
    meanwhile. The lane may be about to sign one more transaction when the event arrives.
    """
    gas_limit = int((await instance.rpc.block())["gasLimit"], 16)
    event = UUID((await instance.post_event(email)).event_id)
    async with instance.database() as connection:
        signed = await connection.fetchrow(SIGNED)

    async def nonce() -> int | None:
        number: int | None = await instance.ask(NONCE, event)
        return None if number is None else number + 1

    assert signed["waiting"] > 0, "there is no backlog"
    assert signed["gas"] <= FULL_BLOCKS * gas_limit
    number = await until(nonce, 60.0)
    assert number is not None
    assert number <= signed["number"] + 2
    await instance.minted(str(event), 60.0)


async def test_thousands_of_queued_rewards_delay_other_brands_by_at_most_two_full_blocks() -> None:
    async with an_instance("--chain", "anvil", "--block-time", "1") as instance:
        waiting = "SELECT count(*) FROM rewards WHERE mint_block_hash IS NULL"
        await queue_many(instance)
        await is_minted_next(instance, "ann@shop.example")
        await queue_many(instance)
        await is_minted_next(instance, "bob@shop.example")

        await queue_many(instance)
        await instance.kill9()
        await instance.start_again()
        await is_minted_next(instance, "eve@shop.example")

        async def all_minted() -> bool:
            return bool(await instance.ask(waiting) == 0)

        await until(all_minted, 120.0)
