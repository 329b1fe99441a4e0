"""Events, relays and reads of many clients, repeated as the specification lets clients repeat."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
from eth_account import Account

from tests.support.instances.asks import Ask
from tests.support.instances.load import Load, a_load
from tests.support.instances.relayer import LTZ, Relays, User
from tests.support.relays.signing import transfer

_PAUSE_SECONDS = 0.1
_READ_PAUSE_SECONDS = 0.05
_RELAYS_OF_A_USER = 20
"""Fewer than a user's limit in an hour."""
_OUTCOME_SECONDS = 180.0
_REPEATED = frozenset((202, 429, 502, 503, 504))
"""Answers after which a client repeats its relay under its key, unchanged."""


@dataclass
class Traffic:
    """The requests of all clients. `reads` counts answers by status, 0 for a broken connection.

    `from_standby` counts the leaderboards that carry their age.
    """

    relays: Relays
    events: Load
    friend: str
    more_events: int = 10
    asks: list[Ask] = field(default_factory=list)
    reads: Counter[int] = field(default_factory=Counter)
    from_standby: int = 0
    failures: list[str] = field(default_factory=list)
    """The relays' requests that had no answer, or an error of the server."""

    async def relay(self, user: User) -> None:
        """Sends one transfer until it has its outcome."""
        data = await transfer(self.relays.chain, user.account, user.wallet, self.friend, LTZ)
        ask = Ask(user, "LTZ", data, f"transfer {len(self.asks)}")
        self.asks.append(ask)
        deadline = time.monotonic() + _OUTCOME_SECONDS
        while True:
            assert time.monotonic() < deadline, f"no outcome: {ask.answers[-1:]}"
            try:
                answer = await ask.ask(self.relays)
            except ValueError:  # the proxy's own page
                answer = None
                self.failures.append("relay: answered by the proxy")
            else:
                if answer is None:
                    self.failures.append("relay: no answer")
            if answer is not None and answer.status == 200:
                return
            if answer is not None:
                assert answer.status in _REPEATED, answer.body
                if answer.status >= 500:
                    self.failures.append(f"relay: {answer.status} {answer.body}")
            await asyncio.sleep(_PAUSE_SECONDS)

    async def read(self) -> None:
        instance = self.relays.instance
        accepted = self.events.accepted
        if not accepted:
            return
        site = instance.dev_json["site"]
        board = f"/{site['restPrefix']}/{site['namespace']}/v1/leaderboard"
        reads = [
            (f"/service-api/events/{accepted[-1].event_id}", {}),
            (board, {"Host": site["host"]}),
        ]
        for path, headers in reads:
            try:
                async with instance.http.get(instance.base_url + path, headers=headers) as answer:
                    self.reads[answer.status] += 1
                    self.from_standby += "Age" in answer.headers
            except (aiohttp.ClientError, OSError, TimeoutError):
                self.reads[0] += 1

    def refused(self) -> list[str]:
        """The answers that no client may see while no part of the cluster is killed."""
        events = [
            f"event: {answer.status}"
            for answer in self.events.answers.values()
            if answer.status not in {200, 202}
        ]
        lost = [f"event: no answer for {email}" for email in self.events.unknown]
        reads = [f"read: {status}" for status in self.reads if status != 200]
        return [*events, *lost, *reads, *self.failures]

    async def more(self, seconds: float = 60.0) -> None:
        """Waits until clients had `more_events` more events accepted."""
        goal = len(self.events.accepted) + self.more_events
        deadline = time.monotonic() + seconds
        while len(self.events.accepted) < goal:
            assert time.monotonic() < deadline, "no event is accepted"
            await asyncio.sleep(_READ_PAUSE_SECONDS)


@asynccontextmanager
async def a_traffic(
    relays: Relays,
    users: list[User],
    clients: int,
    *,
    more_events: int = 10,
    read_pause_seconds: float = _READ_PAUSE_SECONDS,
    event_pause_seconds: float = 0.0,
) -> AsyncIterator[Traffic]:
    """Runs `clients` loops of events, one of relays for each user, and one of reads.

    At its end each loop finishes its request, and each relay has its outcome.
    """
    stop = asyncio.Event()
    async with a_load(relays.instance, clients, pause_seconds=event_pause_seconds) as load:
        traffic = Traffic(relays, load, Account.create().address, more_events)

        async def relay_all(user: User) -> None:
            for _ in range(_RELAYS_OF_A_USER):
                if stop.is_set():
                    return
                await traffic.relay(user)
                await asyncio.sleep(1.0)

        async def read_all() -> None:
            while not stop.is_set():
                await traffic.read()
                await asyncio.sleep(read_pause_seconds)

        async with asyncio.TaskGroup() as group:
            for user in users:
                group.create_task(relay_all(user))
            group.create_task(read_all())
            try:
                yield traffic
            finally:
                stop.set()
