"""The generated pages and dashboards are current, and name metrics and labels that exist."""

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

from ltzd.daemon.logs import is_secret
from tests.support.watching.dashboards import FOLDER, dashboards, expressions, rendered
from tests.support.watching.log_lines import LOGS_PAGE, log_lines, logs_page, meanings
from tests.support.watching.pages import (
    ALERTS_PAGE,
    METRICS_PAGE,
    alerts_page,
    exposed_name,
    metrics,
    metrics_page,
)
from tests.support.watching.rules import ROOT, alerts, recordings


def test_the_page_of_metrics_is_current() -> None:
    """`make watching` writes it."""
    assert METRICS_PAGE.read_text() == metrics_page()


def test_the_page_of_alerts_is_current() -> None:
    assert ALERTS_PAGE.read_text() == alerts_page()


def test_the_page_of_log_lines_is_current() -> None:
    assert LOGS_PAGE.read_text() == logs_page()


def test_every_log_line_has_a_meaning_and_no_field_that_the_log_redacts() -> None:
    known = meanings()
    assert [line.name for line in log_lines() if not known.get(line.name)] == []
    fields = {field for line in log_lines() for field in line.fields}
    assert sorted(field for field in fields if is_secret(field)) == []


def test_every_log_line_that_an_operators_page_names_exists() -> None:
    """`chain.…` are fields of `/status`, and `ltzd.…` attributes of spans."""
    names = {line.name for line in log_lines()}
    families = {name.partition(".")[0] for name in names if "." in name} - {"chain", "ltzd"}
    pages = [ROOT / "docs" / "operations.md", *sorted((ROOT / "docs" / "runbooks").glob("*.md"))]
    pages += [ROOT / "docs" / f"{name}.md" for name in ("nodes", "chains", "signers", "wallets")]
    unknown = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages
        for name in re.findall(r"`([a-z_0-9]+\.[a-z_]+)`", page.read_text())
        if name.partition(".")[0] in families and name not in names
    ]
    assert unknown == []


def test_every_metric_that_a_page_names_exists() -> None:
    """`ltzd_store_replica_*` names a family."""
    names = {*labels_by_series(), *map(exposed_name, metrics())}
    families = {name.split("_")[1] for name in names if name.startswith("ltzd_")}
    unknown = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in (ROOT / "docs").rglob("*.md")
        for name in re.findall(r"`(ltzd_[a-z_]+)", page.read_text())
        if name.split("_")[1] in families
        if not any(each == name or (name[-1] == "_" and each.startswith(name)) for each in names)
    ]
    assert unknown == []


def test_the_page_on_operations_lists_both_lines_of_every_outage() -> None:
    pairs = re.compile(r'Outage\(\s*"([\w.]+)",\s*"([\w.]+)"')
    outages = {
        pair for path in (ROOT / "ltzd").rglob("*.py") for pair in pairs.findall(path.read_text())
    }
    _, _, table = (
        (ROOT / "docs" / "operations.md").read_text().partition("| is over |\n|---|---|---|\n")
    )
    rows = [row.split("|")[2:4] for row in table.partition("\n\n")[0].splitlines()]
    listed = {
        pair
        for begins, ends in rows
        for pair in zip(*(re.findall(r"`([\w.]+)`", cell) for cell in (begins, ends)), strict=True)
    }
    assert len(outages) > 20
    assert outages - listed == set()


def test_the_dashboards_are_current_and_no_others_are_there() -> None:
    files = {path.stem: path.read_text() for path in FOLDER.glob("*.json")}
    assert files == {name: rendered(each) for name, each in dashboards().items()}


@cache
def labels_by_series() -> dict[str, set[str]]:
    """Every series that a process exposes, with its labels and those of the scrape."""
    series = {"up": {"job", "instance"}}
    for metric in metrics():
        labels = {*metric._labelnames, "instance", "job"}
        name = exposed_name(metric)
        if metric._type == "histogram":
            series |= {f"{name}_count": labels, f"{name}_sum": labels}
            series[f"{name}_bucket"] = labels | {"le"}
        else:
            series[name] = labels
    return series | {name: set() for name in recordings()}


_SERIES = re.compile(r"\b(ltzd[_:][\w:]+|up)(?:\{([^}]*)\})?")
_LABELS = re.compile(r"\b(?:by|on) \(([^)]*)\)")


def _strangers(expression: str) -> list[str]:
    """Names and labels that no process exposes. A label of `by` is one of some series of it."""
    known = labels_by_series()
    strangers = []
    labels: set[str] = set()
    for name, selector in _SERIES.findall(expression):
        if name not in known:
            strangers.append(name)
            continue
        labels |= known[name]
        selected = re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', '""', selector))
        strangers += [f"{name}{{{each}}}" for each in selected if each not in known[name]]
    grouped = ",".join(_LABELS.findall(expression)).replace(" ", "").split(",")
    return strangers + [f"by ({each})" for each in grouped if each and each not in labels]


def test_every_rule_and_panel_uses_metrics_and_labels_that_exist() -> None:
    rules = [alert.expression for alert in alerts()] + list(recordings().values())
    assert [name for each in [*rules, *expressions()] for name in _strangers(each)] == []


def test_a_stranger_is_noticed() -> None:
    assert _strangers("sum by (colour) (ltzd_conditions)") == ["by (colour)"]
    assert _strangers('ltzd_conditions{kind="x"}') == ["ltzd_conditions{kind}"]
    assert _strangers("rate(ltzd_conditions_count[5m])") == ["ltzd_conditions_count"]


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="apt-get install --no-install-recommends prometheus"
)
def test_prometheus_parses_the_expression_of_every_panel(tmp_path: Path) -> None:
    rules = [
        {"record": f"panel:{number}", "expr": each} for number, each in enumerate(expressions())
    ]
    path = tmp_path / "panels.json"
    path.write_text(json.dumps({"groups": [{"name": "panels", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", path],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
