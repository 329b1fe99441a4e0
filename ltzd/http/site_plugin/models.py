"""Requests and answers of the site plugin's API (spec 2.9, 4.4), as checked, sent and documented.

Amounts are LTZ, as JSON numbers: integers where they are whole.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from typing import Annotated, Any, Literal, Self, TypeVar, get_args
from uuid import UUID

import msgspec
from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
)
from pydantic_core import PydanticCustomError

from ltzd.actions.site_plugin.check_ins import CheckInResult
from ltzd.actions.site_plugin.leaderboards import Leaderboard
from ltzd.actions.site_plugin.links import LinkedWallet
from ltzd.actions.site_plugin.redemptions import MemberFunds, PerkOffer, RedeemedPerk
from ltzd.http.errors import InvalidParams, MissingMilestone, MissingPerkId
from ltzd.http.event_handler.models import Answered, Sent
from ltzd.http.requests.fields import UUID_TEXT, faults_in
from ltzd.http.responses import JSON, Reply
from ltzd.rules.amounts import ltz_of
from ltzd.rules.site_plugin.leaderboards import Metric, Period
from ltzd.rules.site_plugin.streaks import Milestone, StreakShown
from ltzd.store.site_plugin.members import Member
from ltzd.store.site_plugin.spending import ActiveLink
from ltzd.values import LTZ, checksummed, iso

METRICS: tuple[str, ...] = get_args(Metric)
PERIODS: tuple[str, ...] = get_args(Period)
MOST_RANKED = 100
DEFAULT_RANKED = 10

M = TypeVar("M", bound=Sent)

_DIGITS = re.compile(r"[0-9]{1,9}")
_encoder = msgspec.json.Encoder(decimal_format="number")


def site_reply(body: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Reply:
    return Reply(_encoder.encode(body), status, dict(headers or {}), JSON)


def invalid_params(error: ValidationError) -> InvalidParams:
    return InvalidParams(dict(fault.split(": ", 1) for fault in faults_in(error)))


def _fault(reason: str) -> PydanticCustomError:
    return PydanticCustomError("format", "{reason}", {"reason": reason})


def _one_of(known: Sequence[str]) -> Callable[[object], object]:
    def check(given: object) -> object:
        if given in known:
            return given
        raise _fault(f"must be one of {', '.join(known)}")

    return check


def _limit_text(given: object) -> int:
    if isinstance(given, str) and _DIGITS.fullmatch(given) and 1 <= int(given) <= MOST_RANKED:
        return int(given)
    raise _fault(f"must be a whole number from 1 to {MOST_RANKED}")


def _perk_id(given: object) -> str:
    if isinstance(given, str) and UUID_TEXT.fullmatch(given):
        return given
    raise _fault("must be a UUID")


PerkIdText = Annotated[
    str, BeforeValidator(_perk_id), WithJsonSchema({"type": "string", "format": "uuid"})
]
LimitText = Annotated[
    int,
    BeforeValidator(_limit_text),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MOST_RANKED}),
]
Number = Annotated[Decimal, WithJsonSchema({"type": "number", "minimum": 0})]


# --- requests -----------------------------------------------------------------------------------


class PerkOrder(Sent):
    """Which of the brand's perks is to be redeemed, and what it may cost."""

    perk_id: PerkIdText
    max_cost: int | None = Field(
        None, ge=0, description="Whole LTZ: what the member was shown. A dearer perk is refused"
    )

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises MissingPerkId, also for empty text, and InvalidParams."""
        if body.get("perkId") in (None, ""):
            raise MissingPerkId("perkId is required.")
        return _checked(cls, body)

    @property
    def perk(self) -> UUID:
        return UUID(self.perk_id)

    @property
    def max_cost_units(self) -> int | None:
        """In LTZ's smallest unit."""
        return None if self.max_cost is None else self.max_cost * LTZ


