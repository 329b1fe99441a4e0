"""`ltzd dev` as a whole: from an event to LTZ on the chain and in the index; starts and stops."""

import asyncio
import json
import os
import re
import shlex
import shutil
import signal
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psutil
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from ltzd.dev.main import status_command
from ltzd.dev.services.chain import DevChain
from tests.support.chain.chains import anvil_chain, tester_chain
from tests.support.instances.books import (
    LTZ,
    all_minted,
    assert_books_agree,
    balances_on_chain,
    indexed_balances,
    mint_logs,
)
from tests.support.instances.instance import Instance, a_folder, an_instance
from tests.support.instances.ordinary_user import an_ordinary_user
from tests.support.services.redis import a_redis
from tests.support.waiting import until

__all__ = ["anvil_chain", "tester_chain"]


def somebody() -> str:
    """A new e-mail address."""
    return f"{uuid4().hex}@shop.example"


# The main job


async def test_an_event_becomes_minted_ltz_that_the_index_and_the_chain_agree_on(
    instance: Instance,
) -> None:
    answer = await instance.post_event(somebody())
    assert (answer.status, answer.body["status"]) == (200, "published"), answer.body
    assert answer.hash is not None

    (mint,) = await mint_logs(instance.rpc, answer.hash)
    assert mint.reference == UUID(answer.event_id).bytes + b"\x01" + bytes(7) + mint.reference[24:]
    assert (mint.amount, answer.body["rewardAmount"]) == (100 * LTZ, 100)
    wallet = answer.body["walletAddress"].lower()
    assert mint.recipient == wallet

    event = await instance.minted(answer.event_id)
    assert (event["transactionHash"], event["walletAddress"]) == (
        answer.hash,
        answer.body["walletAddress"],
    )
    assert (await instance.rpc.receipt(answer.hash))["blockNumber"] == hex(event["blockNumber"])
    assert (await indexed_balances(instance))[wallet] == 100 * LTZ
    assert await balances_on_chain(instance, [wallet]) == {wallet: 100 * LTZ}
    seq = await instance.ask("SELECT seq FROM rewards WHERE id = $1", UUID(answer.event_id))
    assert seq == mint.seq


async def test_an_event_is_published_first_and_minted_with_its_block(instance: Instance) -> None:
    await instance.rpc("evm_setAutomine", False)
    try:
        answer = await instance.post_event(somebody())
        assert answer.status == 200, answer.body
        before = await instance.event(answer.event_id)
        assert (before["status"], before["blockNumber"]) == ("published", None)
        assert before["transactionHash"] == answer.hash
        await instance.rpc("evm_mine")
    finally:
        await instance.rpc("evm_setAutomine", True)
    after = await instance.minted(answer.event_id)
    assert after["status"] == "minted"
    assert after["blockNumber"] is not None


async def test_the_explorer_shows_the_mint_of_an_event(instance: Instance) -> None:
    answer = await instance.post_event(somebody())
    page = f"{instance.dev_json['explorerUrl']}/tx/{answer.hash}"
    async with instance.http.get(page) as reply:
        assert reply.status == 200
        assert str(answer.hash) in await reply.text()


async def test_the_printed_line_works_as_pasted(instance: Instance) -> None:
    line = next(
        each for each in instance.printed().splitlines() if each.strip().startswith("curl ")
    )
    answer = json.loads(await (pasted(line) if shutil.which("curl") else sent(instance, line)))
    assert answer["success"] is True, answer
    assert re.fullmatch("0x[0-9a-f]{64}", answer["transactionHash"])
    assert (await instance.minted(answer["eventId"]))["rewardAmount"] == answer["rewardAmount"]


def test_the_printed_command_names_a_folder_of_any_name(tmp_path: Path) -> None:
    folder = tmp_path / "my data's"
    words = shlex.split(status_command(folder))
    assert words[1:] == ["status", "--follow", "--data-dir", str(folder)]


