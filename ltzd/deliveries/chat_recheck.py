"""Compares stored constraint results with what the chat platform answers now.

Each member of a guild is asked about once. A missing answer changes nothing. After a few failures
in a row a guild is not asked any more: the platform counts refusals against our bot.
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
"""Requests in flight. The client's other connections are for users who wait."""
_MOST_FAILURES: Final = 5
"""In a row, of one guild; then it is skipped."""
_MOST_WAITS: Final = 5
_LONGEST_WAIT_SECONDS: Final = 60.0


class _Query(NamedTuple):
    """One request to the platform. Its answer lists all roles, or the level, of one member."""

    kind: str
    guild: str
    account: str


class ChatRecheck:
    """One round over all stored results. `reasons` has the reason of each failed request."""

    def __init__(self, platform: ChatPlatform, sleep: Callable[[float], Awaitable[None]]) -> None:
        self._platform = platform
        self._sleep = sleep
        self._answers: dict[_Query, Json] = {}
        self._unanswered: set[_Query] = set()
        self._failures: Counter[tuple[str, str]] = Counter()
        self.reasons: set[str] = set()

    @property
    def unanswered(self) -> int:
        """How many requests have had no answer."""
        return len(self._unanswered)

    async def changed(self, page: Sequence[StoredResult]) -> list[StoredResult]:
        """Results of the page that differ from the answers, or whose question is unreadable."""
        questions = [_question_of(result) for result in page]
        await self._ask_new(
            {
                _query(question.constraint, account): question.constraint
                for question in questions
                if question is not None
                for account in question.accounts
            }
        )
        pairs = zip(page, questions, strict=True)
        return [result for result, question in pairs if self._is_changed(result, question)]

    def _is_changed(self, result: StoredResult, question: ChatQuery | None) -> bool:
        if question is None:
            return True
        constraint = question.constraint
        queries = [_query(constraint, account) for account in question.accounts]
        verdict = combine_verdicts(
            is_satisfied(constraint, self._answers[query]) if query in self._answers else None
            for query in queries
        )
        return verdict is not None and verdict is not result.outcome

    async def _ask_new(self, wanted: Mapping[_Query, ChatConstraint]) -> None:
        new = iter([item for item in wanted.items() if item[0] not in self._answers])
        async with asyncio.TaskGroup() as group:
            for _ in range(_AT_ONCE):
                group.create_task(self._ask_all(new))

    async def _ask_all(self, queries: Iterator[tuple[_Query, ChatConstraint]]) -> None:
        for query, constraint in queries:
            guild = query[:2]
            if self._failures[guild] < _MOST_FAILURES and await self._ask(query, constraint):
                self._failures[guild] = 0
                self._unanswered.discard(query)
            else:
                self._failures[guild] += 1
                self._unanswered.add(query)

    async def _ask(self, query: _Query, constraint: ChatConstraint) -> bool:
        """Return whether the platform answered."""
        for _ in range(_MOST_WAITS):
            try:
                self._answers[query] = await self._platform.observe(constraint, query.account)
            except ChatUnavailable as failure:
                self.reasons.add(failure.reason)
                if not 0 < failure.wait_seconds <= _LONGEST_WAIT_SECONDS:
                    return False
                await self._sleep(failure.wait_seconds)
            else:
                return True
        return False


def _question_of(result: StoredResult) -> ChatQuery | None:
    """None if another version of ltzd wrote the question."""
    try:
        return ChatQuery.from_bytes(result.question)
    except ValidationError:
        return None


def _query(constraint: ChatConstraint, account: str) -> _Query:
    return _Query(constraint.kind, constraint.guild_id, account)
