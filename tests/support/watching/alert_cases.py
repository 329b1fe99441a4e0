"""A case in which each alert fires, and one in which it does not, as series for promtool.

Most series come from two processes, `a` and `b`. A case is looked at an hour after its start if it
says nothing else; `_` is a sample that is missing, `v+sxn` n samples after v, each larger by s.
"""

from dataclasses import dataclass, field
from typing import Final

from ltzd.rules.conditions.kinds import ConditionKind

STEADY: Final = "x240"
"""An hour of samples, each 15 s after the one before."""


@dataclass(frozen=True, slots=True)
class Case:
    """`fires` has the labels of each alert that fires, beside the severity."""

    series: dict[str, str]
    fires: tuple[dict[str, str], ...] = ()
    minutes: int = 60

    @property
    def step_seconds(self) -> int:
        """Between two samples; long cases have fewer."""
        return 15 if self.minutes <= 180 else 120


def _firing(series: dict[str, str], **labels: str) -> Case:
    return Case(series, (labels,))


@dataclass(frozen=True, slots=True)
class Cases:
    firing: Case
    silent: tuple[Case, ...] = field(default=())
    also_firing: tuple[Case, ...] = field(default=())


def conditions(count: int, *, over: bool = False) -> Case:
    """Every condition that raises an alert, seen by both processes; `over` ends them."""
    series = {}
    for kind in ConditionKind:
        name = f'ltzd_conditions{{condition="{kind.value}",instance='
        series[f'{name}"a"}}'] = f"{count}x100 0x140" if over else f"{count}{STEADY}"
        series[f'{name}"b"}}'] = f"0{STEADY}"
    return Case(series)


def _gauge(firing: str, silent: str, **labels: str) -> Cases:
    return Cases(_firing(_series(firing), **labels), (Case(_series(silent)),))


def _series(text: str) -> dict[str, str]:
    """Lines of `SERIES VALUE`, where a value without steps stays for an hour."""
    lines = (line.partition("} ") for line in text.splitlines())
    return {f"{name}}}": value if "x" in value else value + STEADY for name, _, value in lines}


def _counter(series: str, *, steps: int = 1, minutes: int = 60, **labels: str) -> Cases:
    """The counter begins with its first step in one process, and stands still in the other.

    Silence: the same counter an hour after its last step.
    """
    name, _, rest = series.partition("{")
    inner = rest.rstrip("}")
    a, b = (f'{name}{{{inner}{"," if inner else ""}instance="{each}"}}' for each in "ab")
    begins = {a: f"_x239 {steps}x2", b: "7" + STEADY}
    return Cases(_firing(begins, **labels), (Case({a: f"_x2 {steps}x600", b: "7x600"}, (), 150),))


def _stepping(series: str, *, steps: int = 1, **labels: str) -> Cases:
    """A counter without labels of its own: it begins at 0, and both processes count."""
    a, b = (f'{series},instance="{each}"}}'.replace("{,", "{") for each in "ab")
    rising = {a: f"0x229 0+{steps}x11", b: f"5x229 5+{steps}x11"}
    return Cases(_firing(rising, **labels), (Case({a: "3" + STEADY, b: "0" + STEADY}),))


_REQUESTS = 'ltzd_http_request_seconds_count{route="service-api/manual-event",instance='
_SUMS = 'ltzd_http_request_seconds_sum{route="service-api/manual-event",status="2xx",instance='
_FAST = (
    'ltzd_http_request_seconds_bucket{route="service-api/manual-event",status="2xx",le="2.0",'
    "instance="
)
_RELAYS = 'ltzd_http_request_seconds_{kind}{{route="service-api/relay",status="2xx",instance="a"}}'


def _errors(*, failing: int, hours: int) -> Case:
    """Of 1,000 requests between two samples in each process, `failing` fail."""
    samples = hours * 3600 // Case({}, minutes=hours * 60).step_seconds
    series = {}
    for each in "ab":
        series[f'{_REQUESTS}"{each}",status="2xx"}}'] = f"0+{1000 - failing}x{samples}"
        if failing:
            series[f'{_REQUESTS}"{each}",status="5xx"}}'] = f"0+{failing}x{samples}"
    return Case(series, ({},) if failing else (), hours * 60)


def _burning(failing: int, hours: int, *silent: Case) -> Cases:
    return Cases(_errors(failing=failing, hours=hours), (_errors(failing=0, hours=hours), *silent))


