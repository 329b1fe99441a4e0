"""Alert rules: each fires where it should and nowhere else, and names a section of a runbook."""

import json
import re
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ltzd.rules.conditions.kinds import ConditionKind, Severity
from tests.support.watching.alert_cases import CASES, Case, conditions
from tests.support.watching.rules import FOLDER, ROOT, Alert, alerts, recordings, rule_files

needs_promtool = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="apt-get install --no-install-recommends prometheus"
)


def promtool(*arguments: str | Path) -> None:
    done = subprocess.run(
        ["promtool", *arguments], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


CONDITIONS = "conditions.rules.yml"


def test_every_alert_has_a_case_that_fires_and_a_silent_one() -> None:
    """The alerts of conditions share theirs."""
    others = [alert.name for alert in alerts() if alert.file.name != CONDITIONS]
    assert sorted(CASES) == sorted(others)
    lacking = [
        name
        for name, cases in CASES.items()
        if not cases.firing.fires or not cases.silent or any(each.fires for each in cases.silent)
    ]
    assert lacking == []


@needs_promtool
def test_prometheus_accepts_its_settings_and_every_rule() -> None:
    promtool("check", "config", FOLDER / "prometheus.example.yml")
    promtool("check", "rules", "--lint-fatal", *rule_files())


@needs_promtool
def test_every_alert_fires_where_it_should_and_nowhere_else(tmp_path: Path) -> None:
    by_name = {alert.name: alert for alert in alerts()}
    tests: dict[tuple[Path, int], list[dict[str, Any]]] = {}
    for name, cases in CASES.items():
        alert = by_name[name]
        for case in (cases.firing, *cases.also_firing, *cases.silent):
            key = alert.file, case.step_seconds
            tests.setdefault(key, []).append(_test_of(case, {alert: case.fires}))
    for (rules, seconds), each in tests.items():
        _test_rules(tmp_path, rules, seconds * 20, each)


@needs_promtool
def test_a_condition_that_all_processes_see_is_one_alert_until_it_is_over(tmp_path: Path) -> None:
    ours = [alert for alert in alerts() if alert.file.name == CONDITIONS]
    kinds = {alert: re.findall(r'condition="(\w+)"', alert.expression)[0] for alert in ours}
    firing = {alert: ({"condition": kind},) for alert, kind in kinds.items()}
    silent: dict[Alert, tuple[dict[str, str], ...]] = dict.fromkeys(ours, ())
    tests = [_test_of(conditions(count), firing) for count in (1, 3)]
    tests += [_test_of(case, silent) for case in (conditions(0), conditions(1, over=True))]
    _test_rules(tmp_path, FOLDER / CONDITIONS, 60, tests)


def _test_rules(folder: Path, rules: Path, seconds: int, tests: list[dict[str, Any]]) -> None:
    path = folder / f"{rules.stem}-{seconds}.json"
    content = {"rule_files": [str(rules)], "evaluation_interval": f"{seconds}s", "tests": tests}
    path.write_text(json.dumps(content))
    promtool("test", "rules", path)


def _test_of(case: Case, fires: Mapping[Alert, tuple[dict[str, str], ...]]) -> dict[str, Any]:
    """`fires` has the labels of each alert that fires beside the severity."""
    return {
        "name": ", ".join(alert.name for alert in fires),
        "interval": f"{case.step_seconds}s",
        "input_series": [{"series": key, "values": each} for key, each in case.series.items()],
        "alert_rule_test": [
            {
                "eval_time": f"{case.minutes}m",
                "alertname": alert.name,
                "exp_alerts": [
                    {
                        "exp_labels": {"severity": alert.severity, **each},
                        "exp_annotations": {"summary": alert.summary, "runbook": alert.runbook},
                    }
                    for each in labels
                ],
            }
            for alert, labels in fires.items()
        ],
    }


@needs_promtool
def test_the_time_of_answers_is_one_mean_over_all_processes(tmp_path: Path) -> None:
    """900 requests of 50 ms and 100 of 500 ms take 95 ms on average, not 275."""
    case = CASES["LtzdAnswersSlowOnAverage"].silent[0]
    reading = {
        "expr": "ltzd:http_request_seconds:mean_rate5m",
        "eval_time": "30m",
        "exp_samples": [{"labels": "ltzd:http_request_seconds:mean_rate5m", "value": 0.095}],
    }
    series = [{"series": key, "values": each} for key, each in case.series.items()]
    test = {"interval": "15s", "input_series": series, "promql_expr_test": [reading]}
    _test_rules(tmp_path, FOLDER / "targets.rules.yml", 60, [test])


def test_every_condition_that_needs_a_person_has_an_alert() -> None:
    by_expression = {alert.expression: alert for alert in alerts()}
    for kind in ConditionKind:
        selector = f'max by (condition) (ltzd_conditions{{condition="{kind.value}"}}) > 0'
        if kind.facts.severity is Severity.NOTICE:
            assert selector not in by_expression
            continue
        alert = by_expression[selector]
        assert alert.severity == kind.facts.severity.value
        assert alert.runbook == f"docs/runbooks/{kind.facts.runbook}"


def anchors_of(path: Path) -> set[str]:
    """As GitHub makes them of headings."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


def test_every_alert_and_condition_names_a_section_that_exists() -> None:
    sections = {alert.runbook for alert in alerts()}
    sections |= {f"docs/runbooks/{kind.facts.runbook}" for kind in ConditionKind}
    missing = []
    for section in sorted(sections):
        page, _, anchor = section.partition("#")
        if not (ROOT / page).is_file() or (anchor and anchor not in anchors_of(ROOT / page)):
            missing.append(section)
    assert missing == []


def test_recorded_names_are_used() -> None:
    text = "".join(path.read_text() for path in rule_files())
    text += "".join(path.read_text() for path in (ROOT / "config" / "grafana").glob("*.json"))
    assert [name for name in recordings() if not re.search(rf"{name}\b(?!\n)", text)] == []
