"""`ltzd init`: writes a first settings file and a first brand file for `ltzd run`.

No file is overwritten, and either both files are written or neither. The command asks for missing
values on standard error if standard input is a terminal.
"""

import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
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

SETTINGS_FILE, BRAND_FILE = "ltzd.toml", "brand.toml"
OPTIONS = {
    "id": "--brand-id",
    "name": "--name",
    "domains": "--domain",
    "daily_mint_budget": "--daily-budget",
}
QUESTIONS: Mapping[str, tuple[str, type]] = {
    "id": ("The brand's id (its wallet address)", str),
    "domains": ("The domain that sends its events", str),
    "daily_mint_budget": ("The LTZ it may give away in a day (0 is no limit)", int),
}


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
    settings = folder / SETTINGS_FILE
    print_message(f"Wrote {settings}. Fill in the empty values, then: ltzd run --config {settings}")
    print_message(
        f"Wrote {folder / BRAND_FILE}. Review it, then: "
        f"ltzd brand apply {folder / BRAND_FILE} --config {settings}"
    )


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
    question, kind = QUESTIONS[field]
    answer = typer.prompt(question, type=kind, err=True)
    return (answer,) if field == "domains" else answer


def _validate(fields: dict[str, Any]) -> Brand:
    """Raises FileRejected with a line for each invalid option."""
    try:
        return Brand.model_validate(fields | {"id": fields["id"].lower()})
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        raise FileRejected(
            [f"{OPTIONS[str(fault['loc'][0])]}: {reason_of(fault)}" for fault in details]
        ) from None


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
