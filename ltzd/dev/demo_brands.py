"""The demo brands: declared in files, applied like any other, once.

A brand that is there already is left as it is: somebody may have changed it. Only perks and site,
which an older ltzd could not declare, are added, and a webhook address in the sandbox follows it to
another port. Its keys, which are shown only once, are kept in the data directory for `dev.json`.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from ltzd.errors import Misconfigured
from ltzd.rules.brands.configuration import Brand, parse_brand_file
from ltzd.rules.domains.customer_urls import is_loopback_host
from ltzd.rules.domains.names import url_host
from ltzd.secret_files import read_secret, write_private
from ltzd.store import database
from ltzd.store.brands import configurations as brands
from ltzd.store.encryption.sealing import Sealer


@dataclass(frozen=True, slots=True)
class DemoBrand:
    """As its file declares it; `door` is the brand's part of dev.json."""

    brand: Brand
    door: dict[str, Any]

    @property
    def brand_id(self) -> str:
        return self.brand.id

    @property
    def domain(self) -> str:
        return self.brand.domains[0]


async def apply(
    data_dir: Path,
    database_url: str,
    sealer: Sealer,
    name: str,
    inbox_url: Callable[[str], str],
) -> DemoBrand:
    """Apply `demo/<name>.toml` unless its brand exists; answers what dev.json tells of it."""
    text = resources.files("ltzd.dev").joinpath(f"demo/{name}.toml").read_text(encoding="utf-8")
    declared = parse_brand_file(text, f"{name}.toml")
    inbox = inbox_url(declared.id)
    brand = declared.model_copy(update={"webhook_url": inbox})
    kept = data_dir / f"{name}.keys.json"
    connection = await database.connect(database_url, "demo")
    try:
        async with connection.transaction():
            stored = await brands.load(connection, brand.address)
            if stored is not None:
                await brands.apply(connection, _up_to_date(stored, brand, inbox), sealer)
            if stored is None:
                applied = await brands.apply(connection, brand, sealer)
                assert applied.keys is not None
                # Before the commit: keys without a brand do no harm, a brand without keys would.
                write_private(kept, json.dumps(applied.keys.as_json()))
    finally:
        await connection.close()
    keys = _kept(kept)
    door = {
        "brandId": brand.id,
        "domain": brand.domains[0],
        "securityKey": keys["securityKey"],
        "apiKey": keys["apiKey"],
        "webhookSecret": keys["webhookSecret"],
        "verificationToken": keys["verificationToken"],
    }
    return DemoBrand(brand, door)


def _up_to_date(stored: Brand, demo: Brand, inbox: str) -> Brand:
    changes: dict[str, Any] = {}
    for name in ("perks", "site"):
        if name not in stored.model_fields_set:
            # As an older ltzd stored it: nobody has decided against them.
            changes[name] = getattr(demo, name)
    known = stored.webhook_url or ""
    if _path(known) == _path(inbox) and is_loopback_host(url_host(known)):
        changes["webhook_url"] = inbox
    return stored.model_copy(update=changes)


def _path(url: str) -> str:
    return urlsplit(url).path


def _kept(path: Path) -> dict[str, str]:
    lost = Misconfigured(
        f"The demo brand's keys in {path} cannot be read, though its brand is in the database; "
        "start with --clean, or with a database that does not hold it."
    )
    if not path.exists():
        raise lost
    try:
        keys: dict[str, str] = json.loads(read_secret(path))
        return keys
    except ValueError as error:
        raise lost from error
