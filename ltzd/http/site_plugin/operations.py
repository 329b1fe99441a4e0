"""How the site plugin's API is described to the OpenAPI document, each answer with examples.

Examples are made by the code that answers. Where the paths lie, the settings say.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

from pydantic import BaseModel

from ltzd.actions.site_plugin.check_ins import CheckInResult
from ltzd.actions.site_plugin.leaderboards import Leaderboard, LeaderboardEntry
from ltzd.actions.site_plugin.links import LinkedWallet
from ltzd.actions.site_plugin.members import no_email
from ltzd.actions.site_plugin.redemptions import MemberFunds, PerkOffer, RedeemedPerk
from ltzd.errors import (
    CheckInRefused,
    DatabaseUnavailable,
    HostSiteBusy,
    HostSiteUnavailable,
    LinkRefused,
    LtzdError,
    MilestoneRefused,
    NotLoggedIn,
    RedemptionRefused,
    Refused,
    SiteUnknown,
    TooManyAttempts,
)
from ltzd.http.errors import BodyTooLarge, BodyUnreadable, answer_of
from ltzd.http.openapi.operations import AnswerHeader, Examples, Operation, Parameter
from ltzd.http.services import HttpPolicy
from ltzd.http.site_plugin import errors as site_errors
from ltzd.http.site_plugin.errors import SiteErrors
from ltzd.http.site_plugin.handlers import BODY_LIMIT
from ltzd.http.site_plugin.log_in_limit import limited
from ltzd.http.site_plugin.models import (
    DEFAULT_RANKED,
    METRICS,
    MOST_RANKED,
    PERIODS,
    CheckInAnswer,
    LeaderboardAnswer,
    LeaderboardQuery,
    LinkAnswer,
    LinkOrder,
    MemberAnswer,
    MilestoneAnswer,
    MilestoneOrder,
    PerkOrder,
    PerkRedeemedAnswer,
    PerksAnswer,
    SiteRefusal,
    UnlinkAnswer,
)
from ltzd.rules.brands.configuration import Perk
from ltzd.rules.site_plugin.redemptions import check_cost, code_of
from ltzd.rules.site_plugin.spending import Allowance, Payment, pay
from ltzd.rules.site_plugin.streaks import Milestone, StreakShown
from ltzd.store.site_plugin.members import Member
from ltzd.store.site_plugin.redemptions import SiteRedemption
from ltzd.store.site_plugin.spending import ActiveLink
from ltzd.values import LTZ, address_of

_PERK = Perk(
    id="6f1c2a4e-9d1b-4b7e-8f43-2f8f0e1c5a77", name="Free coffee", category="drinks", item_id=1
)
_REDEMPTION = SiteRedemption(
    id=UUID("0b8f7c1a-52d3-4f7e-9a44-3a0c2f6d9e10"),
    brand=address_of("0x" + "ab" * 20),
    wallet=address_of("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed"),
    perk_id=UUID(_PERK.id),
    name=_PERK.name,
    category=_PERK.category,
    collection_id=None,
    item_id=1,
    price=25 * LTZ,
    confirmation_code=code_of(bytes(range(1, 17))),
)
_MEMBER = Member(
    brand_id=_REDEMPTION.brand,
    host="site.example",
    site_user_id=42,
    username="ada",
    user_id=UUID("6a6f7d0e-2f53-5b0c-9d3a-8d1d0f5f5a11"),
    wallet=_REDEMPTION.wallet,
    subject=None,
)
_LINK = ActiveLink(
    id=_REDEMPTION.id,
    expires_at=datetime(2026, 9, 10, 9, 30, tzinfo=UTC),
    day=date(2026, 3, 14),
    allowance=Allowance(500 * LTZ, 40 * LTZ),
)
_STREAK = StreakShown(
    current_streak=8,
    multiplier=Decimal("1.5"),
    next_milestone=Milestone(30, 250),
    unclaimed_milestones=(Milestone(7, 50),),
)
_BOARD = Leaderboard(
    entries=(
        LeaderboardEntry("9d2c6a1f0b7e48c3a5d41e8f7b6a2c90", "ada", 320, 1),
        LeaderboardEntry("41e8f7b6a2c909d2c6a1f0b7e48c3a5d", "member-41e8f7", 75, 2),
    ),
    total=2,
)

_BODY_FAULTS: Mapping[str, Refused] = {
    "unreadable body": BodyUnreadable("Content-Type must be application/json"),
    "body too large": BodyTooLarge(f"Request body is larger than {BODY_LIMIT} bytes"),
}
_ANYWHERE: Mapping[str, LtzdError] = {
    "no such site": SiteUnknown("No loyalty programme is configured for this site."),
    "database away": DatabaseUnavailable(""),
    "internal error": LtzdError(""),
}
_LOG_IN_FAULTS: Mapping[str, LtzdError] = {
    "not logged in": NotLoggedIn("You are not logged in at this site."),
    "no e-mail address": no_email(),
    "host site away": HostSiteUnavailable(""),
    "host site busy": HostSiteBusy(""),
    "too many failed log-ins": limited(42),
}
_REFUSED: Mapping[int, str] = {
    400: "Unreadable body, missing or invalid parameters, or not to be had: the message says why",
    401: "Nobody is logged in with what was sent",
    413: f"Body over {BODY_LIMIT:,} bytes",
    429: "Too many log-ins of the address failed at this host, or too many codes were wrong",
    503: "Too many requests wait for this host's site",
    500: "The Host is no brand's site, or nobody can tell at the moment",
}
_LOG_IN = (
    Parameter("X-WP-Nonce", "header", {"type": "string"}, required=False),
    Parameter("Authorization", "header", {"type": "string"}, required=False),
)
_LIMITED = (
    AnswerHeader(
        "Retry-After", "Seconds to wait", {"type": "integer"}, statuses=frozenset({429, 503})
    ),
    AnswerHeader(
        "X-RateLimit-Limit",
        "Failed log-ins that an address may have a minute at one host",
        {"type": "integer"},
        statuses=frozenset({429}),
    ),
    AnswerHeader(
        "X-RateLimit-Remaining", "None are left", {"type": "integer"}, statuses=frozenset({429})
    ),
    AnswerHeader(
        "X-RateLimit-Reset",
        "Unix seconds when the window ends",
        {"type": "integer"},
        statuses=frozenset({429}),
    ),
)
_FRESH_NONCE = AnswerHeader(
    "X-WP-Nonce", "A fresh nonce of the same log-in, where the site gave one", {"type": "string"}
)


@dataclass(frozen=True, slots=True)
class _Endpoint:
    """`good` has each good answer's status, description, model and examples."""

    method: str
    name: str
    summary: str
    good: tuple[tuple[int, str, type[BaseModel], Examples], ...]
    faults: Mapping[str, LtzdError]
    needs_log_in: bool = True
    request: type[BaseModel] | None = None
    request_examples: Mapping[str, Mapping[str, object]] = field(default_factory=dict)
    query: tuple[Parameter, ...] = ()

    def operation(self, errors: SiteErrors) -> Operation:
        path = f"{errors.base}/{self.name}"
        refusals = self._refusals(errors, path)
        good = {status: (text, model) for status, text, model, _ in self.good}
        examples: dict[int, Examples] = {status: shown for status, _, _, shown in self.good}
        return Operation(
            self.method,
            path,
            self.summary,
            answers=good | {status: (_REFUSED[status], SiteRefusal) for status in sorted(refusals)},
            request=self.request,
            parameters=(*self.query, *(_LOG_IN if self.needs_log_in else ())),
            request_examples=self.request_examples,
            examples={**examples, **refusals},
            headers=(_FRESH_NONCE, *_LIMITED) if self.needs_log_in else (),
        )

    def _refusals(self, errors: SiteErrors, path: str) -> dict[int, dict[str, dict[str, object]]]:
        faults = {**_ANYWHERE, **(_LOG_IN_FAULTS if self.needs_log_in else {})}
        faults |= {**(_BODY_FAULTS if self.request is not None else {}), **self.faults}
        by_status: dict[int, dict[str, dict[str, object]]] = {}
        for name, error in faults.items():
            status, body = errors.reply(path, answer_of(error))
            by_status.setdefault(status, {})[name] = body
        return by_status


