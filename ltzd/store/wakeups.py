"""Wake-ups between roles: a bell in this process first, one NOTIFY for the others.

A bell carries nothing but "look again": whoever hears it reads the tables, which are the truth. A
wake-up may be lost (a dropped connection, a restart) and may come for nothing, so every waiter
also looks by itself after `POLL_SECONDS`.
"""

import asyncio
import secrets
from typing import Final

import structlog

from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.store import database
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
"""Relays were mined, or are no longer."""
BRANDS: Final = "ltzd_brands"
"""A brand's configuration changed."""
WEBHOOKS: Final = "ltzd_webhooks"
"""Webhooks are due that were not before."""

CHANNELS = (REWARDS, PUBLISHED, BLOCKS, RELAYS, RELAYED, BRANDS, WEBHOOKS)
POLL_SECONDS = 1.0
_FIRST_PAUSE_SECONDS = 0.1

ORIGIN: Final = secrets.token_hex(8)
"""What this process's notifications carry, so that it does not wake itself twice."""

log = structlog.get_logger()

_LOST: tuple[type[BaseException], ...] = (DatabaseUnavailable, Misconfigured, *database.LOST)


class Wakeup:
    """Rings for one waiter; a ring while nobody waits is heard by the next wait."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        self._rung.set()

    async def wait(self, seconds: float = POLL_SECONDS) -> None:
        """Return when rung, or after `seconds`: then it is time for a look anyway."""
        try:
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        except TimeoutError:
            pass
        self._rung.clear()


class Signals:
    """The bells of this process and the connection that hears the other processes."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._bells: dict[str, list[Wakeup]] = {channel: [] for channel in CHANNELS}

    def bell(self, channel: str) -> Wakeup:
        bell = Wakeup()
        self._bells[channel].append(bell)
        return bell

    def ring(self, channel: str) -> None:
        """Wake this process's waiters; call it after the commit that they should see."""
        for bell in self._bells[channel]:
            bell.ring()

    async def listen(self) -> None:
        """Hear other processes until cancelled; a lost connection is opened again."""
        pause = _FIRST_PAUSE_SECONDS
        while True:
            try:
                await self._listen_once()
                pause = _FIRST_PAUSE_SECONDS
            except _LOST as error:
                log.warning("signals.lost", reason=type(error).__name__)
            await asyncio.sleep(pause)
            pause = min(pause * 2, 5.0)

    async def _listen_once(self) -> None:
        connection = await database.connect(self._url, "signals")
        gone = asyncio.Event()
        connection.add_termination_listener(lambda _connection: gone.set())
        try:
            for channel in CHANNELS:
                await connection.add_listener(channel, self._heard)
                self.ring(channel)  # whatever was said while nobody listened
            await gone.wait()
        finally:
            if not connection.is_closed():
                connection.terminate()

    def _heard(
        self,
        _connection: object,
        _pid: int,
        channel: str,
        origin: object,
    ) -> None:
        if origin != ORIGIN:
            self.ring(channel)


async def notify(connection: Connection, channel: str) -> None:
    """Wake the other processes when this database transaction commits."""
    await connection.execute("SELECT pg_notify($1, $2)", channel, ORIGIN)
