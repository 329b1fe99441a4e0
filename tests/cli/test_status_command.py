"""`ltzd status` with a running admin server and without one."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import pytest
from msgspec.structs import replace
from rich.console import Console

from ltzd.chain.pool import health
from ltzd.chain.pool.report import NodeReport, Unfit
from ltzd.cli import status as command
from ltzd.cli import status_page
from ltzd.errors import DatabaseUnavailable, Misconfigured, Unavailable
from ltzd.http.admin.handlers import AdminPolicy, AdminSources, build_admin_app
from ltzd.http.server import listen
from ltzd.http.tls import ServerCertificate
from ltzd.rules.conditions.facts import ChainFacts, ClusterFacts, ProcessIdentity, WalletFacts
from ltzd.store.background_migrations import BackgroundMigration
from ltzd.store.database import connect
from ltzd.store.operator.leases import LeaseFacts
from ltzd.store.status import LaneFacts, RelayFacts, RewardFacts, StatusFacts
from ltzd.values import Address
from tests.support.certificates import a_pair
from tests.support.commands import ltzd_apart
from tests.support.secret_files import write_secret
from tests.support.surfaces.http_surface import CHECKSUMMED_WALLET, WALLET, serving
from tests.support.waiting import until

PROCESS = ProcessIdentity(UUID(int=1), "host-a", 4711, ("http",), "0.9")
FACTS = StatusFacts(
    ChainFacts(31337, Address(b"\x01" * 20), 12, 10, 5, 0.5, 2.0),
    (LaneFacts(WALLET, "mint", 3, 41, 1, 2, 3, 4.0),),
    RewardFacts(7, 1.0, 6, 100, True),
    RelayFacts(2, 0.5, 3),
    9,
    leases=(LeaseFacts("indexer/31337", "host-a/4711", 3600.4, 0.31),),
    migrations=(
        BackgroundMigration("partition mints", "mints", "builds the index", 0.42, 61.0, None),
        BackgroundMigration("partition blocks", "blocks", None, None, None, "53100"),
    ),
)


async def read() -> StatusFacts:
    return FACTS


async def read_cluster() -> ClusterFacts:
    return ClusterFacts(FACTS.chain, wallets=(WalletFacts(WALLET, "mint", "host-a/4711"),))


def an_admin_app(policy: AdminPolicy | None = None) -> Any:
    return build_admin_app(AdminSources(PROCESS, read_cluster, read), policy or AdminPolicy())


async def test_json_is_one_line_with_what_the_admin_server_says(
    capsys: pytest.CaptureFixture[str],
) -> None:
    async with serving(an_admin_app()) as url:
        await asyncio.to_thread(command.status, url, False, True)
        async with aiohttp.ClientSession() as client:
            facts = await command.fetch(client, url)
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line) | {"timestamp": ""} == facts | {"timestamp": ""}
    assert json.loads(line)["chain"]["lagBlocks"] == 2


async def test_the_table_shows_chain_lanes_and_queues() -> None:
    async with serving(an_admin_app()) as url, aiohttp.ClientSession() as client:
        facts = await command.fetch(client, url)
    console = Console(file=io.StringIO(), width=160, record=True)
    console.print(status_page.page(facts))
    text = console.export_text()
    for expected in (
        "ready",
        "head 12, followed to 10 (2 behind, 4 s), final 5 (7 below the head, 14 s)",
        "7 queued (oldest 1 s), 6 in flight, about 100 minted",
        "9 in the last minute",
        CHECKSUMMED_WALLET,
        "41",
        "host-a/4711",
        "3600 s",
        "0.3 s ago",
        "partition mints: builds the index, 42%, for 61 s",
        "partition blocks: waits for the indexer (failed: 53100)",
    ):
        assert expected in text


async def test_the_page_shows_how_far_and_how_fast_the_backfill_is() -> None:
    async with serving(an_admin_app()) as url, aiohttp.ClientSession() as client:
        facts = await command.fetch(client, url)
    facts["chain"] |= {"head": 1_010, "cursor": 260, "firstBlock": 10}
    facts["chain"] |= {"blocksPerSecond": 1_500.0, "secondsLeft": 75.0}
    console = Console(file=io.StringIO(), width=160, record=True)
    console.print(status_page.page(facts))
    assert "25%, 1,500 blocks/s, 0:01:15 left" in console.export_text()


async def test_the_page_shows_each_node_and_why_it_is_not_used() -> None:
    used = NodeReport("a.example:443", True, True, None, 12, 0.0123, 0.4, 1, {}, "")
    hung = NodeReport(
        "b.example:443",
        False,
        False,
        Unfit.HUNG,
        7,
        0.5,
        31.0,
        2,
        {"timeout": 4, "rate_limited": 1},
        "",
    )
    spare = replace(used, name="c.example:443", is_preferred=False)
    late = replace(
        hung, name="d.example:443", reason=Unfit.UNVERIFIED, height=None, latency_seconds=None
    )
    liar = replace(hung, name="e.example:443", reason=Unfit.DISAGREES)
    limited = replace(used, name="f.example:443", reason=Unfit.RATE_LIMITED)
    nodes = (used, hung, spare, late, liar, limited)
    sources = AdminSources(
        PROCESS, read_cluster, read, own=lambda: health.judge(nodes, ()), nodes=lambda: nodes
    )
    app = build_admin_app(sources, AdminPolicy())
    async with serving(app) as url, aiohttp.ClientSession() as client:
        facts = await command.fetch(client, url)
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(status_page.page(facts))
    lines = [" ".join(line.split()) for line in console.export_text().splitlines()]

    assert "a.example:443 yes 12 12 ms 0 s ago -" in lines
    assert "b.example:443 no 7 500 ms 31 s ago hung rate_limited 1, timeout 4" in lines
    assert "c.example:443 spare 12 12 ms 0 s ago -" in lines
    assert "d.example:443 no - - 31 s ago unverified rate_limited 1, timeout 4" in lines
    assert "e.example:443 last 7 500 ms 31 s ago disagrees rate_limited 1, timeout 4" in lines
    assert "f.example:443 yes 12 12 ms 0 s ago rate_limited" in lines
    assert (
        "ticket Node b.example:443 accepts requests and does not answer (its last answer was 31 s "
        "ago) → docs/runbooks/nodes.md#a-node-is-not-used"
    ) in " ".join(lines)


async def test_nodes_are_shown_while_the_database_is_away() -> None:
    async def no_cluster() -> ClusterFacts:
        raise DatabaseUnavailable("gone")

    async def nothing() -> StatusFacts:
        raise DatabaseUnavailable("gone")

    used = NodeReport("a.example:443", True, True, None, 12, 0.01, 0.4, 1, {}, "")
    app = build_admin_app(
        AdminSources(PROCESS, no_cluster, nothing, nodes=lambda: (used,)), AdminPolicy()
    )
    async with serving(app) as url, aiohttp.ClientSession() as client:
        facts = await command.fetch(client, url)
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(status_page.page(facts))
    text = console.export_text()
    assert "a.example:443" in text
    assert "The database does not answer" in text


async def test_a_server_that_tells_of_no_nodes_is_shown_without_them() -> None:
    async with serving(an_admin_app()) as url, aiohttp.ClientSession() as client:
        facts = await command.fetch(client, url)
    for newer in ("nodes", "warnings", "leases", "migrations", "conditions", "processes"):
        del facts[newer]
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(status_page.page(facts))
    assert "9 in the last minute" in console.export_text()


async def test_the_page_says_which_lane_waits_for_what_and_what_no_limit_holds() -> None:
    async with serving(an_admin_app()) as url, aiohttp.ClientSession() as client:
        facts = await command.fetch(client, url)
    del facts["conditions"]  # an older server's
    facts["lanes"][0] |= {"pausedFor": "mint_limit", "pausedSince": "2026-03-10T12:00:00Z"}
    facts["rewards"] |= {"aboveMintLimit": 3, "mayWait": 2}
    console = Console(file=io.StringIO(), width=160, record=True)
    console.print(status_page.page(facts))
    text = console.export_text()

    assert "The mint lane is paused: mint_limit, since 2026-03-10T12:00:00Z" in text
    waiting = "(3 above the mint limit) (2 may wait for cheaper blocks)"
    assert f"7 queued (oldest 1 s) {waiting}, 6 in flight" in text


async def test_the_page_tells_why_a_person_has_paused_a_lane() -> None:
    async with serving(an_admin_app()) as url, aiohttp.ClientSession() as client:
        facts = await command.fetch(client, url)
    del facts["conditions"]  # an older server's
    facts["lanes"][0] |= {
        "pausedFor": "by_hand",
        "pausedSince": "2026-03-10T12:00:00Z",
        "pausedByHandReason": "incident 41",
    }
    console = Console(file=io.StringIO(), width=160, record=True)
    console.print(status_page.page(facts))

    assert "by_hand, since 2026-03-10T12:00:00Z (incident 41)" in console.export_text()


async def test_a_narrow_terminal_cuts_no_number_short() -> None:
    async with serving(an_admin_app()) as url, aiohttp.ClientSession() as client:
        facts = await command.fetch(client, url)
    facts["lanes"][0] |= {"balanceWei": "199991049746080736434", "nextNonce": 1_234_567}
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(status_page.page(facts))
    text = console.export_text()
    row = text.splitlines()[-1].split()
    assert row == ["mint", row[1], "host-a/4711", "1234567", "1", "2", "3", "4", "s", "199.9910"]
    assert CHECKSUMMED_WALLET.startswith(row[1].removesuffix("…"))


async def test_a_pipe_gets_every_wallet_whole(capsys: pytest.CaptureFixture[str]) -> None:
    async with serving(an_admin_app()) as url:
        await asyncio.to_thread(command.status, url, False, False)
        printed = capsys.readouterr().out
    assert CHECKSUMMED_WALLET in printed


async def test_following_into_a_pipe_prints_page_after_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    printed = ""

    async def has_two_pages() -> bool:
        nonlocal printed
        printed += capsys.readouterr().out
        return printed.count("9 in the last minute") >= 2

    async with serving(an_admin_app()) as url:
        following = asyncio.create_task(
            command._show(command.StatusSource(url), True, False, None, 0.01)
        )
        try:
            await until(has_two_pages)
        finally:
            following.cancel()
            await asyncio.wait({following})


async def test_the_token_is_sent_and_its_absence_explained() -> None:
    async with serving(an_admin_app(AdminPolicy(token="right"))) as url:
        await asyncio.to_thread(command.status, url, False, True, "right")
        with pytest.raises(Misconfigured, match="give --admin-token-file"):
            await asyncio.to_thread(command.status, url, False, True, "wrong")


async def test_the_token_goes_to_no_other_machine_in_the_clear() -> None:
    for url in ("http://192.0.2.1:9464", "http://admin.internal", "ftp://127.0.0.1.example"):
        with pytest.raises(Misconfigured, match="unencrypted"):
            command.status(url, False, True, "right")
    async with serving(an_admin_app(AdminPolicy(token="right"))) as url:
        await asyncio.to_thread(command.status, url, False, True, "right", plain_http=True)


async def test_a_certificate_that_is_not_trusted_is_a_sentence(tmp_path: Path) -> None:
    certificate = ServerCertificate("admin", *a_pair().write(tmp_path))
    async with serving(an_admin_app(), certificate.context) as url:
        with pytest.raises(Misconfigured, match="in the variable SSL_CERT_FILE"):
            await asyncio.to_thread(command.status, url, False, True)


async def test_a_certificate_that_the_variable_names_is_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = a_pair().write(tmp_path)
    certificate = ServerCertificate("admin", *files)
    async with serving(an_admin_app(AdminPolicy(token="right")), certificate.context) as url:
        done = await ltzd_apart(
            *("status", "--json", "--admin-url", url),
            *("--admin-token-file", write_secret(tmp_path / "token", "right")),
            SSL_CERT_FILE=str(files[0]),
        )
    assert done.code == 0, done.err


def test_where_nothing_listens_there_is_a_sentence() -> None:
    with listen("127.0.0.1", 0) as closed:
        port = closed.getsockname()[1]
    with pytest.raises(Unavailable, match=f"Nothing answers at http://127.0.0.1:{port}"):
        command.status(f"http://127.0.0.1:{port}", follow=False, as_json=True)


async def test_another_server_is_not_taken_for_ours() -> None:
    async with serving(an_admin_app()) as url, aiohttp.ClientSession() as client:
        with pytest.raises(Unavailable, match="is not an ltzd admin server"):
            await command.fetch(client, url + "/healthz")


async def test_the_database_tells_the_status_while_no_process_answers(
    database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    nowhere = "http://127.0.0.1:9"
    await asyncio.to_thread(command.status, nowhere, False, True, database_url=database_url)
    facts = json.loads(capsys.readouterr().out)
    assert (facts["readFrom"], facts["processes"], facts["lanes"]) == ("database", [], [])
    kinds = [condition["kind"] for condition in facts["conditions"]]
    assert kinds == ["role_absent"] * 4 + ["index_not_begun"]
    await asyncio.to_thread(command.status, nowhere, False, False, database_url=database_url)
    page = capsys.readouterr().out
    assert "no process answers; the database says not ready" in page
    for url in (None, "postgresql://x@127.0.0.1:9/x"):
        with pytest.raises(Unavailable, match="Nothing answers at"):
            await asyncio.to_thread(command.status, nowhere, False, False, database_url=url)


async def test_a_database_that_takes_no_writes_is_not_ready(
    database_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    name = database_url.rpartition("/")[2]
    owner = await connect(database_url, "test")
    await owner.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await owner.close()
    nowhere = "http://127.0.0.1:9"
    await asyncio.to_thread(command.status, nowhere, False, True, database_url=database_url)
    facts = json.loads(capsys.readouterr().out)
    assert (facts["ready"], facts["database"]) == (False, "connected")
    kinds = [condition["kind"] for condition in facts["conditions"]]
    assert kinds[0] == "database_unavailable"
    await asyncio.to_thread(command.status, nowhere, False, False, database_url=database_url)
    assert "The database takes no writes" in capsys.readouterr().out


async def test_the_page_shows_the_worst_first_with_its_runbook_at_80_columns() -> None:
    async with serving(an_admin_app()) as url, aiohttp.ClientSession() as client:
        facts = await command.fetch(client, url)
    console = Console(file=io.StringIO(), width=80, record=True)
    console.print(status_page.page(facts))
    lines = console.export_text().splitlines()
    assert lines[0].startswith("ltzd ")
    assert "host-a/4711 is ready" in lines[0]
    text = " ".join(" ".join(lines).split())
    assert text.index("page No process has the role operator") < text.index("host-a/4711 http")
    assert "→ docs/runbooks/processes.md#no-process-has-a-role" in text
    assert max(map(len, lines)) <= 80
