"""The generated pages: docs/metrics.md from the registry, docs/runbooks/alerts.md from the rules.

`make watching` writes them, and the dashboards of config/grafana.
"""

import re
from collections.abc import Iterator
from typing import Final

from prometheus_client.metrics import MetricWrapperBase

from ltzd.rules.conditions.kinds import ConditionKind
from ltzd.telemetry import REGISTRY
from tests.support.watching.rules import ROOT, alerts

METRICS_PAGE: Final = ROOT / "docs" / "metrics.md"
ALERTS_PAGE: Final = ROOT / "docs" / "runbooks" / "alerts.md"

_METRICS_HEAD: Final = """\
# Metrics

This page is for operators: every metric of `/metrics` on the admin port, by package. `make
watching` writes the names, types and labels from the registry, and takes a new metric's meaning
from its help text.

Metrics use base units, and labels come from closed sets. `kind` is the kind of lane (`mint`,
`relay`, `treasury`), of reward (`event`, `payment`, `checkin`, `milestone`), or of committed item
(`event`, `relay`). Each process also reports `python_…` and `process_…`: its memory, CPU, open
files and start.

Gauges about the whole installation are the same in every process, so take their maximum, not their
sum: conditions, queues, the index. Gauges about a process's own work add up: lanes held,
transactions in flight, webhooks in flight, connections. Counters and histograms add up.

| name (`ltzd_…`) | type | labels | meaning |
|---|---|---|---|
"""
_ALERTS_HEAD: Final = """\
# Alerts and conditions

This page is for operators: the section of a runbook for each alert of
[config/prometheus](../../config/prometheus) and for each kind of
[condition](../operations.md#conditions). `make watching` writes the tables. A `page` needs a person
now, a `ticket` within days; a `notice` has no alert.

## Before you type

Type each `ltzd …` of the runbooks on a host of ltzd, as the user that runs ltzd, in the folder of
the settings. As root a command fails with "… belongs to the user ltzd", because ltzd reads no
secrets of another user. With the units of [config/systemd](../../config/systemd):

    runuser -u ltzd -- bash
    cd /etc/ltzd
    export PATH=/opt/ltzd/bin:$PATH

`systemctl` and `journalctl` need a shell of root. `$DATABASE_URL` stands for `database_url` of the
settings, `$NODE_URL` for one of `[node] urls`, and words in capitals for your own values. Once its
cause is gone, a condition ends by itself, most within a minute; `ltzd status --config ltzd.toml`
then no longer shows it.

## The tables

| alert | severity | runbook |
|---|---|---|
"""
_CONDITIONS_HEAD: Final = """
| condition | severity | runbook |
|---|---|---|
"""


def metrics() -> Iterator[MetricWrapperBase]:
    """The metrics that ltzd declares, in the order of their declaration."""
    for collector in REGISTRY._collector_to_names:
        if isinstance(collector, MetricWrapperBase):
            yield collector


def exposed_name(metric: MetricWrapperBase) -> str:
    """As it is in the exposition, where counters and infos have a suffix."""
    suffix = {"counter": "_total", "info": "_info"}.get(str(metric._type), "")
    return f"{metric._name}{suffix}"


def metrics_page() -> str:
    """Keeps the meanings that the page already has."""
    meanings = {}
    if METRICS_PAGE.exists():
        rows = re.findall(
            r"^\| `(\w+)` \|[^|]*\|[^|]*\| (.*) \|$", METRICS_PAGE.read_text(), re.MULTILINE
        )
        meanings = dict(rows)
    lines = []
    for metric in metrics():
        name = exposed_name(metric).removeprefix("ltzd_")
        labels = ", ".join(f"`{label}`" for label in metric._labelnames)
        meaning = meanings.get(name) or metric._documentation.replace("|", r"\|")
        lines.append(f"| `{name}` | {metric._type} | {labels} | {meaning} |\n")
    return _METRICS_HEAD + "".join(lines)


def alerts_page() -> str:
    text = _ALERTS_HEAD
    for alert in alerts():
        section = alert.runbook.removeprefix("docs/runbooks/")
        text += f"| `{alert.name}`: {alert.summary} | {alert.severity} | {_link(section)} |\n"
    text += _CONDITIONS_HEAD
    for kind in ConditionKind:
        text += f"| `{kind.value}` | {kind.facts.severity} | {_link(kind.facts.runbook)} |\n"
    return text


def _link(section: str) -> str:
    page, _, anchor = section.partition("#")
    words = (anchor or page.removesuffix(".md")).replace("-", " ")
    return f"[{words}]({section})"
