"""Brands in the database: each one's whole configuration, and the keys made when it first came.

`revision` grows with every change, in commit order, so whoever has read revision n and finds n
to be the latest has missed nothing.
"""

import base64
import hashlib
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import structlog
from pydantic import ValidationError

from ltzd.errors import Misconfigured
from ltzd.rules.brands import Brand, EventRule
from ltzd.store import signals
from ltzd.store.database import Connection
from ltzd.store.sealing import Sealer
from ltzd.values import Address, hex_of

log = structlog.get_logger()

ReadableSecret = Literal["security_key", "webhook_secret", "verification_token"]


@dataclass(frozen=True, slots=True)
class NewKeys:
    """A brand's keys in clear: shown once, then sealed or hashed."""

    brand_id: str
    security_key: str = field(repr=False)
    api_key: str = field(repr=False)
    webhook_secret: str = field(repr=False)
    verification_token: str = field(repr=False)

    def as_json(self) -> dict[str, str]:
        return {
            "brandId": self.brand_id,
            "securityKey": self.security_key,
            "apiKey": self.api_key,
            "webhookSecret": self.webhook_secret,
            "verificationToken": self.verification_token,
        }


@dataclass(frozen=True, slots=True)
class Applied:
    """`keys` only when the brand was applied for the first time."""

    changed: bool
    keys: NewKeys | None


async def apply(connection: Connection, brand: Brand, sealer: Sealer) -> Applied:
    """Make `brand` the configuration in force; all of it or, if anything fails, nothing."""
    async with connection.transaction():
        # One change at a time, so that revisions are committed in their order. Readers go on.
        await connection.execute("LOCK TABLE brands IN SHARE ROW EXCLUSIVE MODE")
        is_new = not await _exists(connection, brand.address)
        old = None if is_new else await _understood(connection, brand.address)
        if old == brand:
            return Applied(changed=False, keys=None)
        await _write(connection, brand)
        await _forget_totals(connection, brand, old)
        keys = _new_keys(brand.id) if is_new else None
        if keys is not None:
            await _write_keys(connection, brand.address, keys, sealer)
        await signals.notify(connection, signals.BRANDS)
    return Applied(changed=True, keys=keys)


async def load(connection: Connection, brand_id: Address) -> Brand | None:
    """Raises Misconfigured if another version wrote what this one does not understand."""
    text: str | None = await connection.fetchval(
        "SELECT configuration::text FROM brands WHERE id = $1", brand_id
    )
    return None if text is None else _parsed(brand_id, text)


async def latest_revision(connection: Connection) -> int:
    """0 while there is no brand."""
    revision: int = await connection.fetchval("SELECT coalesce(max(revision), 0) FROM brands")
    return revision


async def secret_of(
    connection: Connection, brand_id: Address, name: ReadableSecret, sealer: Sealer
) -> str | None:
    """One of a brand's keys in clear, None for an unknown brand; an API key cannot be read."""
    row = await connection.fetchrow(
        """
        SELECT sealed, key_id
          FROM brand_secrets
         WHERE brand_id = $1 AND name = $2 AND key_id IS NOT NULL
        """,
        brand_id,
        name,
    )
    return None if row is None else sealer.open(row["sealed"], row["key_id"], brand_id, name)


def diff(old: Brand | None, new: Brand) -> list[str]:
    """What applying `new` changes, a line for each; no lines if nothing."""
    if old is None:
        return [f"+ brand {new.id}: new", *_event_changes((), new.events)]
    fields = [name for name in Brand.model_fields if name != "events"]
    changed = [name for name in fields if getattr(old, name) != getattr(new, name)]
    lines = [f"~ {name}: {_shown(old, name)} -> {_shown(new, name)}" for name in changed]
    return lines + _event_changes(old.events, new.events)


class BrandBook:
    """The brands of this process's memory, a moment behind the database.

    Call `refresh` when signals.BRANDS rings and at least once a second; it is cheap when nothing
    changed.
    """

    def __init__(self) -> None:
        self._brands: dict[Address, Brand] = {}
        self._revisions: dict[Address, int] = {}
        self._latest = 0
        self.domains: frozenset[str] = frozenset()
        """Every brand's domains, in normal form."""

    def get(self, address: Address) -> Brand | None:
        return self._brands.get(address)

    async def refresh(self, connection: Connection) -> bool:
        """Answers whether anything changed.

        What another version wrote and this one does not understand is logged; that brand keeps
        the configuration it had here, and the others go on.
        """
        if await latest_revision(connection) == self._latest:
            return False
        rows = await connection.fetch("SELECT id, revision, configuration::text FROM brands")
        brands = {}
        for key, revision, text in rows:
            brand = self._kept_or_parsed(Address(key), revision, text)
            if brand is not None:
                brands[Address(key)] = brand
        self._brands = brands
        self._revisions = {Address(key): revision for key, revision, _ in rows}
        self._latest = max(self._revisions.values(), default=0)
        self.domains = frozenset(name for brand in brands.values() for name in brand.domains)
        return True

    def _kept_or_parsed(self, key: Address, revision: int, text: str) -> Brand | None:
        kept = self._brands.get(key)
        if self._revisions.get(key) == revision:
            return kept
        try:
            return _parsed(key, text)
        except Misconfigured as error:
            log.error("brands.not_understood", brand=hex_of(key), advice=error.message)
            return kept


