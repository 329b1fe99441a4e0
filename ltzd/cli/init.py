"""`ltzd init`: a settings file and a brand file to begin with, for `ltzd run`.

Nothing is overwritten, and either both files are written or none. Questions are asked on standard
error, and only of a person at a terminal.
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
    "id": ("The brand's id (its wallet's address)", str),
    "domains": ("The domain that its events come from", str),
    "daily_mint_budget": ("How much LTZ may it give away in a day (0: no limit)", int),
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
    fields = _complete(
        {
            "id": brand_id,
            "domains": tuple(domains) or None,
            "daily_mint_budget": daily_budget,
        }
    )
    brand = _checked({"name": name or fields["domains"][0]} | fields)
    text = starting_brand(brand.id, brand.name, brand.domains, brand.daily_mint_budget)
    _write_all({folder / SETTINGS_FILE: starting_settings(), folder / BRAND_FILE: text})
    settings = folder / SETTINGS_FILE
    print_message(f"{settings} is there: fill in what is empty, then: ltzd run --config {settings}")
    print_message(
        f"{folder / BRAND_FILE} is there: look through it, then: "
        f"ltzd brand apply {folder / BRAND_FILE} --config {settings}"
    )


def _refuse_to_overwrite(folder: Path) -> None:
    for path in (folder / SETTINGS_FILE, folder / BRAND_FILE):
        if path.exists() or path.is_symlink():
            raise Misconfigured(f"{path} is there already, and is not overwritten.")


def _complete(given: Mapping[str, Any]) -> dict[str, Any]:
    """Asks for what no option says. Raises Misconfigured where nobody can be asked."""
    missing = [OPTIONS[field] for field, value in given.items() if value is None]
    if missing and not sys.stdin.isatty():
        raise Misconfigured(f"Give {', '.join(missing)}: there is no terminal to ask at.")
    return {field: _asked(field) if value is None else value for field, value in given.items()}


def _asked(field: str) -> Any:
    question, kind = QUESTIONS[field]
    answer = typer.prompt(question, type=kind, err=True)
    return (answer,) if field == "domains" else answer


def _checked(fields: dict[str, Any]) -> Brand:
    """Raises FileRejected with a line for each option that does not fit."""
    try:
        return Brand.model_validate(fields | {"id": fields["id"].lower()})
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise FileRejected(
            [f"{OPTIONS[str(fault['loc'][0])]}: {reason_of(fault)}" for fault in found]
        ) from None


def _write_all(files: Mapping[Path, str]) -> None:
    """Mode 0600, since passwords may go into them."""
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
