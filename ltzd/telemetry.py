"""Every metric that ltzd exposes, and helpers that time calls.

Names are `ltzd_<package>_…` in base units. Labels come from closed sets (kind, method, outcome,
reason, route, stage, the nodes of the settings): never an address, an id or a path. A gauge that
was never set shows 0.
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
"""Buckets in seconds for work that should take milliseconds."""
SLOW = (0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1800)
"""Buckets in seconds for work that waits for blocks."""
COUNTS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
"""Buckets for the sizes of batches."""


def _counter(name: str, help_text: str, *labels: str) -> Counter:
    return Counter(name, help_text, labels, registry=REGISTRY)


def _gauge(name: str, help_text: str, *labels: str) -> Gauge:
    return Gauge(name, help_text, labels, registry=REGISTRY)


def _histogram(
    name: str, help_text: str, *labels: str, buckets: tuple[float, ...] = FAST
) -> Histogram:
    return Histogram(name, help_text, labels, registry=REGISTRY, buckets=buckets)


# HTTP

HTTP_REQUEST_SECONDS = _histogram(
    "ltzd_http_request_seconds", "From a request's head to its answer", "route", "status"
)
HTTP_REFUSALS = _counter("ltzd_http_refusals_total", "Requests refused, by error code", "reason")
HTTP_SHED = _counter(
    "ltzd_http_shed_total",
    "Requests refused because the process is busy, by the limit that they exceed",
    "reason",
)
HTTP_IN_PROGRESS = _gauge(
    "ltzd_http_requests_in_progress",
    "Requests that the process works on, not those that wait for a block",
)
HTTP_WORK_LIMIT = _gauge(
    "ltzd_http_work_limit",
    "The most requests that the process works on at once; relays and redemptions have a limit of "
    "their own",
)
HTTP_WAITING = _gauge("ltzd_http_requests_waiting", "Requests that wait for a slot", "urgency")
HTTP_QUEUE_SECONDS = _histogram(
    "ltzd_http_queue_seconds", "How long a request has waited until it got a slot or was refused"
)
EVENT_LOOP_DELAY = _gauge(
    "ltzd_http_event_loop_delay_seconds", "How late the event loop runs due callbacks, on average"
)
HTTP_CONNECTIONS = _gauge(
    "ltzd_http_connections", "Open connections of the public server, by state", "state"
)
HTTP_CONNECTIONS_LIMIT = _gauge(
    "ltzd_http_connections_limit", "The most connections that the public server keeps open"
)
HTTP_CONNECTIONS_ENDED = _counter(
    "ltzd_http_connections_ended_total",
    "Connections that the server ended, and why",
    "reason",
)
CERTIFICATE_EXPIRY = _gauge(
    "ltzd_http_certificate_expiry_timestamp_seconds",
    "When the TLS certificate that new connections get expires",
    "server",
)
CERTIFICATE_RENEWALS = _counter(
    "ltzd_http_certificate_renewals_total",
    "Reloads of TLS certificates on SIGHUP",
    "server",
    "outcome",
)

# Actions

EVENTS = _counter("ltzd_actions_events_total", "Events received, by the outcome", "outcome")
GROUP_COMMIT_ITEMS = _histogram(
    "ltzd_actions_group_commit_items",
    "Events or relays in one database commit",
    "kind",
    buckets=COUNTS,
)
GROUP_COMMIT_SECONDS = _histogram(
    "ltzd_actions_group_commit_seconds", "The database commit of one group", "kind"
)
REWARDS_QUEUED = _counter(
    "ltzd_actions_rewards_queued_total", "Rewards put into the mint lane's queue", "kind"
)
HASH_WAIT_SECONDS = _histogram(
    "ltzd_actions_hash_wait_seconds", "From an event's commit to its published hash"
)

RELAYS = _counter("ltzd_actions_relays_total", "Relay requests, by the outcome", "outcome")
RELAY_SECONDS = _histogram(
    "ltzd_actions_relay_seconds", "From a relay's admission to its answer", buckets=SLOW
)

RELAY_GAS_SPENT_WEI = _gauge(
    "ltzd_actions_relay_gas_spent_wei",
    "Gas of today's relays: mined ones at their cost, others at their maximum",
)
RELAY_GAS_BUDGET_WEI = _gauge(
    "ltzd_actions_relay_gas_budget_wei", "The gas budget of all relays in a UTC day; 0 is no budget"
)
GAS_REFUSALS = _counter(
    "ltzd_actions_relay_gas_refusals_total",
    "Relays and redemptions refused because a day's gas budget was spent",
    "budget",
)

REDEMPTIONS = _counter(
    "ltzd_actions_redemptions_total", "Requests to redeem charges, by the outcome", "outcome"
)
CHECKOUTS = _counter(
    "ltzd_actions_checkouts_total", "Requests for checkout sessions, by the outcome", "outcome"
)
PAYMENTS = _counter(
    "ltzd_actions_payments_total",
    "Requests to mint a checkout session, from callers or provider events",
    "outcome",
)
PAYMENTS_NOT_MINTED = _counter(
    "ltzd_actions_payments_not_minted_total",
    "Paid sessions that are refused: money was taken and nothing minted",
    "reason",
)
PAYMENT_REVERSALS = _counter(
    "ltzd_actions_payment_reversals_total",
    "Refunds, disputes and failed refunds, of payments minted here or unknown",
    "kind",
    "payment",
)
WALLET_MIGRATIONS = _counter(
    "ltzd_actions_wallet_migrations_total",
    "Moves of an e-mail address to the wallet of the user who has proven it",
    "outcome",
)
PREGENERATIONS = _counter(
    "ltzd_actions_pregenerations_total",
    "Requests to create a wallet before its owner logs in, by the outcome",
    "outcome",
)
CONSTRAINT_EVALUATIONS = _counter(
    "ltzd_actions_constraint_evaluations_total",
    "Evaluations of purchase constraints",
    "kind",
    "outcome",
)
CONSTRAINT_RESULTS = _counter(
    "ltzd_actions_constraint_results_total",
    "Look-ups of cached constraint results",
    "outcome",
)
CONSTRAINT_RESULTS_INVALIDATED = _counter(
    "ltzd_actions_constraint_results_invalidated_total",
    "Cached constraint results that brands invalidated",
)
SITE_CHECKINS = _counter(
    "ltzd_actions_site_checkins_total",
    "Requests to check in at a brand's site, by the outcome",
    "outcome",
)
SITE_MILESTONES = _counter(
    "ltzd_actions_site_milestones_total",
    "Requests to claim a streak's milestone, by the outcome",
    "outcome",
)
SITE_REDEMPTIONS = _counter(
    "ltzd_actions_site_redemptions_total",
    "Requests to redeem a perk at a brand's site, by the outcome",
    "outcome",
)
SITE_LINKS = _counter(
    "ltzd_actions_site_links_total",
    "Links of site members with wallets: codes made, codes entered, links ended",
    "outcome",
)

# Operator

TRANSACTIONS_CREATED = _counter(
    "ltzd_operator_transactions_created_total", "Transactions that were given a nonce", "kind"
)
TRANSACTIONS_SUBMITTED = _counter(
    "ltzd_operator_transactions_submitted_total",
    "Publications, by the node's answer",
    "kind",
    "outcome",
)
TRANSACTIONS_SUCCESS = _counter(
    "ltzd_operator_transactions_success_total", "Transactions confirmed on chain", "kind"
)
TRANSACTIONS_FAILED = _counter(
    "ltzd_operator_transactions_failed_total",
    "Transactions that ended without success",
    "kind",
    "reason",
)
TRANSACTIONS_DEMOTED = _counter(
    "ltzd_operator_transactions_demoted_total", "Mined transactions that a reorg removed", "kind"
)
TRANSACTIONS_REPLACED = _counter(
    "ltzd_operator_transactions_replaced_total",
    "Attempts signed to replace a stuck one",
    "kind",
    "reason",
)
TRANSACTIONS_ABANDONED = _counter(
    "ltzd_operator_transactions_abandoned_total",
    "Transactions that nodes refuse for good; a self-transfer takes the nonce",
    "kind",
)
REWARDS_FAILED = _counter(
    "ltzd_operator_rewards_failed_total", "Rewards that LTZ refuses while it mints others"
)
TRANSACTION_SECONDS = _histogram(
    "ltzd_operator_transaction_processing_seconds",
    "From a transaction's creation to this stage",
    "kind",
    "stage",
    buckets=SLOW,
)
BATCH_REWARDS = _histogram(
    "ltzd_operator_batch_rewards", "Rewards in one mint transaction", buckets=COUNTS
)
QUEUED_REWARDS = _gauge("ltzd_operator_queued_rewards", "Rewards waiting for a mint transaction")
REWARDS_ABOVE_LIMIT = _gauge(
    "ltzd_operator_rewards_above_limit",
    "Queued rewards above the mint limit's capacity, waiting until it is raised",
)
BRANDS_HELD = _gauge(
    "ltzd_operator_brands_held",
    "Brands whose queued rewards wait for a cheaper block, within the brand's bound",
    "kind",
)
PATIENCE_ENDED = _counter(
    "ltzd_operator_patience_ended_total",
    "Waits of a brand's rewards for a cheaper block that ended",
    "reason",
)
QUEUED_RELAYS = _gauge("ltzd_operator_queued_relays", "Relays waiting for a relay wallet")
IN_FLIGHT = _gauge("ltzd_operator_in_flight", "Transactions signed and not settled", "kind")
NONCE_GAP = _gauge("ltzd_operator_nonce_gap", "Nonces allocated minus nonces mined", "kind")
OLDEST_UNCONFIRMED_SECONDS = _gauge(
    "ltzd_operator_oldest_unconfirmed_seconds",
    "Age of the oldest transaction that no block holds",
    "kind",
)
UNDECIDED = _gauge(
    "ltzd_operator_undecided_publications", "Publications whose outcome is unknown", "kind"
)
RESERVED_WEI = _gauge(
    "ltzd_operator_reserved_wei", "Maximum gas cost of all transactions in flight", "kind"
)
BALANCE_WEI = _gauge("ltzd_operator_balance_wei", "Native balance of the lane's wallet", "kind")
BALANCE_FLOOR_WEI = _gauge(
    "ltzd_operator_balance_floor_wei",
    "The balance below which a wallet needs a top-up, from the settings; 0 is no floor",
    "kind",
)
TREASURY_DAY_WEI = _gauge(
    "ltzd_operator_treasury_day_wei", "The top-ups that the treasury has signed this UTC day"
)
TREASURY_DAY_LIMIT_WEI = _gauge(
    "ltzd_operator_treasury_day_limit_wei", "The most that the treasury may send in a UTC day"
)
FOREIGN_WALLETS = _gauge(
    "ltzd_operator_foreign_wallets",
    "Active wallets that another holder of their key has signed with: they get no top-ups",
)
BASE_FEE_WEI = _gauge(
    "ltzd_operator_base_fee_wei", "The next block's base fee, as last read", "kind"
)
HELD_BY_CAP = _gauge(
    "ltzd_operator_held_by_cap", "1 while transactions wait because fees are above the cap", "kind"
)
LANES_HELD = _gauge("ltzd_operator_lanes_held", "Lanes that this process holds", "kind")
WALLETS_UNSERVED = _gauge(
    "ltzd_operator_wallets_unserved",
    "Wallets that are not retired and that no process serves, when last asked",
    "kind",
)
LANE_FAILURES = _counter(
    "ltzd_operator_lane_failures_total",
    "Lanes that an error in ltzd has ended; each begins again after a pause",
    "kind",
)
LANES_PAUSED = _gauge("ltzd_operator_lanes_paused", "Lanes that are paused", "kind", "reason")

# Leases

LEASE_RENEWALS = _counter(
    "ltzd_lease_renewals_total", "Renewals of leases: `in_time` or `late`", "outcome"
)
STUCK_SESSIONS_ENDED = _counter(
    "ltzd_lease_stuck_sessions_ended_total",
    "Database sessions of frozen processes that this process has ended",
)
LEASES_LOST = _counter("ltzd_leases_lost_total", "Leases that ended too early", "lease")

# Indexer

HEAD_BLOCK = _gauge("ltzd_indexer_head_block", "The newest block that the node reported")
SYNC_BLOCK = _gauge("ltzd_indexer_sync_block", "The newest block whose facts are stored")
FINAL_BLOCK = _gauge("ltzd_indexer_final_block", "The newest block that counts as final")
HEAD_LAG_BLOCKS = _gauge("ltzd_indexer_head_lag_blocks", "Head minus the newest stored block")
INDEX_IDLE_SECONDS = _gauge(
    "ltzd_indexer_idle_seconds", "Since the last commit of blocks, by any process"
)
INDEX_STANDS_STILL = _gauge(
    "ltzd_indexer_stands_still", "1 if blocks are due and none has been committed for a minute"
)
INDEX_REBUILDS = _gauge("ltzd_indexer_rebuilds", "1 while this process rebuilds the index")
INDEX_REBUILD_BLOCK = _gauge(
    "ltzd_indexer_rebuild_block", "Last block whose facts are in the fresh tables of a rebuild"
)
INDEX_SWAP_SECONDS = _histogram(
    "ltzd_indexer_rebuild_swap_seconds",
    "Attempts to put the fresh tables of a rebuild in the place of the live ones",
)
INDEX_STOPPED = _gauge(
    "ltzd_indexer_stopped", "1 while the index is stopped and waits for a person"
)
FACTS_MENDED = _counter(
    "ltzd_indexer_facts_mended_total",
    "Facts that were missing, foreign or wrong, and were corrected",
    "kind",
)
BACKGROUND_MIGRATIONS = _gauge(
    "ltzd_background_migrations_pending", "Migrations of large tables that are not finished"
)
HEAD_TO_COMMIT_SECONDS = _histogram(
    "ltzd_indexer_head_to_commit_seconds",
    "From the node's report of a block to the commit of its facts",
)
BLOCKS = _counter("ltzd_indexer_blocks_total", "Blocks stored")
FACTS = _counter("ltzd_indexer_facts_total", "Facts stored", "kind")
REWARDS_MINTED = _counter("ltzd_indexer_rewards_minted_total", "Rewards seen minted on chain")
FOREIGN_MINTS = _counter(
    "ltzd_indexer_foreign_mints_total",
    "Mints on chain whose reference this database has given to no reward",
)
COMMIT_TO_INVALIDATED_SECONDS = _histogram(
    "ltzd_indexer_commit_to_invalidated_seconds",
    "From the start of the commit of a block that moved tokens until the constraint results of "
    "its wallets are deleted, in the same commit",
)
COMMIT_SECONDS = _histogram(
    "ltzd_indexer_commit_seconds", "The database commit of one block range's facts"
)
BACKFILL_HELD_BYTES = _gauge(
    "ltzd_indexer_backfill_held_bytes",
    "Memory of the blocks that were read ahead of the cursor, and are not committed yet",
)
BACKFILL_SECONDS_LEFT = _gauge(
    "ltzd_indexer_backfill_seconds_left",
    "Until the settled blocks are indexed, at the rate of the last half minute; 0 near the head",
)
REORGS = _counter("ltzd_indexer_reorgs_total", "Reorgs that the indexer followed")
REORG_DEPTH = _histogram(
    "ltzd_indexer_reorg_depth_blocks", "Blocks undone by a reorg", buckets=COUNTS
)
BRANCHES_TIED = _gauge(
    "ltzd_indexer_branches_tied",
    "1 while nodes contradict each other about an indexed block, so that nothing is indexed",
)
LOG_COMPLETENESS = _counter(
    "ltzd_indexer_log_completeness_checks_total",
    "Empty answers for logs that were checked against the bloom filter",
    "result",
)
AUDITED_BLOCK = _gauge(
    "ltzd_indexer_audited_block",
    "Every block up to this one was read a second time and compared with the index",
)
AUDIT_FINDINGS = _counter(
    "ltzd_indexer_audit_findings_total",
    "Facts that the audit found to differ, blocks that nodes show in different ways, and failures",
    "kind",
)
TOTALS_CHECKS = _counter(
    "ltzd_indexer_totals_checks_total",
    "Comparisons of the contracts' own totals with the tables",
    "result",
)
TOTALS_DIFFER = _gauge(
    "ltzd_indexer_totals_differ",
    "Totals of the contracts that differ from the tables although all blocks were compared",
)

# Deliveries

WEBHOOK_ATTEMPTS = _counter(
    "ltzd_deliveries_webhook_attempts_total", "Webhooks posted to brands, by the outcome", "outcome"
)
WEBHOOK_SECONDS = _histogram(
    "ltzd_deliveries_webhook_seconds",
    "From a fact's commit to the delivery of its webhook",
    buckets=SLOW,
)
WEBHOOKS_EXHAUSTED = _counter(
    "ltzd_deliveries_webhooks_exhausted_total", "Webhooks given up after the last attempt"
)
WEBHOOK_ERRORS = _counter(
    "ltzd_deliveries_webhook_errors_total",
    "Webhook attempts that failed because of an error in ltzd",
)
ENDPOINT_DISABLEMENTS = _counter(
    "ltzd_deliveries_endpoint_disablements_total", "Disablements of brands' endpoints"
)
WEBHOOKS_IN_FLIGHT = _gauge(
    "ltzd_deliveries_webhooks_in_flight", "Webhooks that this process is posting now"
)
WEBHOOKS_PENDING = _gauge(
    "ltzd_deliveries_webhooks_pending", "Pending webhooks whose endpoint is enabled"
)
WEBHOOKS_HELD = _gauge(
    "ltzd_deliveries_webhooks_held",
    "Pending webhooks whose endpoint is disabled or missing",
)
WEBHOOKS_OLDEST_SECONDS = _gauge(
    "ltzd_deliveries_oldest_webhook_seconds", "Age of the oldest pending webhook"
)
WEBHOOKS_OVERDUE_SECONDS = _gauge(
    "ltzd_deliveries_overdue_seconds", "Time since the oldest pending webhook became due"
)
WEBHOOK_ENDPOINTS_DISABLED = _gauge(
    "ltzd_deliveries_disabled_endpoints", "Brands' endpoints that are disabled"
)
CHAT_RECHECKS = _counter(
    "ltzd_deliveries_chat_rechecks_total",
    "Rechecks of the cached results of chat constraints",
    "outcome",
)
CHAT_RESULTS_DROPPED = _counter(
    "ltzd_deliveries_chat_results_dropped_total",
    "Cached results of chat constraints that had changed",
)
CLEANUP_RUNS = _counter(
    "ltzd_deliveries_cleanup_runs_total",
    "Rounds of the periodic deletions, erasures and new partitions, by the work and its outcome",
    "work",
    "outcome",
)
SITE_REDEMPTIONS_UNPAID = _gauge(
    "ltzd_deliveries_site_redemptions_unpaid",
    "Redemptions with a revealed code whose payment a reorg removed",
)
SITE_REDEMPTIONS_REVERSED = _counter(
    "ltzd_deliveries_site_redemptions_reversed_total",
    "Redemptions with a revealed code whose payment has finally failed",
)

# Store

POOL_CONNECTIONS_IN_USE = _gauge(
    "ltzd_store_pool_connections_in_use", "Database connections of the pool that are in use", "pool"
)
POOL_CONNECTIONS_LIMIT = _gauge(
    "ltzd_store_pool_connections_limit", "The most database connections of the pool", "pool"
)
POOL_WAIT_SECONDS = _histogram(
    "ltzd_store_pool_wait_seconds", "How long a caller has waited for a database connection", "pool"
)
POOL_TIMEOUTS = _counter(
    "ltzd_store_pool_timeouts_total", "Waits for a database connection that were given up", "pool"
)
REPLICA_READS = _counter(
    "ltzd_store_replica_reads_total",
    "Reads that may be old, by the server that answered; only with a replica",
    "server",
)
REPLICA_AGE = _gauge(
    "ltzd_store_replica_age_seconds",
    "The greatest age that an answer of the replica can have; 0 while it is unused",
)
REPLICA_UNUSED = _gauge(
    "ltzd_store_replica_unused", "1 while the primary answers in place of the replica"
)

# Chain and providers

RPC_SECONDS = _histogram(
    "ltzd_chain_rpc_request_seconds",
    "One JSON-RPC request; a batch counts as one",
    "method",
    "outcome",
)
NODE_ERRORS = _counter(
    "ltzd_chain_node_errors_total", "Requests that a node did not answer", "node", "kind"
)
NODE_DISAGREEMENTS = _counter(
    "ltzd_chain_node_disagreements_total",
    "Contradictions of a node with others or itself",
    "node",
    "kind",
)
NODE_USABLE = _gauge(
    "ltzd_chain_node_usable", "1 while there is no reason to avoid the node", "node"
)
NODE_IN_USE = _gauge(
    "ltzd_chain_node_in_use", "1 while a role of this process asks the node first", "node"
)
NODE_UNFIT = _gauge(
    "ltzd_chain_node_unfit",
    "1 for the reason why the node is not used, or only as the last resort",
    "node",
    "reason",
)
NODE_HEIGHT = _gauge("ltzd_chain_node_height", "The node's newest block", "node")
NODE_LATENCY_SECONDS = _gauge(
    "ltzd_chain_node_latency_seconds", "The mean time of the node's latest answers", "node"
)
NODE_SILENT_SECONDS = _gauge(
    "ltzd_chain_node_silent_seconds", "Since the node's last answer", "node"
)
NODE_REQUESTS_IN_FLIGHT = _gauge(
    "ltzd_chain_node_requests_in_flight", "Requests that the node has not answered yet", "node"
)
HEADS_ANNOUNCED = _counter(
    "ltzd_chain_heads_announced_total", "Heads that nodes announced over WebSocket"
)
HEAD_SOCKETS_OPEN = _gauge(
    "ltzd_chain_head_sockets_open", "WebSockets on which nodes announce heads"
)
HEAD_SOCKETS_LOST = _counter(
    "ltzd_chain_head_sockets_lost_total", "WebSockets for heads that were lost", "reason"
)
WRONG_SIGNATURES = _counter(
    "ltzd_chain_wrong_signatures_total",
    "Answers of signing services that were not the wallet's signature of the bytes asked for",
)
PROVIDER_SECONDS = _histogram(
    "ltzd_providers_request_seconds", "One request to an outside service", "provider", "outcome"
)
TOKEN_CHECKS = _counter(
    "ltzd_providers_token_checks_total", "Checks of users' tokens, by the verdict", "outcome"
)
IDENTITY_KEYS_READ_AT = _gauge(
    "ltzd_providers_identity_keys_read_timestamp_seconds",
    "When the identity provider's signing keys were last read",
)

# Cache

RATE_LIMIT_HITS = _counter(
    "ltzd_cache_rate_limit_hits_total", "Requests counted by a rate limit", "limit", "outcome"
)
REDIS_ERRORS = _counter("ltzd_cache_redis_errors_total", "Calls to Redis that failed")
REDIS_UNAVAILABLE = _gauge(
    "ltzd_cache_redis_unavailable",
    "1 while rate limits are counted in memory because Redis does not answer",
)

# Daemon

BUILD = Info("ltzd_daemon_build", "The running version", registry=REGISTRY)
CONDITIONS = _gauge(
    "ltzd_conditions", "Conditions of the whole installation, judged at each scrape", "condition"
)
TASKS = _gauge("ltzd_daemon_tasks", "Tasks of the event loop: loops, connections, requests")
ROLE_UP = _gauge("ltzd_daemon_role_up", "1 if this process runs the role", "role")
LOOP_FAILURES = _counter(
    "ltzd_daemon_loop_failures_total",
    "Errors that have ended a loop of the process; it begins again after a pause of up to 10 s",
    "loop",
)
LOG_LINES_LOST = _counter(
    "ltzd_daemon_log_lines_lost_total", "Log lines that could not be written, as on a full disk"
)

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
"""The values of the method label; any other method is `other`."""


@contextmanager
def timed_rpc(method: str) -> Iterator[None]:
    """Time one call to the node; the block's end or exception is the outcome."""
    label = method if method in RPC_METHODS else "other"
    with _timed_call(RPC_SECONDS, label):
        yield


@contextmanager
def timed_provider(provider: str) -> Iterator[None]:
    """Time one call to an outside service; the block's end or exception is the outcome."""
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
    """Observe the seconds that the block takes, also if it raises."""
    begun = perf_counter()
    try:
        yield
    finally:
        histogram.observe(perf_counter() - begun)


def exposition() -> bytes:
    """Everything in Prometheus' text format."""
    return generate_latest(REGISTRY)
