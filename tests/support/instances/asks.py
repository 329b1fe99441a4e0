"""Relays that are requested again, unchanged and under their keys, until they have an outcome."""

import asyncio
import time
from dataclasses import dataclass, field

import aiohttp

from tests.support.instances.relayer import Answer, Relays, User

OUTCOME_SECONDS = 60.0
_PAUSE_SECONDS = 0.1


@dataclass
class Ask:
    """A relay that is repeated under its key, unchanged, until it has an outcome."""

    user: User
    to: str
    data: bytes
    key: str
    answers: list[Answer] = field(default_factory=list)

    async def ask(self, relays: Relays) -> Answer | None:
        """Returns None if the connection broke or the instance was down."""
        try:
            answer = await relays.relay(self.user, self.to, self.data, key=self.key)
        except (aiohttp.ClientError, OSError, TimeoutError):
            return None
        self.answers.append(answer)
        return answer

    async def outcome(self, relays: Relays, seconds: float = OUTCOME_SECONDS) -> bool:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            answer = await self.ask(relays)
            if answer is not None and answer.status == 200:
                return True
            assert answer is None or answer.status in {202, 503}, answer.body
            await asyncio.sleep(_PAUSE_SECONDS)
        return False

    def hash(self) -> str:
        """The transaction hash, which all successful answers share."""
        (relays,) = {answer.hash for answer in self.answers if answer.status == 200}
        return relays
