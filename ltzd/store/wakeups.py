"""Wake-ups between roles: an event within this process, and NOTIFY for the other processes.

A wake-up carries no data: its receiver reads the tables again. Delivery is not guaranteed. A
wake-up may be lost (a dropped connection, a restart) and may be spurious, so every waiter also
reads the tables after `POLL_SECONDS`.

A commit that notifies takes a lock of the whole database until it is durable, so such commits
follow each other one by one. Rows that many requests write are therefore announced after their
commit, for many commits at once, on the connection that listens (`WakeupHub.announce`).
"""

import asyncio
import os
import secrets
from contextlib import suppress
from typing import Final

from ltzd.concurrency.outages import Outage
from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.store import database
from ltzd.store.connection_errors import reason_of
from ltzd.store.database import Connection

REWARDS: Final = "ltzd_rewards"
"""Rewards wait for the mint lane."""
PUBLISHED: Final = "ltzd_published"
"""Attempts were published: their hashes may be shown."""
BLOCKS: Final = "ltzd_blocks"
"""The indexer's cursor moved."""
RELAYS: Final = "ltzd_relays"
"""Relays wait for a lane."""
RELAYED: Final = "ltzd_relayed"
"""Relays were mined, or a reorg undid their block."""
BRANDS: Final = "ltzd_brands"
"""A brand's configuration changed."""
WALLETS: Final = "ltzd_wallets"
"""A person changed an operator's wallet, or asked something of a transaction in flight."""
WEBHOOKS: Final = "ltzd_webhooks"
"""Webhooks have become due."""

CHANNELS = (REWARDS, PUBLISHED, BLOCKS, RELAYS, RELAYED, BRANDS, WALLETS, WEBHOOKS)
POLL_SECONDS = 1.0
_CHECK_SECONDS = 2.0
"""The seconds between two checks of the connection that listens, and the time limit of a check."""
_GATHER_SECONDS = 0.005
"""The pause between two statements that announce, so that one announces many commits."""
_CONNECT_SECONDS = 3.0
"""The time limit for connecting, and again for LISTEN on all channels."""
_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0

_TOKEN: Final = secrets.token_hex(8)


def origin() -> str:
    """The payload of this process's notifications, by which it ignores its own.

    Processes that are forked after the import share the token, so the process id is part of it.
    """
    return f"{_TOKEN}-{os.getpid()}"


_CONNECTION_ERRORS: tuple[type[BaseException], ...] = (
    DatabaseUnavailable,
    Misconfigured,
    *database.LOST,
)


class Wakeup:
    """Wakes one waiter; a notification that arrives before `wait` ends the next `wait` at once.

    `poll_seconds` is None where no notification can be lost: all come from this process.
    """

    def __init__(self, poll_seconds: float | None = POLL_SECONDS) -> None:
        self._poll_seconds = poll_seconds
        self._is_set = asyncio.Event()

    def notify(self) -> None:
        self._is_set.set()

    def clear(self) -> None:
        """Forget earlier notifications; call it before the tables are read."""
        self._is_set.clear()

    async def wait(self, seconds: float | None = None) -> None:
        """Return when notified, or after `seconds`, by default `poll_seconds`."""
        seconds = self._poll_seconds if seconds is None else seconds
        if seconds is None or self._is_set.is_set():
            await self._is_set.wait()
        else:
            # The end of the time is a notification, too: a timeout would cost three times as much.
            due = asyncio.get_running_loop().call_later(seconds, self._is_set.set)
            try:
                await self._is_set.wait()
            finally:
                due.cancel()
        self._is_set.clear()


class WakeupHub:
    """This process's subscribers, and the connection that listens to the other processes."""

    def __init__(
        self,
        url: str,
        poll_seconds: float = POLL_SECONDS,
        check_seconds: float = _CHECK_SECONDS,
    ) -> None:
        self._url = url
        self._poll_seconds = poll_seconds
        self._check_seconds = check_seconds
        self._subscribers: dict[str, list[Wakeup]] = {channel: [] for channel in CHANNELS}
        self._unsent: set[str] = set()
        self._has_work = asyncio.Event()
        self._pause_seconds = _FIRST_PAUSE_SECONDS

    def subscribe(self, channel: str) -> Wakeup:
        wakeup = Wakeup(self._poll_seconds)
        self._subscribers[channel].append(wakeup)
        return wakeup

    def notify(self, channel: str) -> None:
        """Wake this process's waiters; call it after the commit that they should see."""
        for wakeup in self._subscribers[channel]:
            wakeup.notify()

    def announce(self, channel: str) -> None:
        """Wake the waiters of all processes; call it after the commit that they should see."""
        self.notify(channel)
        self._unsent.add(channel)
        self._has_work.set()

    async def listen(self) -> None:
        """Receive other processes' notifications, and send this process's, until cancelled.

        Reconnects after a failure, and when the server has not answered for some seconds.
        """
        outage = Outage("wakeups.connection_lost", "wakeups.connection_back")
        while True:
            try:
                await self._listen_once(outage)
            except _CONNECTION_ERRORS as error:
                outage.failed(reason_of(error))
            await asyncio.sleep(self._pause_seconds)
            self._pause_seconds = min(self._pause_seconds * 2, _LONGEST_PAUSE_SECONDS)

    async def _listen_once(self, outage: Outage) -> None:
        connection = await database.connect(self._url, "wakeups", seconds=_CONNECT_SECONDS)
        connection.add_termination_listener(lambda _connection: self._has_work.set())
        try:
            async with asyncio.timeout(_CONNECT_SECONDS):
                for channel in CHANNELS:
                    await connection.add_listener(channel, self._on_notification)
                    self.notify(channel)  # notifications may have been missed before this point
            outage.over()
            while not connection.is_closed():
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._check_seconds):
                        await self._has_work.wait()
                await self._send(connection)
                self._pause_seconds = _FIRST_PAUSE_SECONDS
                await asyncio.sleep(_GATHER_SECONDS)
        finally:
            if not connection.is_closed():
                connection.terminate()

    async def _send(self, connection: Connection) -> None:
        """Send the announcements. Without any, the statement checks the connection."""
        self._has_work.clear()
        announced, self._unsent = self._unsent, set()
        try:
            async with asyncio.timeout(self._check_seconds):
                await connection.execute(_ANNOUNCE, sorted(announced), origin())
        except BaseException:
            self._unsent |= announced
            raise

    def _on_notification(
        self,
        _connection: object,
        _pid: int,
        channel: str,
        sender: object,
    ) -> None:
        if sender != origin():
            self.notify(channel)


_ANNOUNCE: Final = "SELECT pg_notify(channel, $2) FROM unnest($1::text[]) AS channel"


async def notify(connection: Connection, channel: str) -> None:
    """Wake the other processes when this database transaction commits."""
    await connection.execute("SELECT pg_notify($1, $2)", channel, origin())
