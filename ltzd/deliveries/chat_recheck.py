"""One look at what the chat platform says now: each member is asked about once.

An answer that cannot be had changes nothing. A guild of which nothing is heard is left alone after
a few attempts: every refusal counts against our bot, and a platform that is down is asked no more
than needed.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from pydantic import ValidationError

from ltzd.providers.chat import ChatPlatform, ChatUnavailable
from ltzd.rules.constraints.chat_queries import ChatQuery, combine_verdicts
from ltzd.rules.constraints.constraints import ChatConstraint, is_satisfied
from ltzd.rules.constraints.json_paths import Json
from ltzd.store.constraints.results import StoredResult

_AT_ONCE: Final = 4
"""Of the client's places; the others are for users who wait."""
_MOST_FAILURES: Final = 5
"""In a row, of one guild."""
_MOST_WAITS: Final = 5
_LONGEST_WAIT_SECONDS: Final = 60.0


class _Asked(NamedTuple):
    """Roles and levels are two questions; which role or level is wanted matters to neither."""

    kind: str
    guild: str
    account: str


class ChatRecheck:
    def __init__(self, platform: ChatPlatform, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._platform = platform
        self._sleep = sleep
        self._answers: dict[_Asked, Json] = {}
        self._unheard: set[_Asked] = set()
        self._failures: Counter[tuple[str, str]] = Counter()
        self.reasons: set[str] = set()

    @property
    def unheard(self) -> int:
        return len(self._unheard)

    async def changed(self, page: Sequence[StoredResult]) -> list[StoredResult]:
        """Those whose answer is another one now, and those that nobody understands any more."""
        questions = [_question_of(one) for one in page]
        await self._hear(
            {
                _asked(question.constraint, account): question.constraint
                for question in questions
                if question is not None
                for account in question.accounts
            }
        )
        pairs = zip(page, questions, strict=True)
        return [one for one, question in pairs if self._is_changed(one, question)]

    def _is_changed(self, one: StoredResult, question: ChatQuery | None) -> bool:
        if question is None:
            return True
        constraint = question.constraint
        asked = [_asked(constraint, account) for account in question.accounts]
        verdict = combine_verdicts(
            is_satisfied(constraint, self._answers[each]) if each in self._answers else None
            for each in asked
        )
        return verdict is not None and verdict is not one.outcome

    async def _hear(self, wanted: Mapping[_Asked, ChatConstraint]) -> None:
        new = iter([each for each in wanted.items() if each[0] not in self._answers])
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(self._ask_all(new))

    async def _ask_all(self, those: Iterator[tuple[_Asked, ChatConstraint]]) -> None:
        for asked, constraint in those:
            guild = asked[:2]
            if self._failures[guild] < _MOST_FAILURES and await self._is_heard(asked, constraint):
                self._failures[guild] = 0
                self._unheard.discard(asked)
            else:
                self._failures[guild] += 1
                self._unheard.add(asked)

    async def _is_heard(self, asked: _Asked, constraint: ChatConstraint) -> bool:
        for _ in range(_MOST_WAITS):
            try:
                self._answers[asked] = await self._platform.observe(constraint, asked.account)
            except ChatUnavailable as failure:
                self.reasons.add(failure.reason)
                if not 0 < failure.wait_seconds <= _LONGEST_WAIT_SECONDS:
                    return False
                await self._sleep(failure.wait_seconds)
            else:
                return True
        return False


def _question_of(one: StoredResult) -> ChatQuery | None:
    """None for what another version of ltzd has asked."""
    try:
        return ChatQuery.from_bytes(one.question)
    except ValidationError:
        return None


def _asked(constraint: ChatConstraint, account: str) -> _Asked:
    return _Asked(constraint.kind, constraint.guild_id, account)
