"""Describes the changes that applying a brand file makes, a line for each."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pydantic import BaseModel

from ltzd.rules.brands.configuration import LISTS, Brand, Site
from ltzd.rules.brands.toml_writer import toml_value
from ltzd.rules.constraints.constraints import ExternalApi


class _List(NamedTuple):
    """A list of the brand file: its field, the word for an entry, and the keys that name one."""

    name: str
    entry: str
    keys: tuple[str, ...]

    def named(self, entries: Sequence[BaseModel]) -> dict[str, BaseModel]:
        """Entries by name. Constraints may have equal names, so these are numbered."""
        named: dict[str, BaseModel] = {}
        times: Counter[str] = Counter()
        for entry in entries:
            name = " ".join(str(getattr(entry, key)) for key in self.keys)
            times[name] += 1
            named[name if times[name] == 1 else f"{name} #{times[name]}"] = entry
        return named


_LISTS = (
    _List("events", "event", ("type",)),
    _List("perks", "perk", ("id",)),
    _List("constraints", "constraint on collection", ("collection_id", "kind")),
)


def changes(old: Brand | None, new: Brand) -> list[str]:
    """Return no lines if nothing changes. For a new brand, describes its whole file."""
    if old is None:
        lines = [f"+ brand {new.id}: new", *_settings(new)]
    else:
        fields = [name for name in Brand.model_fields if name not in LISTS and name != "site"]
        changed = [name for name in fields if getattr(old, name) != getattr(new, name)]
        lines = [f"~ {name}: {_shown(old, name)} -> {_shown(new, name)}" for name in changed]
        lines += _site_changes(old.site, new.site)
    for each in _LISTS:
        before = () if old is None else getattr(old, each.name)
        lines += _entry_changes(each, before, getattr(new, each.name))
    return lines


def _settings(brand: Brand) -> list[str]:
    """The settings that differ from the defaults."""
    fields = {name: field for name, field in Brand.model_fields.items() if name != "id"}
    return [
        f"+ {name}: {_shown(brand, name)}"
        for name, field in fields.items()
        if name not in (*LISTS, "site") and getattr(brand, name) != field.default
    ] + _site_changes(None, brand.site)


def _site_changes(old: Site | None, new: Site | None) -> list[str]:
    if old == new:
        return []
    if new is None:
        return ["- site"]
    if old is None:
        given = [name for name in Site.model_fields if name in new.model_fields_set]
        return ["+ site: " + ", ".join(f"{name} {_shown(new, name)}" for name in given)]
    return [f"~ site: {_changes(old, new)}"]


def _entry_changes(each: _List, old: Sequence[BaseModel], new: Sequence[BaseModel]) -> list[str]:
    before, after = each.named(old), each.named(new)
    lines = [f"- {each.entry} {key}" for key in before if key not in after]
    for key, entry in after.items():
        if key not in before:
            lines.append(f"+ {each.entry} {key}: {_given_fields(each, entry)}")
        elif before[key] != entry:
            lines.append(f"~ {each.entry} {key}: {_changes(before[key], entry)}")
    if not lines and list(before) != list(after):
        lines.append(f"~ {each.name}: in another order")
    return lines


def _given_fields(each: _List, entry: BaseModel) -> str:
    """The fields that the file gives; the others have defaults."""
    names = entry.model_fields_set.difference(each.keys)
    given = [name for name in type(entry).model_fields if name in names]
    return ", ".join(f"{name} {_shown(entry, name)}" for name in given) or "all defaults"


def _changes(old: BaseModel, new: BaseModel) -> str:
    # Compared through the record, whose equality may differ from that of the plain values.
    changed = [
        name
        for name in type(old).model_fields
        if old != old.model_copy(update={name: getattr(new, name)})
    ]
    return ", ".join(f"{name} {_shown(old, name)} -> {_shown(new, name)}" for name in changed)


def _shown(record: BaseModel, name: str) -> str:
    value = getattr(record, name)
    if isinstance(record, ExternalApi) and name == "value":
        return toml_value(value)  # Shows true and "true" differently.
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case tuple():
            return "[" + ", ".join(map(str, value)) + "]"
        case Mapping():
            return toml_value(value)
    return str(value)
