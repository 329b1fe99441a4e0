"""Users' wallets without an identity vendor: the sealed keys are stored in ltzd's database.

A wallet's key is created here, sealed with the master key for its user and wallet, opened only to
sign what `custodial_signing.py` allows, and never exported. `link` alone decides which users are
one person, and only by a verified token (docs/decisions/0019).

Every method raises DatabaseUnavailable while the database is away.
"""

from collections.abc import Collection, Hashable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Protocol
from uuid import uuid4

import structlog

from ltzd.actions.users import custodial_signing
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
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.values import Address, hex_of

log = structlog.get_logger()


class CustodialWallets:
    """`issuer` issues the tokens: equal subjects of two issuers are different people."""

    def __init__(
        self, pool: Pool, sealer: Sealer, issuer: str, signed_here: Collection[AllowedMessage]
    ) -> None:
        self._pool = pool
        self._sealer = sealer
        self._erased = ErasedAddresses(sealer)
        self._issuer = issuer
        self._signed_here = tuple(signed_here)
        self._under_way = 0

    @property
    def under_way(self) -> int:
        return self._under_way

    async def wallet_of_email(self, email: str, brand: Address | None = None) -> IdentityUser:
        return await self._find_or_create(AccountName("email", email.lower()))

    async def wallet_of_account(
        self, account: OAuthAccount, party: Hashable = None
    ) -> IdentityUser:
        """The account's e-mail address and names are ignored: they may be a caller's claims."""
        return await self._find_or_create(AccountName(account.provider, account.user_id))

    async def wallets_of(
        self, subject: str, *, wanted: Address | None = None
    ) -> tuple[Address, ...]:
        """Return the user's wallets: the home wallet first, then the oldest."""
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
        """Raises ValueError for a message that ltzd does not sign and for an unknown wallet, and
        Misconfigured if no master key opens the wallet's key."""
        custodial_signing.digest_of(wallet, typed_data, self._signed_here)
        async with session(self._pool) as connection:
            kept = await custodial_users.read_sealed_user(connection, wallet)
        if kept is None:
            raise ValueError("the wallet is not kept here")
        secret = self._sealer.open_wallet_key(kept.sealed, kept.key_id, kept.subject, wallet)
        return custodial_signing.sign(secret, wallet, typed_data, self._signed_here)

    async def ping(self) -> bool:
        with suppress(DatabaseUnavailable):
            async with session(self._pool) as connection:
                await connection.execute("SELECT 1")
                return True
        return False

    async def link(self, user: OidcUser) -> tuple[Address, ...]:
        """Return the wallets of the person who has logged in, home first; creates the first one.

        Every user without an owner whom a vouched name of the token leads to becomes this person's.
        A name that leads nowhere leads to the home wallet from now on. Users and names of other
        persons are left alone.
        """
        names = self._names_in(user)
        async with session(self._pool) as connection:
            names = [await self._present_name(connection, name) for name in names]
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

    async def _present_name(self, connection: Connection, name: AccountName) -> AccountName:
        """The erased key of an address that was erased, and otherwise the name itself."""
        if name.kind != "email" or await custodial_users.find(connection, name) is not None:
            return name
        key = await self._erased.key_of(connection, name.text)
        hidden = None if key is None else AccountName("email", key)
        if hidden is None or await custodial_users.find(connection, hidden) is None:
            return name
        return hidden

    async def _user_called(self, connection: Connection, subject: str) -> str | None:
        """No issuer's subjects begin with ltzd's prefix (`providers/oidc/claims.py`)."""
        if subject.startswith(RESERVED_SUBJECT_PREFIX):
            return subject
        return await custodial_users.find_root(connection, self._login(subject))

    async def _find_or_create(self, name: AccountName) -> IdentityUser:
        self._under_way += 1
        try:
            async with session(self._pool) as connection:
                name = await self._present_name(connection, name)
                user = await custodial_users.find(connection, name)
                if user is None:
                    new = self._new_user()
                    if await custodial_users.create(connection, name, new):
                        log.info(
                            "custodial_wallets.created", wallet=hex_of(new.wallet), kind=name.kind
                        )
                    user = await custodial_users.find(connection, name)
        finally:
            self._under_way -= 1
        assert user is not None, "names are never deleted"
        return IdentityUser(user.subject, user.wallet)

    async def _root(self, connection: Connection, names: Sequence[AccountName]) -> str:
        """Return the person's root user; for a new person an unowned user, or a new one."""
        login, *others = await custodial_users.read_ownership(connection, names)
        if login.user is not None:
            return login.user
        for name, user in _unowned(others):
            if await custodial_users.set_owner(connection, user, user, name):
                await custodial_users.add_name(connection, login.name, user)
                log.info("custodial_wallets.owned", user=user, root=user, by=name.kind)
                return user
        new = self._new_user()
        await custodial_users.create_person(connection, login.name, new)
        log.info("custodial_wallets.created", wallet=hex_of(new.wallet), kind="subject")
        return new.subject

    async def _settle(
        self, connection: Connection, root: str, names: Sequence[AccountName]
    ) -> None:
        """Link the names to the person.

        If a concurrent log-in was first with a name, it has committed when this row is refused, so
        the next read shows where the name leads.
        """
        while pending := _open(await custodial_users.read_ownership(connection, names)):
            for name, user in _unowned(pending):
                if await custodial_users.set_owner(connection, user, root, name):
                    log.info("custodial_wallets.owned", user=user, root=root, by=name.kind)
            home = await custodial_users.read_home(connection, root)
            for state in pending:
                if state.user is None:
                    await custodial_users.add_name(connection, state.name, home.subject)

    def _new_user(self) -> SealedUser:
        secret, wallet = custodial_signing.new_key()
        subject = f"{RESERVED_SUBJECT_PREFIX}{uuid4()}"
        sealed = self._sealer.seal_wallet_key(secret, subject, wallet)
        return SealedUser(subject, wallet, self._sealer.key_id, sealed)


class _VouchingTokens(Protocol):
    async def user_of(self, token: str) -> OidcUser: ...

    async def ping(self) -> bool: ...


class LinkingTokenVerifier:
    """Verifies tokens, links their users, and returns the users with all their wallets."""

    def __init__(self, tokens: _VouchingTokens, wallets: CustodialWallets) -> None:
        self._tokens = tokens
        self._wallets = wallets

    async def ping(self) -> bool:
        """Return whether the issuer answers; never raises."""
        return await self._tokens.ping()

    async def user_of(self, token: str) -> TokenUser:
        """Raises Unauthorized, IdentityUnavailable, DatabaseUnavailable."""
        user = await self._tokens.user_of(token)
        return replace(user, wallets=await self._wallets.link(user))


def _open(states: Sequence[NameOwnership]) -> list[NameOwnership]:
    """Return the names that lead nowhere, or to a user without an owner."""
    return [each for each in states if each.owner is None]


def _unowned(states: Sequence[NameOwnership]) -> list[tuple[AccountName, str]]:
    """Return the users without an owner."""
    return [
        (each.name, each.user) for each in states if each.user is not None and each.owner is None
    ]
