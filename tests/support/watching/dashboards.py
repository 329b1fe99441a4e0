"""Grafana's dashboards, as data: one for each concern, `make watching` writes them as JSON.

Figures of the whole installation are maxima over the processes, work of each process adds up.
"""

import json
from dataclasses import dataclass
from typing import Any, Final

from tests.support.watching.rules import ROOT

FOLDER: Final = ROOT / "config" / "grafana"
_WIDTH, _HEIGHT, _ROW = 8, 7, 24


@dataclass(frozen=True, slots=True)
class Panel:
    """`queries` pairs a legend with an expression; `unit` is Grafana's name of it."""

    title: str
    queries: tuple[tuple[str, str], ...]
    unit: str = "short"
    kind: str = "timeseries"


def _quantiles(metric: str, by: str = "", selector: str = "") -> tuple[tuple[str, str], ...]:
    label = f"{by}, le" if by else "le"
    legend = f"{{{{{by}}}}} " if by else ""
    inner = f"sum by ({label}) (rate({metric}_bucket{selector}[5m]))"
    return tuple(
        (f"{legend}p{share * 100:g}", f"histogram_quantile({share}, {inner})")
        for share in (0.5, 0.99)
    )


def _rate(metric: str, by: str) -> tuple[tuple[str, str], ...]:
    legend = " ".join(f"{{{{{label.strip()}}}}}" for label in by.split(","))
    return ((legend, f"sum by ({by}) (rate({metric}[5m]))"),)


def _most(metric: str, by: str = "") -> tuple[tuple[str, str], ...]:
    if not by:
        return ((metric.removeprefix("ltzd_"), f"max({metric})"),)
    return ((f"{{{{{by}}}}}", f"max by ({by}) ({metric})"),)


_CONDITIONS: Final = Panel(
    "Conditions now",
    (("{{condition}}", "max by (condition) (ltzd_conditions) > 0"),),
    kind="table",
)

