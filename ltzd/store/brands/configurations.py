"""Brands in the database: the whole configuration of each, and the keys of a new brand.

`revision` grows with every change, in commit order. A reader that has read revision n and finds n
to be the latest has missed no change.
"""

import msgspec
import structlog
from pydantic import ValidationError

from ltzd.errors import Misconfigured
from ltzd.rules.brands.configuration import Brand
from ltzd.store import wakeups
from ltzd.store.brands import keys as brand_keys
from ltzd.store.brands.keys import NewKeys
from ltzd.store.brands.revisions import brand_change
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import Address, hex_of

log = structlog.get_logger()


class AppliedBrand(msgspec.Struct, frozen=True):
    """`keys` is set only when the brand was applied for the first time."""

    changed: bool
    keys: NewKeys | None


async def apply(connection: Connection, brand: Brand, sealer: Sealer) -> AppliedBrand:
    """Make `brand` the configuration in force, all of it or, if anything fails, nothing.

    An existing brand keeps its switches and keys. Raises Misconfigured for a host that is another
    brand's site.
    """
    async with brand_change(connection):
        return await _apply(connection, brand, sealer)


async def apply_over(
    connection: Connection, revision: int, brand: Brand, sealer: Sealer
) -> AppliedBrand | None:
    """As `apply`, but returns None and changes nothing if the brand is not at this revision; 0 is a
    new brand.
    """
    async with brand_change(connection):
        if await revision_of(connection, brand.address) != revision:
            return None
        return await _apply(connection, brand, sealer)


async def _apply(connection: Connection, brand: Brand, sealer: Sealer) -> AppliedBrand:
    is_new = await revision_of(connection, brand.address) == 0
    old = None if is_new else await _load_readable(connection, brand.address)
    if old == brand:
        return AppliedBrand(changed=False, keys=None)
    await refuse_taken_sites(connection, brand)
    await _write(connection, brand)
    await _delete_stale_totals(connection, brand, old)
    keys = NewKeys.of(brand.id) if is_new else None
    if keys is not None:
        await brand_keys.create_private(connection, brand.address, keys, sealer)
    await wakeups.notify(connection, wakeups.BRANDS)
    return AppliedBrand(changed=True, keys=keys)


async def load(connection: Connection, brand_id: Address) -> Brand | None:
    """Raises Misconfigured if this version cannot read a configuration that another version
    wrote.
    """
    text: str | None = await connection.fetchval(
        "SELECT configuration::text FROM brands WHERE id = $1", brand_id
    )
    return None if text is None else _parsed(brand_id, text)


async def revision_of(connection: Connection, brand_id: Address) -> int:
    """Return 0 for an unknown brand."""
    revision: int | None = await connection.fetchval(
        "SELECT revision FROM brands WHERE id = $1", brand_id
    )
    return revision or 0


async def latest_revision(connection: Connection) -> int:
    """Return 0 if there is no brand."""
    revision: int = await connection.fetchval("SELECT coalesce(max(revision), 0) FROM brands")
    return revision


class _CachedBrand(msgspec.Struct, frozen=True):
    """`brand` is None if this version has never been able to read its configuration."""

    revision: int
    brand: Brand | None
    is_disabled: bool
    is_paused: bool