def _refused(check: Callable[[], object]) -> Refused:
    """What is said to this."""
    try:
        check()
    except Refused as refusal:
        return refusal
    raise AssertionError("the example is to be refused")


_ENDPOINTS = (
    _Endpoint(
        "POST",
        site_errors.CHECK_IN,
        "Claim today, by the calendar of the brand's time zone; a body is ignored",
        good=(
            (
                200,
                "Today is claimed, by this request or an earlier one",
                CheckInAnswer,
                {
                    "claimed": CheckInAnswer.body(
                        CheckInResult(_STREAK, 15, already_claimed=False)
                    ),
                    "again": CheckInAnswer.body(CheckInResult(_STREAK, 0, already_claimed=True)),
                },
            ),
        ),
        faults={"budget spent": CheckInRefused("Today's rewards have all been given out.")},
    ),
    _Endpoint(
        "POST",
        site_errors.REDEEM,
        "Redeem a perk with the member's wallet; the same perk again, while one is open or within "
        "a minute of its answer, is the same redemption",
        good=(
            (
                200,
                "The perk is the member's",
                PerkRedeemedAnswer,
                {"redeemed": PerkRedeemedAnswer.body(RedeemedPerk(_REDEMPTION, is_pending=False))},
            ),
            (
                202,
                "Sent and not mined yet: ask again for the code",
                PerkRedeemedAnswer,
                {"pending": PerkRedeemedAnswer.body(RedeemedPerk(_REDEMPTION, is_pending=True))},
            ),
        ),
        faults={
            "missing perk": _refused(lambda: PerkOrder.from_json({})),
            "malformed perk": _refused(lambda: PerkOrder.from_json({"perkId": "coffee"})),
            "malformed cost": _refused(
                lambda: PerkOrder.from_json({"perkId": _PERK.id, "maxCost": -1})
            ),
            "dearer": _refused(lambda: check_cost(30 * LTZ, 25 * LTZ)),
            "beyond the session": _refused(
                lambda: pay(30 * LTZ, Payment(earned=10 * LTZ), is_linked=False)
            ),
            "sold out": RedemptionRefused("This perk is sold out."),
        },
        request=PerkOrder,
        request_examples={"a perk": {"perkId": _PERK.id, "maxCost": 25}},
    ),
    _Endpoint(
        "POST",
        site_errors.CLAIM_MILESTONE,
        "Claim the bonus of a milestone that the member's longest streak has reached, once",
        good=(
            (
                200,
                "The milestone is claimed",
                MilestoneAnswer,
                {"claimed": MilestoneAnswer.body(days=7, bonus=50)},
            ),
        ),
        faults={
            "missing milestone": _refused(lambda: MilestoneOrder.from_json({})),
            "malformed milestone": _refused(lambda: MilestoneOrder.from_json({"milestoneDays": 0})),
            "claimed already": MilestoneRefused("You have claimed this milestone already."),
        },
        request=MilestoneOrder,
        request_examples={"a week": {"milestoneDays": 7}},
    ),
    _Endpoint(
        "POST",
        site_errors.LINK,
        "Type the code of a wallet's owner (POST /site-links): the member has that wallet, and may "
        "spend its daily allowance, until the link ends",
        good=(
            (
                200,
                "The member's wallet: the old one if it is the owner's",
                LinkAnswer,
                {"linked": LinkAnswer.body(LinkedWallet(_MEMBER.wallet, 500))},
            ),
        ),
        faults={
            "missing code": _refused(lambda: LinkOrder.from_json({})),
            "wrong code": LinkRefused(
                "This code is wrong, or has expired, or was used. Please get a new one."
            ),
            "too many wrong codes": TooManyAttempts(
                "You have typed too many wrong codes. Please try again in 10 minutes with a new "
                "code.",
                retryAfterSeconds=600,
            ),
        },
        request=LinkOrder,
        request_examples={"a code": {"code": "7KQ2-M9XA"}},
    ),
    _Endpoint(
        "DELETE",
        site_errors.LINK,
        "End the member's link, if there is one",
        good=((200, "There is none now", UnlinkAnswer, {"unlinked": UnlinkAnswer.body()}),),
        faults={},
    ),
    _Endpoint(
        "GET",
        site_errors.LEADERBOARD,
        "Who has earned most LTZ, done most, or come longest day after day",
        good=(
            (
                200,
                "The first of those who are above zero; equal values keep their order",
                LeaderboardAnswer,
                {"of this week": LeaderboardAnswer.body(LeaderboardQuery(), _BOARD)},
            ),
        ),
        faults={
            "invalid parameters": _refused(
                lambda: LeaderboardQuery.from_query({"metric": ["fame"], "limit": ["0"]})
            )
        },
        needs_log_in=False,
        query=(
            Parameter(
                "metric",
                "query",
                {"type": "string", "enum": list(METRICS), "default": METRICS[0]},
                required=False,
            ),
            Parameter(
                "period",
                "query",
                {"type": "string", "enum": list(PERIODS), "default": PERIODS[0]},
                required=False,
            ),
            Parameter(
                "limit",
                "query",
                {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": MOST_RANKED,
                    "default": DEFAULT_RANKED,
                },
                required=False,
            ),
        ),
    ),
    _Endpoint(
        "GET",
        site_errors.ME,
        "Who is logged in, with the wallet, its LTZ, what this session may spend, and the streak",
        good=(
            (
                200,
                "The member",
                MemberAnswer,
                {
                    "a member": MemberAnswer.body(
                        _MEMBER, MemberFunds(1_250 * LTZ, 320 * LTZ, None), _STREAK
                    ),
                    "a linked one": MemberAnswer.body(
                        _MEMBER, MemberFunds(1_250 * LTZ, 780 * LTZ, _LINK), _STREAK
                    ),
                },
            ),
        ),
        faults={},
    ),
    _Endpoint(
        "GET",
        site_errors.PERKS,
        "The perks that can be redeemed at this site",
        good=(
            (
                200,
                "In the order of the brand's file",
                PerksAnswer,
                {"perks": PerksAnswer.body([PerkOffer(_PERK, 25 * LTZ, is_available=True)])},
            ),
        ),
        faults={},
        needs_log_in=False,
    ),
)


def operations(policy: HttpPolicy) -> tuple[Operation, ...]:
    errors = SiteErrors(policy.site_rest, policy.site_base)
    return tuple(endpoint.operation(errors) for endpoint in _ENDPOINTS)
