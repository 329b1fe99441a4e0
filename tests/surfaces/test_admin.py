"""The admin server: its responses, and the callers that it refuses."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import aiohttp
import pytest
from msgspec.structs import replace
from sanic.request import Request

from ltzd.chain.pool import health
from ltzd.chain.pool.report import NodeReport, Unfit
from ltzd.errors import DatabaseUnavailable, Misconfigured
from ltzd.http.admin.handlers import AdminPolicy, AdminSources, build_admin_app
from ltzd.rules.conditions.facts import (
    ChainFacts,
    ClusterFacts,
    LaneState,
    ProcessFacts,
    ProcessIdentity,
    ProcessReport,
    WalletFacts,
)
from ltzd.rules.conditions.kinds import Condition, ConditionKind
from ltzd.rules.conditions.lanes import judge_own_lanes
from ltzd.rules.conditions.policy import ConditionPolicy
from ltzd.store.status import LaneFacts, RelayFacts, RewardFacts, StatusFacts
from ltzd.values import Address, checksummed
from tests.support.rows.core import a_wallet
from tests.support.surfaces.http_surface import WALLET, serving

CHAIN = ChainFacts(8453, Address(b"\x01" * 20), 12, 10, 5, 0.5, 2.0, audited_number=4)
STOPPED = datetime(2026, 1, 2, tzinfo=UTC)
QUIET = replace(CHAIN, head_number=10, idle_seconds=86_400.0, block_seconds=None)
SINCE = datetime(2026, 3, 10, 12, tzinfo=UTC)
LANE = LaneFacts(WALLET, "mint", 3, 41, 1, 2, 3, 4.25, "mint_limit", SINCE)
OTHERS = ProcessFacts(
    ProcessIdentity(UUID(int=2), "host-b", 9, ("operator", "indexer", "deliveries", "http"), "0.9"),
    started_seconds=90.0,
    seen_seconds=2.5,
)
FACTS = StatusFacts(
    CHAIN,
    (LANE,),
    RewardFacts(7, 1.25, 6, 100, False, 4),
    RelayFacts(2, 0.75, 3),
    9,
)
LEASED = ClusterFacts(lease_holders={"indexer/8453": "host-b/9"})
RELAYING = WalletFacts(a_wallet(7), "relay", "host-b/9")
HELD = LaneState(WALLET, "mint", True, None, 10**20)
NODE = NodeReport(
    name="node.example:443",
    is_usable=True,
    is_preferred=True,
    reason=None,
    height=12,
    latency_seconds=0.01234,
    seconds_since_answer=0.42,
    in_flight=3,
    errors={"timeout": 2},
    detail="",
)


def unfit(reason: Unfit, **changes: Any) -> NodeReport:
    """A second node, which is not used first."""
    report = replace(NODE, name="other.example:8545", is_usable=False, is_preferred=False)
    return replace(report, reason=reason, **changes)


DEAD = unfit(Unfit.UNREACHABLE)
HUNG = unfit(Unfit.HUNG, seconds_since_answer=31.0)


@dataclass
class Behind:
    facts: StatusFacts | None = FACTS
    processes: Sequence[ProcessFacts] = (OTHERS,)
    wallets: Sequence[WalletFacts] = (WalletFacts(WALLET, "mint", "host-a/4711"), RELAYING)
    cluster: ClusterFacts = LEASED
    lanes: Sequence[LaneState] = field(default_factory=lambda: (HELD,))
    nodes: Sequence[NodeReport] = field(default_factory=lambda: (NODE,))
    roles: tuple[str, ...] = ("http", "operator")
    own: Sequence[Condition] = ()

    @property
    def process(self) -> ProcessIdentity:
        return ProcessIdentity(UUID(int=1), "host-a", 4711, self.roles, "0.9")

    def conditions(self) -> list[Condition]:
        nodes = health.judge(self.nodes, self.roles)
        return [*self.own, *nodes, *judge_own_lanes(self.lanes)]

    async def read_cluster(self) -> ClusterFacts:
        chain = (await self.read()).chain
        return replace(
            self.cluster,
            chain=chain,
            processes=tuple(self.processes),
            wallets=tuple(self.wallets),
        )

    async def read(self) -> StatusFacts:
        if self.facts is None:
            raise DatabaseUnavailable("postgres://user:password@host is gone")
        return self.facts


@asynccontextmanager
async def a_door(
    behind: Behind, policy: AdminPolicy | None = None
) -> AsyncIterator[tuple[aiohttp.ClientSession, str]]:
    sources = AdminSources(
        behind.process,
        behind.read_cluster,
        behind.read,
        lambda: behind.lanes,
        behind.conditions,
        nodes=lambda: behind.nodes,
    )
    app = build_admin_app(sources, policy or AdminPolicy())
    async with serving(app) as url, aiohttp.ClientSession() as client:
        yield client, url


async def get(behind: Behind, path: str, **headers: str) -> tuple[int, Any]:
    async with a_door(behind) as (client, url), client.get(url + path, headers=headers) as answer:
        return answer.status, await answer.json()


async def test_status_tells_head_lag_lanes_and_queues() -> None:
    status, answer = await get(Behind(), "/status")
    assert status == 200
    assert answer["chain"] == {
        "chainId": 8453,
        "ltz": checksummed(CHAIN.ltz),
        "head": 12,
        "cursor": 10,
        "lagBlocks": 2,
        "lagSeconds": 4.0,
        "final": 5,
        "finalLagSeconds": 14.0,
        "audited": 4,
        "idleSeconds": 0.5,
        "blockSeconds": 2.0,
        "blocksPerSecond": None,
        "secondsLeft": None,
        "firstBlock": 0,
        "stopped": None,
        "stoppedAt": None,
    }
    assert answer["lanes"] == [
        {
            "wallet": checksummed(WALLET),
            "kind": "mint",
            "isHeld": True,
            "holder": "host-a/4711",
            "stopped": None,
            "missingRoles": [],
            "pausedFor": "mint_limit",
            "pausedSince": "2026-03-10T12:00:00.000Z",
            "pausedByHandReason": None,
            "epoch": 3,
            "nextNonce": 41,
            "signed": 1,
            "published": 2,
            "mined": 3,
            "inFlight": 6,
            "oldestSeconds": 4.2,
            "balanceWei": str(10**20),
        }
    ]
    assert answer["rewards"] == {
        "queued": 7,
        "oldestQueuedSeconds": 1.2,
        "inFlight": 6,
        "minted": 100,
        "mintedIsEstimate": False,
        "aboveMintLimit": 4,
        "mayWait": 0,
    }
    assert answer["eventsLastMinute"] == 9
    assert answer["roles"] == ["http", "operator"]
    assert (answer["ready"], answer["reasons"], answer["database"]) == (True, [], "connected")


NOT_BEGUN = (
    "The indexer has not begun to follow the chain: start a process with the role indexer, and "
    "look whether its node answers"
)
STILL_90 = (
    "The indexer has committed no block for 90 s: process host-b/9 follows the chain; its nodes or "
    "its log say why"
)


async def test_many_blocks_of_a_fast_chain_are_young() -> None:
    fast = replace(CHAIN, head_number=100, block_seconds=0.25)
    status, answer = await get(Behind(replace(FACTS, chain=fast)), "/status")
    chain = answer["chain"]
    assert (status, answer["ready"]) == (200, True)
    assert (chain["lagBlocks"], chain["lagSeconds"], chain["finalLagSeconds"]) == (90, 22.5, 23.8)


async def test_without_a_database_status_says_so_and_no_more() -> None:
    status, answer = await get(Behind(facts=None), "/status")
    assert status == 200
    assert (answer["database"], answer["ready"]) == ("unavailable", False)
    assert "chain" not in answer
    assert "password" not in str(answer)


@pytest.mark.parametrize(
    ("behind", "reason"),
    [
        (
            Behind(facts=None),
            "The database does not answer, takes no writes or loses commits: see `ltzd check`",
        ),
        (Behind(replace(FACTS, chain=None)), NOT_BEGUN),
        (
            Behind(replace(FACTS, chain=replace(CHAIN, head_number=100))),
            "The indexer is 90 blocks, about 180 s, behind the head",
        ),
        (
            Behind(replace(FACTS, chain=replace(CHAIN, idle_seconds=90.0))),
            STILL_90,
        ),
        (
            Behind(replace(FACTS, chain=replace(CHAIN, head_number=10, idle_seconds=90.0))),
            STILL_90,
        ),
        (
            Behind(replace(FACTS, chain=QUIET), nodes=(replace(NODE, height=11),)),
            STILL_90.replace("90", "86400"),
        ),
        (
            Behind(
                replace(FACTS, chain=replace(QUIET, stopped_reason="It broke.", stopped_at=STOPPED))
            ),
            "The index is stopped, and the newest block was indexed 86400 s ago: It broke.",
        ),
        (
            Behind(nodes=(replace(NODE, height=100),)),
            "The indexer is 90 blocks, about 180 s, behind the head",
        ),
        (
            Behind(lanes=(replace(HELD, is_held=False, stopped="foreign nonce"),)),
            f"Lane mint {checksummed(WALLET)} stopped: foreign nonce",
        ),
    ],
)
async def test_readiness_names_what_is_missing(behind: Behind, reason: str) -> None:
    assert await get(behind, "/readyz") == (503, unready(reason))


async def test_a_standby_is_ready() -> None:
    elsewhere = replace(HELD, is_held=False)
    assert await get(Behind(lanes=(elsewhere,)), "/readyz") == (200, ready())


def unready(*reasons: str, warnings: Sequence[str] = ()) -> dict[str, Any]:
    return {"ready": False, "reasons": list(reasons), "warnings": list(warnings)}


def ready(*warnings: str) -> dict[str, Any]:
    return {"ready": True, "reasons": [], "warnings": list(warnings)}


async def test_a_chain_that_mines_on_demand_may_be_quiet() -> None:
    behind = Behind(replace(FACTS, chain=QUIET), nodes=(replace(NODE, height=10),))
    assert await get(behind, "/readyz") == (200, ready())


async def test_a_dev_chain_may_be_quiet_however_regularly_it_mined_before() -> None:
    quiet = replace(QUIET, block_seconds=1.0)
    behind = Behind(replace(FACTS, chain=quiet), nodes=(replace(NODE, height=10),))
    async with a_door(behind, AdminPolicy(conditions=ConditionPolicy(mines_on_demand=True))) as (
        client,
        url,
    ):
        async with client.get(url + "/readyz") as answer:
            assert (answer.status, await answer.json()) == (200, ready())
        async with client.get(url + "/status") as answer:
            assert (await answer.json())["chain"]["blockSeconds"] is None


async def test_a_distrusted_nodes_height_is_no_lag() -> None:
    liar = unfit(Unfit.DISAGREES, height=10**6)
    status, answer = await get(Behind(nodes=(NODE, liar)), "/status")
    assert (status, answer["chain"]["head"]) == (200, 12)


# --- nodes ----------------------------------------------------------------------------------------


async def test_status_tells_of_each_node_and_why_it_is_not_used() -> None:
    long_text = "x" * 1000
    hung = replace(HUNG, errors={"timeout": 4, "http_status": 1}, detail=long_text)
    _, answer = await get(Behind(nodes=(NODE, hung)), "/status")
    assert answer["nodes"] == [
        {
            "name": "node.example:443",
            "isUsable": True,
            "inUse": True,
            "reason": None,
            "detail": None,
            "height": 12,
            "latencySeconds": 0.0123,
            "secondsSinceAnswer": 0.4,
            "inFlight": 3,
            "errors": {"timeout": 2},
        },
        {
            "name": "other.example:8545",
            "isUsable": False,
            "inUse": False,
            "reason": "hung",
            "detail": long_text[:200],
            "height": 12,
            "latencySeconds": 0.0123,
            "secondsSinceAnswer": 31.0,
            "inFlight": 3,
            "errors": {"timeout": 4, "http_status": 1},
        },
    ]
    assert answer["ready"] is True
    (warning,) = answer["warnings"]
    assert warning.startswith("Node other.example:8545 accepts requests and does not answer")
    assert warning.endswith("(its last answer was 31 s ago)")


async def test_nodes_are_told_without_a_database_and_before_their_first_answer() -> None:
    unknown = unfit(Unfit.UNVERIFIED, height=None, latency_seconds=None, seconds_since_answer=None)
    _, answer = await get(Behind(facts=None, nodes=(unknown,)), "/status")
    (node,) = answer["nodes"]
    assert (node["height"], node["latencySeconds"], node["secondsSinceAnswer"]) == (None,) * 3


@pytest.mark.parametrize("reason", list(Unfit))
async def test_with_another_usable_node_a_fault_is_a_warning(reason: Unfit) -> None:
    status, answer = await get(Behind(nodes=(NODE, unfit(reason))), "/readyz")
    assert (status, answer["ready"], answer["reasons"]) == (200, True, [])
    (warning,) = answer["warnings"]
    assert warning.startswith("Node other.example:8545 ")


@pytest.mark.parametrize("roles", [("operator",), ("indexer",), ("http", "indexer")])
@pytest.mark.parametrize(
    "nodes", [(DEAD,), (HUNG, replace(DEAD, name="dead.example")), (unfit(Unfit.OTHER_CHAIN),)]
)
async def test_lanes_and_indexer_without_a_node_that_answers_are_not_ready(
    roles: tuple[str, ...], nodes: tuple[NodeReport, ...]
) -> None:
    status, answer = await get(Behind(nodes=nodes, roles=roles), "/readyz")
    assert (status, answer["ready"]) == (503, False)
    (reason,) = answer["reasons"]
    assert reason == "No node can be used: " + "; ".join(answer["warnings"])
    assert len(answer["warnings"]) == len(nodes)


@pytest.mark.parametrize("roles", [("http",), ("deliveries",), ("http", "deliveries")])
async def test_http_accepts_events_without_a_node_and_is_ready(roles: tuple[str, ...]) -> None:
    status, answer = await get(Behind(nodes=(DEAD,), roles=roles), "/readyz")
    assert (status, answer["ready"], len(answer["warnings"])) == (200, True, 2)


@pytest.mark.parametrize("count", [1, 2])
async def test_nodes_that_contradict_are_used_and_warned_of(count: int) -> None:
    names = [f"node{number}.example:8545" for number in range(count)]
    nodes = [replace(unfit(Unfit.DISAGREES), name=name) for name in names]
    warnings = [f"Node {name} contradicts other nodes or itself" for name in names]
    assert await get(Behind(nodes=nodes), "/readyz") == (200, ready(*warnings))


async def test_metrics_tell_of_an_index_that_stands_still() -> None:
    for idle_seconds, expected in ((90.0, "1.0"), (9.0, "0.0")):
        chain = replace(CHAIN, idle_seconds=idle_seconds)
        async with (
            a_door(Behind(replace(FACTS, chain=chain))) as (client, url),
            client.get(url + "/metrics") as answer,
        ):
            text = await answer.text()
        assert f"ltzd_indexer_stands_still {expected}" in text
        assert f"ltzd_indexer_idle_seconds {idle_seconds}" in text


# --- conditions -----------------------------------------------------------------------------------


async def test_all_surfaces_show_the_same_conditions() -> None:
    paused = (WalletFacts(WALLET, "mint", "host-a/4711", "fees", 61.0), RELAYING)
    behind = Behind(wallets=paused)
    async with a_door(behind) as (client, url):
        async with client.get(url + "/status") as answer:
            status = await answer.json()
        async with client.get(url + "/readyz") as answer:
            readiness = await answer.json()
        async with client.get(url + "/metrics") as answer:
            text = await answer.text()
    (condition,) = status["conditions"]
    assert condition == {
        "kind": "fees_above_cap",
        "severity": "page",
        "subject": checksummed(WALLET),
        "sentence": readiness["warnings"][0],
        "seenBy": [],
        "runbook": "docs/runbooks/lanes.md#fees-are-above-the-cap",
    }
    assert (readiness["ready"], status["warnings"]) == (True, readiness["warnings"])
    assert 'ltzd_conditions{condition="fees_above_cap"} 1.0' in text
    for kind in set(ConditionKind) - {ConditionKind.FEES_ABOVE_CAP}:
        assert f'ltzd_conditions{{condition="{kind.value}"}} 0.0' in text


async def test_status_tells_of_all_processes_and_their_lanes() -> None:
    reported = LaneState(
        RELAYING.wallet, "relay", True, None, 7, missing_roles=("PerkNFT.RELAYER",)
    )
    other = replace(OTHERS, report=ProcessReport(lanes=(reported,)))
    killed = replace(
        OTHERS, identity=replace(OTHERS.identity, id=UUID(int=3), pid=5), seen_seconds=77.0
    )
    lane = replace(LANE, wallet=RELAYING.wallet, kind="relay")
    facts = replace(FACTS, lanes=(LANE, lane))
    _, answer = await get(Behind(facts, processes=(other, killed)), "/status")
    assert [(each["name"], each["isMissing"]) for each in answer["processes"]] == [
        ("host-b/9", False),
        ("host-b/5", True),
        ("host-a/4711", False),
    ]
    assert [
        (each["holder"], each["balanceWei"], each["missingRoles"]) for each in answer["lanes"]
    ] == [
        ("host-a/4711", str(10**20), []),
        ("host-b/9", "7", ["PerkNFT.RELAYER"]),
    ]


async def test_status_leaves_out_a_killed_process_whose_successor_runs() -> None:
    successor = replace(OTHERS, started_seconds=60.0)
    killed = replace(
        OTHERS, identity=replace(OTHERS.identity, id=UUID(int=3), pid=5), seen_seconds=77.0
    )
    _, answer = await get(Behind(processes=(killed, successor)), "/status")
    assert [(each["name"], each["isMissing"]) for each in answer["processes"]] == [
        ("host-b/9", False),
        ("host-a/4711", False),
    ]


async def test_a_load_balancer_goes_on_with_an_old_index_and_not_with_one_that_drains() -> None:
    old = Behind(replace(FACTS, chain=replace(CHAIN, idle_seconds=344.0)))
    assert (await get(old, "/readyz"))[0] == 503
    assert (await get(old, "/readyz?role=http"))[0] == 200
    ends = Condition(ConditionKind.DRAINING, "It ends", "host-a/4711", is_blocking=True)
    assert (await get(Behind(own=(ends,)), "/readyz?role=http"))[0] == 503
    assert (await get(Behind(facts=None), "/readyz?role=http"))[0] == 503
    assert (await get(Behind(), "/readyz?role=operator"))[0] == 400


async def test_a_figure_that_cannot_be_read_keeps_no_last_value() -> None:
    behind = Behind()
    async with a_door(behind) as (client, url):
        for facts, lag, queued in (
            (FACTS, "2.0", "7.0"),
            (None, "NaN", "NaN"),
            (FACTS, "2.0", "7.0"),
        ):
            behind.facts = facts
            async with client.get(url + "/metrics") as answer:
                text = await answer.text()
            assert f"ltzd_indexer_head_lag_blocks {lag}" in text
            assert f"ltzd_operator_queued_rewards {queued}" in text


# --- the rest -------------------------------------------------------------------------------------


async def test_the_process_is_alive_even_without_a_database() -> None:
    assert await get(Behind(facts=None), "/healthz") == (200, {"status": "alive"})


async def test_metrics_are_prometheus_text_with_our_names() -> None:
    async with a_door(Behind()) as (client, url), client.get(url + "/metrics") as answer:
        text = await answer.text()
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
    for name in (
        "ltzd_operator_queued_rewards 7.0",
        "ltzd_operator_nonce_gap",
        "ltzd_operator_oldest_unconfirmed_seconds",
        "ltzd_operator_undecided_publications",
        "ltzd_operator_reserved_wei",
        "ltzd_operator_held_by_cap",
        "ltzd_indexer_head_lag_blocks",
        "ltzd_indexer_head_to_commit_seconds_bucket",
        "ltzd_indexer_reorgs_total",
        "ltzd_actions_group_commit_items",
        "process_resident_memory_bytes",
    ):
        assert name in text


@pytest.mark.parametrize("host", ["evil.example", "evil.example:9464", "192.0.2.1", "", "[", "a@b"])
@pytest.mark.parametrize("path", ["/status", "/metrics", "/healthz", "/nowhere"])
async def test_a_foreign_host_is_refused(host: str, path: str) -> None:
    status, answer = await get(Behind(), path, Host=host)
    assert (status, answer["code"]) == (403, "FORBIDDEN")


async def test_two_host_headers_are_refused() -> None:
    hosts = b"Host: localhost\r\nHost: evil.example\r\n"
    async with a_door(Behind()) as (_, url):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(b"GET /status HTTP/1.1\r\n" + hosts + b"\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.1 400 ")
        writer.close()
        await writer.wait_closed()


async def test_nothing_behind_a_malformed_head_of_a_foreign_host_is_read() -> None:
    head = b"GET /status HTTP/1.1\r\nHost: evil.example\r\nContent-Length : 60\r\n\r\n"
    behind = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    async with a_door(Behind()) as (_, url):
        reader, writer = await asyncio.open_connection("127.0.0.1", int(url.rpartition(":")[2]))
        writer.write(head + behind)
        received = await reader.read()
        assert received.startswith(b"HTTP/1.1 400 ")
        assert received.count(b"HTTP/1.1 ") == 1
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("method", ["POST", "DELETE", "OPTIONS"])
async def test_a_wrong_method_names_those_that_are_served(method: str) -> None:
    async with a_door(Behind()) as (client, url):
        async with client.request(method, url + "/status") as answer:
            assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
        for served in ("GET", "HEAD"):
            async with client.request(served, url + "/status") as answer:
                assert answer.status == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "http://192.0.2.1", "null", "x"])
async def test_a_foreign_page_is_refused(origin: str) -> None:
    status, answer = await get(Behind(), "/status", Origin=origin)
    assert (status, answer["code"]) == (403, "FORBIDDEN")


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:9464", "[::1]:9464", "ltzd.localhost:1"])
async def test_this_machines_names_are_accepted(host: str) -> None:
    status, _ = await get(Behind(), "/status", Host=host, Origin="http://localhost:3000")
    assert status == 200


async def test_without_a_token_only_this_machine_may_be_bound() -> None:
    sources = AdminSources(Behind().process, Behind().read_cluster, Behind().read)
    for host in ("0.0.0.0", "::", "192.0.2.1", "ltzd.example"):
        with pytest.raises(Misconfigured, match="token_file"):
            build_admin_app(sources, AdminPolicy(host=host))


@pytest.mark.parametrize("path", ["/status", "/metrics", "/readyz", "/nowhere"])
async def test_elsewhere_the_token_opens_everything(path: str) -> None:
    policy = AdminPolicy(host="0.0.0.0", token="right token")
    async with a_door(Behind(), policy) as (client, url):
        for given in (
            "",
            "Bearer",
            "Bearer wrong",
            "Basic right token",
            "Bearer \u00e9",
            "right token",
        ):
            async with client.get(url + path, headers={"Authorization": given}) as answer:
                assert answer.status == 401
                assert answer.headers["WWW-Authenticate"] == "Bearer"
        headers = {"Authorization": "Bearer right token", "Host": "ltzd.example"}
        async with client.get(url + path, headers=headers) as answer:
            assert answer.status == (404 if path == "/nowhere" else 200)
        async with client.get(url + "/healthz", headers={"Host": "ltzd.example"}) as answer:
            assert answer.status == 200
        async with client.get(url + "/healthz", headers={"Host": "a b"}) as answer:
            assert answer.status == 400


async def test_a_flood_of_probes_reads_the_database_once_at_a_time() -> None:
    """Probes need no token, and the process itself needs the connections that they use."""
    behind, arrived, reads, all_arrived = Behind(), 0, 0, asyncio.Event()

    async def read_cluster() -> ClusterFacts:
        nonlocal reads
        reads += 1
        await all_arrived.wait()
        return await behind.read_cluster()

    def count(_request: Request) -> None:
        nonlocal arrived
        arrived += 1
        if arrived == 20:
            all_arrived.set()

    app = build_admin_app(
        AdminSources(behind.process, read_cluster, behind.read), AdminPolicy(token="secret")
    )
    app.on_request(count)
    async with serving(app) as url, aiohttp.ClientSession() as client:
        answers = await asyncio.gather(*(client.get(f"{url}/readyz") for _ in range(20)))
        assert len({answer.status for answer in answers}) == 1
    assert reads == 1


async def test_a_probe_without_the_token_learns_whether_and_not_why() -> None:
    policy = AdminPolicy(host="0.0.0.0", token="right token")
    for behind, expected in (
        (Behind(), (200, {"ready": True})),
        (Behind(facts=None), (503, {"ready": False})),
    ):
        async with a_door(behind, policy) as (client, url):
            for query in ("", "?role=http"):
                async with client.get(f"{url}/readyz{query}") as answer:
                    assert (answer.status, await answer.json()) == expected


async def test_the_token_is_in_no_repr() -> None:
    assert "right token" not in repr(AdminPolicy(token="right token"))
