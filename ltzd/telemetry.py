"""Every metric ltzd exposes, declared on one page.

Names are `ltzd_<room>_…` in base units. Labels come from closed sets (kind, method, outcome,
reason, route, stage): never an address, an id or a path. A gauge nobody has set shows 0.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    GCCollector,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)

from ltzd.errors import Unavailable

REGISTRY = CollectorRegistry()
ProcessCollector(registry=REGISTRY)
PlatformCollector(registry=REGISTRY)
GCCollector(registry=REGISTRY)

FAST = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10)
"""Buckets in seconds for what should take milliseconds."""
SLOW = (0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
"""Buckets in seconds for what waits for blocks."""
COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
"""Buckets for how many went together."""


def _counter(name: str, help_text: str, *labels: str) -> Counter:
    return Counter(name, help_text, labels, registry=REGISTRY)


def _gauge(name: str, help_text: str, *labels: str) -> Gauge:
    return Gauge(name, help_text, labels, registry=REGISTRY)


def _histogram(
    name: str, help_text: str, *labels: str, buckets: tuple[float, ...] = FAST
) -> Histogram:
    return Histogram(name, help_text, labels, registry=REGISTRY, buckets=buckets)


# --- http ---------------------------------------------------------------------------------------

HTTP_REQUEST_SECONDS = _histogram(
    "ltzd_http_request_seconds", "From a request's head to its answer", "route", "status"
)
HTTP_REFUSALS = _counter("ltzd_http_refusals_total", "Requests refused, by error class", "reason")
CERTIFICATE_EXPIRY = _gauge(
    "ltzd_http_certificate_expiry_timestamp_seconds",
    "When the TLS certificate that new connections get expires",
    "server",
)
CERTIFICATE_RENEWALS = _counter(
    "ltzd_http_certificate_renewals_total",
    "TLS certificates read anew on SIGHUP",
    "server",
    "outcome",
)

# --- actions ------------------------------------------------------------------------------------

EVENTS = _counter("ltzd_actions_events_total", "Events asked to be recorded", "outcome")
GROUP_COMMIT_ITEMS = _histogram(
    "ltzd_actions_group_commit_items",
    "Events or relays in one database commit",
    "kind",
    buckets=COUNTS,
)
GROUP_COMMIT_SECONDS = _histogram(
    "ltzd_actions_group_commit_seconds", "One group's database commit", "kind"
)
REWARDS_QUEUED = _counter(
    "ltzd_actions_rewards_queued_total", "Rewards put into the mint lane's queue", "kind"
)
HASH_WAIT_SECONDS = _histogram(
    "ltzd_actions_hash_wait_seconds", "From an event's commit to its published hash"
)

RELAYS = _counter("ltzd_actions_relays_total", "Calls asked to be relayed", "outcome")
RELAY_SECONDS = _histogram(
    "ltzd_actions_relay_seconds", "From a relay that was let in to its answer", buckets=SLOW
)

RELAY_GAS_SPENT_WEI = _gauge(
    "ltzd_actions_relay_gas_spent_wei",
    "Gas of today's relays in wei: in flight at its worst case, mined at its cost",
)
RELAY_GAS_BUDGET_WEI = _gauge(
    "ltzd_actions_relay_gas_budget_wei", "What all relays of a UTC day may cost; 0 is no budget"
)
GAS_REFUSALS = _counter(
    "ltzd_actions_relay_gas_refusals_total",
    "Relays and redemptions refused because a day's gas budget was spent",
    "budget",
)

REDEMPTIONS = _counter(
    "ltzd_actions_redemptions_total", "Redemptions of charges asked for", "outcome"
)
CHECKOUTS = _counter("ltzd_actions_checkouts_total", "Checkout sessions asked for", "outcome")
PAYMENTS = _counter(
    "ltzd_actions_payments_total", "Checkout sessions asked to be minted, by either door", "outcome"
)
PAYMENTS_NOT_MINTED = _counter(
    "ltzd_actions_payments_not_minted_total",
    "Sessions that the payment provider's events call paid, and that are refused",
    "reason",
)
PAYMENT_REVERSALS = _counter(
    "ltzd_actions_payment_reversals_total",
    "Refunds and disputes told, of payments minted here or unknown to us",
    "kind",
    "payment",
)
WALLET_MIGRATIONS = _counter(
    "ltzd_actions_wallet_migrations_total",
    "E-mail addresses that were to follow the person who has proven them to his wallet",
    "outcome",
)
PREGENERATIONS = _counter(
    "ltzd_actions_pregenerations_total",
    "Wallets asked for before their owners log in",
    "outcome",
)
CONSTRAINT_EVALUATIONS = _counter(
    "ltzd_actions_constraint_evaluations_total",
    "Purchase constraints judged anew",
    "kind",
    "outcome",
)
CONSTRAINT_RESULTS = _counter(
    "ltzd_actions_constraint_results_total",
    "Kept results of outside services looked for",
    "outcome",
)
CONSTRAINT_RESULTS_INVALIDATED = _counter(
    "ltzd_actions_constraint_results_invalidated_total", "Kept results that brands invalidated"
)
SITE_CHECKINS = _counter(
    "ltzd_actions_site_checkins_total", "Check-ins at brands' sites asked for", "outcome"
)
SITE_MILESTONES = _counter(
    "ltzd_actions_site_milestones_total", "Milestones of streaks asked for", "outcome"
)
SITE_REDEMPTIONS = _counter(
    "ltzd_actions_site_redemptions_total", "Perks asked to be redeemed at brands' sites", "outcome"
)
SITE_LINKS = _counter(
    "ltzd_actions_site_links_total",
    "Links of site members with wallets: codes made and typed, links ended",
    "outcome",
)

# --- operator -----------------------------------------------------------------------------------

TRANSACTIONS_CREATED = _counter(
    "ltzd_operator_transactions_created_total", "Intents given a nonce", "kind"
)
TRANSACTIONS_SUBMITTED = _counter(
    "ltzd_operator_transactions_submitted_total",
    "Publications by the node's reply",
    "kind",
    "outcome",
)
TRANSACTIONS_SUCCESS = _counter(
    "ltzd_operator_transactions_success_total", "Intents confirmed on chain", "kind"
)
TRANSACTIONS_FAILED = _counter(
    "ltzd_operator_transactions_failed_total",
    "Intents that ended without success",
    "kind",
    "reason",
)
TRANSACTIONS_DEMOTED = _counter(
    "ltzd_operator_transactions_demoted_total", "Mined intents that a reorg put back", "kind"
)
TRANSACTIONS_REPLACED = _counter(
    "ltzd_operator_transactions_replaced_total",
    "Attempts signed in place of one that was stuck",
    "kind",
    "reason",
)
TRANSACTIONS_ABANDONED = _counter(
    "ltzd_operator_transactions_abandoned_total",
    "Intents whose bytes nodes refuse for good: a self-transfer takes their nonce",
    "kind",
)
REWARDS_FAILED = _counter(
    "ltzd_operator_rewards_failed_total", "Rewards that LTZ refuses though it mints others"
)
TRANSACTION_SECONDS = _histogram(
    "ltzd_operator_transaction_processing_seconds",
    "Time that an intent spent until this stage",
    "kind",
    "stage",
    buckets=SLOW,
)
BATCH_REWARDS = _histogram(
    "ltzd_operator_batch_rewards", "Rewards in one mint transaction", buckets=COUNTS
)
QUEUED_REWARDS = _gauge("ltzd_operator_queued_rewards", "Rewards that wait for a mint transaction")
REWARDS_ABOVE_LIMIT = _gauge(
    "ltzd_operator_rewards_above_limit",
    "Queued rewards above the mint limit's capacity, which wait until it is raised",
)
QUEUED_RELAYS = _gauge("ltzd_operator_queued_relays", "Relays that wait for a relay wallet")
IN_FLIGHT = _gauge("ltzd_operator_in_flight", "Intents signed and not settled", "kind")
NONCE_GAP = _gauge("ltzd_operator_nonce_gap", "Nonces allocated minus nonces mined", "kind")
OLDEST_UNCONFIRMED_SECONDS = _gauge(
    "ltzd_operator_oldest_unconfirmed_seconds", "Age of the oldest unsettled intent", "kind"
)
UNDECIDED = _gauge(
    "ltzd_operator_undecided_publications", "Publications whose outcome is unknown", "kind"
)
RESERVED_WEI = _gauge(
    "ltzd_operator_reserved_wei", "Worst-case gas of everything in flight", "kind"
)
BALANCE_WEI = _gauge("ltzd_operator_balance_wei", "The lanes' native balance", "kind")
BASE_FEE_WEI = _gauge(
    "ltzd_operator_base_fee_wei", "The next block's base fee, when last asked", "kind"
)
HELD_BY_CAP = _gauge(
    "ltzd_operator_held_by_cap", "Intents waiting because fees are over the cap", "kind"
)
LANES_HELD = _gauge("ltzd_operator_lanes_held", "Lanes that this process holds", "kind")
LANES_PAUSED = _gauge(
    "ltzd_operator_lanes_paused", "Lanes that wait for something", "kind", "reason"
)

# --- indexer ------------------------------------------------------------------------------------

HEAD_BLOCK = _gauge("ltzd_indexer_head_block", "The chain's newest block that we heard of")
SYNC_BLOCK = _gauge("ltzd_indexer_sync_block", "The newest block whose facts are stored")
FINAL_BLOCK = _gauge("ltzd_indexer_final_block", "The newest block that counts as final")
HEAD_LAG_BLOCKS = _gauge("ltzd_indexer_head_lag_blocks", "Head minus the newest stored block")
HEAD_TO_COMMIT_SECONDS = _histogram(
    "ltzd_indexer_head_to_commit_seconds", "From hearing of a block to its facts being committed"
)
BLOCKS = _counter("ltzd_indexer_blocks_total", "Blocks stored")
FACTS = _counter("ltzd_indexer_facts_total", "Facts stored", "kind")
REWARDS_MINTED = _counter("ltzd_indexer_rewards_minted_total", "Rewards of ours seen minted")
COMMIT_TO_INVALIDATED_SECONDS = _histogram(
    "ltzd_indexer_commit_to_invalidated_seconds",
    "From the beginning of the commit of a block that moved tokens until its wallets' results of "
    "constraints are gone: they go with it",
)
COMMIT_SECONDS = _histogram("ltzd_indexer_commit_seconds", "One database commit of facts")
REORGS = _counter("ltzd_indexer_reorgs_total", "Reorgs followed")
REORG_DEPTH = _histogram(
    "ltzd_indexer_reorg_depth_blocks", "Blocks undone by a reorg", buckets=COUNTS
)
LOG_COMPLETENESS = _counter(
    "ltzd_indexer_log_completeness_checks_total",
    "Empty answers checked against the bloom",
    "result",
)

# --- deliveries ---------------------------------------------------------------------------------

WEBHOOK_ATTEMPTS = _counter(
    "ltzd_deliveries_webhook_attempts_total", "Webhooks posted to brands, by the outcome", "outcome"
)
WEBHOOK_SECONDS = _histogram(
    "ltzd_deliveries_webhook_seconds",
    "From a fact's commit to the delivery of its webhook",
    buckets=SLOW,
)
WEBHOOKS_EXHAUSTED = _counter(
    "ltzd_deliveries_webhooks_exhausted_total", "Webhooks given up after their last attempt"
)
WEBHOOK_ERRORS = _counter(
    "ltzd_deliveries_webhook_errors_total", "Attempts that ended in a fault of our own"
)
ENDPOINT_DISABLEMENTS = _counter(
    "ltzd_deliveries_endpoint_disablements_total", "Brands' endpoints that were disabled"
)
WEBHOOKS_IN_FLIGHT = _gauge(
    "ltzd_deliveries_webhooks_in_flight", "Webhooks that this process is posting"
)
WEBHOOKS_PENDING = _gauge(
    "ltzd_deliveries_webhooks_pending", "Webhooks that wait for an endpoint that is open"
)
WEBHOOKS_HELD = _gauge(
    "ltzd_deliveries_webhooks_held",
    "Webhooks that wait until their endpoint is enabled, or there is one",
)
WEBHOOKS_OLDEST_SECONDS = _gauge(
    "ltzd_deliveries_oldest_webhook_seconds", "Age of the oldest pending webhook"
)
WEBHOOKS_OVERDUE_SECONDS = _gauge(
    "ltzd_deliveries_overdue_seconds", "Since when a pending webhook could have been sent"
)
WEBHOOK_ENDPOINTS_DISABLED = _gauge(
    "ltzd_deliveries_disabled_endpoints", "Brands' endpoints that are disabled"
)
CHAT_RECHECKS = _counter(
    "ltzd_deliveries_chat_rechecks_total",
    "Looks through the kept results of chat constraints",
    "outcome",
)
CHAT_RESULTS_DROPPED = _counter(
    "ltzd_deliveries_chat_results_dropped_total",
    "Kept results of chat constraints whose answer has changed",
)

SITE_REDEMPTIONS_UNPAID = _gauge(
    "ltzd_deliveries_site_redemptions_unpaid",
    "Redemptions whose code was told and whose payment a reorganisation has taken back",
)
SITE_REDEMPTIONS_REVERSED = _counter(
    "ltzd_deliveries_site_redemptions_reversed_total",
    "Redemptions whose code was told and whose payment can no longer come",
)

# --- chain and providers ------------------------------------------------------------------------

RPC_SECONDS = _histogram(
    "ltzd_chain_rpc_request_seconds", "One JSON-RPC request, batches as one", "method", "outcome"
)
PROVIDER_SECONDS = _histogram(
    "ltzd_providers_request_seconds", "One request to an outside service", "provider", "outcome"
)
TOKEN_CHECKS = _counter(
    "ltzd_providers_token_checks_total", "Users' tokens checked, by the verdict", "outcome"
)
IDENTITY_KEYS_READ_AT = _gauge(
    "ltzd_providers_identity_keys_read_timestamp_seconds",
    "When the identity provider last told its signing keys",
)

# --- cache --------------------------------------------------------------------------------------

RATE_LIMIT_HITS = _counter(
    "ltzd_cache_rate_limit_hits_total", "Requests counted by a rate limit", "limit", "outcome"
)
REDIS_ERRORS = _counter("ltzd_cache_redis_errors_total", "Calls to Redis that failed")
REDIS_UNAVAILABLE = _gauge(
    "ltzd_cache_redis_unavailable",
    "Whether rate limits are kept in memory because Redis does not answer",
)

# --- daemon -------------------------------------------------------------------------------------

BUILD = Info("ltzd_daemon_build", "What runs", registry=REGISTRY)
ROLE_UP = _gauge("ltzd_daemon_role_up", "Whether this process runs the role", "role")

RPC_METHODS = frozenset(
    (
        "batch",
        "eth_blockNumber",
        "eth_call",
        "eth_chainId",
        "eth_estimateGas",
        "eth_feeHistory",
        "eth_gasPrice",
        "eth_getBalance",
        "eth_getBlockByHash",
        "eth_getBlockByNumber",
        "eth_getBlockReceipts",
        "eth_getCode",
        "eth_getLogs",
        "eth_getTransactionByHash",
        "eth_getTransactionCount",
        "eth_getTransactionReceipt",
        "eth_maxPriorityFeePerGas",
        "eth_sendRawTransaction",
        "web3_clientVersion",
    )
)
"""Values of the method label; the rest is `other`."""


@contextmanager
def timed_rpc(method: str) -> Iterator[None]:
    """Time the node's answer in this block; how the block ends is the outcome."""
    label = method if method in RPC_METHODS else "other"
    with _timed_call(RPC_SECONDS, label):
        yield


@contextmanager
def timed_provider(provider: str) -> Iterator[None]:
    """Time an outside service's answer in this block; how the block ends is the outcome."""
    with _timed_call(PROVIDER_SECONDS, provider):
        yield


@contextmanager
def _timed_call(histogram: Histogram, name: str) -> Iterator[None]:
    begun = perf_counter()
    outcome = "error"
    try:
        yield
        outcome = "ok"
    except Unavailable:
        outcome = "unavailable"
        raise
    finally:
        histogram.labels(name, outcome).observe(perf_counter() - begun)


@contextmanager
def timed(histogram: Histogram) -> Iterator[None]:
    """Observe the seconds this block takes, however it ends."""
    begun = perf_counter()
    try:
        yield
    finally:
        histogram.observe(perf_counter() - begun)


def exposition() -> bytes:
    """Everything in Prometheus' text format."""
    return generate_latest(REGISTRY)
