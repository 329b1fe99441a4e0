"""Writes a brand's configuration as TOML that `parse_brand_file` reads back to an equal brand.

The file has the defaults too, so that it means the same to a version with other defaults.
"""

from collections.abc import Iterable, Mapping
from decimal import Decimal

from pydantic import BaseModel

from ltzd.rules.brands.configuration import LISTS, Brand

_ESCAPED = {'"': '\\"', "\\": "\\\\"}


def toml_of(brand: Brand) -> str:
    lines = ["[brand]", *_settings(brand, but=(*LISTS, "site"))]
    for name in LISTS:
        for entry in getattr(brand, name):
            lines += ["", f"[[{name}]]", *_settings(entry)]
    if brand.site is not None:
        lines += ["", "[site]", *_settings(brand.site)]
    return "\n".join(lines) + "\n"


def toml_value(value: object) -> str:
    """The TOML of text, a number, a bool, a list of these, or a table of these by whole numbers.

    Raises TypeError for any other type.
    """
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case Decimal():
            # 1E+3 would be valid TOML, but is hard to read.
            return format(value, "f")
        case str():
            return f'"{"".join(_ESCAPED.get(char, char) for char in value)}"'
        case tuple():
            return f"[{', '.join(map(toml_value, value))}]"
        case Mapping():
            entries = [f"{int(key)} = {toml_value(entry)}" for key, entry in value.items()]
            return f"{{ {', '.join(entries)} }}" if entries else "{}"
    raise TypeError(f"a brand holds no {type(value).__name__}")


def _settings(record: BaseModel, but: Iterable[str] = ()) -> list[str]:
    """Without None, which TOML does not have, and without lists that are empty by default."""
    values = {name: getattr(record, name) for name in type(record).model_fields if name not in but}
    return [
        f"{name} = {toml_value(value)}"
        for name, value in values.items()
        if value is not None and not (value == () == type(record).model_fields[name].default)
    ]
