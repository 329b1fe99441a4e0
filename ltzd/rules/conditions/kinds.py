"""The closed list of what can be wrong with an installation (decision 0035).

A new kind needs a section of a runbook and, but for a notice, an alert rule; tests demand both.
"""

from enum import StrEnum

import msgspec


class Severity(StrEnum):
    PAGE = "page"
    """A person must act now: money, acceptance or finality waits."""
    TICKET = "ticket"
    """A person must act within days, or a standby is missing."""
    NOTICE = "notice"
    """Nothing to do: what an operator wants to know while looking."""


class ConditionKind(StrEnum):
    """The value is the label of `ltzd_conditions` and the name in `/status`."""

    DATABASE_UNAVAILABLE = "database_unavailable"
    DRAINING = "draining"
    STAGING = "staging"
    PROCESS_MISSING = "process_missing"
    VERSIONS_DIFFER = "versions_differ"
    ROLE_ABSENT = "role_absent"
    CLOCK_DIFFERS = "clock_differs"
    CERTIFICATE_EXPIRES = "certificate_expires"

    NO_NODE_USABLE = "no_node_usable"
    NODE_UNUSABLE = "node_unusable"

    INDEX_NOT_BEGUN = "index_not_begun"
    INDEX_STOPPED = "index_stopped"
    INDEX_STANDS_STILL = "index_stands_still"
    INDEX_BEHIND = "index_behind"
    INDEX_TOTALS_DIFFER = "index_totals_differ"
    INDEX_REBUILDS = "index_rebuilds"
    INDEX_REBUILD_FAILS = "index_rebuild_fails"
    TABLES_UNCONVERTED = "tables_unconverted"
    CONVERSION_FAILS = "conversion_fails"

    LANE_UNHELD = "lane_unheld"
    LANE_STOPPED = "lane_stopped"
    LANE_PAUSED = "lane_paused"
    LANE_PAUSED_BY_HAND = "lane_paused_by_hand"
    FEES_ABOVE_CAP = "fees_above_cap"
    MINT_LIMIT_SPENT = "mint_limit_spent"
    WALLET_OUT_OF_FUNDS = "wallet_out_of_funds"
    WALLET_LOW = "wallet_low"
    WALLET_UNSERVED = "wallet_unserved"
    WALLET_WITHOUT_ROLE = "wallet_without_role"
    STANDBY_MISSING = "standby_missing"
    SIGNER_UNAVAILABLE = "signer_unavailable"

    REWARDS_OVERDUE = "rewards_overdue"
    REWARDS_ABOVE_LIMIT = "rewards_above_limit"
    RELAYS_OVERDUE = "relays_overdue"
    WEBHOOKS_OVERDUE = "webhooks_overdue"
    WEBHOOKS_DISABLED = "webhooks_disabled"

    HTTP_OVERLOADED = "http_overloaded"
    BRAND_UNREADABLE = "brand_unreadable"

    IDENTITY_UNAVAILABLE = "identity_unavailable"
    REDIS_UNAVAILABLE = "redis_unavailable"
    REPLICA_UNUSED = "replica_unused"

    @property
    def facts(self) -> "KindFacts":
        return _FACTS[self]


class KindFacts(msgspec.Struct, frozen=True):
    """`runbook` is `PAGE#ANCHOR` below docs/runbooks."""

    severity: Severity
    runbook: str


_PAGE, _TICKET, _NOTICE = Severity.PAGE, Severity.TICKET, Severity.NOTICE