async def pasted(line: str) -> bytes:
    shell = await asyncio.create_subprocess_shell(line, stdout=asyncio.subprocess.PIPE)
    out, _ = await shell.communicate()
    assert shell.returncode == 0
    return out


async def sent(instance: Instance, line: str) -> bytes:
    """Sends the request of the curl command, for machines without curl."""
    curl, silent, url, header, kind, data, body = shlex.split(line)
    assert (curl, silent, header, data) == ("curl", "-s", "-H", "-d")
    name, _, value = kind.partition(": ")
    async with instance.http.post(url, data=body, headers={name: value}) as reply:
        return await reply.read()


async def test_dev_json_is_private_and_tells_where_everything_is(instance: Instance) -> None:
    path = instance.data_dir / "dev.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    dev_json: dict[str, Any] = json.loads(path.read_text())
    assert dev_json.keys() >= {
        *("baseUrl", "adminUrl", "rpcUrl", "chainId", "explorerUrl", "databaseUrl", "redisUrl"),
        *("sandboxUrl", "operator", "operators", "minter", "contracts", "brand", "otherBrand"),
        *("sandbox", "collections", "items", "businesses"),
    }
    assert dev_json["chainId"] == int(await instance.rpc("eth_chainId"), 16)
    assert list(dev_json["contracts"]) == ["LTZ", "PerkNFT", "PointsSale", "BusinessEscrow"]
    for address in dev_json["contracts"].values():
        assert await instance.rpc("eth_getCode", address, "latest") != "0x"
    assert dev_json["operators"][0] == dev_json["operator"] != dev_json["minter"]
    for brand in (dev_json["brand"], dev_json["otherBrand"]):
        assert brand.keys() >= {"brandId", "domain", "securityKey", "apiKey", "webhookSecret"}
    for url in (dev_json["baseUrl"] + "/service-api/health", dev_json["adminUrl"] + "/readyz"):
        async with instance.http.get(url) as reply:
            assert reply.status == 200


async def test_everything_listens_on_loopback_only(one_instance: Instance) -> None:
    listening = [
        connection.laddr
        for pid in one_instance.processes()
        for connection in psutil.Process(pid).net_connections()
        if connection.status == "LISTEN"
    ]
    assert len({address.port for address in listening}) >= 6
    assert {address.ip for address in listening} == {"127.0.0.1"}


# Refusals


@pytest_asyncio.fixture
async def idle() -> AsyncIterator[Instance]:
    """An instance that has not been started."""
    async with an_instance("--chain", "anvil", started=False) as instance:
        yield instance


@pytest_asyncio.fixture
async def idle_tester() -> AsyncIterator[Instance]:
    """An instance that has not been started, with a chain that will be in memory."""
    async with an_instance("--chain", "tester", started=False) as instance:
        yield instance


@pytest.mark.parametrize("option", ["--port", "--admin-port"])
async def test_an_occupied_port_is_refused_before_anything_starts(
    idle: Instance, one_instance: Instance, option: str
) -> None:
    sentence = await idle.refused(option, str(one_instance.port))
    assert sentence == (
        f"ltzd: Port {one_instance.port} is in use; "
        f"stop the other program or choose another with {option}."
    )
    assert not (idle.data_dir / "postgres").exists()


async def test_one_port_for_both_servers_is_refused_before_anything_starts(idle: Instance) -> None:
    sentence = await idle.refused("--admin-port", str(idle.port))
    assert sentence == (
        f"ltzd: --port and --admin-port are both {idle.port}; choose two different ports."
    )
    assert not (idle.data_dir / "postgres").exists()


async def test_a_second_ltzd_is_refused_in_the_data_directory_of_the_first(
    idle: Instance, one_instance: Instance
) -> None:
    assert one_instance.process is not None
    sentence = await idle.refused("--data-dir", str(one_instance.data_dir))
    assert f"Another ltzd (process {one_instance.process.pid}) uses " in sentence
    assert (await one_instance.post_event(somebody())).status == 200


