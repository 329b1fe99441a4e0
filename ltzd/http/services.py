"""What the HTTP surfaces need from the rest of ltzd, and the rules they are given."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol
from uuid import UUID

from ltzd.actions.event_handler.record import EventRequest, EventStatus, RecordedEvent
from ltzd.actions.payments import CheckoutRequest, MintedPayment
from ltzd.actions.perk_charges import IndexedHeight, RedeemedCharges, RedeemRequest, SignedReader
from ltzd.actions.pregeneration import PregenerationRequest
from ltzd.actions.relayer.relayer import RelayAnswer, RelayRequest
from ltzd.actions.site_plugin.check_ins import CheckInResult
from ltzd.actions.site_plugin.leaderboards import Leaderboard
from ltzd.actions.site_plugin.links import LinkCode, LinkedWallet
from ltzd.actions.site_plugin.members import AuthenticatedMember
from ltzd.actions.site_plugin.redemptions import MemberFunds, PerkOffer, RedeemedPerk
from ltzd.cache.rate_limits import RateLimits, RateLimitStatus
from ltzd.errors import Refused
from ltzd.http.requests.client_address import NO_PROXIES, Proxies
from ltzd.providers.host_sites import HostCredentials
from ltzd.providers.identity.tokens import TokenUser
from ltzd.providers.payments import CheckoutPage
from ltzd.rules.brands.configuration import Brand, EventRule
from ltzd.rules.perk_charges import Token
from ltzd.rules.relayer.limits import RelayUsage
from ltzd.rules.request_signatures import SignedRequest
from ltzd.rules.site_plugin.leaderboards import Metric, Period
from ltzd.rules.site_plugin.streaks import StreakShown
from ltzd.store.indexer.tokens import TokenPage
from ltzd.store.site_plugin.links import Link
from ltzd.store.site_plugin.members import Member
from ltzd.store.users.pregenerations import RecordedPregeneration
from ltzd.values import Address, Hash32


class Events(Protocol):
    """`actions/event_handler/record.py`, as far as its surface uses it."""

    async def record(self, request: EventRequest) -> RecordedEvent: ...

    async def record_all(
        self, requests: Sequence[EventRequest | Refused]
    ) -> list[RecordedEvent | BaseException]: ...

    async def find(self, event_id: UUID) -> EventStatus: ...

    def configuration(self, brand_id: Address) -> list[EventRule]: ...


class Relays(Protocol):
    """`actions/relayer/relayer.py`, as far as its surface uses it."""

    async def user_of(self, token: str) -> TokenUser:
        """Raises Unauthorized and IdentityUnavailable."""
        ...

    async def standing(self, user: TokenUser, request: RelayRequest) -> RelayUsage:
        """What the user has left. Raises ValidationFailed for a wallet that is not his own."""
        ...

    async def submit(self, request: RelayRequest, standing: RelayUsage) -> RelayAnswer:
        """Raises every other refusal, and TransactionFailed for what would revert."""
        ...

    async def find(self, user: TokenUser, transaction_hash: Hash32) -> RelayAnswer:
        """Raises NotFound, also for another user's."""
        ...


class PerkCharges(Protocol):
    """`actions/perk_charges.py`, as far as its surface uses it.

    What is asked for one brand raises ValidationFailed for another's collection, and NotFound.
    """

    async def brand_of(self, signed: SignedRequest | None) -> Address:
        """Who signed. Raises SignatureRefused."""
        ...

    async def spend(self, reader: SignedReader) -> None:
        """Of a query that is not read. Raises SignatureRefused for a nonce that was used."""
        ...

    async def redeem(self, request: RedeemRequest) -> RedeemedCharges:
        """Spends the nonce with the redemption. Raises every other refusal."""
        ...

    async def token(
        self, reader: SignedReader, collection_id: int, token_id: int
    ) -> tuple[Token, IndexedHeight]:
        """Spends the nonce."""
        ...

    async def holders(
        self, reader: SignedReader, collection_id: int, after: int, limit: int
    ) -> TokenPage:
        """Tokens behind the one named `after`, in order, and how many there are in all.

        Spends the nonce.
        """
        ...


class Constraints(Protocol):
    """What the invalidation endpoints ask of purchase constraints."""

    async def invalidate(
        self, api_key: str | None, api_url: str, user: Address | None, collection_id: int | None
    ) -> int:
        """How many cached results are gone; a brand's key reaches its own, None everybody's.

        Raises Unauthorized for a wrong key.
        """
        ...


class Domains(Protocol):
    """`actions/domain_verification.py`, as far as its surface uses it."""

    async def brand_of(self, domain: str) -> Address | None:
        """Whose the domain is, as its TXT record says. Raises DnsUnavailable."""
        ...


