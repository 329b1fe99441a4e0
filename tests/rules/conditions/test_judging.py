"""The conditions of an installation, judged from its facts."""

from itertools import permutations
from uuid import UUID

import pytest
from msgspec.structs import replace

from ltzd.operator import policy as operator_policy
from ltzd.rules.conditions import readiness
from ltzd.rules.conditions.clocks import judge_clock
from ltzd.rules.conditions.facts import (
    ChainFacts,
    ClusterFacts,
    LaneState,
    ProcessFacts,
    ProcessIdentity,
    ProcessReport,
    QueueFacts,
    WalletFacts,
)
from ltzd.rules.conditions.judging import OwnView, judge
from ltzd.rules.conditions.kinds import Condition, ConditionKind
from ltzd.rules.conditions.lanes import INTENDED, PAUSES, judge_own_lanes
from ltzd.rules.conditions.policy import ConditionPolicy
from ltzd.rules.conditions.processes import replaced_by
from ltzd.rules.operator.sendable import Obstacle
from ltzd.values import Address, checksummed

POLICY = ConditionPolicy()
ROLES = ("http", "operator", "indexer", "deliveries")
ME = ProcessIdentity(UUID(int=1), "host-a", 1, ROLES, "1.0")
MINTER, RELAYER = Address(b"\x11" * 20), Address(b"\x22" * 20)
CHAIN = ChainFacts(8453, MINTER, 100, 100, 60, 0.5, 2.0)
WALLETS = (
    WalletFacts(MINTER, "mint", "host-a/1"),
    WalletFacts(RELAYER, "relay", "host-a/1"),
)
WELL = ClusterFacts(chain=CHAIN, wallets=WALLETS)


def a_process(number: int, **changes: object) -> ProcessFacts:
    identity = ProcessIdentity(UUID(int=number), "host-b", number, ("indexer",), "1.0")
    facts = ProcessFacts(identity, started_seconds=900.0, seen_seconds=2.0)
    return replace(facts, **changes)


def judged(facts: ClusterFacts | None, *own: Condition, me: ProcessIdentity = ME) -> list[str]:
    return [each.kind.value for each in judge(facts, OwnView(me, own), POLICY)]


def blocking(facts: ClusterFacts, *, for_http: bool = False, me: ProcessIdentity = ME) -> list[str]:
    conditions = judge(facts, OwnView(me), POLICY)
    return [each.kind.value for each in readiness.reasons(conditions, for_http=for_http)]


def test_nothing_is_wrong_with_a_whole_installation() -> None:
    assert judged(WELL) == []


def test_without_a_database_only_the_process_itself_is_known() -> None:
    away = Condition(ConditionKind.REDIS_UNAVAILABLE, "Redis does not answer")
    assert judged(None, away) == ["database_unavailable", "redis_unavailable"]


# --- processes ------------------------------------------------------------------------------------

HTTP = replace(ME, roles=("http",))


def test_a_dead_indexer_is_seen_by_a_process_without_the_role_and_without_a_node() -> None:
    facts = replace(WELL, chain=replace(CHAIN, idle_seconds=344.0))
    conditions = judge(facts, OwnView(HTTP), POLICY)
    assert {each.kind for each in conditions} >= {
        ConditionKind.INDEX_STANDS_STILL,
        ConditionKind.ROLE_ABSENT,
    }
    (still,) = (each for each in conditions if each.kind is ConditionKind.INDEX_STANDS_STILL)
    assert "no block for 344 s: no process follows the chain" in still.sentence
    assert blocking(facts, me=HTTP) == ["role_absent", "index_stands_still"]
    assert blocking(facts, me=HTTP, for_http=True) == []


def test_an_absent_indexer_counts_for_readiness_once_the_index_is_old() -> None:
    assert "role_absent" in judged(WELL, me=HTTP)
    assert blocking(WELL, me=HTTP) == []
    assert blocking(replace(WELL, chain=replace(CHAIN, idle_seconds=21.0)), me=HTTP) == [
        "role_absent"
    ]


