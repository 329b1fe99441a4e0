"""The demo brands: declared in TOML files and applied once, like any other brand.

A brand that already exists keeps its configuration, which its user may have changed. Only the
sections that an older ltzd could not declare (perks, site) are added, and a webhook address in the
sandbox is updated when the sandbox's port changes. The brand's keys, which `apply` can show only
once, are kept in the data directory for `dev.json`.
"""

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ltzd.errors import Misconfigured
from ltzd.rules.brands.configuration import Brand, parse_brand_file
from ltzd.rules.domains.customer_urls import is_loopback_host
from ltzd.rules.domains.names import url_host
from ltzd.secret_files import read_secret, write_private
from ltzd.store import database
from ltzd.store.brands import configurations as brands
from ltzd.store.encryption.sealing import Sealer


class DemoBrand(msgspec.Struct, frozen=True):
    """A brand as its file declares it; `section` is its part of dev.json."""

    brand: Brand
    section: dict[str, Any]

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
    """Apply `demo/<name>.toml` unless its brand exists; raises Misconfigured for lost keys."""
    text = resources.files("ltzd.dev").joinpath(f"demo/{name}.toml").read_text(encoding="utf-8")
    declared = parse_brand_file(text, f"{name}.toml")
    inbox = inbox_url(declared.id)
    brand = declared.model_copy(update={"webhook_url": inbox})
    keys_file = data_dir / f"{name}.keys.json"
    connection = await database.connect(database_url, "demo")
    try:
        async with connection.transaction():
            stored = await brands.load(connection, brand.address)
            if stored is not None:
                await brands.apply(connection, _with_newer_sections(stored, brand, inbox), sealer)
            if stored is None:
                applied = await brands.apply(connection, brand, sealer)
                assert applied.keys is not None
                # Written before the commit: a brand without its keys could not be used.
                write_private(keys_file, json.dumps(applied.keys.as_json()))
    finally:
        await connection.close()
    keys = _read_keys(keys_file)
    section = {
        "brandId": brand.id,
        "domain": brand.domains[0],
        "securityKey": keys["securityKey"],
        "apiKey": keys["apiKey"],
        "webhookSecret": keys["webhookSecret"],
        "verificationToken": keys["verificationToken"],
    }
    return DemoBrand(brand, section)


def _with_newer_sections(stored: Brand, demo: Brand, inbox: str) -> Brand:
    changes: dict[str, Any] = {}
    for name in ("perks", "site"):
        if name not in stored.model_fields_set:
            # An older ltzd stored this brand, so its user has not chosen to leave the section out.
            changes[name] = getattr(demo, name)
    webhook_url = stored.webhook_url or ""
    if _path(webhook_url) == _path(inbox) and is_loopback_host(url_host(webhook_url)):
        changes["webhook_url"] = inbox
    return stored.model_copy(update=changes)


def _path(url: str) -> str:
    return urlsplit(url).path


def _read_keys(path: Path) -> dict[str, str]:
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
