"""Finds users whose e-mail addresses were erased, by a keyed hash of the address (decision 0036).

Where the lower-case address stood as a key, an erasure leaves an *erased key*: `erased:` and an
HMAC in hex. No address has this form, since an address has an @. The key of the HMAC is random,
sealed with the master key, and inserted by the first erasure.
"""

import hmac
import secrets
from collections.abc import Collection, Sequence

from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.store.users import users
from ltzd.store.users.users import User

PREFIX = "erased:"
_NAME = "addresses"
_KEY_BYTES = 32


def is_erased(email_key: str) -> bool:
    return email_key.startswith(PREFIX)


def shown_address(text: str | None) -> str | None:
    """The address for a brand or a person, or None for an erased key."""
    return None if text is None or is_erased(text) else text


class ErasedAddresses:
    """Computes erased keys. Holds the secret once it has been read; the secret never changes."""

    def __init__(self, sealer: Sealer) -> None:
        self._sealer = sealer
        self._secret: bytes | None = None

    async def key_of(self, connection: Connection, email_key: str) -> str | None:
        """The erased key of an address in lower case, or None if nothing was ever erased here.

        Call it after the address itself was not found: an erasure that has hidden the address has
        then committed the secret, too. Raises Misconfigured if no master key opens the secret.
        """
        secret = await self._known_secret(connection)
        return None if secret is None else _erased_key(secret, email_key)

    async def keys_of(self, connection: Connection, email_keys: Sequence[str]) -> list[str]:
        """The addresses, followed by their erased keys."""
        (keys,) = await self.keys_of_each(connection, [email_keys])
        return keys

    async def keys_of_each(
        self, connection: Connection, people: Sequence[Sequence[str]]
    ) -> list[list[str]]:
        """As `keys_of`, for the addresses of each person; asks the database at most once."""
        secret = await self._known_secret(connection)
        if secret is None:
            return [list(email_keys) for email_keys in people]
        return [
            [*email_keys, *(_erased_key(secret, key) for key in email_keys if not is_erased(key))]
            for email_keys in people
        ]

    def known_key_of(self, email_key: str) -> str | None:
        """As `key_of`, without asking the database: call it after `keys_of` or `keys_of_each`."""
        return None if self._secret is None else _erased_key(self._secret, email_key)

    async def _known_secret(self, connection: Connection) -> bytes | None:
        """`prepare` may have read the secret while this read found none."""
        if self._secret is None:
            secret = await self._read(connection)
            self._secret = self._secret or secret
        return self._secret

    async def prepare(self, connection: Connection) -> None:
        """Insert the secret unless there is one. Call it before the transaction of an erasure: a
        secret whose insert was rolled back would be lost with all that it has hidden.
        """
        assert not connection.is_in_transaction()
        secret = self._secret or secrets.token_bytes(_KEY_BYTES)
        await connection.execute(
            """
            INSERT INTO erasure_keys (name, key_id, sealed) VALUES ($1, $2, $3)
                ON CONFLICT (name) DO NOTHING
            """,
            _NAME,
            self._sealer.key_id,
            self._sealer.seal_erasure_key(secret, _NAME),
        )
        self._secret = await self._read(connection)

    def prepared_key_of(self, email_key: str) -> str:
        """The erased key of an address that is about to be erased, after `prepare`."""
        assert self._secret is not None
        return email_key if is_erased(email_key) else _erased_key(self._secret, email_key)

    async def find_user(self, connection: Connection, email_key: str) -> User | None:
        """The user of an address; if it was erased, `User.email_key` is the erased key."""
        return (await self.find_users(connection, [email_key])).get(email_key)

    async def find_users(
        self, connection: Connection, email_keys: Collection[str]
    ) -> dict[str, User]:
        """As `find_user`, of many addresses; those without a user are left out."""
        found_users: dict[str, User] = {}
        if self._secret is None:
            found_users = await self._find_users_and_secret(connection, email_keys)
        if self._secret is None:
            return found_users
        erased = {
            key: _erased_key(self._secret, key) for key in email_keys if key not in found_users
        }
        users_by_key = await users.find(connection, [*erased, *erased.values()])
        for key, erased_key in erased.items():
            user = users_by_key.get(key) or users_by_key.get(erased_key)
            if user is not None:
                found_users[key] = user
        return found_users

    async def _find_users_and_secret(
        self, connection: Connection, email_keys: Collection[str]
    ) -> dict[str, User]:
        """One statement sees an erasure whole: without the address, but with the secret."""
        rows = await connection.fetch(
            """
            SELECT e.key_id, e.sealed, u.id, u.email_key, u.identity_subject, u.wallet
              FROM (SELECT) AS one
              LEFT JOIN erasure_keys e ON e.name = $2
              LEFT JOIN users u ON u.email_key = ANY($1::text[])
            """,
            email_keys,
            _NAME,
        )
        found_users = {
            row["email_key"]: User(*row[2:]) for row in rows if row["email_key"] is not None
        }
        key_id, sealed, *_ = rows[0]
        if sealed is not None and not found_users.keys() >= set(email_keys):
            self._secret = self._sealer.open_erasure_key(sealed, key_id, _NAME)
        return found_users

    async def _read(self, connection: Connection) -> bytes | None:
        row = await connection.fetchrow(
            "SELECT key_id, sealed FROM erasure_keys WHERE name = $1", _NAME
        )
        return row and self._sealer.open_erasure_key(row["sealed"], row["key_id"], _NAME)


def _erased_key(secret: bytes, email_key: str) -> str:
    return PREFIX + hmac.digest(secret, email_key.encode(), "sha256").hex()
