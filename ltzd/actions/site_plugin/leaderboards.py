"""Leaderboards of a brand's users: who has earned most, done most, or come longest in a row.

Anybody may read them, so a user is shown by an identifier of this brand alone, from which nobody
learns who he is elsewhere, and never by an e-mail address.
"""

import hmac
import unicodedata
from dataclasses import dataclass

from ltzd.rules.brands.configuration import Brand
from ltzd.rules.event_handler.brand_limits import local_day
from ltzd.rules.site_plugin.leaderboards import Metric, Period, first_day
from ltzd.store.database import Pool, session
from ltzd.store.site_plugin import leaderboard_totals as standings
from ltzd.store.site_plugin.leaderboard_totals import RankedWallet

_IDENTIFIER_DIGITS = 32
_NAME_DIGITS = 6
LONGEST_SHOWN = 60
"""Characters; the longest name that a user can have on the platform."""


@dataclass(frozen=True, slots=True)
class LeaderboardEntry:
    """`value` is in whole LTZ, rewards or days, by the metric; ranks begin at 1."""

    user_identifier: str
    username: str
    value: int
    rank: int


@dataclass(frozen=True, slots=True)
class Leaderboard:
    """`total`: how many are ranked, shown here or not."""

    entries: tuple[LeaderboardEntry, ...]
    total: int


class Leaderboards:
    def __init__(self, pool: Pool) -> None:
        self._pool = pool

    async def read(self, brand: Brand, metric: Metric, period: Period, limit: int) -> Leaderboard:
        """Of the week or month that it is now where the brand is; `limit` is at least 1."""
        async with session(self._pool) as connection:
            key, now = await standings.member_key(connection, brand.address)
            starts = first_day(period, local_day(now, brand.time_zone))
            top = await standings.read_top(connection, brand.address, metric, period, starts, limit)
        entries = (_entry(key, place, rank) for rank, place in enumerate(top.places, 1))
        return Leaderboard(tuple(entries), top.total)


def _entry(key: bytes, place: RankedWallet, rank: int) -> LeaderboardEntry:
    who = place.wallet if place.user_id is None else place.user_id.bytes
    identifier = hmac.digest(key, who, "sha256").hex()[:_IDENTIFIER_DIGITS]
    return LeaderboardEntry(identifier, _shown(place.username, identifier), place.value, rank)


def _shown(username: str | None, identifier: str) -> str:
    """Sites let people log in by their e-mail address, and some take it for a name.

    The sign of an address has look-alikes, and may be behind what is shown.
    """
    if not username or "@" in unicodedata.normalize("NFKC", username):
        return f"member-{identifier[:_NAME_DIGITS]}"
    return username[:LONGEST_SHOWN]
