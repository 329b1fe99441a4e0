"""What applying a brand file changes, a line for each change, for a person to read first."""

from collections.abc import Iterable

from ltzd.rules.brands import Brand, EventRule


def changes(old: Brand | None, new: Brand) -> list[str]:
    """No lines if and only if nothing changes; a new brand's are all that its file says."""
    if old is None:
        return [f"+ brand {new.id}: new", *_settings(new), *_event_changes((), new.events)]
    fields = [name for name in Brand.model_fields if name != "events"]
    changed = [name for name in fields if getattr(old, name) != getattr(new, name)]
    lines = [f"~ {name}: {_shown(old, name)} -> {_shown(new, name)}" for name in changed]
    return lines + _event_changes(old.events, new.events)


def _settings(brand: Brand) -> list[str]:
    """What is not the default."""
    fields = {name: field for name, field in Brand.model_fields.items() if name != "id"}
    return [
        f"+ {name}: {_shown(brand, name)}"
        for name, field in fields.items()
        if name != "events" and getattr(brand, name) != field.default
    ]


def _event_changes(old: Iterable[EventRule], new: Iterable[EventRule]) -> list[str]:
    before = {rule.type: rule for rule in old}
    after = {rule.type: rule for rule in new}
    lines = [f"- event {kind}" for kind in before if kind not in after]
    for kind, rule in after.items():
        if kind not in before:
            lines.append(f"+ event {kind}: {_own_words(rule)}")
        elif before[kind] != rule:
            lines.append(f"~ event {kind}: {_changes(before[kind], rule)}")
    if not lines and list(before) != list(after):
        lines.append("~ events: in another order")
    return lines


def _own_words(rule: EventRule) -> str:
    """Only what the file says; all else is the default."""
    said = [name for name in EventRule.model_fields if name in rule.model_fields_set - {"type"}]
    return ", ".join(f"{name} {_shown(rule, name)}" for name in said) or "all defaults"


def _changes(old: EventRule, new: EventRule) -> str:
    changed = [n for n in EventRule.model_fields if getattr(old, n) != getattr(new, n)]
    return ", ".join(f"{name} {_shown(old, name)} -> {_shown(new, name)}" for name in changed)


def _shown(record: Brand | EventRule, name: str) -> str:
    value = getattr(record, name)
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case tuple():
            return "[" + ", ".join(map(str, value)) + "]"
    return str(value)
