"""The files that `ltzd init` writes, made from the package's copies of the examples in config/.

In the settings file the values that only the operator knows are empty, so that `ltzd run` names
them, and optional settings are comments. In the brand file the example's events and perks are
comments.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import Final

from ltzd.rules.brands.toml_writer import toml_value

REQUIRED_BY_OPERATOR: Final = (
    "database_url",
    "urls",
    "ltz",
    "perk_nft",
    "points_sale",
    "business_escrow",
    "base_url",
    "app_id",
)
OPTIONAL: Final = (
    "chain_id",
    "redis_url",
    "explorer_url",
    "own_origins",
    "proxies_count",
    "trusted_proxies",
)
_SETTING = re.compile(r'(?P<name>[a-z_]+) = (?P<value>"[^"]*"|\[[^]]*\]|[^ #]+)')


def starting_settings() -> str:
    lines = _with_values(_example("ltzd.toml"), dict.fromkeys(REQUIRED_BY_OPERATOR, '""'))
    return _text(f"#{line}" if _name_in(line) in OPTIONAL else line for line in lines)


def starting_brand(brand_id: str, name: str, domains: Sequence[str], daily_budget: int) -> str:
    lines = _example("brand.toml")
    first_event = lines.index("[[events]]")
    settings = _with_values(
        lines[:first_event],
        {
            "id": toml_value(brand_id),
            "name": toml_value(name),
            "domains": toml_value(tuple(domains)),
            "daily_mint_budget": toml_value(daily_budget),
        },
    )
    entries = [f"#{line}" if line else line for line in lines[first_event:]]
    return _text(settings + entries)


def _example(name: str) -> list[str]:
    file = resources.files("ltzd.cli").joinpath(f"templates/{name}")
    return file.read_text(encoding="utf-8").splitlines()


def _name_in(line: str) -> str | None:
    setting = _SETTING.match(line)
    return setting["name"] if setting else None


def _with_values(lines: Iterable[str], values: Mapping[str, str]) -> list[str]:
    """The lines with these settings' values replaced; the comments beside them stay in place."""
    changed = []
    for line in lines:
        setting = _SETTING.match(line)
        if setting and setting["name"] in values:
            value = values[setting["name"]].ljust(len(setting["value"]))
            changed.append(f"{setting['name']} = {value}{line[setting.end() :]}".rstrip())
        else:
            changed.append(line)
    return changed


def _text(lines: Iterable[str]) -> str:
    return "\n".join(lines) + "\n"
