"""Which accounts the OAuth providers have, and who is what in which Discord guild.

Every account whose id can be somebody's exists, under a made-up username, until a door says
otherwise; what a door has said is kept in a journal.
"""

import hashlib
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from ltzd.dev.sandbox.journal import Journal, Record
from ltzd.errors import AccountRefused
from ltzd.rules.oauth.accounts import PROVIDERS, OAuthAccount, OAuthProvider
from ltzd.rules.oauth.ids import OAuthIdInvalid, check_id, check_username, refuse_fakes

_BY_NAME: dict[str, OAuthProvider] = {name: name for name in PROVIDERS}


@dataclass(frozen=True, slots=True)
class ProviderAccount:
    id: str
    username: str
    is_known: bool = True

    @property
    def number(self) -> int:
        """Some number of his, for providers that have another id beside the one known to us."""
        return int.from_bytes(hashlib.sha256(self.id.encode()).digest()[:5], "big")


@dataclass(frozen=True, slots=True)
class GuildMember:
    """Somebody in a guild, or who has been: `roles` is None for one who is no member."""

    roles: tuple[str, ...] | None = None
    level: int | None = None


class AccountStore:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._people: dict[tuple[OAuthProvider, str], ProviderAccount] = {}
        self._members: dict[tuple[str, str], GuildMember] = {}

    def find(self, provider: OAuthProvider, account_id: str) -> ProviderAccount | None:
        """Whom the provider knows."""
        person = self._people.get((provider, account_id))
        if person is not None:
            return person if person.is_known else None
        username = generated_username(provider, account_id)
        return (
            ProviderAccount(account_id, username)
            if _can_be(provider, account_id, username)
            else None
        )

    def find_named(self, provider: OAuthProvider, username: str) -> ProviderAccount | None:
        """Letter case never matters."""
        for (of, _), person in self._people.items():
            if of == provider and person.username.lower() == username.lower():
                return person if person.is_known else None
        digits = int(hashlib.sha256(username.lower().encode()).hexdigest(), 16) % 10**12
        account_id = f"17841{digits:012}"
        return (
            ProviderAccount(account_id, username)
            if _can_be(provider, account_id, username)
            else None
        )

    def member(self, guild: str, user: str) -> GuildMember:
        return self._members.get((guild, user), GuildMember())

    async def set_person(
        self,
        provider: OAuthProvider,
        account_id: str,
        username: str | None,
        is_known: bool | None,
    ) -> ProviderAccount:
        """None leaves as it was."""
        before = self._people.get((provider, account_id)) or ProviderAccount(
            account_id, generated_username(provider, account_id)
        )
        person = replace(
            before,
            username=before.username if username is None else username,
            is_known=before.is_known if is_known is None else is_known,
        )
        await self._keep(
            {
                "kind": "person",
                "provider": provider,
                "id": account_id,
                "username": person.username,
                "known": person.is_known,
            }
        )
        return person

    async def set_member(self, guild: str, user: str, member: GuildMember) -> None:
        await self._keep(
            {
                "kind": "member",
                "guild": guild,
                "id": user,
                "roles": None if member.roles is None else list(member.roles),
                "level": member.level,
            }
        )

    def apply_record(self, record: Record) -> None:
        """Take one record of the journal. Raises KeyError or TypeError for what is none."""
        account_id = str(record["id"])
        if record["kind"] == "person":
            provider = _BY_NAME[str(record["provider"])]
            person = ProviderAccount(account_id, str(record["username"]), record["known"] is True)
            self._people[provider, account_id] = person
            return
        roles, level = record["roles"], record["level"]
        if not isinstance(roles, list | None) or not isinstance(level, int | None):
            raise TypeError
        kept_roles = None if roles is None else tuple(map(str, roles))
        self._members[str(record["guild"]), account_id] = GuildMember(kept_roles, level)

    async def _keep(self, record: Record) -> None:
        self.apply_record(record)
        await self._journal.wait_durable(self._journal.append(record))


def generated_username(provider: OAuthProvider, account_id: str) -> str:
    """Of a form that every provider takes; the same as the identity provider's part makes up."""
    name = "u" + hashlib.sha256(account_id.encode()).hexdigest()[:12]
    return f"{name}@google.example" if provider == "google" else name


def _can_be(provider: OAuthProvider, account_id: str, username: str) -> bool:
    try:
        check_id(provider, account_id)
        check_username(provider, username)
        refuse_fakes(OAuthAccount(provider, account_id, username), datetime.now(UTC))
    except (OAuthIdInvalid, AccountRefused):
        return False
    return True