def _latency(mean_a: float, mean_b: float, *, slow: int = 0) -> dict[str, str]:
    """100 requests in 15 s in process `a` and 900 in `b`, with the means in seconds."""
    series = {}
    for each, mean, count in (("a", mean_a, 100), ("b", mean_b, 900)):
        series[f'{_REQUESTS}"{each}",status="2xx"}}'] = f"0+{count}{STEADY}"
        series[f'{_SUMS}"{each}"}}'] = f"0+{count * mean:g}{STEADY}"
        series[f'{_FAST}"{each}"}}'] = f"0+{count - slow}{STEADY}"
    series[_RELAYS.format(kind="count")] = "0+1000" + STEADY
    series[_RELAYS.format(kind="sum")] = "0+12000" + STEADY
    return series


def _slow_while(condition: str, values: str) -> dict[str, str]:
    """Events are slow by the mean and by the share above two seconds, beside a condition."""
    at_b = f'ltzd_conditions{{condition="{condition}",instance="b"}}'
    return _latency(0.1, 0.25, slow=10) | {at_b: values}


_WAITING_MINTS = (
    Case(_slow_while("fees_above_cap", "1" + STEADY)),
    Case(_slow_while("lane_unheld", "0x100 1x140")),
    Case(_slow_while("mint_limit_spent", "1x205 0x35")),  # nine minutes ago
)
_OTHER_CAUSES = (
    _firing(_slow_while("fees_above_cap", "0" + STEADY)),
    _firing(_slow_while("fees_above_cap", "1x130 0x110")),
    _firing(_slow_while("webhooks_disabled", "1" + STEADY)),
)


def _once(series: str) -> Case:
    """An outage that is over: everything failed for two minutes half an hour ago."""
    good, bad = f'{series}"a",status="2xx"}}', f'{series}"a",status="5xx"}}'
    return Case({good: "0+1000x112 112000x8 112000+1000x120", bad: "0x112 0+1000x8 8000x120"}, ())


def _share(series: str, bad: str, good: str) -> Cases:
    """Rates of the outcomes; the silent case has the good outcome only."""
    both = {series.format(bad): "0+10" + STEADY, series.format(good): "0+2" + STEADY}
    return Cases(_firing(both), (Case({series.format(good): "0+12" + STEADY}), Case({})))


def _cleanups(outcome: str, instance: str) -> dict[str, str]:
    labels = f'work="retention",outcome="{outcome}",instance="{instance}"'
    return {f"ltzd_deliveries_cleanup_runs_total{{{labels}}}": "0+1" + STEADY}


def _payment_events(status: str, instance: str) -> dict[str, str]:
    labels = f'route="service-api/payment-webhook",status="{status}",instance="{instance}"'
    return {f"ltzd_http_request_seconds_count{{{labels}}}": "0+1" + STEADY}


def _rechecks(outcome: str, instance: str) -> dict[str, str]:
    labels = f'outcome="{outcome}",instance="{instance}"'
    return {f"ltzd_deliveries_chat_rechecks_total{{{labels}}}": "0+1" + STEADY}


