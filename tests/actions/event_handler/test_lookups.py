"""Events that arrive together share their look-ups, and nothing else."""

import asyncio
from collections.abc import Collection

import pytest

from ltzd.actions.event_handler.batch_decision import RecordedEvent
from ltzd.actions.event_handler.record import EventRequest
from ltzd.dev.sandbox import Sandbox
from ltzd.errors import DatabaseUnavailable
from ltzd.rules.brands.configuration import EventRule
from ltzd.store.database import Connection
from ltzd.store.users.users import User
from tests.support.surfaces.event_action import (
    NO_LIMITS,
    a_brand,
    a_handler,
    a_request,
    kinds,
    two_handlers,
)
from tests.support.waiting import until

EVENTS = 20
BRAND = a_brand(
    EventRule(type="account_creation", reward=5, max_claims_per_user=1, cooldown_hours=0),
    EventRule(type="form_submit", reward=5, **NO_LIMITS),
    duplicate_window_seconds=0,
)


def requests(event_type: str = "account_creation", first: int = 0) -> list[EventRequest]:
    return [
        a_request(f"user{number}@shop.example", event_type=event_type)
        for number in range(first, EVENTS)
    ]


async def test_each_event_of_a_shared_look_up_is_decided_by_its_own_user_and_claims(
    database_url: str, sandbox: Sandbox
) -> None:
    """Half of the users are known to the database and not to this process, and have claimed."""
    async with two_handlers(database_url, sandbox, BRAND) as (earlier, handler):
        known = await asyncio.gather(*map(earlier.record, requests(first=EVENTS // 2)))
        outcomes = await asyncio.gather(
            *map(handler.record, requests()),
            *map(handler.record, requests("form_submit")),
            return_exceptions=True,
        )
    assert kinds(outcomes) == {
        "RecordedEvent": EVENTS + EVENTS // 2,
        "MaxClaimsReached": EVENTS // 2,
    }
    wallets = [event.wallet for event in outcomes[EVENTS:] if isinstance(event, RecordedEvent)]
    assert len(set(wallets)) == EVENTS
    assert wallets[EVENTS // 2 :] == [event.wallet for event in known]


async def test_events_that_arrive_during_a_look_up_share_the_next_ones(
    database_url: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_handler(database_url, sandbox, BRAND) as handler:
        erased = handler._lookups._erased
        find_users, may_look = erased.find_users, asyncio.Event()
        looked_up: list[int] = []

        async def held(connection: Connection, email_keys: Collection[str]) -> dict[str, User]:
            looked_up.append(len(email_keys))
            await may_look.wait()
            found_users: dict[str, User] = await find_users(connection, email_keys)
            return found_users

        monkeypatch.setattr(erased, "find_users", held)
        recording = [asyncio.create_task(handler.record(request)) for request in requests()]
        waiting = handler._lookups._batcher._waiting

        async def all_have_asked() -> bool:
            return len(looked_up) == 2 and sum(looked_up) + len(waiting) == EVENTS

        assert await until(all_have_asked)
        may_look.set()
        await asyncio.gather(*recording)
    assert len(looked_up) == 3
    assert sum(looked_up) == EVENTS


async def test_a_look_up_without_a_database_fails_each_of_its_events_and_no_later_one(
    database_url: str, sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with a_handler(database_url, sandbox, BRAND) as handler:
        with monkeypatch.context() as patch:

            async def lost(connection: Connection, email_keys: Collection[str]) -> None:
                raise DatabaseUnavailable("The connection was lost")

            patch.setattr(handler._lookups._erased, "find_users", lost)
            outcomes = await asyncio.gather(
                *map(handler.record, requests()), return_exceptions=True
            )
        assert kinds(outcomes) == {"DatabaseUnavailable": EVENTS}
        assert kinds(await asyncio.gather(*map(handler.record, requests()))) == {
            "RecordedEvent": EVENTS
        }
