"""Leaderboards of a brand's users: by LTZ earned, rewards received, or longest streak.

They are public, so a user is shown by an identifier that is specific to this site and cannot be
linked to other sites, and never by an e-mail address.
"""

import hmac
import unicodedata
from dataclasses import dataclass

from ltzd.rules.brands.configuration import Brand
from ltzd.rules.event_handler.brand_limits import local_day
from ltzd.rules.site_plugin.leaderboards import Metric, Period, first_day
from ltzd.store.database import Connection
from ltzd.store.replica import ReplicaReads
from ltzd.store.retention.erasure import ERASED_NAME
from ltzd.store.site_plugin import leaderboard_totals
from ltzd.store.site_plugin.leaderboard_totals import LeaderboardTotals, RankedWallet

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
    """`total` is how many users are ranked, including those not listed."""

    entries: tuple[LeaderboardEntry, ...]
    total: int


class Leaderboards:
    def __init__(self, reads: ReplicaReads) -> None:
        self._reads = reads

    async def read(
        self, brand: Brand, host: str, metric: Metric, period: Period, limit: int
    ) -> Leaderboard:
        """Read the current week or month in the brand's time zone, for the brand's site at `host`.

        `limit` is at least 1.
        """

        async def ask(connection: Connection) -> tuple[bytes, LeaderboardTotals]:
            key, now = await leaderboard_totals.member_key(connection, brand.address)
            starts = first_day(period, local_day(now, brand.time_zone))
            return key, await leaderboard_totals.read_top(
                connection, brand.address, metric, period, starts, limit
            )

        key, top = await self._reads.read(ask)
        entries = (_entry(key, host, place, rank) for rank, place in enumerate(top.places, 1))
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