def _parsed(brand_id: Address, text: str) -> Brand:
    try:
        return Brand.model_validate_json(text)
    except ValidationError as error:
        raise Misconfigured(
            f"This ltzd does not understand the stored configuration of brand {hex_of(brand_id)}; "
            "apply the brand's file again, or run the ltzd that wrote it."
        ) from error


async def _exists(connection: Connection, brand_id: Address) -> bool:
    found: bool = await connection.fetchval(
        "SELECT EXISTS (SELECT 1 FROM brands WHERE id = $1)", brand_id
    )
    return found


async def _understood(connection: Connection, brand_id: Address) -> Brand | None:
    try:
        return await load(connection, brand_id)
    except Misconfigured:
        return None


async def _forget_totals(connection: Connection, brand: Brand, old: Brand | None) -> None:
    """Totals stand still while a type has no global maximum, so a new maximum counts anew."""
    before = set() if old is None else _limited_types(old)
    await connection.execute(
        "DELETE FROM claim_totals WHERE brand_id = $1 AND event_type <> ALL($2::text[])",
        brand.address,
        sorted(before & _limited_types(brand)),
    )


def _limited_types(brand: Brand) -> set[str]:
    return {rule.type for rule in brand.configured_events() if rule.max_total_claims is not None}


async def _write(connection: Connection, brand: Brand) -> None:
    await connection.execute(
        """
        INSERT INTO brands (id, name, configuration, revision)
        VALUES ($1, $2, $3::text::jsonb, nextval('brand_revisions'))
            ON CONFLICT (id) DO UPDATE
           SET name = excluded.name,
               configuration = excluded.configuration,
               revision = excluded.revision,
               updated_at = now()
        """,
        brand.address,
        brand.name,
        brand.model_dump_json(),
    )


def _new_keys(brand_id: str) -> NewKeys:
    return NewKeys(
        brand_id=brand_id,
        security_key=f"ltzsk_{secrets.token_hex(20)}",
        api_key=f"ltzak_{secrets.token_hex(20)}",
        webhook_secret=f"whsec_{base64.b64encode(secrets.token_bytes(32)).decode()}",
        verification_token=f"ltzvt_{secrets.token_hex(20)}",
    )


async def _write_keys(
    connection: Connection, brand_id: Address, keys: NewKeys, sealer: Sealer
) -> None:
    readable = {
        "security_key": keys.security_key,
        "webhook_secret": keys.webhook_secret,
        "verification_token": keys.verification_token,
    }
    rows: list[tuple[Address, str, str | None, bytes]] = [
        (brand_id, name, sealer.key_id, sealer.seal(text, brand_id, name))
        for name, text in readable.items()
    ]
    rows.append((brand_id, "api_key", None, hashlib.sha256(keys.api_key.encode()).digest()))
    await connection.executemany(
        "INSERT INTO brand_secrets (brand_id, name, key_id, sealed) VALUES ($1, $2, $3, $4)", rows
    )


def _event_changes(old: Iterable[EventRule], new: Iterable[EventRule]) -> list[str]:
    before = {rule.type: rule for rule in old}
    after = {rule.type: rule for rule in new}
    lines = [f"- event {kind}" for kind in before if kind not in after]
    for kind, rule in after.items():
        if kind not in before:
            lines.append(f"+ event {kind}: {_own_words(rule)}")
        elif before[kind] != rule:
            lines.append(f"~ event {kind}: {_changes(before[kind], rule)}")
    return lines


def _own_words(rule: EventRule) -> str:
    """Only what the file says; all else is the default."""
    said = [name for name in EventRule.model_fields if name in rule.model_fields_set - {"type"}]
    return ", ".join(f"{name} {_shown(rule, name)}" for name in said) or "all defaults"


def _changes(old: EventRule, new: EventRule) -> str:
    changed = [n for n in EventRule.model_fields if getattr(old, n) != getattr(new, n)]
    return ", ".join(f"{name} {_shown(old, name)} -> {_shown(new, name)}" for name in changed)


def _shown(record: Brand | EventRule, name: str) -> str:
    value = getattr(record, name)
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case tuple():
            return "[" + ", ".join(map(str, value)) + "]"
    return str(value)
