"""The services that the surfaces call, as protocols, and the policy that they follow."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol
from uuid import UUID

import msgspec

from ltzd.actions.event_handler.batch_decision import RecordedEvent
from ltzd.actions.event_handler.record import EventRequest, EventStatus
from ltzd.actions.payments import CheckoutRequest, MintedPayment
from ltzd.actions.perk_charges import IndexedHeight, RedeemedCharges, RedeemRequest, SignedCaller
from ltzd.actions.pregeneration import PregenerationRequest
from ltzd.actions.relayer.relayer import BegunRelay
from ltzd.actions.site_plugin.check_ins import CheckInResult
from ltzd.actions.site_plugin.leaderboards import Leaderboard
from ltzd.actions.site_plugin.links import LinkCode, LinkedWallet
from ltzd.actions.site_plugin.members import AuthenticatedMember
from ltzd.actions.site_plugin.redemptions import MemberFunds, PerkOffer, RedeemedPerk
from ltzd.cache.rate_limits import RateLimits, RateLimitStatus
from ltzd.errors import Refused
from ltzd.http.requests.client_address import NO_PROXIES, Proxies
from ltzd.http.requests.rate_limits import PER_CLIENT, PerClientLimits
from ltzd.providers.checkouts import CheckoutPage
from ltzd.providers.host_sites import HostCredentials
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.brands.configuration import Brand, EventRule
from ltzd.rules.perk_charges import Token
from ltzd.rules.relayer.calls import RelayProgress, RelayRequest, RelayWindow
from ltzd.rules.request_signatures import SignedRequest
from ltzd.rules.site_plugin.leaderboards import Metric, Period
from ltzd.rules.site_plugin.streaks import StreakSummary
from ltzd.store.indexer.tokens import TokenPage
from ltzd.store.site_plugin.links import Link
from ltzd.store.site_plugin.members import Member
from ltzd.store.users.pregenerations import RecordedPregeneration
from ltzd.values import Address, Hash32


class EventService(Protocol):
    """The part of `actions/event_handler/record.py` that the event handler uses."""

    async def record(self, request: EventRequest) -> RecordedEvent: ...

    async def record_all(
        self, requests: Sequence[EventRequest | Refused]
    ) -> list[RecordedEvent | BaseException]: ...

    async def find(self, event_id: UUID) -> EventStatus: ...

    def configuration(self, brand_id: Address) -> list[EventRule]: ...


class RelayService(Protocol):
    """The part of `actions/relayer/relayer.py` that the relayer's surface uses."""

    async def user_of(self, token: str) -> TokenUser:
        """Raises Unauthorized and IdentityUnavailable."""
        ...

    async def begin(self, user: TokenUser, request: RelayRequest) -> BegunRelay:
        """Read the user's limits. Raises ValidationFailed for another user's wallet."""
        ...

    async def submit(
        self, user: TokenUser, request: RelayRequest, begun: BegunRelay
    ) -> tuple[RelayProgress, RelayWindow]:
        """Raises every other refusal, and TransactionFailed for a call that would revert."""
        ...

    async def find(
        self, user: TokenUser, transaction_hash: Hash32
    ) -> tuple[RelayProgress, RelayWindow]:
        """Raises NotFound, also for another user's relay."""
        ...


class PerkChargeService(Protocol):
    """The part of `actions/perk_charges.py` that its surface uses.

    Every method that names a collection raises ValidationFailed if it is another brand's, and
    NotFound.
    """

    async def brand_of(self, signed: SignedRequest | None) -> Address:
        """The brand that signed the request. Raises SignatureRefused."""
        ...

    async def spend(self, caller: SignedCaller) -> None:
        """Spend the nonce of a redemption or of an invalid query. Raises SignatureRefused if it
        was used before.
        """
        ...

    async def redeem(self, request: RedeemRequest) -> RedeemedCharges:
        """Spend the nonce once more, together with the redemption. Raises every other refusal."""
        ...

    async def token(
        self, caller: SignedCaller, collection_id: int, token_id: int
    ) -> tuple[Token, IndexedHeight]:
        """Spend the nonce."""
        ...

    async def holders(
        self, caller: SignedCaller, collection_id: int, after: int, limit: int
    ) -> TokenPage:
        """Up to `limit` tokens after the token `after`, in order, and the collection's total.

        Spends the nonce.
        """
        ...


class ConstraintService(Protocol):
    """The part of `actions/constraints` that the invalidation endpoints use."""

    async def invalidate(
        self, api_key: str | None, api_url: str, user: Address | None, collection_id: int | None
    ) -> int:
        """The number of invalidated results: of the key's brand, or of every brand without a key.

        Raises Unauthorized for a wrong key.
        """
        ...


class DomainService(Protocol):
    """The part of `actions/domain_verification.py` that verify-dns uses."""

    async def brand_of(self, domain: str) -> Address | None:
        """The brand that the domain's TXT record proves. Raises DnsUnavailable."""
        ...


class PaymentService(Protocol):
    """The part of `actions/payments.py` that its surface uses."""

    async def open_checkout(self, request: CheckoutRequest) -> CheckoutPage:
        """Raises every refusal, and PaymentsUnavailable if payments are not configured."""
        ...

    async def mint(self, session_id: str) -> MintedPayment:
        """Raises PaymentRefused, and MintPending while the mint has no hash."""
        ...

    async def process_event(self, raw: bytes, signature: str | None) -> None:
        """An event of the provider's. Raises PaymentRefused for what is none."""
        ...