async def test_a_folder_of_somebody_else_is_neither_used_nor_cleaned(idle: Instance) -> None:
    idle.data_dir.mkdir()
    (idle.data_dir / "thesis.txt").write_text("years of work")
    assert "holds files that are not ltzd's" in await idle.refused("--clean")
    assert [path.name for path in idle.data_dir.iterdir()] == ["thesis.txt"]


async def test_a_data_directory_that_is_a_file_is_refused(idle: Instance) -> None:
    idle.data_dir.write_text("not a folder")
    assert "choose another with --data-dir" in await idle.refused()


@pytest.mark.parametrize(
    ("option", "url", "words"),
    [
        ("--rpc-url", "http://127.0.0.1:9", "correct --rpc-url"),
        (
            "--database-url",
            "postgresql://nobody@127.0.0.1:9/nothing",
            "The database of --database-url",
        ),
        ("--redis-url", "redis://127.0.0.1:9/0", "The Redis of --redis-url"),
    ],
)
async def test_a_service_given_by_url_that_does_not_answer_is_a_sentence(
    idle: Instance, option: str, url: str, words: str
) -> None:
    assert words in await idle.refused(option, url)


async def test_one_node_must_answer_over_http(idle: Instance, anvil_chain: DevChain) -> None:
    socket = ("--rpc-url", anvil_chain.rpc_url.replace("http:", "ws:"))
    assert "give --rpc-url a node's http:// URL, too" in await idle.refused(*socket)
    sentence = await idle.refused(*socket, "--rpc-url", "http://127.0.0.1:9")
    assert "the node at http://127.0.0.1:9 does not answer" in sentence


async def test_a_node_of_a_chain_that_may_be_real_is_refused(idle: Instance) -> None:
    async def answer(request: web.Request) -> web.Response:
        call = await request.json()
        methods.append(call["method"])
        return web.json_response({"jsonrpc": "2.0", "id": call["id"], "result": "0x1"})

    methods: list[str] = []
    app = web.Application()
    app.router.add_post("/", answer)
    async with TestServer(app, host="127.0.0.1") as node:
        sentence = await idle.refused("--rpc-url", str(node.make_url("")))

    assert "is chain 1, not a dev chain (1337, 31337, 131277322940537)" in sentence
    assert set(methods) == {"eth_chainId"}


async def test_a_given_database_of_another_chain_is_refused_and_left_alone(
    database_url: str, tester_chain: DevChain, anvil_chain: DevChain
) -> None:
    async with a_redis() as redis_url:
        given = ("--database-url", database_url, "--redis-url", redis_url)
        async with an_instance("--rpc-url", tester_chain.rpc_url, *given) as first:
            assert first.service_pids() == {}, "it started what it was given"
            answer = await first.post_event(somebody())
            await all_minted(first)
            await first.stop()
        async with an_instance("--rpc-url", anvil_chain.rpc_url, *given, started=False) as second:
            sentence = await second.refused()
            assert (
                f"The database of --database-url follows chain {tester_chain.chain_id}" in sentence
            )
            assert "give an empty database, or that chain's node with --rpc-url" in sentence
            second.dev_json = first.dev_json
            recorded = await second.ask("SELECT id FROM rewards WHERE mint_block_hash IS NOT NULL")
            assert str(recorded) == answer.event_id


# Lives


async def test_with_port_0_dev_json_names_the_ports_that_were_chosen(idle: Instance) -> None:
    await idle.start("--port", "0", "--admin-port", "0")
    base_url, admin_url = idle.dev_json["baseUrl"], idle.dev_json["adminUrl"]
    assert base_url != admin_url
    assert f"ltzd is ready on {base_url}\n" in idle.printed()
    for url in (f"{base_url}/service-api/health", f"{admin_url}/readyz"):
        async with idle.http.get(url) as reply:
            assert reply.status == 200
    await a_payment_is_announced(idle)


