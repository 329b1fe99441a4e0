"""A database that can be read and not written: full, or a standby after a failover."""

import asyncio

from msgspec.structs import replace

from ltzd.actions.event_handler.batch_decision import RecordedEvent
from ltzd.actions.event_handler.record import EventHandler
from ltzd.dev.sandbox import Sandbox
from ltzd.errors import DatabaseUnavailable
from ltzd.store.database import Pool, session
from tests.support.rows.core import value
from tests.support.surfaces.event_action import NO_HASH_WAIT, a_handler, a_request, counts

FULL = """
CREATE SEQUENCE tries;
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM nextval('tries');
  RAISE EXCEPTION 'disk full' USING ERRCODE = 'disk_full';
END $$;
CREATE TRIGGER full_disk BEFORE INSERT ON events EXECUTE FUNCTION full_disk()
"""


async def record(handler: EventHandler, *emails: str) -> list[object]:
    async with asyncio.timeout(20):
        return await asyncio.gather(
            *(handler.record(a_request(email)) for email in emails), return_exceptions=True
        )


async def test_a_full_database_fails_every_caller_after_a_bounded_number_of_retries(
    database_url: str, pool: Pool, sandbox: Sandbox
) -> None:
    async with session(pool) as connection:
        await connection.execute(FULL)
    policy = replace(NO_HASH_WAIT, unknown_outcome=0.5)
    async with a_handler(database_url, sandbox, policy=policy) as handler:
        emails = ["ann@shop.example", "ann@shop.example", "bob@shop.example"]
        outcomes = await record(handler, *emails)
        assert [type(outcome) for outcome in outcomes] == [DatabaseUnavailable] * 3
        assert await value(pool, "SELECT last_value FROM tries") < 12
        assert await counts(pool) == (0, 0, 0)

        async with session(pool) as connection:
            await connection.execute("DROP TRIGGER full_disk ON events")
        (outcome,) = await record(handler, "ann@shop.example")
        assert isinstance(outcome, RecordedEvent)
