"""Links a member of a brand's site with the wallet of an owner who has logged in to ltzd.

The owner gets a code from ltzd, with an access token, and the member types it at the site. So the
site never holds a token, and a link is for one member, a limited time and a daily allowance. A code
names its site, is valid for ten minutes, works once, and is stored as a keyed hash. If the database
is lost while a link is committed, the member's next request with the code finds the link.

A linked member uses the wallet of the member's e-mail address if that is one of the owner's, and
the owner's first wallet otherwise. A member with the same address is never linked to a second
owner's wallet, even after the first link has ended: with many wallets in turn a member could check
in and claim free perks once with each. Returning to the address's own wallet is allowed.
"""

import secrets
from contextlib import suppress
from datetime import datetime

import msgspec
import structlog

from ltzd import telemetry
from ltzd.actions.site_plugin.members import ACCOUNT_CHANGED, SiteMembers
from ltzd.actions.users.token_auth import TokenAuthenticator
from ltzd.errors import (
    DatabaseUnavailable,
    LinkRefused,
    LtzdError,
    NotFound,
    RateLimited,
    SiteUnknown,
    TooManyAttempts,
    ValidationFailed,
)
from ltzd.providers.identity.tokens import TokenUser
from ltzd.rules.site_plugin import links as rules
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.site_plugin import links as site_links
from ltzd.store.site_plugin.links import Link, LockedCode, LockedMember, NewCode
from ltzd.store.site_plugin.members import Member
from ltzd.values import Address, hex_of

log = structlog.get_logger()

_WRONG = "This code is wrong, or has expired, or was used. Please get a new one."
_LINKED = (
    "Your account at this site was linked to another wallet already. "
    "Please use a code of that wallet's owner."
)


class LinkCode(msgspec.Struct, frozen=True):
    """`daily_allowance` is in whole LTZ. The code itself is not stored."""

    code: str
    host: str
    daily_allowance: int
    expires_at: datetime


class LinkedWallet(msgspec.Struct, frozen=True):
    """`daily_allowance` is in whole LTZ."""

    wallet: Address
    daily_allowance: int


