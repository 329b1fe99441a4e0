"""A brand's keys: created with the brand, rotated singly, and readable only with the master key.

A rotated key stays valid for a day, however many rotations follow, so an operator who loses a new
key can rotate again without stopping what works. A retired key is sealed to its expiry as well:
write access to the database does not prolong it. An API key is stored as its SHA-256 and cannot be
read back.
"""

import base64
import hashlib
import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

import msgspec
import structlog

from ltzd.errors import Misconfigured
from ltzd.rules.domains.txt_records import digest_of
from ltzd.store.brands.revisions import brand_change, bump_revision
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import Address, hex_of

log = structlog.get_logger()

RETIRED_FOR: Final = timedelta(hours=24)

ReadableKey = Literal["security_key", "webhook_secret", "verification_token"]
KeyName = Literal["security_key", "api_key", "webhook_secret", "verification_token"]
FIELDS: Final[dict[KeyName, str]] = {
    "security_key": "securityKey",
    "api_key": "apiKey",
    "webhook_secret": "webhookSecret",
    "verification_token": "verificationToken",
}
"""The name of every key, with its name in JSON."""


@dataclass(frozen=True, slots=True)
class NewKeys:
    """A brand's keys in clear: shown once, then sealed or hashed."""

    brand_id: str
    security_key: str = field(repr=False)
    api_key: str = field(repr=False)
    webhook_secret: str = field(repr=False)
    verification_token: str = field(repr=False)

    @classmethod
    def of(cls, brand_id: str) -> "NewKeys":
        return cls(brand_id, **{name: _new_key(name) for name in FIELDS})

    def as_json(self) -> dict[str, str]:
        keys: dict[str, str] = {text: getattr(self, name) for name, text in FIELDS.items()}
        return {"brandId": self.brand_id} | keys


@dataclass(frozen=True, slots=True)
class BrandSecret:
    """A key of a brand in clear. `until` is its expiry, or None until it is rotated."""

    text: str = field(repr=False)
    until: datetime | None


@dataclass(frozen=True, slots=True)
class Rotation:
    """A new key in clear, and the expiry of the previous key; None if that is not valid.

    `lost` says why a previous key that could not be opened is not valid.
    """

    key: str = field(repr=False)
    previous_until: datetime | None
    lost: str | None = None


class KeyAge(msgspec.Struct, frozen=True):
    """`retired_until` holds the expiry of each retired key, the latest first."""

    created_at: datetime
    retired_until: tuple[datetime, ...]


async def create_private(
    connection: Connection, brand_id: Address, keys: NewKeys, sealer: Sealer
) -> None:
    """The first keys of a brand that has none."""
    for name in FIELDS:
        await _write(connection, brand_id, name, getattr(keys, name), sealer)


async def secrets_of(
    connection: Connection, brand_id: Address, name: ReadableKey, sealer: Sealer
) -> list[BrandSecret]:
    """The key and then the retired keys that are valid; empty for an unknown brand.

    Raises Misconfigured if the master key file does not open the key itself. A retired key that
    does not open is logged and left out, since the brand has a newer one.
    """
    rows = await connection.fetch(
        """
        SELECT sealed, key_id, NULL::timestamptz AS expires_at
          FROM brand_secrets
         WHERE brand_id = $1 AND name = $2
        UNION ALL
        SELECT sealed, key_id, expires_at
          FROM retired_secrets
         WHERE brand_id = $1 AND name = $2 AND expires_at > now()
         ORDER BY expires_at DESC NULLS FIRST
        """,
        brand_id,
        name,
    )
    valid = []
    for sealed, key_id, until in rows:
        try:
            text = sealer.open(sealed, key_id, brand_id, sealed_to(name, until))
        except Misconfigured as error:
            if until is None:
                raise
            log.error("brands.retired_key_lost", brand=hex_of(brand_id), advice=error.message)
            continue
        valid.append(BrandSecret(text, until))
    return valid


async def brand_of_api_key(connection: Connection, key: str) -> Address | None:
    """The brand whose valid API key this is, the retired keys included."""
    brand: bytes | None = await connection.fetchval(
        """
        SELECT brand_id FROM brand_secrets WHERE name = 'api_key' AND sealed = $1
         UNION ALL
        SELECT brand_id FROM retired_secrets
         WHERE name = 'api_key' AND sealed = $1 AND expires_at > now()
         LIMIT 1
        """,
        hashlib.sha256(key.encode(errors="surrogateescape")).digest(),
    )
    return None if brand is None else Address(brand)