_FACTS = {
    ConditionKind.DATABASE_UNAVAILABLE: KindFacts(
        _PAGE, "services.md#the-database-does-not-answer"
    ),
    ConditionKind.DRAINING: KindFacts(_NOTICE, "processes.md#a-process-is-draining"),
    ConditionKind.STAGING: KindFacts(_NOTICE, "processes.md#the-installation-is-for-staging"),
    ConditionKind.PROCESS_MISSING: KindFacts(_TICKET, "processes.md#a-process-is-missing"),
    ConditionKind.VERSIONS_DIFFER: KindFacts(_NOTICE, "processes.md#versions-differ"),
    ConditionKind.ROLE_ABSENT: KindFacts(_PAGE, "processes.md#no-process-has-a-role"),
    ConditionKind.CLOCK_DIFFERS: KindFacts(_TICKET, "processes.md#a-clock-differs"),
    ConditionKind.CERTIFICATE_EXPIRES: KindFacts(_TICKET, "processes.md#a-certificate-expires"),
    ConditionKind.NO_NODE_USABLE: KindFacts(_PAGE, "nodes.md#no-node-can-be-used"),
    ConditionKind.NODE_UNUSABLE: KindFacts(_TICKET, "nodes.md#a-node-is-not-used"),
    ConditionKind.INDEX_NOT_BEGUN: KindFacts(_PAGE, "index.md#the-index-has-not-begun"),
    ConditionKind.INDEX_STOPPED: KindFacts(_PAGE, "index.md#the-index-is-stopped"),
    ConditionKind.INDEX_STANDS_STILL: KindFacts(_PAGE, "index.md#the-index-stands-still"),
    ConditionKind.INDEX_BEHIND: KindFacts(_PAGE, "index.md#the-index-is-behind"),
    ConditionKind.INDEX_TOTALS_DIFFER: KindFacts(_PAGE, "index.md#totals-differ"),
    ConditionKind.INDEX_REBUILDS: KindFacts(_NOTICE, "index.md#the-index-is-being-rebuilt"),
    ConditionKind.INDEX_REBUILD_FAILS: KindFacts(_TICKET, "index.md#the-index-is-being-rebuilt"),
    ConditionKind.TABLES_UNCONVERTED: KindFacts(_NOTICE, "index.md#tables-are-not-converted-yet"),
    ConditionKind.CONVERSION_FAILS: KindFacts(_TICKET, "index.md#tables-are-not-converted-yet"),
    ConditionKind.LANE_UNHELD: KindFacts(_PAGE, "lanes.md#no-process-holds-a-lane"),
    ConditionKind.LANE_STOPPED: KindFacts(_PAGE, "lanes.md#a-lane-is-stopped"),
    ConditionKind.LANE_PAUSED: KindFacts(_PAGE, "lanes.md#a-lane-is-paused"),
    ConditionKind.LANE_PAUSED_BY_HAND: KindFacts(_NOTICE, "lanes.md#a-lane-is-paused-by-hand"),
    ConditionKind.FEES_ABOVE_CAP: KindFacts(_PAGE, "lanes.md#fees-are-above-the-cap"),
    ConditionKind.MINT_LIMIT_SPENT: KindFacts(_PAGE, "lanes.md#the-mint-limit-is-spent"),
    ConditionKind.WALLET_OUT_OF_FUNDS: KindFacts(_PAGE, "lanes.md#a-wallet-is-out-of-funds"),
    ConditionKind.WALLET_LOW: KindFacts(_TICKET, "lanes.md#a-wallet-is-low"),
    ConditionKind.WALLET_UNSERVED: KindFacts(_PAGE, "lanes.md#no-process-serves-a-wallet"),
    ConditionKind.WALLET_WITHOUT_ROLE: KindFacts(_PAGE, "lanes.md#a-wallet-has-lost-its-role"),
    ConditionKind.STANDBY_MISSING: KindFacts(_TICKET, "lanes.md#a-process-cannot-serve-a-wallet"),
    ConditionKind.SIGNER_UNAVAILABLE: KindFacts(_PAGE, "lanes.md#a-signer-does-not-answer"),
    ConditionKind.REWARDS_OVERDUE: KindFacts(_PAGE, "lanes.md#rewards-are-overdue"),
    ConditionKind.REWARDS_ABOVE_LIMIT: KindFacts(
        _TICKET, "lanes.md#rewards-are-above-the-mint-limit"
    ),
    ConditionKind.RELAYS_OVERDUE: KindFacts(_PAGE, "lanes.md#relays-are-overdue"),
    ConditionKind.WEBHOOKS_OVERDUE: KindFacts(_TICKET, "webhooks.md#webhooks-are-overdue"),
    ConditionKind.WEBHOOKS_DISABLED: KindFacts(
        _TICKET, "webhooks.md#a-brands-webhooks-are-disabled"
    ),
    ConditionKind.HTTP_OVERLOADED: KindFacts(_PAGE, "processes.md#requests-are-refused"),
    ConditionKind.BRAND_UNREADABLE: KindFacts(
        _PAGE, "processes.md#a-brands-configuration-cannot-be-read"
    ),
    ConditionKind.IDENTITY_UNAVAILABLE: KindFacts(
        _PAGE, "services.md#the-identity-provider-does-not-answer"
    ),
    ConditionKind.REDIS_UNAVAILABLE: KindFacts(_TICKET, "services.md#redis-does-not-answer"),
    ConditionKind.REPLICA_UNUSED: KindFacts(_TICKET, "services.md#the-replica-is-not-used"),
}


class Condition(msgspec.Struct, frozen=True):
    """`sentence` says what is wrong, since when, and what ends it or which command tells more.

    `subject` is the wallet, node, role, brand or process that the condition is about, if any.
    `seen_by` names the processes that report it; empty for what the database tells.
    `is_blocking` says that it keeps the process that has judged it from its work.
    """

    kind: ConditionKind
    sentence: str
    subject: str | None = None
    seen_by: tuple[str, ...] = ()
    is_blocking: bool = False
