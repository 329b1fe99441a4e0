"""Pauses a lane while the signer of its wallet does not sign.

After each failure the lane tries again after a pause that doubles. Nothing is stored without a
signature, so a failure costs nothing but time.
"""

import structlog

from ltzd.concurrency.clock import Clock
from ltzd.errors import SignerUnavailable
from ltzd.operator.pausing import LanePause
from ltzd.operator.policy import SIGNER, PauseBackoff

log = structlog.get_logger()


class SignerHealth:
    """The knowledge of one term; `pause` gets the reason SIGNER at a failure."""

    def __init__(self, pause: LanePause, pauses: PauseBackoff, clock: Clock) -> None:
        self._pause = pause
        self._pauses = pauses
        self._clock = clock
        self._next_pause = pauses.first
        self._until = float("-inf")

    @property
    def is_waiting(self) -> bool:
        """Whether it is too early to ask the signer again."""
        return self._clock() < self._until

    @property
    def is_doubtful(self) -> bool:
        """Whether the last signature failed."""
        return self._next_pause > self._pauses.first

    def failed(self, error: SignerUnavailable) -> None:
        if self.is_waiting:
            return  # Several requests failed together; the first has set the pause.
        self._until = self._clock() + self._next_pause
        self._next_pause = min(2 * self._next_pause, self._pauses.longest)
        log.warning("signer.unavailable", reason=error.message, **error.details)
        self._pause.set(SIGNER)

    def succeeded(self) -> None:
        self._until, self._next_pause = float("-inf"), self._pauses.first
        if self._pause.reason == SIGNER:
            self._pause.set(None)