class MilestoneOrder(Sent):
    """Which milestone is claimed: by the days of its streak."""

    milestone_days: int = Field(ge=1)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises MissingMilestone, also for empty text, and InvalidParams."""
        if body.get("milestoneDays") in (None, ""):
            raise MissingMilestone("milestoneDays is required.")
        return _checked(cls, body)


class LinkOrder(Sent):
    """The code that the wallet's owner was told by POST /site-links."""

    code: str = Field(
        min_length=1, description="Case, spaces and hyphens do not count; I and L are 1, O is 0"
    )

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises InvalidParams, for empty text as for none."""
        given = {name: value for name, value in body.items() if value not in (None, "")}
        return _checked(cls, given)


class LeaderboardQuery(Sent):
    """Query of GET /leaderboard."""

    metric: Annotated[Metric, BeforeValidator(_one_of(METRICS))] = "ltz_earned"
    period: Annotated[Period, BeforeValidator(_one_of(PERIODS))] = "week"
    limit: LimitText = DEFAULT_RANKED

    @classmethod
    def from_query(cls, query: Mapping[str, Sequence[str]]) -> Self:
        """Raises InvalidParams with every fault."""
        given = {name: query[name] for name in cls.model_fields if name in query}
        repeated = {name: "must be given once" for name, values in given.items() if len(values) > 1}
        try:
            asked = cls.model_validate(
                {name: values[0] for name, values in given.items() if name not in repeated}
            )
        except ValidationError as error:
            raise InvalidParams(repeated | invalid_params(error).params) from None
        if repeated:
            raise InvalidParams(repeated)
        return asked


def _checked(kind: type[M], body: Mapping[str, Any]) -> M:
    try:
        return kind.model_validate(body)
    except ValidationError as error:
        raise invalid_params(error) from None


# --- answers ------------------------------------------------------------------------------------


def _number(value: Decimal) -> int | Decimal:
    return int(value) if value == value.to_integral_value() else value


class StreakMilestone(Answered):
    days: int
    bonus: int = Field(description="Whole LTZ")

    @staticmethod
    def body(milestone: Milestone) -> dict[str, object]:
        return {"days": milestone.days, "bonus": milestone.bonus}


class SiteStreak(Answered):
    """A member's days in a row (spec 2.9)."""

    current_streak: int = Field(description="Days, 0 once a day was missed")
    multiplier: Number
    next_milestone: StreakMilestone | None
    unclaimed_milestones: list[StreakMilestone]

    @staticmethod
    def body(shown: StreakShown) -> dict[str, object]:
        coming = shown.next_milestone
        return {
            "currentStreak": shown.current_streak,
            "multiplier": _number(shown.multiplier),
            "nextMilestone": None if coming is None else StreakMilestone.body(coming),
            "unclaimedMilestones": [
                StreakMilestone.body(one) for one in shown.unclaimed_milestones
            ],
        }


class CheckInAnswer(Answered):
    """Today is claimed, by this request or an earlier one."""

    success: Literal[True]
    streak: SiteStreak
    reward: int = Field(description="Whole LTZ; 0 if today was claimed already")
    already_claimed: bool

    @staticmethod
    def body(checked: CheckInResult) -> dict[str, object]:
        return {
            "success": True,
            "streak": SiteStreak.body(checked.streak),
            "reward": checked.reward,
            "alreadyClaimed": checked.already_claimed,
        }


class MilestoneAnswer(Answered):
    """The milestone is claimed."""

    success: Literal[True]
    bonus_ltz: int
    milestone: int

    @staticmethod
    def body(days: int, bonus: int) -> dict[str, object]:
        return {"success": True, "bonusLtz": bonus, "milestone": days}


class SitePerk(Answered):
    """A perk as it was redeemed (spec 2.9)."""

    id: str
    name: str
    cost: Number
    category: str


class PerkRedeemedAnswer(Answered):
    """The perk is the member's; in a 202 it will be, or not, once the chain has decided."""

    success: Literal[True]
    confirmation_code: str | None = Field(description="To be shown for the perk; null in a 202")
    perk: SitePerk

    @staticmethod
    def body(redeemed: RedeemedPerk) -> dict[str, object]:
        one = redeemed.redemption
        perk = {
            "id": str(one.perk_id),
            "name": one.name,
            "cost": ltz_of(one.price),
            "category": one.category,
        }
        code = None if redeemed.is_pending else one.confirmation_code
        return {"success": True, "confirmationCode": code, "perk": perk}