class PregenerationService(Protocol):
    """The part of `actions/pregeneration.py` that its surface uses."""

    async def admit(
        self, brand_id: Address, signed: SignedRequest | None = None
    ) -> RateLimitStatus:
        """Count a request and return the brand's window of a minute.

        Raises BrandUnknown, SignatureRefused and RateLimited.
        """
        ...

    async def pregenerate(self, request: PregenerationRequest) -> RecordedPregeneration:
        """Raises AccountRefused, and Unavailable if a repeated request may succeed."""
        ...


class SiteMemberService(Protocol):
    """The part of `actions/site_plugin/members.py` that the site plugin uses."""

    def brand_of(self, host: str) -> Brand:
        """Raises SiteUnknown."""
        ...

    async def member(self, host: str, credentials: HostCredentials) -> AuthenticatedMember:
        """Raises SiteUnknown, NotLoggedIn, NoEmailAddress, and HostSiteUnavailable."""
        ...

    def api_paths_of(self, host: str) -> tuple[str, ...]:
        """The paths of the API at this site itself, or none for a host without a brand."""
        ...

    def is_confirmed(self, host: str, credentials: HostCredentials) -> bool:
        """True if the site confirmed this log-in within the hour and has not denied it since."""
        ...


class CheckInService(Protocol):
    """The part of `actions/site_plugin/check_ins.py` that the site plugin uses."""

    async def check_in(self, member: Member) -> CheckInResult:
        """Raises CheckInRefused."""
        ...

    async def claim_milestone(self, member: Member, days: int) -> int:
        """The bonus in whole LTZ. Raises MilestoneRefused."""
        ...

    async def streak(self, member: Member) -> StreakSummary: ...


class LeaderboardService(Protocol):
    """The part of `actions/site_plugin/leaderboards.py` that the site plugin uses."""

    async def read(
        self, brand: Brand, host: str, metric: Metric, period: Period, limit: int
    ) -> Leaderboard: ...


class SiteRedemptionService(Protocol):
    """The part of `actions/site_plugin/redemptions.py` that the site plugin uses."""

    async def redeem(
        self, brand: Brand, member: Member, perk_id: UUID, max_cost: int | None
    ) -> RedeemedPerk:
        """`max_cost` is in LTZ's smallest unit. Raises RedemptionRefused."""
        ...

    async def funds(self, brand: Brand, member: Member) -> MemberFunds: ...

    async def perks(self, brand: Brand) -> list[PerkOffer]: ...


class SiteLinkService(Protocol):
    """The part of `actions/site_plugin/links.py` that the site plugin and /site-links use."""

    async def owner_of(self, token: str) -> TokenUser:
        """Raises Unauthorized and IdentityUnavailable."""
        ...

    async def new_code(self, owner: TokenUser, host: str, daily_allowance: int) -> LinkCode:
        """Raises NotFound for a host of no site, ValidationFailed, RateLimited."""
        ...

    async def links_of(self, owner: TokenUser) -> list[Link]: ...

    async def end_at(self, owner: TokenUser, host: str) -> None:
        """Raises NotFound."""
        ...

    async def link(self, member: Member, typed: str) -> LinkedWallet:
        """Raises LinkRefused, TooManyAttempts."""
        ...

    async def end(self, member: Member) -> None: ...


class SiteServices(msgspec.Struct, frozen=True):
    """The services of the site plugin."""

    members: SiteMemberService
    check_ins: CheckInService
    leaderboards: LeaderboardService
    redemptions: SiteRedemptionService
    links: SiteLinkService


class Health(msgspec.Struct, frozen=True):
    """The services that answered a moment ago.

    `nodes_disagree`: each node that answers contradicts other nodes or itself. `index_is_old`:
    the answers are those of an old block, or there is no block yet.
    """

    database: bool
    blockchain: bool
    identity_provider: bool
    nodes_disagree: bool = False
    index_is_old: bool = False


class Services(msgspec.Struct, frozen=True):
    """The services of every surface."""

    events: EventService
    health: Callable[[], Awaitable[Health]]
    is_known_domain: Callable[[str], bool]
    """True for a brand's domain or a subdomain of it. CORS calls it with the host of an Origin."""
    relays: RelayService
    perk_charges: PerkChargeService
    constraints: ConstraintService
    domains: DomainService
    payments: PaymentService
    limits: RateLimits
    pregeneration: PregenerationService
    site: SiteServices
    is_known_brand: Callable[[str], bool] = lambda _brand: True
    """Whether there is a brand of this id, in lower case."""


class HttpPolicy(msgspec.Struct, frozen=True):
    own_origins: frozenset[str] = frozenset()
    """Origins of ltzd's own pages, as a browser sends them: scheme://host[:port]."""
    allow_loopback_origins: bool = False
    """Dev mode: pages on this machine may call, also over http."""
    per_client: PerClientLimits = PER_CLIENT
    body_seconds: float = 30.0
    """For a whole body to arrive: Sanic's own timeout restarts with every byte."""
    max_connections: int = 16_384
    """Connections that are open at once; the limit of open files may allow fewer."""
    grace_seconds: float = 70.0
    """How long a stopping server waits for requests in flight: longer than a relay or a redemption
    waits for its block."""
    proxies: Proxies = NO_PROXIES
    requires_https: bool = True
    """Refuse a request that reached a trusted proxy over plain HTTP. False in dev mode."""
    logs_requests: bool = False
    """Whether each request is a line of the log, without its query, headers and body."""
    explorer_url: str | None = None
    """The block explorer, without a slash at its end."""
    site_rest_prefix: str = "wp-json"
    site_namespace: str = "loyalty"
    """Parts of the site plugin's paths: /{site_rest_prefix}/{site_namespace}/v1."""

    @property
    def site_rest(self) -> str:
        return "/" + self.site_rest_prefix

    @property
    def site_base(self) -> str:
        return f"{self.site_rest}/{self.site_namespace}/v1"
