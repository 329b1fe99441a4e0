"""Writes of events that conflict with a rule change or with each other."""

import asyncio
from uuid import uuid4

from msgspec import structs
from msgspec.structs import replace

from ltzd.rules.event_handler.claims import ClaimRecord
from ltzd.store.database import Pool, session
from ltzd.store.event_handler import events
from ltzd.store.event_handler.events import ClaimKey, EventRow, NewEvent
from ltzd.store.users import users
from tests.support.rows.core import BRAND, a_wallet, pool, value

__all__ = ["pool"]


def a_key(email: str, event_type: str = "welcome") -> ClaimKey:
    return (BRAND, event_type, users.email_key(email))


async def a_first_event(pool: Pool, key: ClaimKey, maximum: int | None = None) -> NewEvent:
    async with session(pool) as connection:
        standing = await events.read_snapshot(connection, [events.ClaimQuery(key, key[:2])])
    row = EventRow(
        id=uuid4(),
        brand_id=BRAND,
        event_type=key[1],
        email=key[2],
        user_id=users.user_id("did:privy:" + key[2], key[2]),
        domain="shop.example",
        source=None,
        user_identifier=None,
        metadata={},
        ltz=100,
        wallet=a_wallet(1),
    )
    return NewEvent(row, key, ClaimRecord(1, row.id, standing.now), "did:privy:" + key[2], maximum)


async def test_events_of_an_old_and_a_new_maximum_in_one_write_are_all_written(
    pool: Pool,
) -> None:
    """A refusal would repeat endlessly if the same batch were decided again on the same facts."""
    ann, bob, cleo = (a_key(f"{name}@shop.example") for name in ("ann", "bob", "cleo"))
    async with session(pool) as connection:
        await events.insert(connection, [await a_first_event(pool, ann, 500)])
        with_new_rule = await a_first_event(pool, bob, 2)
        with_old_rule = await a_first_event(pool, cleo, 500)
        won = await events.insert(connection, [with_new_rule, with_old_rule])
    assert set(won) == {bob, cleo}
    assert await value(pool, "SELECT claims FROM event_claim_totals") == 3


async def test_first_events_of_one_user_at_once_fail_no_statement(pool: Pool) -> None:
    """A user may conflict on both unique keys at the same moment."""

    async def write(new: NewEvent) -> int:
        async with session(pool) as connection:
            return len(await events.insert(connection, [new]))

    for number in range(40):
        email = f"user{number}@shop.example"
        first = await a_first_event(pool, a_key(email, "welcome"))
        others = [structs.replace(first, key=a_key(email, f"kind{n}")) for n in range(4)]
        in_conflict = [
            structs.replace(
                new,
                event=(row := structs.replace(new.event, id=uuid4(), event_type=new.key[1])),
                claim=replace(new.claim, last_event_id=row.id),
            )
            for new in (first, *others)
        ]
        assert sum(await asyncio.gather(*map(write, in_conflict))) == 5
    assert await value(pool, "SELECT count(*) FROM users") == 40