async def a_payment_is_announced(instance: Instance) -> None:
    """The sandbox's payment provider reaches ltzd with the event of a paid session."""
    order = {
        "brandId": instance.dev_json["brand"]["brandId"],
        "amount": 500,
        "userEmail": somebody(),
        "successUrl": "https://shop.example/paid",
        "cancelUrl": "https://shop.example/cart",
    }
    checkout = f"{instance.dev_json['baseUrl']}/service-api/create-checkout"
    async with instance.http.post(checkout, json=order) as reply:
        session = {"sessionId": (await reply.json())["sessionId"]}
    async with instance.http.post(instance.dev_json["sandbox"]["payUrl"], json=session) as reply:
        paid = await reply.json()
    assert {event["type"]: event["delivered"] for event in paid["events"]} == {
        "checkout.session.completed": True,
        "payment_intent.succeeded": True,
    }


@pytest.mark.parametrize(
    ("moment", "number"),
    [
        ("lock", signal.SIGINT),
        ("run/initdb.json", signal.SIGTERM),
        ("run/postgres.json", signal.SIGINT),
        ("contracts.json", signal.SIGTERM),
        ("brand.keys.json", signal.SIGINT),
    ],
)
async def test_a_signal_during_the_start_ends_everything(
    idle: Instance, moment: str, number: signal.Signals
) -> None:
    await idle.begin()
    await reaches(idle, moment)
    await idle.stop(number)
    assert not (idle.data_dir / "dev.json").exists()


async def reaches(instance: Instance, moment: str) -> None:
    """Waits until the start has created this file."""

    async def is_there() -> bool:
        assert instance.is_running, instance.printed()
        return (instance.data_dir / moment).exists()

    await until(is_there, 30)


async def test_a_first_start_killed_at_any_moment_is_made_good_by_the_next(
    idle_tester: Instance,
) -> None:
    for moment in ("run/initdb.json", "run/chain.json", "contracts.json", "brand.keys.json"):
        await idle_tester.begin()

        await reaches(idle_tester, moment)
        await idle_tester.kill9()
    await idle_tester.start()
    assert (await idle_tester.post_event(somebody())).status == 200
    await all_minted(idle_tester)
    await assert_books_agree(idle_tester)


async def test_a_start_goes_on_where_a_full_disk_left_the_sandboxs_port_empty(
    idle: Instance,
) -> None:
    await idle.begin()
    await reaches(idle, "contracts.json")
    await idle.kill9()
    (idle.data_dir / "sandbox.port").write_text("")
    await idle.start()
    remembered = (idle.data_dir / "sandbox.port").read_text()
    assert idle.dev_json["sandboxUrl"] == f"http://127.0.0.1:{remembered}"


async def test_a_dev_instance_keeps_its_books_from_one_life_to_the_next() -> None:
    """anvil stores its chain on disk; with a block time, requests do not wait for a block."""
    async with an_instance("--chain", "anvil", "--block-time", "1") as instance:
        answers = [await instance.post_event(somebody()) for _ in range(3)]
        for answer in answers:
            answer.assert_timely()
        await all_minted(instance)
        before = instance.dev_json
        head = await instance.rpc.number()
        await instance.stop()
        assert not (instance.data_dir / "dev.json").exists()

        await instance.start()

        assert instance.dev_json["contracts"] == before["contracts"]
        for kept in ("brand", "collections", "items", "businesses"):
            assert instance.dev_json[kept] == before[kept]
        assert await instance.rpc.number() >= head
        async with asyncio.TaskGroup() as group:
            for answer in answers:
                group.create_task(instance.minted(answer.event_id))
        answers.append(await instance.post_event(somebody()))
        await all_minted(instance)
        await assert_books_agree(instance, answers)
        await a_request_in_flight_is_answered(instance, signal.SIGINT)