_DASHBOARDS: Final[dict[str, tuple[Panel, ...]]] = {
    "operator": (
        _CONDITIONS,
        Panel("Lanes held", (("{{kind}}", "sum by (kind) (ltzd_operator_lanes_held)"),)),
        Panel(
            "Lanes paused",
            (("{{kind}}: {{reason}}", "sum by (kind, reason) (ltzd_operator_lanes_paused) > 0"),),
        ),
        Panel(
            "Queues",
            (
                ("rewards", "max(ltzd_operator_queued_rewards)"),
                ("rewards above the limit", "max(ltzd_operator_rewards_above_limit)"),
                ("relays", "max(ltzd_operator_queued_relays)"),
            ),
        ),
        Panel("In flight", (("{{kind}}", "sum by (kind) (ltzd_operator_in_flight)"),)),
        Panel("Oldest unconfirmed", _most("ltzd_operator_oldest_unconfirmed_seconds", "kind"), "s"),
        Panel("Confirmed", _rate("ltzd_operator_transactions_success_total", "kind"), "ops"),
        Panel("Failed", _rate("ltzd_operator_transactions_failed_total", "kind, reason"), "ops"),
        Panel(
            "Replaced with higher fees",
            _rate("ltzd_operator_transactions_replaced_total", "kind, reason"),
            "ops",
        ),
        Panel(
            "Until a stage, 99 of 100",
            (
                (
                    "{{kind}} {{stage}}",
                    (
                        "histogram_quantile(0.99, sum by (kind, stage, le) "
                        "(rate(ltzd_operator_transaction_processing_seconds_bucket[5m])))"
                    ),
                ),
            ),
            "s",
        ),
        Panel(
            "Lowest balance, and floor (coins)",
            (
                ("{{kind}}", "min by (kind) (ltzd_operator_balance_wei > 0) / 1e18"),
                ("{{kind}} floor", "max by (kind) (ltzd_operator_balance_floor_wei) / 1e18"),
            ),
        ),
        Panel("Base fee (gwei)", (("base fee", "max(ltzd_operator_base_fee_wei) / 1e9"),)),
        Panel("Rewards in one mint", _quantiles("ltzd_operator_batch_rewards")),
        Panel("Leases", _rate("ltzd_lease_renewals_total", "outcome"), "ops"),
        Panel(
            "The day's gas of relays (coins)",
            (
                ("spent", "max(ltzd_actions_relay_gas_spent_wei) / 1e18"),
                ("budget", "max(ltzd_actions_relay_gas_budget_wei) / 1e18"),
            ),
        ),
    ),
    "indexer": (
        _CONDITIONS,
        Panel(
            "Blocks",
            (
                ("head", "max(ltzd_indexer_head_block)"),
                ("indexed", "max(ltzd_indexer_sync_block)"),
                ("final", "max(ltzd_indexer_final_block)"),
                ("audited", "max(ltzd_indexer_audited_block)"),
            ),
        ),
        Panel("Behind the head (blocks)", _most("ltzd_indexer_head_lag_blocks")),
        Panel("Since the last commit", _most("ltzd_indexer_idle_seconds"), "s"),
        Panel("From head to commit", _quantiles("ltzd_indexer_head_to_commit_seconds"), "s"),
        Panel("Commit", _quantiles("ltzd_indexer_commit_seconds"), "s"),
        Panel("Blocks stored", (("blocks", "sum(rate(ltzd_indexer_blocks_total[5m]))"),), "ops"),
        Panel("Facts stored", _rate("ltzd_indexer_facts_total", "kind"), "ops"),
        Panel("Backfill: time left", _most("ltzd_indexer_backfill_seconds_left"), "s"),
        Panel("Reorgs", (("reorgs", "sum(increase(ltzd_indexer_reorgs_total[1h]))"),)),
        Panel(
            "Facts corrected",
            (("{{kind}}", "sum by (kind) (increase(ltzd_indexer_facts_mended_total[1h]))"),),
        ),
        Panel("Nodes' heights", _most("ltzd_chain_node_height", "node")),
        Panel("Nodes' latency", _most("ltzd_chain_node_latency_seconds", "node"), "s"),
        Panel("Nodes' errors", _rate("ltzd_chain_node_errors_total", "node, kind"), "ops"),
        Panel(
            "Requests of nodes, 99 of 100",
            _quantiles("ltzd_chain_rpc_request_seconds", "method")[1:],
            "s",
        ),
    ),
    "surfaces": (
        _CONDITIONS,
        Panel(
            "Requests",
            (("{{status}}", "sum by (status) (rate(ltzd_http_request_seconds_count[5m]))"),),
            "reqps",
        ),
        Panel(
            "Requests that fail (target 0.001)",
            (
                ("5 minutes", "ltzd:http_request_errors:ratio_rate5m"),
                ("6 hours", "ltzd:http_request_errors:ratio_rate6h"),
                ("3 days", "ltzd:http_request_errors:ratio_rate3d"),
            ),
            "percentunit",
        ),
        Panel(
            "Mean time of answers (target 200 ms)",
            (("mean", "ltzd:http_request_seconds:mean_rate5m"),),
            "s",
        ),
        Panel(
            "Answers above 2 s",
            (("share", "ltzd:http_request_slow:ratio_rate5m"),),
            "percentunit",
        ),
        Panel(
            "Answers by route, 99 of 100",
            _quantiles("ltzd_http_request_seconds", "route")[1:],
            "s",
        ),
        Panel("Refusals", _rate("ltzd_http_refusals_total", "reason"), "ops"),
        Panel("Rate limits", _rate("ltzd_cache_rate_limit_hits_total", "limit, outcome"), "ops"),
        Panel("Events", _rate("ltzd_actions_events_total", "outcome"), "ops"),
        Panel("Relays", _rate("ltzd_actions_relays_total", "outcome"), "ops"),
        Panel("Until the published hash", _quantiles("ltzd_actions_hash_wait_seconds"), "s"),
        Panel("Payments", _rate("ltzd_actions_payments_total", "outcome"), "ops"),
        Panel(
            "Database connections in use",
            (
                ("{{pool}}", "sum by (pool) (ltzd_store_pool_connections_in_use)"),
                ("{{pool}} limit", "sum by (pool) (ltzd_store_pool_connections_limit)"),
            ),
        ),
        Panel("Wait for a connection", _quantiles("ltzd_store_pool_wait_seconds", "pool")[1:], "s"),
        Panel(
            "Outside services, 99 of 100",
            _quantiles("ltzd_providers_request_seconds", "provider")[1:],
            "s",
        ),
        Panel("Redis is away", _most("ltzd_cache_redis_unavailable")),
    ),
    "brands": (
        _CONDITIONS,
        Panel("Rewards queued", _rate("ltzd_actions_rewards_queued_total", "kind"), "ops"),
        Panel(
            "Rewards minted",
            (("minted", "sum(rate(ltzd_indexer_rewards_minted_total[5m]))"),),
            "ops",
        ),
        Panel("Webhooks", _rate("ltzd_deliveries_webhook_attempts_total", "outcome"), "ops"),
        Panel("From fact to webhook", _quantiles("ltzd_deliveries_webhook_seconds"), "s"),
        Panel(
            "Webhooks that wait",
            (
                ("pending", "max(ltzd_deliveries_webhooks_pending)"),
                ("held", "max(ltzd_deliveries_webhooks_held)"),
                ("endpoints disabled", "max(ltzd_deliveries_disabled_endpoints)"),
            ),
        ),
        Panel("Webhooks overdue", _most("ltzd_deliveries_overdue_seconds"), "s"),
        Panel("Check-ins", _rate("ltzd_actions_site_checkins_total", "outcome"), "ops"),
        Panel("Milestones", _rate("ltzd_actions_site_milestones_total", "outcome"), "ops"),
        Panel("Perks at sites", _rate("ltzd_actions_site_redemptions_total", "outcome"), "ops"),
        Panel("Charges redeemed", _rate("ltzd_actions_redemptions_total", "outcome"), "ops"),
        Panel(
            "Constraints",
            _rate("ltzd_actions_constraint_evaluations_total", "kind, outcome"),
            "ops",
        ),
        Panel(
            "Wallets before log-in", _rate("ltzd_actions_pregenerations_total", "outcome"), "ops"
        ),
        Panel(
            "Payments reversed",
            (
                (
                    "{{kind}} {{payment}}",
                    "sum by (kind, payment) (increase(ltzd_actions_payment_reversals_total[1h]))",
                ),
            ),
        ),
    ),
}


