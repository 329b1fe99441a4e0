"""Daily check-ins, streaks and milestones of a site's members (spec 3, 4.4).

A claim is committed together with its reward in the mint lane's queue; the answer does not wait for
a block. Today is the database's date in the brand's time zone.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from uuid import uuid4

import msgspec
import structlog
from prometheus_client import Counter

from ltzd import telemetry
from ltzd.actions.mint_capacity import MintCapacity
from ltzd.actions.site_plugin.members import ACCOUNT_CHANGED
from ltzd.errors import (
    BudgetExhausted,
    CheckInRefused,
    MilestoneRefused,
    Refused,
    SiteUnknown,
    Unavailable,
)
from ltzd.rules.brands.configuration import Brand, Site
from ltzd.rules.event_handler.brand_limits import budget_of, local_day
from ltzd.rules.site_plugin.streaks import (
    CheckIn,
    Milestone,
    StreakSummary,
    extend_streak,
    own_days_after,
    own_reward,
    summarize,
)
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.database import Connection, Pool, session
from ltzd.store.site_plugin import check_ins
from ltzd.store.site_plugin.check_ins import CheckInSnapshot, NewCheckIn, NewMilestone
from ltzd.store.site_plugin.members import Member
from ltzd.store.wakeups import REWARDS, WakeupHub
from ltzd.values import hex_of

log = structlog.get_logger()

_QUEUED_CHECK_INS = telemetry.REWARDS_QUEUED.labels("checkin")
_QUEUED_MILESTONES = telemetry.REWARDS_QUEUED.labels("milestone")

_AUTOMATION_OFF = "Rewards are switched off here at the moment. Please try again later."
_CLAIMED = "You have claimed this milestone already."
_UNMINTABLE = "This reward is larger than can be minted here. Please tell the site's operator."
_BUDGET_SPENT = "Today's rewards have all been given out. Please come back tomorrow."


class CheckInResult(msgspec.Struct, frozen=True):
    """`reward` is in whole LTZ, and 0 if the member has already checked in today."""

    streak: StreakSummary
    reward: int
    already_claimed: bool


class _AboveCapacity(Exception):
    """The check-in would earn this many LTZ, more than the mint limit is believed to hold."""

    def __init__(self, ltz: int) -> None:
        super().__init__(ltz)
        self.ltz = ltz


class CheckIns:
    def __init__(
        self, pool: Pool, wakeups: WakeupHub, brands: BrandCache, capacity: MintCapacity
    ) -> None:
        self._pool = pool
        self._wakeups = wakeups
        self._brands = brands
        self._capacity = capacity

    async def streak(self, member: Member) -> StreakSummary:
        brand, site = self._site_of(member)
        async with session(self._pool) as connection:
            snapshot = await check_ins.read_snapshot(connection, member)
        return _shown(snapshot, brand, site)

    async def check_in(self, member: Member) -> CheckInResult:
        """Raises CheckInRefused with a message for the member."""
        with _counted(telemetry.SITE_CHECKINS):
            brand, site = self._site_of(member)
            if not brand.automation:
                raise CheckInRefused(_AUTOMATION_OFF)
            most = await self._capacity.whole_ltz()
            try:
                checked = await self._checked_in(member, brand, site, most)
            except _AboveCapacity as above:
                if await self._capacity.exceeded_by(above.ltz) is not None:
                    raise CheckInRefused(_UNMINTABLE) from above
                checked = await self._checked_in(member, brand, site, None)
        telemetry.SITE_CHECKINS.labels("repeated" if checked.already_claimed else "claimed").inc()
        return checked

    async def _checked_in(
        self, member: Member, brand: Brand, site: Site, most: int | None
    ) -> CheckInResult:
        """Raises _AboveCapacity, CheckInRefused."""
        try:
            async with session(self._pool) as connection:
                return await self._check_in(connection, member, brand, site, most)
        except BudgetExhausted as error:
            raise CheckInRefused(_BUDGET_SPENT) from error

    async def _check_in(
        self, connection: Connection, member: Member, brand: Brand, site: Site, most: int | None
    ) -> CheckInResult:
        """`most` is the LTZ that the mint limit can ever hold, None if that is unknown."""
        while True:
            snapshot = await check_ins.read_snapshot(connection, member)
            today = local_day(snapshot.now, brand.time_zone)
            if snapshot.wallet != member.wallet:
                raise CheckInRefused(ACCOUNT_CHANGED)
            claim = extend_streak(snapshot.streak, today, site)
            if claim is None or _has_checked_in(snapshot, today):
                return CheckInResult(_shown(snapshot, brand, site), 0, already_claimed=True)
            own_days = own_days_after(claim, snapshot.own_days)
            if most and claim.reward > most:
                raise _AboveCapacity(claim.reward)
            new = NewCheckIn(
                member=member,
                before=snapshot.streak,
                check_in=claim,
                reward_id=uuid4(),
                budget=budget_of(brand, snapshot.now),
                own_days=own_days,
                own_ltz=own_reward(claim, own_days, site),
            )
            # Only another check-in or a change of wallet can come between: decide again.
            if await check_ins.write_check_in(connection, new):
                self._announce(member, claim)
                streak = summarize(claim.streak, today, site, snapshot.claimed)
                return CheckInResult(streak, claim.reward, already_claimed=False)

    def _announce(self, member: Member, claim: CheckIn) -> None:
        """Log a committed check-in and wake the mint lane."""
        log.info(
            "checkin.claimed",
            brand=hex_of(member.brand_id),
            wallet=hex_of(member.wallet),
            day=claim.streak.last_day.isoformat(),
            streak=claim.streak.days,
            ltz=claim.reward,
        )
        if claim.reward:
            _QUEUED_CHECK_INS.inc()
            self._wakeups.announce(REWARDS)

    async def claim_milestone(self, member: Member, days: int) -> int:
        """Return the bonus. Raises MilestoneRefused with a message for the member."""
        with _counted(telemetry.SITE_MILESTONES):
            brand, site = self._site_of(member)
            if not brand.automation:
                raise MilestoneRefused(_AUTOMATION_OFF)
            bonus = site.milestones.get(days)
            if bonus is None:
                raise MilestoneRefused("There is no such milestone.")
            if await self._capacity.exceeded_by(bonus) is not None:
                raise MilestoneRefused(_UNMINTABLE)
            try:
                await self._claim(member, brand, Milestone(days, bonus))
            except BudgetExhausted as error:
                raise MilestoneRefused(_BUDGET_SPENT) from error
        telemetry.SITE_MILESTONES.labels("claimed").inc()
        return bonus

    async def _claim(self, member: Member, brand: Brand, milestone: Milestone) -> None:
        async with session(self._pool) as connection:
            snapshot = await check_ins.read_snapshot(connection, member)
            _refuse_unreached(snapshot, milestone)
            own_days = await check_ins.own_best(connection, member)
            new = NewMilestone(
                member=member,
                milestone=milestone,
                day=local_day(snapshot.now, brand.time_zone),
                reward_id=uuid4(),
                budget=budget_of(brand, snapshot.now),
                own_ltz=milestone.bonus if own_days >= milestone.days else 0,
            )
            # A streak's best never shrinks: only another claim of this milestone can come between.
            if not await check_ins.write_milestone(connection, new):
                raise MilestoneRefused(_CLAIMED)
        log.info(
            "milestone.claimed",
            brand=hex_of(member.brand_id),
            wallet=hex_of(member.wallet),
            milestone=milestone.days,
            ltz=milestone.bonus,
        )
        _QUEUED_MILESTONES.inc()
        self._wakeups.announce(REWARDS)

    def _site_of(self, member: Member) -> tuple[Brand, Site]:
        """Raises SiteUnknown if the brand was disabled, or lost its site, just now."""
        brand = self._brands.get(member.brand_id)
        if brand is None or brand.site is None:
            raise SiteUnknown("No brand has this site")
        return brand, brand.site


def _shown(snapshot: CheckInSnapshot, brand: Brand, site: Site) -> StreakSummary:
    today = local_day(snapshot.now, brand.time_zone)
    return summarize(snapshot.streak, today, site, snapshot.claimed)


def _has_checked_in(snapshot: CheckInSnapshot, today: date) -> bool:
    """Return whether the member has checked in today, also with a former wallet."""
    return snapshot.checked_in_on is not None and snapshot.checked_in_on >= today


def _refuse_unreached(snapshot: CheckInSnapshot, milestone: Milestone) -> None:
    best = 0 if snapshot.streak is None else snapshot.streak.best
    if best < milestone.days:
        raise MilestoneRefused(
            f"You have not reached this milestone yet: it takes a streak of {milestone.days}, "
            f"and your longest is {best}."
        )


@contextmanager
def _counted(counter: Counter) -> Iterator[None]:
    """Count the refusals and failures of this block."""
    try:
        yield
    except Refused:
        counter.labels("refused").inc()
        raise
    except Unavailable:
        counter.labels("unavailable").inc()
        raise