def test_a_lease_shows_a_role_of_a_process_that_reports_nothing() -> None:
    held = {"indexer/8453": "old/7", "lane/8453/0x11": "old/7"}
    roles = [
        each.subject for each in judge(replace(WELL, lease_holders=held), OwnView(HTTP), POLICY)
    ]
    assert roles == ["deliveries"]


def test_a_killed_process_is_missing_until_its_successor_reports() -> None:
    killed = a_process(2, seen_seconds=40.0)
    assert judged(replace(WELL, processes=(killed,))) == ["process_missing"]
    young = a_process(3, started_seconds=10.0)
    assert judged(replace(WELL, processes=(killed, young))) == []
    elder = a_process(3, started_seconds=100.0)
    assert judged(replace(WELL, processes=(killed, elder))) == ["process_missing"]
    elsewhere = replace(young, identity=replace(young.identity, host="host-c"))
    assert judged(replace(WELL, processes=(killed, elsewhere))) == ["process_missing"]
    both = (killed, replace(killed, identity=replace(killed.identity, id=UUID(int=8), pid=8)))
    assert judged(replace(WELL, processes=(*both, young))) == ["process_missing"]


def test_of_a_process_that_is_killed_again_and_again_the_last_one_alone_may_be_missing() -> None:
    first = a_process(2, started_seconds=900.0, seen_seconds=400.0)
    second = a_process(3, started_seconds=390.0, seen_seconds=200.0)
    third = a_process(4, started_seconds=190.0, seen_seconds=40.0)
    fourth = a_process(5, started_seconds=30.0)
    for order in permutations((first, second, third, fourth)):
        assert judged(replace(WELL, processes=order)) == []
    for order in permutations((first, second, third)):
        (missing,) = judge(replace(WELL, processes=order), OwnView(ME), POLICY)
        assert missing.subject == third.identity.name


def test_with_a_clean_end_a_process_ends_those_whose_place_it_has_taken() -> None:
    first = a_process(2, started_seconds=900.0, seen_seconds=400.0)
    second = a_process(3, started_seconds=390.0, seen_seconds=200.0)
    beside = a_process(4, started_seconds=390.0, seen_seconds=210.0)
    elsewhere = a_process(5, seen_seconds=300.0)
    elsewhere = replace(elsewhere, identity=replace(elsewhere.identity, host="host-c"))
    third = a_process(6, started_seconds=190.0, seen_seconds=2.0)
    for order in permutations((first, second, beside, elsewhere, third)):
        replaced = replaced_by(third.identity, order, POLICY)
        assert replaced == (second.identity, first.identity)
        ended = {third.identity, *replaced}
        left = tuple(each for each in order if each.identity not in ended)
        assert judged(replace(WELL, processes=left)) == ["process_missing"] * 2


def test_a_process_is_its_own_successor_and_never_missing_itself() -> None:
    mine = ProcessFacts(ME, started_seconds=5.0, seen_seconds=60.0)
    before = ProcessFacts(replace(ME, id=UUID(int=9), pid=9), 900.0, seen_seconds=61.0)
    assert judged(replace(WELL, processes=(before, mine))) == []


def test_a_process_that_was_killed_after_its_first_report_is_missing() -> None:
    """Its start and its report are one moment, and the database reads its clock for each age."""
    killed = a_process(2, started_seconds=40.0, seen_seconds=40.000001)
    assert judged(replace(WELL, processes=(killed,))) == ["process_missing"]
    young = a_process(3, started_seconds=10.0)
    assert judged(replace(WELL, processes=(killed, young))) == []


def test_versions_that_differ_are_told() -> None:
    other = a_process(2)
    other = replace(other, identity=replace(other.identity, version="1.1"))
    assert judged(replace(WELL, processes=(other,))) == ["versions_differ"]


def test_what_several_processes_see_is_one_condition() -> None:
    away = Condition(ConditionKind.NODE_UNUSABLE, "Node x does not answer", "x")
    others = tuple(a_process(number, report=ProcessReport((away,))) for number in (2, 3))
    (condition,) = judge(replace(WELL, processes=others), OwnView(ME, (away,)), POLICY)
    assert condition.seen_by == ("host-a/1", "host-b/2", "host-b/3")
    silent = tuple(replace(each, seen_seconds=50.0) for each in others)
    assert "node_unusable" not in judged(replace(WELL, processes=silent))


