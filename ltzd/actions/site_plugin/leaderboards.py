"""Leaderboards of a brand's users: by LTZ earned, rewards received, or longest streak.

They are public, so a user is shown by an identifier that is specific to this site and cannot be
linked to other sites, and never by an e-mail address. Anybody may ask for them at any rate, so
callers who ask for the same board while boards are read share the next read.
"""

import asyncio
import hmac
import unicodedata
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime

import msgspec

from ltzd.concurrency.answer_age import answer_age, begin_answer, note_age
from ltzd.concurrency.batcher import Batcher
from ltzd.rules.brands.configuration import Brand
from ltzd.rules.event_handler.brand_limits import local_day
from ltzd.rules.site_plugin.leaderboards import Metric, Period, first_day
from ltzd.store.database import Connection
from ltzd.store.replica import ReplicaReads
from ltzd.store.retention.erasure import ERASED_NAME
from ltzd.store.site_plugin import leaderboard_totals
from ltzd.store.site_plugin.leaderboard_totals import LeaderboardTotals, RankedWallet
from ltzd.values import Address

_IDENTIFIER_DIGITS = 32
_NAME_DIGITS = 6
LONGEST_SHOWN = 60
"""Characters; the longest name that a user can have on the platform."""
_READS_AT_ONCE = 4
"""Boards that are read at the same time, each by a connection to the database."""


class LeaderboardEntry(msgspec.Struct, frozen=True):
    """`value` is in whole LTZ, rewards or days, by the metric; ranks begin at 1."""

    user_identifier: str
    username: str
    value: int
    rank: int


class Leaderboard(msgspec.Struct, frozen=True):
    """`total` is how many users are ranked, including those not listed."""

    entries: tuple[LeaderboardEntry, ...]
    total: int


class _Question(msgspec.Struct, frozen=True):
    """`time_zone` is the brand's, whose calendar decides which week and month are the current."""

    brand: Address
    time_zone: str
    host: str
    metric: Metric
    period: Period
    limit: int


class _Answer(msgspec.Struct, frozen=True):
    """`age` is the age of a standby's answer in seconds, or None for the newest state."""

    board: Leaderboard
    age: float | None


class Leaderboards:
    def __init__(
        self, reads: ReplicaReads, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        self._reads = reads
        self._now = now
        self._slots = asyncio.Semaphore(_READS_AT_ONCE)
        # One batch at a time: with two, half as many callers share a read.
        self._boards: Batcher[_Question, _Answer] = Batcher(self._read_all, max_concurrent=1)

    async def read(
        self, brand: Brand, host: str, metric: Metric, period: Period, limit: int
    ) -> Leaderboard:
        """Read the current week or month in the brand's time zone, for the brand's site at `host`.

        `limit` is at least 1. The read begins after the call, so it sees what was committed before.
        """
        question = _Question(brand.address, brand.time_zone, host, metric, period, limit)
        answer = await self._boards.ask(question)
        if answer.age is not None:
            note_age(answer.age)
        return answer.board

    async def _read_all(self, questions: Sequence[_Question]) -> list[_Answer | Exception]:
        distinct = list(dict.fromkeys(questions))
        answers = await asyncio.gather(*map(self._read_one, distinct))
        answer_of = dict(zip(distinct, answers, strict=True))
        return [answer_of[question] for question in questions]

    async def _read_one(self, question: _Question) -> _Answer | Exception:
        """Return also what fails, which concerns no other board of the batch."""
        async with self._slots:
            begin_answer()  # the caller with whom the batch began may have read something old
            try:
                board = await self._read(question)
            except Exception as error:  # noqa: BLE001 - those who asked get it
                return error
            return _Answer(board, answer_age())

    async def _read(self, question: _Question) -> Leaderboard:
        """Read the period that is the current one by the database's clock.

        This process's clock only tells which period to ask for first.
        """

        def first(now: datetime) -> date:
            return first_day(question.period, local_day(now, question.time_zone))

        async def ask(connection: Connection) -> LeaderboardTotals:
            starts = first(self._now())
            while True:
                top = await leaderboard_totals.read_top(
                    connection,
                    question.brand,
                    question.metric,
                    question.period,
                    starts,
                    question.limit,
                )
                if starts == (current := first(top.read_at)):
                    return top
                starts = current

        top = await self._reads.read(ask)
        entries = (
            _entry(top.member_key, question.host, place, rank)
            for rank, place in enumerate(top.places, 1)
        )
        return Leaderboard(tuple(entries), top.total)


def _entry(key: bytes, host: str, place: RankedWallet, rank: int) -> LeaderboardEntry:
    who = place.wallet if place.user_id is None else place.user_id.bytes
    member_of_site = host.encode() + b"\0" + who
    identifier = hmac.digest(key, member_of_site, "sha256").hex()[:_IDENTIFIER_DIGITS]
    return LeaderboardEntry(identifier, _shown(place.username, identifier), place.value, rank)


def _shown(username: str | None, identifier: str) -> str:
    """Return the name to show: some sites use the e-mail address of a user as the name.

    The name is normalized before the check, since `@` has look-alikes, and checked whole, since
    the sign may stand behind the part that is shown. A member whose name was erased has none: the
    board does not tell the public who has asked for an erasure.
    """
    if not username or username == ERASED_NAME or "@" in unicodedata.normalize("NFKC", username):
        return f"member-{identifier[:_NAME_DIGITS]}"
    return username[:LONGEST_SHOWN]