async def a_request_in_flight_is_answered(instance: Instance, number: signal.Signals) -> None:
    fault = {"service": "identity", "delaySeconds": 1.0, "times": 1}
    async with instance.http.post(instance.dev_json["sandbox"]["faultUrl"], json=fault) as reply:
        assert reply.status == 200, await reply.text()
    posting = asyncio.create_task(instance.post_event(somebody()))
    await asyncio.sleep(0.3)  # nothing tells from outside that it waits for its wallet now
    assert not posting.done()
    assert instance.process is not None
    instance.process.send_signal(number)  # an impatient person asks twice
    await instance.stop(number)
    answer = await posting
    assert (answer.status, answer.body["status"]) == (200, "published")


async def test_a_new_chain_gets_a_new_database_and_the_old_one_is_kept(
    idle_tester: Instance,
) -> None:
    """The tester chain is in memory, so each start has a new chain."""
    await idle_tester.start()
    answer = await idle_tester.post_event(somebody())
    assert answer.status == 200
    await a_request_in_flight_is_answered(idle_tester, signal.SIGTERM)

    await idle_tester.start()

    (kept,) = idle_tester.data_dir.glob("postgres.old-*")
    notice = f"The database followed another chain; it is kept as {kept}, and a new one is used."
    assert notice in idle_tester.printed()
    async with idle_tester.http.get(
        f"{idle_tester.base_url}/service-api/events/{answer.event_id}"
    ) as reply:
        assert reply.status == 404
    assert (await idle_tester.post_event(somebody())).status == 200
    before = idle_tester.dev_json
    await idle_tester.stop()

    await idle_tester.start("--clean")

    assert idle_tester.dev_json["minter"] != before["minter"]
    assert idle_tester.dev_json["businesses"] != before["businesses"]
    assert idle_tester.dev_json["collections"] == before["collections"]
    assert not list(idle_tester.data_dir.glob("postgres.old-*"))
    assert (await idle_tester.post_event(somebody())).status == 200
    await all_minted(idle_tester)
    await assert_books_agree(idle_tester)
    await idle_tester.stop()
    await broken_parts_are_sentences(idle_tester)


async def broken_parts_are_sentences(instance: Instance) -> None:
    """Damages one part at a time and repairs it."""
    for part, words in (
        ("postgres/global/pg_control", f"The database in {instance.data_dir}"),
        ("keys/minter", "keys/minter"),
    ):
        path = instance.data_dir / part
        whole = path.read_bytes()
        path.write_bytes(b"rubbish")
        sentence = await instance.refused()
        assert words in sentence, sentence
        path.write_bytes(whole)


async def test_a_service_that_dies_ends_ltzd_with_a_sentence_and_the_next_start_mends_it() -> None:
    async with an_instance("--chain", "anvil") as instance:
        for name in ("postgres", "chain", "redis"):
            if not instance.is_running:
                await instance.start()
            assert (await instance.post_event(somebody())).status == 200
            await all_minted(instance)
            await assert_books_agree(instance)
            os.kill(instance.service_pids()[name], signal.SIGKILL)
            sentence = await instance.last_sentence()
            assert f"The service {name} ended unexpectedly" in sentence
            assert "start `ltzd dev` again" in sentence


@pytest.mark.skipif(os.getuid() != 0, reason="every other test runs as an ordinary user already")
async def test_an_ordinary_user_can_run_it() -> None:
    with a_folder() as folder:
        user = an_ordinary_user(folder)
        async with an_instance("--chain", "tester", os_user=user) as instance:
            owners = {psutil.Process(pid).uids().effective for pid in instance.processes()}
            assert owners == {user.uid}
            assert not list(foreign_files(instance.data_dir, user.uid))
            assert (await instance.post_event(somebody())).status == 200
            await all_minted(instance)
            await assert_books_agree(instance)


def foreign_files(folder: Path, uid: int) -> list[Path]:
    return [path for path in folder.rglob("*") if path.lstat().st_uid != uid]