def test_a_fault_of_another_process_leaves_this_one_ready() -> None:
    stopped = tuple(judge_own_lanes([LaneState(MINTER, "mint", False, "foreign nonce")]))
    other = a_process(2, report=ProcessReport(stopped))
    facts = replace(WELL, processes=(other,))
    decoded = replace(stopped[0], is_blocking=False)  # as the table tells it
    facts = replace(facts, processes=(replace(other, report=ProcessReport((decoded,))),))
    assert judged(facts) == ["lane_stopped"]
    assert blocking(facts) == []
    own = judge(WELL, OwnView(ME, stopped), POLICY)
    assert [each.kind.value for each in readiness.reasons(own)] == ["lane_stopped"]
    assert readiness.reasons(own, for_http=True) == ()


# --- index ----------------------------------------------------------------------------------------


def test_a_head_that_another_process_has_seen_counts() -> None:
    assert judged(replace(WELL, processes=(a_process(2, report=ProcessReport(height=200)),))) == [
        "index_behind"
    ]


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"stopped_reason": "It broke."}, "index_stopped"),
        ({"idle_seconds": 90.0}, "index_stands_still"),
        ({"head_number": 300}, "index_behind"),
    ],
)
def test_an_old_index_makes_every_process_unready_but_not_http(
    changes: dict[str, object], kind: str
) -> None:
    facts = replace(WELL, chain=replace(CHAIN, **changes))
    assert blocking(facts) == [kind]
    assert blocking(facts, for_http=True) == []


def test_before_the_first_block_http_is_not_ready_either() -> None:
    facts = replace(WELL, chain=None)
    assert blocking(facts) == blocking(facts, for_http=True) == ["index_not_begun"]


def test_work_in_the_background_is_a_notice() -> None:
    facts = replace(WELL, rebuild="filling", migrations=("partition mints",))
    assert judged(facts) == ["index_rebuilds", "tables_unconverted"]
    assert blocking(facts) == []


def test_work_in_the_background_that_fails_needs_a_person_and_leaves_every_process_ready() -> None:
    facts = replace(
        WELL,
        rebuild="filling",
        rebuild_error="The disk is full",
        migrations=("partition mints", "partition transfers"),
        migration_errors={"partition transfers": "53100"},
    )
    conditions = judge(facts, OwnView(ME), POLICY)
    sentences = {each.kind.value: each.sentence for each in conditions}
    assert list(sentences) == [
        "index_rebuild_fails",
        "conversion_fails",
        "index_rebuilds",
        "tables_unconverted",
    ]
    assert sentences["index_rebuild_fails"].endswith("The disk is full")
    assert (
        "`partition transfers` has failed with PostgreSQL's error 53100"
        in (sentences["conversion_fails"])
    )
    assert blocking(facts) == []


# --- lanes and wallets ----------------------------------------------------------------------------


def held(*holders: str | None) -> tuple[WalletFacts, ...]:
    mint = [
        WalletFacts(Address(bytes([number]) * 20), "mint", holder)
        for number, holder in enumerate(holders, start=3)
    ]
    return (*mint, WALLETS[1])


def test_a_kind_without_any_held_lane_is_one_condition() -> None:
    assert judged(replace(WELL, wallets=held(None, None))) == ["lane_unheld"]
    assert judged(replace(WELL, wallets=held())) == ["lane_unheld"]
    assert judged(replace(WELL, wallets=held("host-a/1", None))) == ["wallet_unserved"]


def stopped_lanes(*wallets: WalletFacts) -> tuple[Condition, ...]:
    states = [LaneState(each.wallet, each.kind, False, "It has used 9 nonces.") for each in wallets]
    return tuple(judge_own_lanes(states))


