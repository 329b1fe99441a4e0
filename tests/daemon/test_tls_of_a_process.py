"""A process of `ltzd run` serves TLS on both ports and renews it on SIGHUP under load."""

import asyncio
import signal
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio

from ltzd.store.schema_revisions import migrate
from tests.support.certificates import a_pair, served_at, trusting
from tests.support.chain.fake_node import FakeNode
from tests.support.commands import ltzd_apart
from tests.support.instances.run_process import Deployment, Process
from tests.support.secret_files import write_secret
from tests.support.services.postgres import Databases, a_postgres
from tests.support.surfaces.event_surface import a_served_node
from tests.support.waiting import until

OLD, NEW = a_pair(), a_pair()
TLS = """
tls_certificate_file = "{folder}/tls.crt"
tls_key_file = "{folder}/tls.key"
"""


@pytest_asyncio.fixture(scope="session")
async def databases() -> AsyncIterator[Databases]:
    """A server that loses nothing in a power failure: `ltzd run` refuses another one."""
    async with a_postgres(prepare=migrate, settings={}) as databases:
        yield databases


@pytest_asyncio.fixture
async def deployment(tmp_path: Path, database_url: str) -> AsyncIterator[Deployment]:
    node = FakeNode()
    node.mine()
    async with a_served_node(node) as node_url:
        yield Deployment(tmp_path, database_url, node_url)


async def test_certificates_are_renewed_on_hangup_and_no_request_is_lost(
    deployment: Deployment,
) -> None:
    """Two processes of the role http on one database; both ports of the first are checked."""
    OLD.write(deployment.folder)
    statuses: list[int] = []
    enough = asyncio.Event()
    connector = aiohttp.TCPConnector(ssl=trusting(OLD, NEW), limit=0)
    async with (
        deployment.running(TLS, TLS) as first,
        deployment.running(TLS) as second,
        aiohttp.ClientSession(connector=connector) as client,
    ):

        async def ask_on(process: Process, keeps_connection: bool) -> None:
            url = f"https://127.0.0.1:{process.port}/service-api/debug"
            headers = {} if keeps_connection else {"Connection": "close"}
            while not enough.is_set():
                async with client.get(url, headers=headers) as answer:
                    await answer.read()
                    statuses.append(answer.status)

        async def hang_up_on_both(served: bytes) -> None:
            before = [process.count("tls.certificate_loaded") for process in (first, second)]
            for process in (first, second):
                process.process.send_signal(signal.SIGHUP)
            await first.logged("tls.certificate_loaded", before[0] + 2)
            await second.logged("tls.certificate_loaded", before[1] + 1)
            for port in (first.port, first.admin_port, second.port):
                assert (await served_at(port))[0] == served

        async with asyncio.TaskGroup() as group:
            for number in range(8):
                group.create_task(ask_on((first, second)[number % 2], keeps_connection=number < 4))
            for round_number in range(6):
                pair = (NEW, OLD)[round_number % 2]
                pair.write(deployment.folder)
                so_far = len(statuses)
                await hang_up_on_both(pair.der)
                await until(partial(_has, statuses, so_far + 20))
            enough.set()
        assert set(statuses) == {200}

        async with client.get(f"https://127.0.0.1:{first.admin_port}/metrics") as answer:
            text = await answer.text()
        assert 'ltzd_http_certificate_renewals_total{outcome="renewed",server="public"} 6.0' in text
        assert 'ltzd_http_certificate_expiry_timestamp_seconds{server="admin"}' in text
    assert first.count("tls.not_renewed") == second.count("tls.not_renewed") == 0


async def test_a_hangup_with_another_key_leaves_the_old_certificate_serving(
    deployment: Deployment,
) -> None:
    OLD.write(deployment.folder)
    async with deployment.running(TLS) as process:
        write_secret(deployment.folder / "tls.key", NEW.key)
        process.process.send_signal(signal.SIGHUP)
        await process.logged("tls.not_renewed", server="public")
        assert (await served_at(process.port))[0] == OLD.der

        NEW.write(deployment.folder)
        process.process.send_signal(signal.SIGHUP)
        await process.logged("tls.certificate_loaded", 2)
        assert (await served_at(process.port))[0] == NEW.der


async def test_a_hangup_without_tls_stops_nothing(deployment: Deployment) -> None:
    async with deployment.running("") as process, aiohttp.ClientSession() as client:
        process.process.send_signal(signal.SIGHUP)
        await process.logged("tls.nothing_to_renew")
        url = f"http://127.0.0.1:{process.port}/service-api/debug"
        async with client.get(url) as answer:
            assert answer.status == 200
        assert process.count("http.plain") == 0


async def test_plain_http_that_was_asked_for_is_warned_of_at_the_start(
    deployment: Deployment,
) -> None:
    async with deployment.running('host = "0.0.0.0"\nplain_http = true') as process:
        assert process.count("http.plain", setting="http.plain_http", level="warning") == 1


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ('host = "0.0.0.0"', "others could read plain HTTP: give tls_certificate_file and tls_key"),
        (TLS, "does not belong to the certificate in"),
    ],
)
async def test_run_ends_with_a_sentence_before_it_serves_anybody(
    deployment: Deployment, lines: str, reason: str
) -> None:
    OLD.write(deployment.folder)
    write_secret(deployment.folder / "tls.key", NEW.key)

    done = await ltzd_apart("run", "--config", deployment.settings(lines, ""))
    assert done.code == 1
    assert reason in done.err
    assert "Traceback" not in done.err


async def _has(statuses: list[int], number: int) -> bool:
    return len(statuses) >= number