class SiteLinks:
    def __init__(
        self, pool: Pool, members: SiteMembers, users: TokenAuthenticator, sealer: Sealer
    ) -> None:
        self._pool = pool
        self._members = members
        self._users = users
        self._sealer = sealer

    # The owner

    async def owner_of(self, token: str) -> TokenUser:
        """Raises Unauthorized, IdentityUnavailable."""
        return await self._users.user_of(token)

    async def new_code(self, owner: TokenUser, host: str, daily_allowance: int) -> LinkCode:
        """Create a code for the site at `host`, which is in normal form.

        Raises NotFound if no brand has a site at the host, ValidationFailed for an owner without a
        wallet, RateLimited for too many open codes, IdentityUnavailable.
        """
        try:
            brand = self._members.brand_of(host)
        except SiteUnknown as refusal:
            raise NotFound("No brand has a site at this host") from refusal
        wallets = await self._users.wallets_of(owner)
        if not wallets:
            raise ValidationFailed("The token's user has no wallet yet")
        async with transaction(self._pool) as connection:
            await site_links.lock_owner(connection, owner.subject)
            await _refuse_too_many(connection, owner.subject)
            while True:
                code = rules.code_of(secrets.token_bytes(rules.CODE_ENTROPY_BYTES))
                code_hash = self._sealer.keyed_hash(_place(brand.address, host, code))
                new = NewCode(
                    code_hash, brand.address, host, owner.subject, wallets, daily_allowance
                )
                expires_at = await site_links.add_code(connection, new)
                if expires_at is not None:
                    break
        telemetry.SITE_LINKS.labels("code").inc()
        return LinkCode(code, host, daily_allowance, expires_at)

    async def links_of(self, owner: TokenUser) -> list[Link]:
        """Return the owner's active links, oldest first."""
        async with session(self._pool) as connection:
            return await site_links.list_of_owner(connection, owner.subject)

    async def end_at(self, owner: TokenUser, host: str) -> None:
        """End the owner's links and codes at this host. Raises NotFound if there are none."""
        async with transaction(self._pool) as connection:
            await site_links.lock_owner(connection, owner.subject)
            ended = await site_links.end_owner_links(connection, owner.subject, host)
        if not ended:
            raise NotFound("You have no link at this host")
        telemetry.SITE_LINKS.labels("ended").inc()
        log.info("site_link.ended_by_owner", host=host, number=ended)

    # The member

    async def link(self, member: Member, typed: str) -> LinkedWallet:
        """Give the member the wallet of the code's owner.

        Raises LinkRefused, and TooManyAttempts after too many wrong codes, whatever this one is.
        """
        try:
            linked = await self._linked(member, rules.normalized_code(typed))
        except LtzdError as error:
            telemetry.SITE_LINKS.labels(_outcome_of(error)).inc()
            raise
        telemetry.SITE_LINKS.labels("linked").inc()
        log.info(
            "site_link.made",
            brand=hex_of(member.brand_id),
            host=member.host,
            site_user=member.site_user_id,
            wallet=hex_of(linked.wallet),
        )
        return linked

    async def end(self, member: Member) -> None:
        """End the member's link, if there is one."""
        async with session(self._pool) as connection:
            is_ended = await site_links.end_member_link(connection, member)
        if is_ended:
            telemetry.SITE_LINKS.labels("ended").inc()
            log.info("site_link.ended_by_member", host=member.host, site_user=member.site_user_id)

    async def _linked(self, member: Member, code: str) -> LinkedWallet:
        hashes = self._sealer.keyed_hashes(_place(member.brand_id, member.host, code))
        async with transaction(self._pool) as connection:
            locked_code = await site_links.lock_code(connection, hashes)
            locked = await site_links.lock_member(connection, member)
            if locked is None or locked.user_id != member.user_id:
                raise LinkRefused(ACCOUNT_CHANGED)
            rules.check_attempts(locked.tries, locked.now)
            linked = None
            if locked_code is not None:
                linked = await _link_by(connection, member, locked, locked_code)
            if linked is None:
                tries = rules.add_wrong_code(locked.tries, locked.now)
                await site_links.save_tries(connection, member, tries)
        if linked is None or locked_code is None:
            raise LinkRefused(_WRONG)
        # The link stands. A code that stays until it expires finds this link alone.
        with suppress(DatabaseUnavailable):
            async with session(self._pool) as connection:
                await site_links.delete_code(connection, locked_code)
        return linked


async def _link_by(
    connection: Connection, member: Member, locked: LockedMember, code: LockedCode
) -> LinkedWallet | None:
    """Link the member, or find the link that an earlier request with the code has committed.

    Returns None if the code has linked another member, or a link that has ended. Raises
    LinkRefused.
    """
    if await site_links.is_used(connection, code):
        made = await site_links.made_by(connection, member, code)
        return None if made is None else LinkedWallet(made.wallet, made.daily_allowance)
    wallet = _wallet_for(locked, code)
    await site_links.link(connection, member, code, wallet)
    return LinkedWallet(wallet, code.daily_allowance)


async def _refuse_too_many(connection: Connection, subject: str) -> None:
    """Raises RateLimited."""
    codes = await site_links.open_codes(connection, subject)
    if codes.number < rules.MOST_OPEN_CODES or codes.first_end is None:
        return
    seconds = max(1, int((codes.first_end - codes.now).total_seconds()) + 1)
    raise RateLimited(
        "Too many open codes",
        message=f"You have {codes.number} unused codes; try again in {seconds} seconds",
        limit=rules.MOST_OPEN_CODES,
        retryAfterSeconds=seconds,
    )


def _wallet_for(member: LockedMember, code: LockedCode) -> Address:
    """Raises LinkRefused."""
    if member.own_wallet in code.wallets:
        return member.own_wallet
    if member.subjects - {code.subject}:
        raise LinkRefused(_LINKED)
    return code.wallets[0]


def _place(brand: Address, host: str, code: str) -> bytes:
    """Return the text that is hashed for a code. A host holds no zero byte."""
    return b"ltzd site_link_codes " + brand + host.encode() + b"\0" + code.encode()


def _outcome_of(error: LtzdError) -> str:
    match error:
        case LinkRefused():
            return "refused"
        case TooManyAttempts():
            return "locked_out"
    return "unavailable"
