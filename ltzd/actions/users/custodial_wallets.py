"""Users' wallets for operators without a vendor: the keys lie in our database, sealed.

A wallet's key is made here, sealed with the master key to its user and wallet, opened only to sign
what `local_signing.py` lets through, and told to nobody. Who is the same person is decided in
`link` alone, and by nothing but a verified token (docs/decisions/0019).

Raises DatabaseUnavailable when nobody can tell.
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol
from uuid import uuid4

import structlog

from ltzd.actions.users import custodial_signing as local_signing
from ltzd.actions.users.custodial_signing import AllowedMessage
from ltzd.errors import DatabaseUnavailable
from ltzd.providers.identity.client import IdentityUser, UserProfile
from ltzd.providers.identity.tokens import TokenUser
from ltzd.providers.oidc.claims import RESERVED_SUBJECT_PREFIX, OidcUser
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.store.database import Connection, Pool, session, transaction
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.users import custodial_users
from ltzd.store.users.custodial_users import AccountName, NameOwnership, SealedUser
from ltzd.values import Address, hex_of

log = structlog.get_logger()


class CustodialWallets:
    """`issuer` makes the tokens: another issuer's subjects are other people."""

    def __init__(
        self, pool: Pool, sealer: Sealer, issuer: str, signed_here: Collection[AllowedMessage]
    ) -> None:
        self._pool = pool
        self._sealer = sealer
        self._issuer = issuer
        self._signed_here = tuple(signed_here)
        self._under_way = 0

    @property
    def under_way(self) -> int:
        return self._under_way

    async def wallet_of_email(self, email: str) -> IdentityUser:
        return await self._found_or_made(AccountName("email", email.lower()))

    async def wallet_of_account(self, account: OAuthAccount) -> IdentityUser:
        """The account's e-mail address and names play no part: a caller may have said them."""
        return await self._found_or_made(AccountName(account.provider, account.user_id))

    async def wallets_of(
        self, subject: str, *, wanted: Address | None = None
    ) -> tuple[Address, ...]:
        """His home first, then the oldest."""
        async with session(self._pool) as connection:
            user = await self._user_called(connection, subject)
            return () if user is None else await custodial_users.wallets_of(connection, user)

    async def accounts_of(self, subject: str) -> tuple[OAuthAccount, ...]:
        async with session(self._pool) as connection:
            user = await self._user_called(connection, subject)
            return () if user is None else await custodial_users.accounts_of(connection, user)

    async def profile_of(self, subject: str) -> UserProfile | None:
        async with session(self._pool) as connection:
            root = await custodial_users.find_root(connection, self._login(subject))
            if root is None:
                return None
            home = await custodial_users.read_home(connection, root)
            emails = await custodial_users.emails_of(connection, root)
        return UserProfile(root, IdentityUser(home.subject, home.wallet), emails)

    async def sign_typed_data(self, wallet: Address, typed_data: Mapping[str, Any]) -> bytes:
        """Raises ValueError for whatever ltzd does not sign, and for a wallet that is not kept
        here; Misconfigured if no master key opens the wallet's."""
        local_signing.digest_of(wallet, typed_data, self._signed_here)
        async with session(self._pool) as connection:
            kept = await custodial_users.read_sealed_user(connection, wallet)
        if kept is None:
            raise ValueError("the wallet is not kept here")
        secret = self._sealer.open_wallet_key(kept.sealed, kept.key_id, kept.subject, wallet)
        return local_signing.sign(secret, wallet, typed_data, self._signed_here)

    async def ping(self) -> bool:
        with suppress(DatabaseUnavailable):
            async with session(self._pool) as connection:
                await connection.execute("SELECT 1")
                return True
        return False

    async def link(self, user: OidcUser) -> tuple[Address, ...]:
        """The wallets of who has logged in, home first; his first one is made if need be.

        Every user to whom a name leads that the token vouches for, and whom nobody owns yet,
        becomes his; a name that leads nowhere yet leads to his home from now on. What is another
        person's stays another person's.
        """
        names = self._names_in(user)
        async with session(self._pool) as connection:
            login, *others = await custodial_users.read_ownership(connection, names)
            if login.user is not None and not _open(others):
                return await custodial_users.wallets_of(connection, login.user)
        async with transaction(self._pool) as connection:
            await custodial_users.lock(connection, names)
            root = await self._root(connection, names)
            await self._settle(connection, root, names[1:])
            return await custodial_users.wallets_of(connection, root)

    def _login(self, subject: str) -> AccountName:
        return AccountName("subject", f"{self._issuer} {subject}")

    def _names_in(self, user: OidcUser) -> list[AccountName]:
        accounts = [AccountName(account.provider, account.user_id) for account in user.accounts]
        emails = [] if user.email is None else [AccountName("email", user.email)]
        return [self._login(user.subject), *emails, *accounts]

    async def _user_called(self, connection: Connection, subject: str) -> str | None:
        """No issuer has subjects that begin as ours do (`oidc_claims.py`)."""
        if subject.startswith(RESERVED_SUBJECT_PREFIX):
            return subject
        return await custodial_users.find_root(connection, self._login(subject))

    async def _found_or_made(self, name: AccountName) -> IdentityUser:
        self._under_way += 1
        try:
            async with session(self._pool) as connection:
                user = await custodial_users.find(connection, name)
                if user is None:
                    new = self._new_user()
                    if await custodial_users.create(connection, name, new):
                        log.info("local_wallets.made", wallet=hex_of(new.wallet), kind=name.kind)
                    user = await custodial_users.find(connection, name)
        finally:
            self._under_way -= 1
        assert user is not None, "names are never deleted"
        return IdentityUser(user.subject, user.wallet)

    async def _root(self, connection: Connection, names: Sequence[AccountName]) -> str:
        """The user that stands for the person: of somebody new any that is to be his, or a new
        one."""
        login, *others = await custodial_users.read_ownership(connection, names)
        if login.user is not None:
            return login.user
        for name, user in _unowned(others):
            if await custodial_users.set_owner(connection, user, user, name):
                await custodial_users.add_name(connection, login.name, user)
                log.info("local_wallets.owned", user=user, root=user, by=name.kind)
                return user
        new = self._new_user()
        await custodial_users.create_person(connection, login.name, new)
        log.info("local_wallets.made", wallet=hex_of(new.wallet), kind="subject")
        return new.subject

    async def _settle(
        self, connection: Connection, root: str, names: Sequence[AccountName]
    ) -> None:
        """Whoever was faster with a name has committed when our row is refused, so that the next
        look shows where it leads."""
        while pending := _open(await custodial_users.read_ownership(connection, names)):
            for name, user in _unowned(pending):
                if await custodial_users.set_owner(connection, user, root, name):
                    log.info("local_wallets.owned", user=user, root=root, by=name.kind)
            home = await custodial_users.read_home(connection, root)
            for standing in pending:
                if standing.user is None:
                    await custodial_users.add_name(connection, standing.name, home.subject)

    def _new_user(self) -> SealedUser:
        secret, wallet = local_signing.new_key()
        subject = f"{RESERVED_SUBJECT_PREFIX}{uuid4()}"
        sealed = self._sealer.seal_wallet_key(secret, subject, wallet)
        return SealedUser(subject, wallet, self._sealer.key_id, sealed)


class _VouchingTokens(Protocol):
    async def user_of(self, token: str) -> OidcUser: ...


class LinkingTokenVerifier:
    """Tokens whose users are linked as they come, and named with all their wallets."""

    def __init__(self, tokens: _VouchingTokens, wallets: CustodialWallets) -> None:
        self._tokens = tokens
        self._wallets = wallets

    async def user_of(self, token: str) -> TokenUser:
        """Raises Unauthorized, IdentityUnavailable, DatabaseUnavailable."""
        user = await self._tokens.user_of(token)
        return replace(user, wallets=await self._wallets.link(user))


def _open(standings: Sequence[NameOwnership]) -> list[NameOwnership]:
    """Those that lead nowhere, or to a user whom nobody owns."""
    return [each for each in standings if each.owner is None]


def _unowned(standings: Sequence[NameOwnership]) -> list[tuple[AccountName, str]]:
    """The users to be had."""
    return [
        (each.name, each.user) for each in standings if each.user is not None and each.owner is None
    ]
