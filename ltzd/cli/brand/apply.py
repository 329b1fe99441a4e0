"""`ltzd brand apply`: shows the changes that a brand file makes, then applies them."""

import asyncio
import sys
from pathlib import Path
from typing import TextIO

from ltzd.cli.output import print_json, print_keys, print_message
from ltzd.cli.targets import Target, open_connection, resolve_target
from ltzd.daemon.checks.database import require_master_key
from ltzd.errors import Misconfigured
from ltzd.rules.brands.changes import changes
from ltzd.rules.brands.configuration import Brand, parse_brand_file
from ltzd.rules.brands.warnings import warnings
from ltzd.rules.constraints.constraints import ExternalApi
from ltzd.rules.domains.customer_urls import is_loopback_host
from ltzd.rules.domains.names import url_host
from ltzd.store.brands import configurations as brands
from ltzd.store.brands import records as brand_records
from ltzd.store.brands.configurations import AppliedBrand
from ltzd.store.database import Connection
from ltzd.store.encryption.sealing import Sealer

MAX_BYTES = 2**20


def apply(file: Path, *, dry_run: bool, as_json: bool, data_dir: Path, config: Path | None) -> None:
    """Print the changes on standard output for a dry run, else the keys of a new brand.

    With `as_json` one object with both is printed. Everything else is printed on standard error.
    Raises FileRejected, Misconfigured, Unavailable.
    """
    brand = parse_brand_file(_read_file(file), str(file))
    target = resolve_target(data_dir, config)
    _check_urls(target, brand)
    asyncio.run(_apply(target, brand, dry_run=dry_run, as_json=as_json))


def _read_file(file: Path) -> str:
    """Read at most the size of a brand file, also from a device or a pipe."""
    try:
        with file.open("rb") as stream:
            content = stream.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            raise Misconfigured(f"The brand file {file} is larger than 1 MiB.")
        # Editors on Windows write a byte-order mark at the start of a file.
        return content.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise Misconfigured(
            f"The brand file {file} cannot be read: line {line} is not UTF-8 text."
        ) from error
    except OSError as error:
        raise Misconfigured(f"The brand file {file} cannot be read: {error.strerror}.") from error


def _check_urls(target: Target, brand: Brand) -> None:
    """Except in dev mode and for staging, requests to a loopback host are refused when made."""
    if target.is_for_testing:
        return
    if brand.webhook_url is not None and is_loopback_host(url_host(brand.webhook_url)):
        raise Misconfigured(
            f"webhook_url is {brand.webhook_url}: only a dev instance, or one with staging = true, "
            "may send to its own machine."
        )
    for constraint in brand.constraints:
        if isinstance(constraint, ExternalApi) and is_loopback_host(url_host(constraint.url)):
            raise Misconfigured(
                f"The constraint on collection {constraint.collection_id} queries "
                f"{constraint.url}: "
                "only a dev instance, or one with staging = true, may query its own machine."
            )


async def _apply(target: Target, brand: Brand, *, dry_run: bool, as_json: bool) -> None:
    sealer = target.sealer()
    async with open_connection(target, "brand apply") as connection:
        if not dry_run:
            await require_master_key(connection, sealer)
        shown_on = sys.stdout if dry_run and not as_json else sys.stderr
        lines, applied = await _show_and_apply(connection, brand, sealer, shown_on, dry_run=dry_run)
        if applied is not None:
            await _print_switches(connection, brand)
    for warning in warnings(brand):
        print_message(f"Warning: {warning}")
    keys = None if applied is None or applied.keys is None else applied.keys.as_json()
    if as_json:
        print_document = print_json if keys is None else print_keys
        is_applied = applied is not None
        print_document({"brandId": brand.id, "applied": is_applied, "changes": lines, "keys": keys})
    elif keys is not None:
        print_keys(keys)
    if keys is not None:
        print_message("These keys are shown only this once: store them.")


async def _show_and_apply(
    connection: Connection, brand: Brand, sealer: Sealer, shown_on: TextIO, *, dry_run: bool
) -> tuple[list[str], AppliedBrand | None]:
    """Apply exactly the changes that were shown; retry if another process changed the brand.

    Returns the changes. A dry run applies nothing and returns None beside them. Raises
    Misconfigured if another brand has one of the sites.
    """
    while True:
        revision = await brands.revision_of(connection, brand.address)
        lines = changes(await _in_force(connection, brand), brand)
        print(*(lines or ["nothing changes"]), sep="\n", file=shown_on, flush=True)
        if dry_run:
            await brands.refuse_taken_sites(connection, brand)
            return lines, None
        applied = await brands.apply_over(connection, revision, brand, sealer)
        if applied is not None:
            return lines, applied
        print_message("The brand was changed by somebody else meanwhile. The changes are now:")


async def _in_force(connection: Connection, brand: Brand) -> Brand | None:
    """The stored configuration, if the brand has one that this version can read."""
    try:
        return await brands.load(connection, brand.address)
    except Misconfigured as error:
        print_message(f"{error.message} Applying replaces it.")
        return None


async def _print_switches(connection: Connection, brand: Brand) -> None:
    (record,) = await brand_records.find(connection, brand.id)
    if record.state != "active":
        word = {"disabled": "enable", "paused": "resume"}[record.state]
        print_message(
            f"The brand is still {record.state}; `ltzd brand {word} {brand.id}` changes that."
        )
