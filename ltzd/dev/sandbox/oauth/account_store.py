"""The accounts of the OAuth providers and the members of Discord guilds, kept in a journal.

Every account with a plausible id exists, with a generated username, until the control endpoint
changes it.
"""

import hashlib
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from ltzd.dev.sandbox.journal import Journal, Record
from ltzd.errors import AccountRefused
from ltzd.rules.oauth.accounts import PROVIDERS, OAuthAccount, OAuthProvider
from ltzd.rules.oauth.ids import OAuthIdInvalid, check_id, check_username, refuse_fakes

_BY_NAME: dict[str, OAuthProvider] = {name: name for name in PROVIDERS}


class ProviderAccount(msgspec.Struct, frozen=True):
    id: str
    username: str
    is_known: bool = True

    @property
    def number(self) -> int:
        """A number derived from the id, for providers that have a second id."""
        return int.from_bytes(hashlib.sha256(self.id.encode()).digest()[:5], "big")


class GuildMember(msgspec.Struct, frozen=True):
    """A user's roles and level in a guild; `roles` is None if the user is not a member."""

    roles: tuple[str, ...] | None = None
    level: int | None = None


class AccountStore:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._accounts: dict[tuple[OAuthProvider, str], ProviderAccount] = {}
        self._members: dict[tuple[str, str], GuildMember] = {}

    def find(self, provider: OAuthProvider, account_id: str) -> ProviderAccount | None:
        """Return the account if it exists at the provider."""
        account = self._accounts.get((provider, account_id))
        if account is not None:
            return account if account.is_known else None
        username = generated_username(provider, account_id)
        return (
            ProviderAccount(account_id, username)
            if _is_plausible(provider, account_id, username)
            else None
        )

    def find_by_username(self, provider: OAuthProvider, username: str) -> ProviderAccount | None:
        """Return the account of a username, without regard to letter case."""
        for (of, _), account in self._accounts.items():
            if of == provider and account.username.lower() == username.lower():
                return account if account.is_known else None
        digits = int(hashlib.sha256(username.lower().encode()).hexdigest(), 16) % 10**12
        account_id = f"17841{digits:012}"
        return (
            ProviderAccount(account_id, username)
            if _is_plausible(provider, account_id, username)
            else None
        )

    def member(self, guild: str, user: str) -> GuildMember:
        return self._members.get((guild, user), GuildMember())

    async def set_account(
        self,
        provider: OAuthProvider,
        account_id: str,
        username: str | None,
        is_known: bool | None,
    ) -> ProviderAccount:
        """Change an account; an argument that is None leaves its value as it was."""
        before = self._accounts.get((provider, account_id)) or ProviderAccount(
            account_id, generated_username(provider, account_id)
        )
        account = replace(
            before,
            username=before.username if username is None else username,
            is_known=before.is_known if is_known is None else is_known,
        )
        await self._save(
            {
                "kind": "person",
                "provider": provider,
                "id": account_id,
                "username": account.username,
                "known": account.is_known,
            }
        )
        return account

    async def set_member(self, guild: str, user: str, member: GuildMember) -> None:
        await self._save(
            {
                "kind": "member",
                "guild": guild,
                "id": user,
                "roles": None if member.roles is None else list(member.roles),
                "level": member.level,
            }
        )

    def apply_record(self, record: Record) -> None:
        """Apply one record of the journal. Raises KeyError or TypeError if it is malformed."""
        account_id = str(record["id"])
        if record["kind"] == "person":
            provider = _BY_NAME[str(record["provider"])]
            account = ProviderAccount(account_id, str(record["username"]), record["known"] is True)
            self._accounts[provider, account_id] = account
            return
        roles, level = record["roles"], record["level"]
        if not isinstance(roles, list | None) or not isinstance(level, int | None):
            raise TypeError
        role_ids = None if roles is None else tuple(map(str, roles))
        self._members[str(record["guild"]), account_id] = GuildMember(role_ids, level)

    async def _save(self, record: Record) -> None:
        self.apply_record(record)
        await self._journal.wait_durable(self._journal.append(record))


def generated_username(provider: OAuthProvider, account_id: str) -> str:
    """A username valid at every provider; equal to the one that `identity.accounts` generates."""
    name = "u" + hashlib.sha256(account_id.encode()).hexdigest()[:12]
    return f"{name}@google.example" if provider == "google" else name


def _is_plausible(provider: OAuthProvider, account_id: str, username: str) -> bool:
    try:
        check_id(provider, account_id)
        check_username(provider, username)
        refuse_fakes(OAuthAccount(provider, account_id, username), datetime.now(UTC))
    except (OAuthIdInvalid, AccountRefused):
        return False
    return True
