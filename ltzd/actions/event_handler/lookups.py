"""Looks up the users and claims of events before they are written.

Events that arrive together share two round trips to the database. An event of a user whom this
process already knows needs no look-up, unless its brand limits the events of an IP address.
"""

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import structs

from ltzd.actions.event_handler.batch_decision import EventCheck
from ltzd.concurrency.batcher import Batcher
from ltzd.store.database import Pool, session
from ltzd.store.event_handler import events
from ltzd.store.event_handler.events import ClaimSnapshot
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.store.users.users import User


class FoundEvent(NamedTuple):
    """`user` is None if no row has the address. `snapshot` is read after the user, and may hold
    the rows of other events as well.
    """

    user: User | None
    check: EventCheck
    snapshot: ClaimSnapshot


class EventLookups:
    def __init__(self, pool: Pool, erased: ErasedAddresses) -> None:
        self._pool = pool
        self._erased = erased
        self._batcher: Batcher[tuple[EventCheck, User | None], FoundEvent] = Batcher(self._find_all)

    async def find(self, check: EventCheck, known: User | None) -> FoundEvent:
        """Raises DatabaseUnavailable."""
        return await self._batcher.ask((check, known))

    async def has_user(self, email_key: str) -> bool:
        async with session(self._pool) as connection:
            return await self._erased.find_user(connection, email_key) is not None

    async def _find_all(self, wanted: Sequence[tuple[EventCheck, User | None]]) -> list[FoundEvent]:
        unknown = {check.key[2] for check, known in wanted if known is None}
        async with session(self._pool) as connection:
            users = await self._erased.find_users(connection, unknown) if unknown else {}
            found_events = [
                _with_user(check, known or users.get(check.key[2])) for check, known in wanted
            ]
            snapshot = await events.read_snapshot(
                connection, [check.query() for _, check in found_events]
            )
        return [FoundEvent(user, check, snapshot) for user, check in found_events]


def _with_user(check: EventCheck, user: User | None) -> tuple[User | None, EventCheck]:
    return user, check if user is None else check_of(user, check)


def check_of(user: User, check: EventCheck) -> EventCheck:
    """The check with the key under which the user's claims are counted: another one than the
    address if that was erased.
    """
    brand_id, event_type, email_key = check.key
    if user.email_key == email_key:
        return check
    return structs.replace(check, key=(brand_id, event_type, user.email_key))