CASES: Final[dict[str, Cases]] = {
    "LtzdDown": _gauge(
        'up{job="ltzd",instance="a"} 1\nup{job="ltzd",instance="b"} 0',
        'up{job="ltzd",instance="a"} 1\nup{job="another",instance="b"} 0',
        job="ltzd",
        instance="b",
    ),
    "LtzdNothingReports": Cases(
        Case({'up{job="ltzd",instance="a"}': "0" + STEADY}, ({},)),
        (Case({'ltzd_conditions{condition="staging",instance="b"}': "0" + STEADY}),),
    ),
    "LtzdLeasesLost": Cases(
        _firing(
            {
                'ltzd_leases_lost_total{lease="lane",instance="a"}': "1x210 1+1x2 3x30",
                'ltzd_leases_lost_total{lease="lane",instance="b"}': "1x210 1+1x1 2x40",
            },
            lease="lane",
        ),
        (Case({'ltzd_leases_lost_total{lease="lane",instance="a"}': "1x230 2x10"}),),
    ),
    "LtzdLeaseRenewalsLate": _stepping('ltzd_lease_renewals_total{outcome="late"'),
    "LtzdNoDatabaseConnectionFree": _counter(
        'ltzd_store_pool_timeouts_total{pool="http"}', pool="http"
    ),
    "LtzdCertificateNotRenewed": _counter(
        'ltzd_http_certificate_renewals_total{server="public",outcome="refused"}', server="public"
    ),
    "LtzdNodeOfAnotherChain": _gauge(
        'ltzd_chain_node_unfit{node="n:1",reason="other_chain",instance="a"} 1\n'
        'ltzd_chain_node_unfit{node="n:1",reason="other_chain",instance="b"} 1',
        'ltzd_chain_node_unfit{node="n:1",reason="other_chain",instance="a"} 0\n'
        'ltzd_chain_node_unfit{node="n:1",reason="hung",instance="a"} 1',
        node="n:1",
        reason="other_chain",
    ),
    "LtzdNodeContradicts": _gauge(
        'ltzd_chain_node_unfit{node="n:1",reason="disagrees",instance="a"} 0x230 1x4 0x6\n'
        'ltzd_chain_node_unfit{node="n:1",reason="disagrees",instance="b"} 0',
        'ltzd_chain_node_unfit{node="n:1",reason="disagrees",instance="a"} 1x4 0x240',
        node="n:1",
    ),
    "LtzdNodesContradictEachOther": _gauge(
        'ltzd_indexer_branches_tied{instance="a"} 1\nltzd_indexer_branches_tied{instance="b"} 0',
        'ltzd_indexer_branches_tied{instance="a"} 0x239 1x1\n'
        'ltzd_indexer_branches_tied{instance="b"} 0',
    ),
    "LtzdNodeOmitsLogs": _counter(
        'ltzd_indexer_log_completeness_checks_total{result="found"}',
    ),
    "LtzdDeepReorg": _gauge(
        'ltzd_indexer_reorg_depth_blocks_count{instance="a"} 2x230 3x10\n'
        'ltzd_indexer_reorg_depth_blocks_bucket{le="10.0",instance="a"} 2',
        'ltzd_indexer_reorg_depth_blocks_count{instance="a"} 2x230 3x10\n'
        'ltzd_indexer_reorg_depth_blocks_bucket{le="10.0",instance="a"} 2x230 3x10',
    ),
    "LtzdIndexMended": _counter(
        'ltzd_indexer_audit_findings_total{kind="missing"}', kind="missing"
    ),
    "LtzdAuditUndecided": _counter(
        'ltzd_indexer_audit_findings_total{kind="undecided"}', kind="undecided"
    ),
    "LtzdForeignMints": _stepping("ltzd_indexer_foreign_mints_total{"),
    "LtzdTransactionStuck": _gauge(
        'ltzd_operator_oldest_unconfirmed_seconds{kind="mint",instance="a"} 0\n'
        'ltzd_operator_oldest_unconfirmed_seconds{kind="mint",instance="b"} 301',
        'ltzd_operator_oldest_unconfirmed_seconds{kind="mint",instance="a"} 200\n'
        'ltzd_operator_oldest_unconfirmed_seconds{kind="mint",instance="b"} 200',
        kind="mint",
    ),
    "LtzdLaneFailed": _counter('ltzd_operator_lane_failures_total{kind="mint"}', kind="mint"),
    "LtzdLoopFailed": _counter('ltzd_daemon_loop_failures_total{loop="gas"}', loop="gas"),
    "LtzdWrongSignature": _stepping("ltzd_chain_wrong_signatures_total{"),
    "LtzdForeignSigner": Cases(
        _firing(_series('ltzd_operator_foreign_wallets{instance="b"} 1')),
        (
            Case(
                _series(
                    'ltzd_operator_foreign_wallets{instance="a"} 0\n'
                    'ltzd_operator_lanes_paused{kind="mint",reason="fees",instance="a"} 1'
                )
            ),
        ),
        # Without a treasury nothing sets the first gauge.
        also_firing=(
            _firing(
                _series(
                    'ltzd_operator_foreign_wallets{instance="a"} 0\n'
                    'ltzd_operator_lanes_paused{kind="mint",reason="foreign_use",instance="a"} 1'
                )
            ),
        ),
    ),
    "LtzdBytesRefusedForGood": _counter(
        'ltzd_operator_transactions_abandoned_total{kind="relay"}', kind="relay"
    ),
    "LtzdMintReverted": _counter(
        'ltzd_operator_transactions_failed_total{kind="mint",reason="reverted"}', reason="reverted"
    ),
    "LtzdRelaysRevert": _counter(
        'ltzd_operator_transactions_failed_total{kind="relay",reason="reverted"}',
        steps=6,
        reason="reverted",
    ),
    "LtzdRewardFailed": _stepping("ltzd_operator_rewards_failed_total{"),
    "LtzdTransactionsReplacedOften": _stepping(
        'ltzd_operator_transactions_replaced_total{kind="mint",reason="base_fee"',
        steps=2,
        kind="mint",
    ),
    "LtzdGasMoneyLow": _gauge(
        'ltzd_operator_balance_wei{kind="mint",instance="a"} 4e17\n'
        'ltzd_operator_balance_wei{kind="mint",instance="b"} 0\n'
        'ltzd_operator_balance_floor_wei{kind="mint",instance="a"} 0',
        'ltzd_operator_balance_wei{kind="mint",instance="a"} 4e17\n'
        'ltzd_operator_balance_wei{kind="watched",instance="a"} 4e17\n'
        'ltzd_operator_balance_floor_wei{kind="mint",instance="a"} 1e17',
        kind="mint",
    ),
    "LtzdTreasuryDayNearlySpent": _gauge(
        'ltzd_operator_treasury_day_wei{instance="a"} 9\n'
        'ltzd_operator_treasury_day_limit_wei{instance="a"} 10\n'
        'ltzd_operator_treasury_day_limit_wei{instance="b"} 0',
        'ltzd_operator_treasury_day_wei{instance="a"} 9\n'
        'ltzd_operator_treasury_day_limit_wei{instance="a"} 0',
    ),
    "LtzdRelayGasNearlySpent": _gauge(
        'ltzd_actions_relay_gas_spent_wei{instance="a"} 9\n'
        'ltzd_actions_relay_gas_spent_wei{instance="b"} 8\n'
        'ltzd_actions_relay_gas_budget_wei{instance="a"} 10\n'
        'ltzd_actions_relay_gas_budget_wei{instance="b"} 10',
        'ltzd_actions_relay_gas_spent_wei{instance="a"} 5\n'
        'ltzd_actions_relay_gas_spent_wei{instance="b"} 5\n'
        'ltzd_actions_relay_gas_budget_wei{instance="a"} 10\n'
        'ltzd_actions_relay_gas_budget_wei{instance="b"} 10',
    ),
    "LtzdBrandGasSpent": _counter('ltzd_actions_relay_gas_refusals_total{budget="brand"}'),
    "LtzdMoneyWithoutLtz": _counter(
        'ltzd_actions_payments_not_minted_total{reason="no_wallet"}', reason="no_wallet"
    ),
    "LtzdPaymentReversed": _counter(
        'ltzd_actions_payment_reversals_total{kind="refund",payment="minted"}', kind="refund"
    ),
    "LtzdPaymentsUnavailable": _stepping('ltzd_actions_payments_total{outcome="unavailable"'),
    "LtzdPaymentEventsRefused": Cases(
        _firing(_payment_events("4xx", "a")),
        (
            Case(_payment_events("4xx", "a") | _payment_events("2xx", "b")),
            Case(_payment_events("2xx", "a")),
        ),
    ),
    "LtzdLogLost": _stepping("ltzd_daemon_log_lines_lost_total{"),
    "LtzdRequestBroke": _counter('ltzd_http_refusals_total{reason="internal_error"}'),
    "LtzdRedemptionUnpaid": _gauge(
        'ltzd_deliveries_site_redemptions_unpaid{instance="a"} 1\n'
        'ltzd_deliveries_site_redemptions_unpaid{instance="b"} 1',
        'ltzd_deliveries_site_redemptions_unpaid{instance="a"} 0x230 1x10',
    ),
    "LtzdRedemptionReversed": _stepping("ltzd_deliveries_site_redemptions_reversed_total{"),
    "LtzdWebhookErrors": _stepping("ltzd_deliveries_webhook_errors_total{"),
    "LtzdWebhooksFail": _share(
        'ltzd_deliveries_webhook_attempts_total{{outcome="{}",instance="a"}}', "failed", "delivered"
    ),
    "LtzdWebhooksExhausted": _stepping("ltzd_deliveries_webhooks_exhausted_total{"),
    "LtzdDomainsUnchecked": _share(
        'ltzd_providers_request_seconds_count{{provider="dns",outcome="{}",instance="a"}}',
        "unavailable",
        "ok",
    ),
    "LtzdTokensUnchecked": _stepping('ltzd_providers_token_checks_total{outcome="unavailable"'),
    "LtzdAccountsUnchecked": _share(
        'ltzd_actions_pregenerations_total{{outcome="{}",instance="a"}}', "unavailable", "created"
    ),
    "LtzdChatRechecksPartial": Cases(
        _firing(_rechecks("partial", "a")),
        (Case(_rechecks("partial", "a") | _rechecks("whole", "b")),),
    ),
    "LtzdCleanupFails": Cases(
        _firing(_cleanups("failed", "a"), work="retention"),
        (Case(_cleanups("failed", "a") | _cleanups("done", "b")), Case(_cleanups("done", "a"))),
    ),
    "LtzdErrorBudgetBurnsFast": _burning(15, 2, _once(_REQUESTS)),
    "LtzdErrorBudgetBurns": _burning(7, 7, _errors(failing=0, hours=1)),
    "LtzdErrorBudgetBurnsSlowly": _burning(2, 73),
    "LtzdAnswersSlowOnAverage": Cases(
        _firing(_latency(0.1, 0.25)),
        (Case(_latency(0.5, 0.05)), Case({}), *_WAITING_MINTS),
        also_firing=_OTHER_CAUSES,
    ),
    "LtzdAnswersAboveTwoSeconds": Cases(
        _firing(_latency(0.1, 0.1, slow=10)),
        (Case(_latency(0.1, 0.1, slow=1)), *_WAITING_MINTS),
        also_firing=_OTHER_CAUSES,
    ),
}
