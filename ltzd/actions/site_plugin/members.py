"""Authenticates the members of brands' sites: the Host names the brand, the site names the user.

A user of a site is a member, with the wallet of the user's e-mail address, as for events. The
member, or an administrator of the site, may have entered somebody else's address; so only the
wallet's owner can link a member with it (`links.py`). Addresses are neither logged nor shown.
"""

from urllib.parse import urlsplit

import msgspec
import structlog
from msgspec.structs import replace

from ltzd.actions.users.registration import UserRegistration
from ltzd.errors import (
    HostSiteUnavailable,
    InvalidFields,
    NotLoggedIn,
    Refused,
    SiteUnknown,
)
from ltzd.providers.email_addresses import proven_address
from ltzd.providers.host_sites import HostCredentials, HostSiteClient, SiteUser
from ltzd.rules.brands.configuration import Brand
from ltzd.store.brands.configurations import BrandCache
from ltzd.store.database import Pool, session
from ltzd.store.site_plugin import links as site_links
from ltzd.store.site_plugin import members as site_members
from ltzd.store.site_plugin.members import Member, MemberRecord
from ltzd.store.users import users
from ltzd.values import hex_of

log = structlog.get_logger()

LONGEST_USERNAME = 320
"""Characters. No e-mail address is longer; a shortened one could not be recognised as one."""
ACCOUNT_CHANGED = "Your account at this site has just changed. Please try again."
_MOST_USERS = 2**63 - 1


class NoEmailAddress(Refused):
    """The site gives no usable e-mail address for its user, who has no wallet then."""


class SitePolicy(msgspec.Struct, frozen=True):
    """Where sites are, and under which path ltzd serves them, unless the brand's file says
    otherwise.
    """

    base_url: str = "https://{host}"
    rest_prefix: str = "wp-json"
    namespace: str = "loyalty"

    def base_url_of(self, brand: Brand, host: str) -> str:
        own = None if brand.site is None else brand.site.url_of(host)
        return own or self.base_url.replace("{host}", host)

    def rest_prefix_of(self, brand: Brand) -> str:
        own = None if brand.site is None else brand.site.rest_prefix
        return own or self.rest_prefix

    def api_paths_of(self, brand: Brand, host: str) -> tuple[str, ...]:
        """The paths of the site plugin's API at the site itself, with and without its folder."""
        if brand.site is None:
            return ()
        namespace = brand.site.namespace or self.namespace
        path = f"/{self.rest_prefix_of(brand)}/{namespace}/v1"
        folder = urlsplit(brand.site.url_of(host) or "").path
        return (folder + path, path) if folder else (path,)


class AuthenticatedMember(msgspec.Struct, frozen=True):
    """`nonce` is a new nonce of the same log-in, to be returned to the site's page."""

    member: Member
    nonce: str | None


class SiteMembers:
    def __init__(
        self,
        pool: Pool,
        brands: BrandCache,
        registration: UserRegistration,
        host_sites: HostSiteClient,
        policy: SitePolicy,
    ) -> None:
        self._pool = pool
        self._brands = brands
        self._registration = registration
        self._host_sites = host_sites
        self._policy = policy

    def brand_of(self, host: str) -> Brand:
        """Return the brand whose site is at `host`, in normal form. Raises SiteUnknown."""
        brand = self._brands.with_site(host)
        if brand is None:
            raise SiteUnknown("No loyalty programme is configured for this site.")
        return brand

    def api_paths_of(self, host: str) -> tuple[str, ...]:
        """Return the paths of the API at this site itself; empty for a host without a brand."""
        brand = self._brands.with_site(host)
        return () if brand is None else self._policy.api_paths_of(brand, host)

    async def member(self, host: str, credentials: HostCredentials) -> AuthenticatedMember:
        """Return the member that these credentials log in.

        Raises SiteUnknown, NotLoggedIn, NoEmailAddress, RateLimited for too many new wallets, and
        Unavailable.
        """
        brand = self.brand_of(host)
        user = await self._user_of(brand, host, credentials)
        email = _email_of(user)
        async with session(self._pool) as connection:
            known = await site_members.find(connection, brand.address, host, user.id)
            if known is not None and known.is_visit_due:
                await site_members.write_visit(connection, known.member)
        username, key = _shown_name(user.username), users.email_key(email)
        if known is None or known.email_key != key:
            member = await self._add_member(brand, host, user.id, username, email)
        elif known.has_ended_link:
            member = await self._settle(known)
        elif known.member.username != username:
            member = await self._rename(known, username)
        else:
            member = known.member
        return AuthenticatedMember(
            replace(member, email_confirmed=user.email_confirmed), user.nonce
        )

    def is_confirmed(self, host: str, credentials: HostCredentials) -> bool:
        """Return whether the site has confirmed this log-in in the last hour, and not denied it."""
        brand = self._brands.with_site(host)
        return brand is not None and self._host_sites.was_recently_valid(
            self._policy.base_url_of(brand, host), credentials, self._policy.rest_prefix_of(brand)
        )

    async def _user_of(self, brand: Brand, host: str, credentials: HostCredentials) -> SiteUser:
        user = await self._host_sites.user_of(
            self._policy.base_url_of(brand, host), credentials, self._policy.rest_prefix_of(brand)
        )
        if user is None:
            raise NotLoggedIn("You are not logged in at this site.")
        if user.id > _MOST_USERS:
            raise HostSiteUnavailable("The host site gave no usable answer: the id is too large")
        return user

    async def _add_member(
        self, brand: Brand, host: str, site_user_id: int, username: str, email: str
    ) -> Member:
        """Add a member who is new, or whose e-mail address has changed."""
        try:
            user = await self._registration.user_of(email, brand)
        except InvalidFields as refusal:
            raise no_email() from refusal
        met = Member(brand.address, host, site_user_id, username, user.id, user.wallet, None)
        async with session(self._pool) as connection:
            member = await site_members.save(connection, met, users.email_key(email))
        _log("site_member.created", member)
        return member

    async def _rename(self, known: MemberRecord, username: str) -> Member:
        met = replace(known.member, username=username)
        async with session(self._pool) as connection:
            return await site_members.save(connection, met, known.email_key)

    async def _settle(self, known: MemberRecord) -> Member:
        """Give a member whose link has ended the wallet of the e-mail address again."""
        member = known.member
        async with session(self._pool) as connection:
            await site_links.clear_ended_link(connection, member)
            settled = await site_members.find(
                connection, member.brand_id, member.host, member.site_user_id
            )
        assert settled is not None, "members are never deleted"
        _log("site_member.link_ended", settled.member)
        return settled.member


def _email_of(user: SiteUser) -> str:
    """Raises NoEmailAddress, also for an address that could be mistaken for another person's.

    The form of the address is checked by the identity provider.
    """
    if user.email is None or proven_address(user.email) is None:
        raise no_email()
    return user.email


def no_email() -> NoEmailAddress:
    return NoEmailAddress(
        "Your account at this site has no usable e-mail address, so it has no wallet. "
        "Please add one to your profile."
    )


def _shown_name(username: str) -> str:
    """Drop characters that cannot be stored or that change the direction of a page's text."""
    return "".join(filter(str.isprintable, username))[:LONGEST_USERNAME]


def _log(event: str, member: Member) -> None:
    log.info(
        event,
        brand=hex_of(member.brand_id),
        host=member.host,
        site_user=member.site_user_id,
        wallet=hex_of(member.wallet),
        is_linked=member.subject is not None,
    )