def test_a_stopped_lane_is_told_alone_and_not_also_as_a_lane_without_a_process() -> None:
    """The runbook of a lane without a process would start one, which stops for the same reason."""
    both = held(None, None)
    other = a_process(2, report=ProcessReport(stopped_lanes(both[0])))

    assert judged(replace(WELL, wallets=both), *stopped_lanes(*both[:2])) == ["lane_stopped"] * 2
    alone = replace(WELL, wallets=held(None), processes=(other,))
    assert judged(alone) == ["lane_stopped"]
    beside = replace(WELL, wallets=held(None, "host-a/1"), processes=(other,))
    assert judged(beside) == ["lane_stopped"]
    unserved = replace(WELL, wallets=both, processes=(other,))
    assert judged(unserved) == ["lane_unheld", "lane_stopped"]
    _, last, *_ = held(None, None)
    (unheld, _) = judge(unserved, OwnView(ME), POLICY)
    assert checksummed(last.wallet) in unheld.sentence
    assert checksummed(both[0].wallet) not in unheld.sentence


def test_without_the_role_operator_nothing_more_is_told_of_lanes() -> None:
    me = replace(ME, roles=("http", "indexer", "deliveries"))
    assert judged(replace(WELL, wallets=held(None)), me=me) == ["role_absent"]


def test_a_wallet_that_another_process_serves_lacks_a_standby() -> None:
    name = checksummed(MINTER)
    fault = Condition(ConditionKind.WALLET_UNSERVED, "Its key file is missing", name)
    assert judged(WELL, fault) == ["standby_missing"]
    free = replace(WELL, wallets=(replace(WALLETS[0], holder=None), WALLETS[1]))
    assert judged(free, fault) == ["lane_unheld", "wallet_unserved"]


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("fees", "fees_above_cap"),
        ("funds", "wallet_out_of_funds"),
        ("mint_limit", "mint_limit_spent"),
        ("signer", "signer_unavailable"),
        ("by_hand", "lane_paused_by_hand"),
        ("foreign_use", "lane_paused"),
        ("node", "lane_paused"),
        ("of_2030", "lane_paused"),
    ],
)
def test_a_paused_lane_is_told_with_the_reason_and_for_how_long(reason: str, kind: str) -> None:
    paused = replace(
        WALLETS[0], paused_for=reason, paused_seconds=61.0, by_hand_reason="incident 41"
    )
    facts = replace(WELL, wallets=(paused, WALLETS[1]))
    (condition,) = judge(facts, OwnView(ME), POLICY)
    assert condition.kind.value == kind
    assert f"{checksummed(MINTER)} has been paused for 61 s: " in condition.sentence
    assert condition.sentence.endswith("(incident 41)")
    assert blocking(facts) == []


def test_lanes_that_wait_for_a_node_are_not_told_beside_the_node() -> None:
    paused = replace(WALLETS[0], paused_for="node", paused_seconds=5.0)
    facts = replace(WELL, wallets=(paused, WALLETS[1]))
    away = Condition(ConditionKind.NO_NODE_USABLE, "No node can be used")
    assert judged(facts) == ["lane_paused"]
    assert judged(facts, away) == ["no_node_usable"]
    assert judged(replace(facts, wallets=(replace(paused, paused_seconds=4.9), WALLETS[1]))) == []


@pytest.mark.parametrize("reason", sorted(INTENDED))
def test_a_drained_wallet_is_as_it_should_be(reason: str) -> None:
    paused = replace(WALLETS[0], paused_for=reason, paused_seconds=61.0)
    assert judged(replace(WELL, wallets=(paused, WALLETS[1]))) == []


def test_every_reason_of_a_pause_has_a_sentence() -> None:
    reasons = {
        operator_policy.FEES,
        operator_policy.FUNDS,
        operator_policy.MINT_LIMIT,
        operator_policy.WOULD_REVERT,
        operator_policy.ROLE,
        operator_policy.NODE,
        operator_policy.REFUSED,
        operator_policy.PUBLICATION,
        operator_policy.RECEIPTS,
        operator_policy.SIGNER,
        operator_policy.DRAINING,
        operator_policy.BY_HAND,
        operator_policy.RETIRED,
        operator_policy.KEY_GONE,
        operator_policy.DAY_SPENT,
        operator_policy.COMPARING,
        operator_policy.FOREIGN_USE,
        Obstacle.BLOCK_GAS.value,
        Obstacle.BLOCK_GAS_UNCONFIRMED.value,
    }
    assert reasons == set(PAUSES) | INTENDED