async def verifying_digests(
    connection: Connection, brand_id: Address, sealer: Sealer
) -> list[bytes]:
    """SHA-256 of every key that may appear in a TXT record to verify a domain.

    These are the API keys and verification tokens, with the retired ones that are valid. Empty for
    an unknown brand. Raises Misconfigured as `secrets_of` does.
    """
    tokens = await secrets_of(connection, brand_id, "verification_token", sealer)
    rows = await connection.fetch(
        """
        SELECT sealed FROM brand_secrets WHERE brand_id = $1 AND name = 'api_key'
         UNION ALL
        SELECT sealed FROM retired_secrets
         WHERE brand_id = $1 AND name = 'api_key' AND expires_at > now()
        """,
        brand_id,
    )
    digests = [digest_of(token.text) for token in tokens]
    return digests + [row["sealed"] for row in rows]


async def rotate(
    connection: Connection, brand_id: Address, name: KeyName, sealer: Sealer, *, revoke: bool
) -> Rotation:
    """Create a new key; the old one stays valid for RETIRED_FOR.

    With `revoke` the old key and all retired ones are invalid at once. All or nothing. Raises
    NotFound.
    """
    key = _new_key(name)
    async with brand_change(connection):
        await bump_revision(connection, brand_id)
        await _delete_retired(connection, brand_id, name, delete_all=revoke)
        until, lost = None, None
        if not revoke:
            try:
                until = await _retire(connection, brand_id, name, sealer)
            except Misconfigured as error:
                lost = error.message
        await _write(connection, brand_id, name, key, sealer)
    return Rotation(key, until, lost)


async def read_ages(connection: Connection, brand_id: Address) -> dict[KeyName, KeyAge]:
    """The age of each key that the brand has, in the order of FIELDS."""
    rows = await connection.fetch(
        """
        SELECT name, created_at,
               ARRAY(SELECT expires_at
                       FROM retired_secrets r
                      WHERE r.brand_id = s.brand_id AND r.name = s.name AND expires_at > now()
                      ORDER BY expires_at DESC) AS retired_until
          FROM brand_secrets s
         WHERE brand_id = $1
        """,
        brand_id,
    )
    age_by_name = {
        row["name"]: KeyAge(row["created_at"], tuple(row["retired_until"])) for row in rows
    }
    return {name: age_by_name[name] for name in FIELDS if name in age_by_name}


async def _write(
    connection: Connection, brand_id: Address, name: KeyName, key: str, sealer: Sealer
) -> None:
    sealed, key_id = _sealed(brand_id, name, key, sealer)
    await connection.execute(
        """
        INSERT INTO brand_secrets (brand_id, name, key_id, sealed)
        VALUES ($1, $2, $3, $4)
            ON CONFLICT (brand_id, name) DO UPDATE
           SET key_id = excluded.key_id, sealed = excluded.sealed, created_at = now()
        """,
        brand_id,
        name,
        key_id,
        sealed,
    )


async def _retire(
    connection: Connection, brand_id: Address, name: KeyName, sealer: Sealer
) -> datetime | None:
    """Return the expiry of the retired key. Raises Misconfigured if it cannot be opened."""
    row = await connection.fetchrow(
        """
        SELECT sealed, key_id, clock_timestamp() + $3::interval AS until
          FROM brand_secrets
         WHERE brand_id = $1 AND name = $2
        """,
        brand_id,
        name,
        RETIRED_FOR,
    )
    if row is None:
        return None
    sealed, key_id, until = row
    if name != "api_key":
        text = sealer.open(sealed, key_id, brand_id, name)
        sealed, key_id = sealer.seal(text, brand_id, sealed_to(name, until)), sealer.key_id
    await connection.execute(
        """
        INSERT INTO retired_secrets (brand_id, name, expires_at, key_id, sealed)
        VALUES ($1, $2, $3, $4, $5)
        """,
        brand_id,
        name,
        until,
        key_id,
        sealed,
    )
    return until  # type: ignore[no-any-return]


async def _delete_retired(
    connection: Connection, brand_id: Address, name: KeyName, *, delete_all: bool
) -> None:
    await connection.execute(
        """
        DELETE FROM retired_secrets
         WHERE brand_id = $1 AND name = $2 AND ($3 OR expires_at <= now())
        """,
        brand_id,
        name,
        delete_all,
    )


def _sealed(brand_id: Address, name: KeyName, key: str, sealer: Sealer) -> tuple[bytes, str | None]:
    if name == "api_key":
        return hashlib.sha256(key.encode()).digest(), None
    return sealer.seal(key, brand_id, name), sealer.key_id


def sealed_to(name: ReadableKey, until: datetime | None) -> str:
    """The name that a brand's key is sealed to, in the encryption's associated data."""
    return name if until is None else f"{name} until {until.isoformat()}"


def _new_key(name: KeyName) -> str:
    match name:
        case "security_key":
            return f"ltzsk_{secrets.token_hex(20)}"
        case "api_key":
            return f"ltzak_{secrets.token_hex(20)}"
        case "webhook_secret":
            return f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}"
        case "verification_token":
            return f"ltzvt_{secrets.token_hex(20)}"