class BrandCache:
    """The brands in this process's memory, a moment behind the database.

    Call `refresh` on a wake-up of `wakeups.BRANDS` and at least once a second; a refresh is cheap
    if nothing has changed.
    """

    def __init__(self) -> None:
        self._entries: dict[Address, _CachedBrand] = {}
        self._known: dict[Address, Brand] = {}
        self._latest = 0
        self.ids: frozenset[str] = frozenset()
        """The ids of every brand that is not disabled, as in its file."""
        self._by_site: dict[str, Brand] = {}
        self.unreadable: dict[Address, str] = {}
        """Why this version cannot read a brand's configuration, by the brand's address."""
        self.domains: frozenset[str] = frozenset()
        """The domains and sites of every brand that is not disabled, in normal form."""

    def get(self, address: Address) -> Brand | None:
        """The brand's configuration, or None for an unknown and for a disabled brand.

        Every surface treats a disabled brand as an unknown one.
        """
        return self._known.get(address)

    def with_site(self, host: str) -> Brand | None:
        """The brand whose site is at this host, in normal form; a disabled brand has no site."""
        return self._by_site.get(host)

    def configuration(self, address: Address) -> Brand | None:
        """As `get`, but returns the configuration of a disabled brand, too."""
        entry = self._entries.get(address)
        return None if entry is None else entry.brand

    def may_be_constrained(self, collection_id: int) -> bool:
        """Whether any brand's configuration constrains the collection, or cannot be read.

        Only the chain knows the collection's brand.
        """
        return any(
            entry.brand is None or entry.brand.constraints_on(collection_id)
            for entry in self._entries.values()
        )

    def is_paused(self, address: Address) -> bool:
        """Whether the brand's rewards wait; its events are accepted all the same."""
        entry = self._entries.get(address)
        return entry is not None and entry.is_paused

    def revision_of(self, address: Address) -> int:
        """Grows with every change of the brand and its keys; 0 for an unknown brand."""
        entry = self._entries.get(address)
        return 0 if entry is None else entry.revision

    async def refresh(self, connection: Connection) -> bool:
        """Return whether anything changed.

        A configuration that this version cannot read is logged. That brand keeps the configuration
        it had in this cache, and the other brands are refreshed.
        """
        if await latest_revision(connection) == self._latest:
            return False
        rows = await connection.fetch(
            """
            SELECT id, revision, configuration::text, disabled_at IS NOT NULL, paused_at IS NOT NULL
              FROM brands
            """
        )
        self._entries = {
            Address(key): _CachedBrand(
                revision, self._kept_or_parsed(Address(key), revision, text), is_disabled, is_paused
            )
            for key, revision, text, is_disabled, is_paused in rows
        }
        self._known = {
            key: entry.brand
            for key, entry in self._entries.items()
            if entry.brand is not None and not entry.is_disabled
        }
        self.ids = frozenset(map(hex_of, self._known))
        self._by_site = {
            host: brand
            for brand in self._known.values()
            if brand.site is not None
            for host in brand.site.hosts
        }
        self._latest = max((entry.revision for entry in self._entries.values()), default=0)
        self.domains = frozenset(name for brand in self._known.values() for name in brand.domains)
        self.domains |= self._by_site.keys()
        return True

    def _kept_or_parsed(self, key: Address, revision: int, text: str) -> Brand | None:
        entry = self._entries.get(key)
        kept = None if entry is None else entry.brand
        if entry is not None and entry.revision == revision:
            return kept
        try:
            brand = _parsed(key, text)
        except Misconfigured as error:
            self.unreadable[key] = error.message
            log.error("brands.configuration_unreadable", brand=hex_of(key), advice=error.message)
            return kept
        self.unreadable.pop(key, None)
        return brand


def _parsed(brand_id: Address, text: str) -> Brand:
    try:
        return Brand.model_validate_json(text)
    except ValidationError as error:
        raise Misconfigured(
            "This version of ltzd cannot read the stored configuration of brand "
            f"{hex_of(brand_id)}; "
            "apply the brand's file again, or run the ltzd that wrote it."
        ) from error


async def _load_readable(connection: Connection, brand_id: Address) -> Brand | None:
    try:
        return await load(connection, brand_id)
    except Misconfigured:
        return None


async def _delete_stale_totals(connection: Connection, brand: Brand, old: Brand | None) -> None:
    """Delete totals of event types that had no maximum before: a new maximum counts again."""
    before = set() if old is None else _limited_types(old)
    await connection.execute(
        "DELETE FROM event_claim_totals WHERE brand_id = $1 AND event_type <> ALL($2::text[])",
        brand.address,
        sorted(before & _limited_types(brand)),
    )


async def refuse_taken_sites(connection: Connection, brand: Brand) -> None:
    """Raises Misconfigured if a host is another brand's site; within `brand_change` none is added
    meanwhile."""
    hosts = [] if brand.site is None else list(brand.site.hosts)
    row = await connection.fetchrow(
        """
        SELECT id, host
          FROM brands
         CROSS JOIN LATERAL jsonb_array_elements_text(
               CASE WHEN jsonb_typeof(configuration #> '{site,hosts}') = 'array'
                    THEN configuration #> '{site,hosts}' ELSE '[]' END) AS named (host)
         WHERE id <> $1 AND host = ANY($2::text[])
         LIMIT 1
        """,
        brand.address,
        hosts,
    )
    if row is not None:
        raise Misconfigured(
            f"site.hosts: {row['host']} is the site of brand {hex_of(row['id'])} already; "
            "take it out of that brand's file first."
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