def test_a_held_wallet_tells_of_roles_limit_and_gas_money() -> None:
    def kinds(**changes: object) -> list[str]:
        lane = LaneState(MINTER, "mint", is_held=True, balance_wei=10, floor_wei=5)
        lane = replace(lane, **changes)
        return [each.kind.value for each in judge_own_lanes([lane])]

    assert kinds() == []
    assert kinds(missing_roles=("LTZ.MINTER",), mint_limit_is_zero=True) == ["wallet_without_role"]
    assert kinds(mint_limit_is_zero=True) == ["mint_limit_spent"]
    assert kinds(balance_wei=4) == ["wallet_low"]
    assert kinds(balance_wei=None) == []
    assert kinds(is_held=False, balance_wei=4, missing_roles=("LTZ.MINTER",)) == []


@pytest.mark.parametrize(("kind", "options"), [("mint", " --mint-limit LTZ"), ("relay", "")])
def test_the_sentence_about_a_missing_role_has_the_whole_command(kind: str, options: str) -> None:
    (condition,) = judge_own_lanes(
        [LaneState(MINTER, kind, is_held=True, missing_roles=("LTZ.MINTER",))]
    )
    wallet = checksummed(MINTER)
    assert f"`ltzd wallet grant {wallet} --kind {kind}{options} --key FILE`" in condition.sentence


def test_an_empty_wallet_is_not_also_low() -> None:
    low = Condition(ConditionKind.WALLET_LOW, "low", checksummed(MINTER))
    paused = replace(WALLETS[0], paused_for="funds")
    assert judged(replace(WELL, wallets=(paused, WALLETS[1])), low) == ["wallet_out_of_funds"]


# --- queues ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("queues", "kinds"),
    [
        (QueueFacts(), []),
        (QueueFacts(reward_seconds=299.0, relay_seconds=119.0, webhook_seconds=59.0), []),
        (QueueFacts(reward_seconds=301.0), ["rewards_overdue"]),
        (QueueFacts(relay_seconds=121.0), ["relays_overdue"]),
        (QueueFacts(webhook_seconds=61.0), ["webhooks_overdue"]),
        (QueueFacts(rewards_above_limit=3), ["rewards_above_limit"]),
        (QueueFacts(disabled_endpoints=((MINTER, "410"),)), ["webhooks_disabled"]),
    ],
)
def test_work_that_waits_too_long_is_told_and_leaves_the_process_ready(
    queues: QueueFacts, kinds: list[str]
) -> None:
    facts = replace(WELL, queues=queues)
    assert judged(facts) == kinds
    assert blocking(facts) == []


def test_the_worst_comes_first() -> None:
    paused = replace(WALLETS[0], paused_for="by_hand", paused_seconds=1.0)
    queues = QueueFacts(webhook_seconds=100.0, reward_seconds=500.0)
    facts = replace(WELL, wallets=(paused, WALLETS[1]), queues=queues)
    assert judged(facts) == ["rewards_overdue", "webhooks_overdue", "lane_paused_by_hand"]


@pytest.mark.parametrize(
    ("database_offset", "chain_ahead", "difference"),
    [
        (29.0, 59.0, None),
        (-29.0, -3_600.0, None),
        (0.0, None, None),
        (31.0, None, "31 s ahead of the database's"),
        (-31.0, 31.0, "31 s behind the database's"),
        (0.0, 61.0, "61 s behind the nodes' newest blocks"),
    ],
)
def test_a_clock_is_judged_by_the_database_and_by_blocks_of_the_future(
    database_offset: float, chain_ahead: float | None, difference: str | None
) -> None:
    condition = judge_clock("host-a", database_offset, chain_ahead, POLICY)

    if difference is None:
        assert condition is None
    else:
        assert condition is not None
        assert condition.sentence.startswith(f"The clock of host-a is {difference}, so that ")


def test_a_dev_chain_whose_time_is_moved_ahead_says_nothing_about_the_clock() -> None:
    policy = replace(POLICY, mines_on_demand=True)
    assert judge_clock("host-a", 0.0, 86_400.0, policy) is None
    assert judge_clock("host-a", -31.0, 86_400.0, policy) is not None
