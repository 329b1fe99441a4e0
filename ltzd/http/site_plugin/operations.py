"""The site plugin's API as the OpenAPI document describes it. The settings fix its paths."""

from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

from ltzd.actions.site_plugin.check_ins import CheckInResult
from ltzd.actions.site_plugin.leaderboards import Leaderboard, LeaderboardEntry
from ltzd.actions.site_plugin.links import LinkedWallet
from ltzd.actions.site_plugin.members import no_email
from ltzd.actions.site_plugin.redemptions import MemberFunds, PerkOffer, RedeemedPerk
from ltzd.errors import LtzdError, RateLimited, RedemptionRefused
from ltzd.http.openapi.operations import (
    AGE,
    Credential,
    Operation,
    Parameter,
    Response,
    ResponseHeader,
    error_of,
)
from ltzd.http.services import HttpPolicy
from ltzd.http.site_plugin import errors
from ltzd.http.site_plugin.errors import SitePluginErrors
from ltzd.http.site_plugin.handlers import BODY_LIMIT, NONCE_HEADER, SitePluginHandlers
from ltzd.http.site_plugin.log_in_limit import too_many_log_ins
from ltzd.http.site_plugin.models import (
    DEFAULT_LEADERBOARD_LIMIT,
    MAX_LEADERBOARD_LIMIT,
    METRICS,
    PERIODS,
    CheckInResponse,
    ClaimMilestoneBody,
    ClaimMilestoneResponse,
    LeaderboardQuery,
    LeaderboardResponse,
    LinkBody,
    LinkResponse,
    MemberResponse,
    PerksResponse,
    RedeemBody,
    RedeemResponse,
    UnlinkResponse,
)
from ltzd.rules.brands.configuration import Perk
from ltzd.rules.event_handler.brand_limits import RATE_REASON
from ltzd.rules.site_plugin.redemptions import check_cost, code_of
from ltzd.rules.site_plugin.spending import Allowance, PotAmounts, pay
from ltzd.rules.site_plugin.streaks import Milestone, StreakSummary
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
_STREAK = StreakSummary(
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

_LOG_IN_EXAMPLES: dict[str, LtzdError] = {
    "no e-mail address": no_email(),
    "too many failed log-ins": too_many_log_ins(42),
    "too many new members": RateLimited(
        "Rate limit exceeded", reason=RATE_REASON, retryAfterSeconds=600
    ),
}
_LOG_IN = (
    Parameter(
        NONCE_HEADER,
        "header",
        {"type": "string"},
        required=False,
        description="The REST nonce of the log-in whose cookies of the site the request carries",
    ),
)
_PASSWORD = Credential(
    "applicationPassword",
    "basic",
    "A user's name and application password at the site, in place of the site's cookies and the "
    f"{NONCE_HEADER} header",
    required=False,
)
_FRESH_NONCE = (
    ResponseHeader(
        NONCE_HEADER, "A fresh nonce of the same log-in, if the site gave one", {"type": "string"}
    ),
)


def operations(policy: HttpPolicy) -> tuple[Operation, ...]:
    base, error_format = policy.site_base, SitePluginErrors(policy.site_base)
    return (
        Operation(
            SitePluginHandlers.check_in,
            "POST",
            f"{base}/{errors.CHECK_IN}",
            "Check in for today, in the brand's time zone. A body is ignored",
            parameters=_LOG_IN,
            credential=_PASSWORD,
            headers=_FRESH_NONCE,
            success={
                200: Response(
                    "Checked in, by this request or an earlier one",
                    CheckInResponse,
                    {
                        "claimed": CheckInResponse.body(
                            CheckInResult(_STREAK, 15, already_claimed=False)
                        ),
                        "again": CheckInResponse.body(
                            CheckInResult(_STREAK, 0, already_claimed=True)
                        ),
                    },
                ),
            },
            errors=error_format,
            error_examples=_LOG_IN_EXAMPLES,
        ),
        Operation(
            SitePluginHandlers.redeem,
            "POST",
            f"{base}/{errors.REDEEM}",
            "Redeem a perk with the member's wallet. The same perk again, while a redemption is "
            "open or within a minute of its response, is the same redemption",
            request=RedeemBody,
            request_examples={"a perk": {"perkId": _PERK.id, "maxCost": 25}},
            parameters=_LOG_IN,
            credential=_PASSWORD,
            headers=_FRESH_NONCE,
            success={
                200: Response(
                    "Redeemed",
                    RedeemResponse,
                    {"redeemed": RedeemResponse.body(RedeemedPerk(_REDEMPTION, is_pending=False))},
                ),
                202: Response(
                    "Sent, but not mined: repeat the request for the code",
                    RedeemResponse,
                    {"pending": RedeemResponse.body(RedeemedPerk(_REDEMPTION, is_pending=True))},
                ),
            },
            errors=error_format,
            error_examples={
                **_LOG_IN_EXAMPLES,
                "missing perk": error_of(lambda: RedeemBody.from_json({})),
                "malformed perk": error_of(lambda: RedeemBody.from_json({"perkId": "coffee"})),
                "malformed cost": error_of(
                    lambda: RedeemBody.from_json({"perkId": _PERK.id, "maxCost": -1})
                ),
                "price is higher": error_of(lambda: check_cost(30 * LTZ, 25 * LTZ)),
                "more than the session may spend": error_of(
                    lambda: pay(30 * LTZ, PotAmounts(earned=10 * LTZ), is_linked=False)
                ),
                "sold out": RedemptionRefused("This perk is sold out."),
            },
            body_limit=BODY_LIMIT,
        ),
        Operation(
            SitePluginHandlers.claim_milestone,
            "POST",
            f"{base}/{errors.CLAIM_MILESTONE}",
            "Claim the bonus of a milestone that the member's longest streak has reached, once",
            request=ClaimMilestoneBody,
            request_examples={"a week": {"milestoneDays": 7}},
            parameters=_LOG_IN,
            credential=_PASSWORD,
            headers=_FRESH_NONCE,
            success={
                200: Response(
                    "Claimed",
                    ClaimMilestoneResponse,
                    {"claimed": ClaimMilestoneResponse.body(days=7, bonus=50)},
                ),
            },
            errors=error_format,
            error_examples={
                **_LOG_IN_EXAMPLES,
                "missing milestone": error_of(lambda: ClaimMilestoneBody.from_json({})),
                "malformed milestone": error_of(
                    lambda: ClaimMilestoneBody.from_json({"milestoneDays": 0})
                ),
            },
            body_limit=BODY_LIMIT,
        ),
        Operation(
            SitePluginHandlers.link,
            "POST",
            f"{base}/{errors.LINK}",
            "Enter the code of a wallet's owner (POST /site-links). Until the link ends the member "
            "has that wallet, and may spend its daily allowance",
            request=LinkBody,
            request_examples={"a code": {"code": "7KQ2-M9XA"}},
            parameters=_LOG_IN,
            credential=_PASSWORD,
            headers=_FRESH_NONCE,
            success={
                200: Response(
                    "The member's wallet, which does not change if it is the owner's already",
                    LinkResponse,
                    {"linked": LinkResponse.body(LinkedWallet(_MEMBER.wallet, 500))},
                ),
            },
            errors=error_format,
            error_examples={
                **_LOG_IN_EXAMPLES,
                "missing code": error_of(lambda: LinkBody.from_json({})),
            },
            body_limit=BODY_LIMIT,
        ),
        Operation(
            SitePluginHandlers.unlink,
            "DELETE",
            f"{base}/{errors.LINK}",
            "End the member's link, if there is one",
            parameters=_LOG_IN,
            credential=_PASSWORD,
            headers=_FRESH_NONCE,
            success={
                200: Response(
                    "The member has no link",
                    UnlinkResponse,
                    {"unlinked": UnlinkResponse.body()},
                ),
            },
            errors=error_format,
            error_examples=_LOG_IN_EXAMPLES,
        ),
        Operation(
            SitePluginHandlers.leaderboard,
            "GET",
            f"{base}/{errors.LEADERBOARD}",
            "Rank members by earned LTZ, activity or streak",
            parameters=_LEADERBOARD_QUERY,
            success={
                200: Response(
                    "The first members with a value above zero; equal values keep their order",
                    LeaderboardResponse,
                    {"this week": LeaderboardResponse.body(LeaderboardQuery(), _BOARD)},
                    headers=(AGE,),
                ),
            },
            errors=error_format,
            error_examples={
                "invalid parameters": error_of(
                    lambda: LeaderboardQuery.from_query({"metric": ["fame"], "limit": ["0"]})
                )
            },
        ),
        Operation(
            SitePluginHandlers.me,
            "GET",
            f"{base}/{errors.ME}",
            "Read the logged-in member: wallet, balance, what this session may spend, and streak",
            parameters=_LOG_IN,
            credential=_PASSWORD,
            headers=_FRESH_NONCE,
            success={
                200: Response(
                    "The member",
                    MemberResponse,
                    {
                        "a member": MemberResponse.body(
                            _MEMBER, MemberFunds(1_250 * LTZ, 320 * LTZ, None), _STREAK
                        ),
                        "a linked member": MemberResponse.body(
                            _MEMBER, MemberFunds(1_250 * LTZ, 780 * LTZ, _LINK), _STREAK
                        ),
                    },
                ),
            },
            errors=error_format,
            error_examples=_LOG_IN_EXAMPLES,
        ),
        Operation(
            SitePluginHandlers.perks,
            "GET",
            f"{base}/{errors.PERKS}",
            "List the perks that can be redeemed at this site",
            success={
                200: Response(
                    "In the order of the brand's file",
                    PerksResponse,
                    {"perks": PerksResponse.body([PerkOffer(_PERK, 25 * LTZ, is_available=True)])},
                    headers=(AGE,),
                ),
            },
            errors=error_format,
        ),
    )


_LEADERBOARD_QUERY = (
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
            "maximum": MAX_LEADERBOARD_LIMIT,
            "default": DEFAULT_LEADERBOARD_LIMIT,
        },
        required=False,
    ),
)
