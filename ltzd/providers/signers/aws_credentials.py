"""Credentials for AWS from botocore's usual chain: variables, files, web identity, the machine.

The chain reads files and may ask other services, so it runs in a thread. Temporary credentials are
renewed before they expire; until then the present ones are used. Credentials that AWS refuses are
read anew from the whole chain.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Any

import botocore.session
from botocore.credentials import ReadOnlyCredentials, RefreshableCredentials
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from ltzd.providers.outbound.retries import TransientFailure

_UNREADABLE = (
    BotoCoreError,
    ClientError,
    ResponseParserError,
    OSError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
)
"""STS refuses, a token's file is away, a program prints nonsense: botocore passes these on."""

_EXPIRES_SOON_SECONDS = 300
"""Credentials that expire earlier are not used while newer ones may be had."""


@dataclass(frozen=True, slots=True)
class _Read:
    source: Any = field(repr=False)
    """botocore's object, which can renew itself."""
    frozen: ReadOnlyCredentials = field(repr=False)

    def must_be_renewed(self, within_seconds: int | None = None) -> bool:
        """By default, within botocore's own time before the expiry."""
        if not isinstance(self.source, RefreshableCredentials):
            return False
        return bool(self.source.refresh_needed(within_seconds))


class AwsCredentials:
    def __init__(self) -> None:
        self._last: _Read | None = None
        self._reading: asyncio.Task[_Read] | None = None

    async def current(self) -> ReadOnlyCredentials:
        """Raises TransientFailure if the chain has none now."""
        last = self._last
        if last is not None and not last.must_be_renewed():
            return last.frozen
        if self._reading is None:
            self._reading = asyncio.create_task(self._read(last))
            self._reading.add_done_callback(self._finish)
        if last is not None and not last.must_be_renewed(_EXPIRES_SOON_SECONDS):
            return last.frozen
        # Other requests wait for the same task.
        return (await asyncio.shield(self._reading)).frozen

    def discard(self, refused: ReadOnlyCredentials) -> None:
        """AWS refuses these credentials: the next call of `current` reads the chain again."""
        if self._last is not None and self._last.frozen == refused:
            self._last = None

    def close(self) -> None:
        """Stop waiting for the chain; its thread ends by itself."""
        if self._reading is not None:
            self._reading.cancel()

    async def _read(self, last: _Read | None) -> _Read:
        try:
            return await asyncio.to_thread(_read_chain, last)
        except _UNREADABLE as error:
            raise TransientFailure(
                "The credentials for AWS cannot be read", _reason(error)
            ) from error

    def _finish(self, task: asyncio.Task[_Read]) -> None:
        self._reading = None
        if not task.cancelled() and task.exception() is None:
            self._last = task.result()


def _reason(error: Exception) -> str:
    """A refusal's code, else the error's class: its text may hold what a program has printed."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", "refused"))
    return type(error).__name__


def _read_chain(last: _Read | None) -> _Read:
    source = last.source if last is not None else botocore.session.Session().get_credentials()
    if source is None:
        raise TransientFailure("There are no credentials for AWS", "no credentials")
    return _Read(source, source.get_frozen_credentials())