def expressions() -> list[str]:
    return [
        query for panels in _DASHBOARDS.values() for panel in panels for _, query in panel.queries
    ]


def dashboards() -> dict[str, dict[str, Any]]:
    return {name: _dashboard(name, panels) for name, panels in _DASHBOARDS.items()}


def rendered(dashboard: dict[str, Any]) -> str:
    return json.dumps(dashboard, indent=1) + "\n"


def _dashboard(name: str, panels: tuple[Panel, ...]) -> dict[str, Any]:
    source = {"name": "datasource", "type": "datasource", "query": "prometheus"}
    return {
        "uid": f"ltzd-{name}",
        "title": f"ltzd: {name}",
        "tags": ["ltzd"],
        "schemaVersion": 39,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source]},
        "panels": [_panel(number, panel) for number, panel in enumerate(panels)],
    }


def _panel(number: int, panel: Panel) -> dict[str, Any]:
    columns = _ROW // _WIDTH
    place = {"x": number % columns * _WIDTH, "y": number // columns * _HEIGHT}
    is_table = panel.kind == "table"
    return {
        "id": number + 1,
        "title": panel.title,
        "type": panel.kind,
        "datasource": {"type": "prometheus", "uid": "${datasource}"},
        "gridPos": {"w": _WIDTH, "h": _HEIGHT, **place},
        "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
        "targets": [
            {
                "refId": chr(ord("A") + index),
                "expr": query,
                "legendFormat": legend,
                **({"instant": True, "format": "table"} if is_table else {}),
            }
            for index, (legend, query) in enumerate(panel.queries)
        ],
    }
