"""The requests and responses of the site plugin's API (spec 2.9, 4.4).

Amounts are LTZ as JSON numbers: integers if they are whole.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Annotated, Any, Literal, Self, get_args
from urllib.parse import parse_qs
from uuid import UUID

import msgspec
from pydantic import BeforeValidator, Field, ValidationError, WithJsonSchema

from ltzd.actions.site_plugin.check_ins import CheckInResult
from ltzd.actions.site_plugin.leaderboards import Leaderboard
from ltzd.actions.site_plugin.links import LinkedWallet
from ltzd.actions.site_plugin.redemptions import MemberFunds, PerkOffer, RedeemedPerk
from ltzd.http.models import RequestModel, ResponseModel
from ltzd.http.requests.fields import UUID_TEXT, Natural, Positive, faults_in, field_error
from ltzd.http.responses import JSON, Reply
from ltzd.http.site_plugin.errors import InvalidParams, MissingMilestone, MissingPerkId
from ltzd.rules.amounts import ltz_of
from ltzd.rules.site_plugin.leaderboards import Metric, Period
from ltzd.rules.site_plugin.streaks import Milestone, StreakSummary
from ltzd.store.site_plugin.members import Member
from ltzd.store.site_plugin.spending import ActiveLink
from ltzd.values import LTZ, checksummed, iso

METRICS: tuple[str, ...] = get_args(Metric)
PERIODS: tuple[str, ...] = get_args(Period)
MAX_LEADERBOARD_LIMIT = 100
DEFAULT_LEADERBOARD_LIMIT = 10
_CACHED_QUERIES = 1_000
"""Parsed queries: pages ask for the same few boards again and again."""
_CACHED_LENGTH = 100
"""Characters; longer than any useful query, so that strangers cannot fill the cache with text."""

_DIGITS = re.compile(r"[0-9]{1,9}")
_encoder = msgspec.json.Encoder(decimal_format="number")


def site_reply(body: object, status: int = 200) -> Reply:
    return Reply(_encoder.encode(body), status, content_type=JSON)


def invalid_params(error: ValidationError) -> InvalidParams:
    return InvalidParams(dict(fault.split(": ", 1) for fault in faults_in(error)))


def _one_of(known: Sequence[str]) -> Callable[[object], object]:
    def check(value: object) -> object:
        if value in known:
            return value
        raise field_error(f"must be one of {', '.join(known)}")

    return check


def _limit_text(text: object) -> int:
    if isinstance(text, str) and _DIGITS.fullmatch(text):
        limit = int(text)
        if 1 <= limit <= MAX_LEADERBOARD_LIMIT:
            return limit
    raise field_error(f"must be a whole number from 1 to {MAX_LEADERBOARD_LIMIT}")


def _perk_id(text: object) -> str:
    if isinstance(text, str) and UUID_TEXT.fullmatch(text):
        return text
    raise field_error("must be a UUID")


PerkIdText = Annotated[
    str, BeforeValidator(_perk_id), WithJsonSchema({"type": "string", "format": "uuid"})
]
LimitText = Annotated[
    int,
    BeforeValidator(_limit_text),
    WithJsonSchema({"type": "integer", "minimum": 1, "maximum": MAX_LEADERBOARD_LIMIT}),
]
Number = Annotated[Decimal, WithJsonSchema({"type": "number", "minimum": 0})]


class SiteRequestModel(RequestModel):
    """A request whose faults are reported as WordPress reports faults of parameters."""

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises InvalidParams with every fault."""
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            raise invalid_params(error) from None


class RedeemBody(SiteRequestModel):
    """The perk to redeem, and the highest price to pay for it."""

    perk_id: PerkIdText
    max_cost: Natural | None = Field(
        None,
        description="Whole LTZ: the price that the member saw. A higher price is refused",
    )

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises MissingPerkId if `perkId` is absent or empty, else InvalidParams."""
        if body.get("perkId") in (None, ""):
            raise MissingPerkId("perkId is required.")
        return super().from_json(body)

    @property
    def perk(self) -> UUID:
        return UUID(self.perk_id)

    @property
    def max_cost_units(self) -> int | None:
        """In LTZ's smallest unit."""
        return None if self.max_cost is None else self.max_cost * LTZ