class Payments(Protocol):
    """`actions/payments.py`, as far as its surface uses it."""

    async def open_checkout(self, request: CheckoutRequest) -> CheckoutPage:
        """Raises every refusal, and PaymentsUnavailable where nothing is sold."""
        ...

    async def mint(self, session_id: str) -> MintedPayment:
        """Raises PaymentRefused, and MintPending while no hash is known."""
        ...

    async def hear(self, raw: bytes, signature: str | None) -> None:
        """An event of the provider's. Raises PaymentRefused for what is none."""
        ...


class Pregeneration(Protocol):
    """`actions/pregeneration.py`, as far as its surface uses it."""

    async def admit(
        self, brand_id: Address, signed: SignedRequest | None = None
    ) -> RateLimitStatus:
        """Counts a request; the brand's window of a minute. Raises BrandUnknown, SignatureRefused,
        RateLimited."""
        ...

    async def pregenerate(self, request: PregenerationRequest) -> RecordedPregeneration:
        """Raises AccountRefused, and Unavailable while asking again may help."""
        ...


class SiteMembers(Protocol):
    """`actions/site_plugin/members.py`, as far as the site plugin's surface uses it."""

    def brand_of(self, host: str) -> Brand:
        """Raises SiteUnknown."""
        ...

    async def member(self, host: str, credentials: HostCredentials) -> AuthenticatedMember:
        """Raises SiteUnknown and NotLoggedIn, and what keeps us from knowing who it is."""
        ...

    def is_confirmed(self, host: str, credentials: HostCredentials) -> bool:
        """Whether the site has confirmed this log-in within the hour and not denied it since."""
        ...


class CheckIns(Protocol):
    """`actions/site_plugin/check_ins.py`, as far as its surface uses it."""

    async def check_in(self, member: Member) -> CheckInResult:
        """Raises CheckInRefused."""
        ...

    async def claim_milestone(self, member: Member, days: int) -> int:
        """Its bonus. Raises MilestoneRefused."""
        ...

    async def streak(self, member: Member) -> StreakShown: ...


class Leaderboards(Protocol):
    """`actions/site_plugin/leaderboards.py`, as far as its surface uses it."""

    async def read(
        self, brand: Brand, metric: Metric, period: Period, limit: int
    ) -> Leaderboard: ...


class SiteRedemptions(Protocol):
    """`actions/site_plugin/redemptions.py`, as far as its surface uses it."""

    async def redeem(
        self, brand: Brand, member: Member, perk_id: UUID, max_cost: int | None
    ) -> RedeemedPerk:
        """`max_cost` is in LTZ's smallest unit. Raises RedemptionRefused."""
        ...

    async def funds(self, brand: Brand, member: Member) -> MemberFunds: ...

    async def perks(self, brand: Brand) -> list[PerkOffer]: ...


class SiteLinks(Protocol):
    """`actions/site_plugin/links.py`, as far as the surfaces of owners and of sites use it."""

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


@dataclass(frozen=True, slots=True)
class SiteServices:
    """What is behind the site plugin's surface."""

    members: SiteMembers
    check_ins: CheckIns
    leaderboards: Leaderboards
    redemptions: SiteRedemptions
    links: SiteLinks


@dataclass(frozen=True, slots=True)
class Health:
    """Which services answered a moment ago."""

    database: bool
    blockchain: bool
    identity_provider: bool


@dataclass(frozen=True, slots=True)
class Services:
    events: Events
    health: Callable[[], Awaitable[Health]]
    is_known_domain: Callable[[str], bool]
    """Whether a host is some brand's domain or a subdomain of one; asked about Origins."""
    relays: Relays
    perk_charges: PerkCharges
    constraints: Constraints
    domains: Domains
    payments: Payments
    limits: RateLimits
    pregeneration: Pregeneration
    site: SiteServices


@dataclass(frozen=True, slots=True)
class HttpPolicy:
    own_origins: frozenset[str] = frozenset()
    """Origins of ltzd's own pages, as a browser writes them: scheme://host[:port]."""
    allow_loopback_origins: bool = False
    """Dev mode: pages on this machine may call, over http too."""
    grace_seconds: float = 6.0
    """How long a stopping server lets requests in flight finish."""
    proxies: Proxies = NO_PROXIES
    requires_https: bool = True
    """Refuse what came to a proxy of ours over plain http; dev mode does not."""
    explorer_url: str | None = None
    """Where people look at transactions, without a slash at its end."""
    site_rest_prefix: str = "wp-json"
    site_namespace: str = "loyalty"
    """Parts of the site plugin's paths: /{rest_prefix}/{namespace}/v1."""

    @property
    def site_rest(self) -> str:
        return "/" + self.site_rest_prefix

    @property
    def site_base(self) -> str:
        return f"{self.site_rest}/{self.site_namespace}/v1"
