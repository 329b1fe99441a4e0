"""The users of the host site, in memory and in a journal.

User names are case-insensitive, as in the platform's own database. Application passwords are stored
in plain text, because `dev.json` shows the demo user's at every start.
"""

import hmac
import re
import secrets
import string
import time
from dataclasses import dataclass, field, replace

from ltzd.dev.sandbox.journal import Journal, Record

HOST = "site.example"
DEMO_USERNAME = "ada"

_USERNAME = re.compile(r"[A-Za-z0-9_.@-](?:[A-Za-z0-9 _.@-]{0,58}[A-Za-z0-9_.@-])?")
_LOCAL_PART = re.compile(r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*")
_EMAIL = re.compile(_LOCAL_PART.pattern + r"@(?:[a-z0-9-]+\.)+[a-z]{2,}")
_PASSWORD_LETTERS = string.ascii_letters + string.digits
_PASSWORD_LENGTH = 24


@dataclass(frozen=True, slots=True)
class HostSiteUser:
    id: int
    username: str
    email: str
    registered_at: int
    roles: tuple[str, ...] = ("subscriber",)
    email_confirmed: bool | None = None
    """The state that the site reports for the address, or None if it reports none."""
    is_core_alone: bool = False
    """Whether the site reports no state for this user, as a site without ltzd's plugin."""
    application_password: str | None = field(default=None, repr=False)


def is_username(text: str) -> bool:
    """Whether the platform accepts this user name at registration."""
    return _USERNAME.fullmatch(text) is not None


class SiteUsers:
    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._by_name: dict[str, HostSiteUser] = {}
        self._by_email: dict[str, HostSiteUser] = {}
        self._newest = 0

    def by_username(self, username: str) -> HostSiteUser | None:
        return self._by_name.get(username.lower())

    def by_email(self, email: str) -> HostSiteUser | None:
        return self._by_email.get(email.lower())

    async def find_or_create(self, username: str) -> HostSiteUser:
        user = self.by_username(username) or self._create(username, None)
        await self._journal.wait_durable(self._newest)
        return user

    async def change_email(self, user: HostSiteUser, email: str) -> HostSiteUser | None:
        """Return the changed user, or None if another user has the address."""
        owner = self.by_email(email)
        if owner is not None and owner.id != user.id:
            return None
        if email == user.email:
            return user
        confirmed = None if user.is_core_alone else False
        return await self._save(replace(user, email=email, email_confirmed=confirmed))

    async def set_confirmed(self, user: HostSiteUser, confirmed: bool | None) -> HostSiteUser:
        """Set the reported state; `confirmed` None plays WordPress core, which reports none."""
        is_core_alone = confirmed is None
        return await self._save(
            replace(user, email_confirmed=confirmed, is_core_alone=is_core_alone)
        )

    async def _save(self, user: HostSiteUser) -> HostSiteUser:
        self._index(user)
        self._newest = self._journal.append(_record_of(user))
        await self._journal.wait_durable(self._newest)
        return user

    async def create_demo_user(self) -> None:
        """Create the demo user if there is none, which a kill may have prevented before."""
        if self.by_username(DEMO_USERNAME) is None:
            self._create(DEMO_USERNAME, _new_password())
        await self._journal.wait_durable(self._newest)

    def apply_record(self, record: Record) -> None:
        """Apply one record; raises KeyError, TypeError or ValueError if it is malformed."""
        roles, password = record["roles"], record["application_password"]
        # Journals of older versions lack these two fields.
        confirmed, is_core_alone = record.get("email_confirmed"), record.get("is_core_alone")
        if not isinstance(roles, list):
            raise TypeError
        self._index(
            HostSiteUser(
                int(str(record["id"])),
                str(record["username"]),
                str(record["email"]),
                int(str(record["registered_at"])),
                tuple(map(str, roles)),
                confirmed if isinstance(confirmed, bool) else None,
                is_core_alone is True,
                password if isinstance(password, str) else None,
            )
        )

    def _create(self, username: str, password: str | None) -> HostSiteUser:
        user_id = len(self._by_name) + 1
        email = self._free_email(username.lower(), user_id)
        user = HostSiteUser(
            user_id, username, email, int(time.time()), application_password=password
        )
        self._index(user)
        self._newest = self._journal.append(_record_of(user))
        return user

    def _free_email(self, name: str, user_id: int) -> str:
        """An address made of the name if it is valid and free, else one made of the id."""
        preferred = name if _EMAIL.fullmatch(name) else f"{name}@{HOST}"
        if _EMAIL.fullmatch(preferred) and preferred not in self._by_email:
            return preferred
        return f"member-{user_id}@{HOST}"

    def _index(self, user: HostSiteUser) -> None:
        """Add a new user or replace an existing one."""
        previous = self.by_username(user.username)
        if previous is not None:
            del self._by_email[previous.email.lower()]
        self._by_name[user.username.lower()] = user
        self._by_email[user.email.lower()] = user


def is_password_of(user: HostSiteUser, given: str) -> bool:
    """Compare the passwords without spaces and other characters that are no letter or digit."""
    stored = user.application_password
    plain = re.sub(r"[^A-Za-z0-9]", "", given)
    return stored is not None and hmac.compare_digest(stored.encode(), plain.encode())


def display_password(password: str) -> str:
    """The password in groups of four characters, as the platform displays it."""
    return " ".join(password[at : at + 4] for at in range(0, len(password), 4))


def _new_password() -> str:
    return "".join(secrets.choice(_PASSWORD_LETTERS) for _ in range(_PASSWORD_LENGTH))


def _record_of(user: HostSiteUser) -> Record:
    return {
        "kind": "user",
        "id": user.id,
        "username": user.username,
        "email": user.email,
        "registered_at": user.registered_at,
        "roles": list(user.roles),
        "email_confirmed": user.email_confirmed,
        "is_core_alone": user.is_core_alone,
        "application_password": user.application_password,
    }