class ClaimMilestoneBody(SiteRequestModel):
    """The milestone to claim, by the days of its streak."""

    milestone_days: Positive

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises MissingMilestone if `milestoneDays` is absent or empty, else InvalidParams."""
        if body.get("milestoneDays") in (None, ""):
            raise MissingMilestone("milestoneDays is required.")
        return super().from_json(body)


class LinkBody(SiteRequestModel):
    """The code that POST /site-links returned to the wallet's owner."""

    code: str = Field(
        min_length=1, description="Case, spaces and hyphens are ignored; I and L are 1, O is 0"
    )

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Raises InvalidParams. An empty code counts as absent."""
        return super().from_json(
            {name: value for name, value in body.items() if value not in (None, "")}
        )


class LeaderboardQuery(SiteRequestModel):
    """Query of GET /leaderboard."""

    metric: Annotated[Metric, BeforeValidator(_one_of(METRICS))] = "ltz_earned"
    period: Annotated[Period, BeforeValidator(_one_of(PERIODS))] = "week"
    limit: LimitText = DEFAULT_LEADERBOARD_LIMIT

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The query as it stands in the URL. Raises InvalidParams with every fault."""
        return cls._from_short(text) if len(text) <= _CACHED_LENGTH else cls._parsed(text)

    @classmethod
    @lru_cache(_CACHED_QUERIES)
    def _from_short(cls, text: str) -> Self:
        return cls._parsed(text)

    @classmethod
    def _parsed(cls, text: str) -> Self:
        return cls.from_query(parse_qs(text, keep_blank_values=True))

    @classmethod
    def from_query(cls, query: Mapping[str, Sequence[str]]) -> Self:
        """Raises InvalidParams with every fault."""
        params = {name: query[name] for name in cls.model_fields if name in query}
        repeated = {
            name: "must be given once" for name, values in params.items() if len(values) > 1
        }
        try:
            leaderboard = cls.from_json(
                {name: values[0] for name, values in params.items() if name not in repeated}
            )
        except InvalidParams as error:
            raise InvalidParams(repeated | error.params) from None
        if repeated:
            raise InvalidParams(repeated)
        return leaderboard


def _number(value: Decimal) -> int | Decimal:
    return int(value) if value == value.to_integral_value() else value


class StreakMilestone(ResponseModel):
    days: int
    bonus: int = Field(description="Whole LTZ")

    @staticmethod
    def body(milestone: Milestone) -> dict[str, object]:
        return {"days": milestone.days, "bonus": milestone.bonus}


class SiteStreak(ResponseModel):
    """A member's check-in streak (spec 2.9)."""

    current_streak: int = Field(description="Days; 0 after a missed day")
    multiplier: Number
    next_milestone: StreakMilestone | None
    unclaimed_milestones: list[StreakMilestone]

    @staticmethod
    def body(streak: StreakSummary) -> dict[str, object]:
        upcoming = streak.next_milestone
        return {
            "currentStreak": streak.current_streak,
            "multiplier": _number(streak.multiplier),
            "nextMilestone": None if upcoming is None else StreakMilestone.body(upcoming),
            "unclaimedMilestones": [
                StreakMilestone.body(milestone) for milestone in streak.unclaimed_milestones
            ],
        }


class CheckInResponse(ResponseModel):
    """The check-in of today, by this request or an earlier one."""

    success: Literal[True]
    streak: SiteStreak
    reward: int = Field(description="Whole LTZ; 0 if the member had checked in before")
    already_claimed: bool

    @staticmethod
    def body(check_in: CheckInResult) -> dict[str, object]:
        return {
            "success": True,
            "streak": SiteStreak.body(check_in.streak),
            "reward": check_in.reward,
            "alreadyClaimed": check_in.already_claimed,
        }


class ClaimMilestoneResponse(ResponseModel):
    """A claimed milestone."""

    success: Literal[True]
    bonus_ltz: int
    milestone: int

    @staticmethod
    def body(days: int, bonus: int) -> dict[str, object]:
        return {"success": True, "bonusLtz": bonus, "milestone": days}


class SitePerk(ResponseModel):
    """A redeemed perk (spec 2.9)."""

    id: str
    name: str
    cost: Number
    category: str


class RedeemResponse(ResponseModel):
    """A redemption. With a 202 its transaction is not mined yet and may still fail."""

    success: Literal[True]
    confirmation_code: str | None = Field(description="Proves the redemption; null with a 202")
    perk: SitePerk

    @staticmethod
    def body(redeemed: RedeemedPerk) -> dict[str, object]:
        redemption = redeemed.redemption
        perk = {
            "id": str(redemption.perk_id),
            "name": redemption.name,
            "cost": ltz_of(redemption.price),
            "category": redemption.category,
        }
        code = None if redeemed.is_pending else redemption.confirmation_code
        return {"success": True, "confirmationCode": code, "perk": perk}


class LeaderboardRow(ResponseModel):
    """A ranked member (spec 2.9)."""

    user_identifier: str = Field(
        description="The same for a user in all answers of this site; another one at other sites"
    )
    username: str
    value: int
    rank: int


class LeaderboardResponse(ResponseModel):
    """The first members with a value above zero."""

    success: Literal[True]
    leaderboard: list[LeaderboardRow]
    metric: Metric
    period: Period
    total: int = Field(description="Number of ranked members")

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


class LinkResponse(ResponseModel):
    """The wallet of the code's owner, which is the member's until the link ends."""

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


class UnlinkResponse(ResponseModel):
    """The member has no link."""

    success: Literal[True]

    @staticmethod
    def body() -> dict[str, object]:
        return {"success": True}


class MemberLink(ResponseModel):
    """The allowance that the wallet's owner gives the member beyond what the brand gave."""

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


class MemberResponse(ResponseModel):
    """The logged-in member."""

    success: Literal[True]
    username: str
    wallet_address: str
    balance: Number = Field(description="LTZ, as of the last indexed block")
    streak: SiteStreak
    linked: bool = Field(description="True if the wallet's owner has linked the member")
    spendable: Number = Field(description="LTZ of the balance that this session may spend now")
    link: MemberLink | None

    @staticmethod
    def body(member: Member, funds: MemberFunds, streak: StreakSummary) -> dict[str, object]:
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


class PerksResponse(ResponseModel):
    """The perks of the brand's site."""

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