class RankedMember(Answered):
    """One of the ranked (spec 2.9)."""

    user_identifier: str = Field(description="The same for the same user, at this site only")
    username: str
    value: int
    rank: int


class LeaderboardAnswer(Answered):
    """The first of those who are above zero."""

    success: Literal[True]
    leaderboard: list[RankedMember]
    metric: Metric
    period: Period
    total: int = Field(description="How many are ranked in all")

    @staticmethod
    def body(query: LeaderboardQuery, board: Leaderboard) -> dict[str, object]:
        return {
            "success": True,
            "leaderboard": [
                {
                    "userIdentifier": entry.user_identifier,
                    "username": entry.username,
                    "value": entry.value,
                    "rank": entry.rank,
                }
                for entry in board.entries
            ],
            "metric": query.metric,
            "period": query.period,
            "total": board.total,
        }


class LinkAnswer(Answered):
    """The wallet is the code's owner's, and the member's while the link lasts."""

    success: Literal[True]
    wallet_address: str
    daily_allowance: int = Field(description="Whole LTZ a day, in UTC")

    @staticmethod
    def body(linked: LinkedWallet) -> dict[str, object]:
        return {
            "success": True,
            "walletAddress": checksummed(linked.wallet),
            "dailyAllowance": linked.daily_allowance,
        }


class UnlinkAnswer(Answered):
    """No link lasts."""

    success: Literal[True]

    @staticmethod
    def body() -> dict[str, object]:
        return {"success": True}


class MemberLink(Answered):
    """What the wallet's owner lets the member spend beyond what the brand gave."""

    daily_allowance: Number = Field(description="LTZ a day, in UTC")
    allowance_left: Number = Field(description="LTZ, today")
    expires_at: str = Field(json_schema_extra={"format": "date-time"})

    @staticmethod
    def body(link: ActiveLink) -> dict[str, object]:
        return {
            "dailyAllowance": ltz_of(link.allowance.per_day),
            "allowanceLeft": ltz_of(link.allowance.left),
            "expiresAt": iso(link.expires_at),
        }


class MemberAnswer(Answered):
    """Who is logged in."""

    success: Literal[True]
    username: str
    wallet_address: str
    balance: Number = Field(description="LTZ, as of the last block that was read")
    streak: SiteStreak
    linked: bool = Field(description="Whether the wallet's owner has linked the member")
    spendable: Number = Field(description="LTZ of the balance that this session may spend now")
    link: MemberLink | None

    @staticmethod
    def body(member: Member, funds: MemberFunds, streak: StreakShown) -> dict[str, object]:
        return {
            "success": True,
            "username": member.username,
            "walletAddress": checksummed(member.wallet),
            "balance": ltz_of(funds.balance),
            "streak": SiteStreak.body(streak),
            "linked": funds.link is not None,
            "spendable": ltz_of(funds.spendable),
            "link": None if funds.link is None else MemberLink.body(funds.link),
        }


class OfferedPerk(SitePerk):
    available: bool


class PerksAnswer(Answered):
    """What the brand's site lists."""

    success: Literal[True]
    perks: list[OfferedPerk]

    @staticmethod
    def body(offers: Sequence[PerkOffer]) -> dict[str, object]:
        perks = [
            {
                "id": offer.perk.id,
                "name": offer.perk.name,
                "cost": ltz_of(offer.cost_units),
                "category": offer.perk.category,
                "available": offer.is_available,
            }
            for offer in offers
        ]
        return {"success": True, "perks": perks}


class RefusalData(Answered):
    """`params` tells what is wrong with each parameter, where that is what is wrong."""

    model_config = ConfigDict(json_schema_serialization_defaults_required=False)

    status: int
    params: dict[str, str] | None = None
    details: dict[str, str] | None = None


class SiteRefusal(Answered):
    """Every answer that is no success (spec 7.5)."""

    code: str
    message: str = Field(description="A sentence for the site's user")
    data: RefusalData
