"""`ltzd init`: writes a first settings file and a first brand file for `ltzd run`.

No file is overwritten, and either both files are written or neither. The command asks for missing
values on standard error if standard input is a terminal, and asks again after an answer that is not
valid. Addresses may have a checksum.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import typer
from pydantic import ValidationError

from ltzd.cli.init_files import starting_brand, starting_settings
from ltzd.cli.output import print_message
from ltzd.errors import FileRejected, Misconfigured
from ltzd.rules.brands.configuration import Brand
from ltzd.rules.brands.toml_documents import reason_of
from ltzd.secret_files import create_private
from ltzd.values import has_right_case

SETTINGS_FILE, BRAND_FILE = "ltzd.toml", "brand.toml"
OPTIONS = {
    "id": "--brand-id",
    "name": "--name",
    "domains": "--domain",
    "daily_mint_budget": "--daily-budget",
}
QUESTIONS: Mapping[str, str] = {
    "id": "The brand's id (its wallet address)",
    "domains": "The domain that sends the brand's events",
    "daily_mint_budget": "The LTZ that the brand may give away in a day (0 is no limit)",
}
_VALID = {"id": f"0x{'0' * 40}", "name": "shop", "domains": ("a.example",), "daily_mint_budget": 0}
"""Stands for the other fields while one answer is checked."""
_NEXT_STEPS = """\
Wrote {settings} and {brand}. Next, with the paths that {settings} names:
  1. openssl rand -hex 32 > master.key && chmod 600 master.key
     Fill in master_key_file, and keep a copy apart from the database's backups.
  2. ltzd key new minter.json    and    ltzd key new relay.json
     Fill in the key and password files, and send gas money to both addresses.
  3. Fill in database_url, [node] urls and chain_id, and [identity].
  4. ltzd deploy --config {settings} --key ADMIN_KEY --chain-id ID \\
       --minter 0x… --mint-limit LTZ --relayer 0x…
     Copy the addresses that it prints into [contracts].
  5. ltzd check --config {settings}
     It names what is still missing. Repeat it until it finds no fault.
  6. ltzd run --config {settings}
  7. ltzd brand apply {brand} --config {settings}
     It prints the brand's keys once: store them.
docs/deploy explains each step."""


def init(
    folder: Path,
    *,
    brand_id: str | None,
    name: str | None,
    domains: Sequence[str],
    daily_budget: int | None,
) -> None:
    _refuse_to_overwrite(folder)
    fields = _ask_for_missing(
        {
            "id": brand_id,
            "domains": tuple(domains) or None,
            "daily_mint_budget": daily_budget,
        }
    )
    brand = _validate({"name": name or fields["domains"][0]} | fields)
    text = starting_brand(brand.id, brand.name, brand.domains, brand.daily_mint_budget)
    _write_all({folder / SETTINGS_FILE: starting_settings(), folder / BRAND_FILE: text})
    print_message(_NEXT_STEPS.format(settings=folder / SETTINGS_FILE, brand=folder / BRAND_FILE))


def _refuse_to_overwrite(folder: Path) -> None:
    for path in (folder / SETTINGS_FILE, folder / BRAND_FILE):
        if path.exists() or path.is_symlink():
            raise Misconfigured(f"{path} exists already and is not overwritten.")


def _ask_for_missing(given: Mapping[str, Any]) -> dict[str, Any]:
    """Ask for the values without an option. Raises Misconfigured without a terminal."""
    missing = [OPTIONS[field] for field, value in given.items() if value is None]
    if missing and not sys.stdin.isatty():
        raise Misconfigured(f"Give {', '.join(missing)}: standard input is not a terminal.")
    return {field: _ask(field) if value is None else value for field, value in given.items()}


def _ask(field: str) -> Any:
    """Ask until the answer is valid."""
    return typer.prompt(QUESTIONS[field], value_proc=partial(_answer, field), err=True)


def _answer(field: str, text: str) -> Any:
    """The answer as the brand's field; raises BadParameter, after which typer asks again."""
    value: Any = (text.strip(),) if field == "domains" else text.strip()
    if field == "daily_mint_budget":
        if not value.removeprefix("-").isdecimal():
            raise typer.BadParameter("must be a whole number")
        value = int(value)
    try:
        brand = _brand_of(_VALID | {field: value})
    except ValidationError as error:
        raise typer.BadParameter(_reasons(error)) from None
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return getattr(brand, field)


def _validate(fields: dict[str, Any]) -> Brand:
    """Raises FileRejected with a line for each invalid option."""
    try:
        return _brand_of(fields)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        raise FileRejected(
            [f"{OPTIONS[str(fault['loc'][0])]}: {reason_of(fault)}" for fault in details]
        ) from None
    except ValueError as error:
        raise FileRejected([f"{OPTIONS['id']}: {error}"]) from None


def _brand_of(fields: dict[str, Any]) -> Brand:
    """Raises ValidationError, and ValueError for an address whose checksum is wrong."""
    address = fields["id"]
    brand = Brand.model_validate(fields | {"id": address.lower()})
    if not has_right_case(address):
        raise ValueError("must be an address whose checksum (the letters' case) is right")
    return brand


def _reasons(error: ValidationError) -> str:
    return "; ".join(
        reason_of(fault) for fault in error.errors(include_url=False, include_input=False)
    )


def _write_all(files: Mapping[Path, str]) -> None:
    """Mode 0600, because a person may put passwords into them."""
    written: list[Path] = []
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            create_private(path, text)
            written.append(path)
    except OSError as error:
        for path in written:
            with suppress(OSError):
                path.unlink()
        raise Misconfigured(f"{error.filename} cannot be written: {error.strerror}.") from error
