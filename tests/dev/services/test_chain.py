"""The dev chain's process: anvil, whose chain is stored, the tester chain, and the choice."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import psutil
import pytest
import pytest_asyncio

from ltzd.dev.services import anvil_pool, chain, processes
from ltzd.errors import Misconfigured
from tests.support.folders import a_data_directory
from tests.support.waiting import until

SOMEBODY = "0x00000000000000000000000000000000000000aa"


@pytest_asyncio.fixture
async def folder() -> AsyncIterator[Path]:
    async with a_data_directory() as held:
        yield held


async def call(url: str, method: str, *parameters: object) -> object:
    request = {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(parameters)}
    async with aiohttp.ClientSession() as session, session.post(url, json=request) as reply:
        answer: dict[str, object] = await reply.json()
    assert "error" not in answer, answer
    return answer["result"]


async def head_of(url: str) -> dict[str, str]:
    block = await call(url, "eth_getBlockByNumber", "latest", False)
    assert isinstance(block, dict)
    return block


async def pay_somebody(url: str) -> None:
    accounts = await call(url, "eth_accounts")
    assert isinstance(accounts, list)
    payment = {"from": accounts[0], "to": SOMEBODY, "value": "0x1"}
    hash_ = await call(url, "eth_sendTransaction", payment)

    async def mined() -> object:
        return await call(url, "eth_getTransactionReceipt", hash_)

    await until(mined)


@pytest.mark.parametrize("kind", ["tester", "anvil"])
async def test_a_running_chain_is_adopted_with_its_blocks(folder: Path, kind: chain.Kind) -> None:
    started = await chain.start(folder, kind, 0.0, None)
    assert started.kind == kind
    assert hex(started.chain_id) == await call(started.rpc_url, "eth_chainId")
    await pay_somebody(started.rpc_url)

    again = await chain.start(folder, kind, 0.0, None)
    assert again == started
    assert await call(again.rpc_url, "eth_getBalance", SOMEBODY, "latest") == "0x1"

    await processes.stop_all(folder)
    assert not psutil.pid_exists(started.service.pid)


async def test_anvil_stopped_and_started_is_the_same_chain(folder: Path) -> None:
    first = await chain.start(folder, "anvil", 0.0, None)
    genesis = await chain.genesis_hash(first.rpc_url)
    await pay_somebody(first.rpc_url)
    head = await head_of(first.rpc_url)

    # anvil adds a block 0 of its own at each start, so once would not show a changing genesis.
    for _ in range(3):
        await processes.stop_all(folder)
        again = await chain.start(folder, "anvil", 0.0, None)
        assert await chain.genesis_hash(again.rpc_url) == genesis
        assert (await head_of(again.rpc_url))["hash"] == head["hash"]
    assert await call(again.rpc_url, "eth_getBalance", SOMEBODY, "latest") == "0x1"


async def test_anvil_tells_the_time_after_a_restart_and_never_goes_back(folder: Path) -> None:
    first = await chain.start(folder, "anvil", 0.0, None)
    await call(first.rpc_url, "evm_increaseTime", 3600)
    await pay_somebody(first.rpc_url)
    before = await head_of(first.rpc_url)
    await processes.stop_all(folder)

    again = await chain.start(folder, "anvil", 0.0, None)
    await pay_somebody(again.rpc_url)
    after = await head_of(again.rpc_url)
    assert int(after["timestamp"], 16) > int(before["timestamp"], 16) > time.time()


async def test_anvil_killed_hard_comes_back_with_what_it_had_written(folder: Path) -> None:
    first = await chain.start(folder, "anvil", 0.0, None)
    genesis = await chain.genesis_hash(first.rpc_url)
    await pay_somebody(first.rpc_url)
    state = folder / "anvil" / "state.json"
    paid_at = time.time()

    async def written() -> bool:
        return state.exists() and state.stat().st_mtime > paid_at

    await until(written)
    os.kill(first.service.pid, signal.SIGKILL)
    await asyncio.wait_for(processes.until_ended(first.service), 20)

    again = await chain.start(folder, "anvil", 0.0, None)
    assert await chain.genesis_hash(again.rpc_url) == genesis
    assert await call(again.rpc_url, "eth_getBalance", SOMEBODY, "latest") == "0x1"


async def test_anvil_with_a_cut_off_state_begins_a_chain_that_is_told_from_the_old(
    folder: Path,
) -> None:
    first = await chain.start(folder, "anvil", 0.0, None)
    genesis = await chain.genesis_hash(first.rpc_url)
    await processes.stop_all(folder)
    state = folder / "anvil" / "state.json"
    state.write_bytes(state.read_bytes()[:-100])

    again = await chain.start(folder, "anvil", 0.0, None)
    assert await chain.genesis_hash(again.rpc_url) != genesis


async def test_anvil_starts_where_a_full_disk_left_its_time_empty(folder: Path) -> None:
    (folder / "anvil").mkdir()
    (folder / "anvil" / "genesis-time").touch()

    await chain.start(folder, "anvil", 0.0, None)
    remembered = int((folder / "anvil" / "genesis-time").read_text())
    assert abs(remembered - time.time()) < 60


async def test_another_block_time_restarts_the_chain_and_keeps_anvils_blocks(folder: Path) -> None:
    first = await chain.start(folder, "anvil", 0.0, None)
    await pay_somebody(first.rpc_url)
    second = await chain.start(folder, "anvil", 0.25, None)
    assert second.service.pid != first.service.pid
    assert not psutil.pid_exists(first.service.pid)

    async def mines_by_itself() -> bool:
        return int((await head_of(second.rpc_url))["number"], 16) > 1

    await until(mines_by_itself)
    assert await call(second.rpc_url, "eth_getBalance", SOMEBODY, "latest") == "0x1"


async def test_anvil_strands_no_transaction_while_its_pool_is_kept_moving(folder: Path) -> None:
    running = await chain.start(folder, "anvil", 0.0, None)
    accounts = await call(running.rpc_url, "eth_accounts")
    assert isinstance(accounts, list)
    payment = {"from": accounts[0], "to": SOMEBODY, "value": "0x1", "gas": "0x5208"}
    keeper = asyncio.create_task(anvil_pool.requeue_stranded(running.rpc_url))
    try:
        await asyncio.gather(
            *(
                call(running.rpc_url, "eth_sendTransaction", payment | {"nonce": hex(nonce)})
                for nonce in range(200)
            )
        )

        async def all_arrived() -> bool:
            balance = await call(running.rpc_url, "eth_getBalance", SOMEBODY, "latest")
            return balance == hex(200)

        await until(all_arrived)
    finally:
        keeper.cancel()


async def test_a_dearer_transaction_does_not_displace_an_earlier_one(folder: Path) -> None:
    running = await chain.start(folder, "anvil", 0.5, None)
    accounts = await call(running.rpc_url, "eth_accounts")
    assert isinstance(accounts, list)
    for nonce in range(6):
        fees = {"maxFeePerGas": hex(10**10), "maxPriorityFeePerGas": hex(10**8 * (nonce + 1))}
        payment = {"from": accounts[0], "to": SOMEBODY, "value": "0x1", "nonce": hex(nonce)}
        await call(running.rpc_url, "eth_sendTransaction", payment | fees)

    async def all_arrived() -> bool:
        return await call(running.rpc_url, "eth_getBalance", SOMEBODY, "latest") == hex(6)

    await until(all_arrived)


async def test_asking_for_anvil_where_there_is_none_says_how_to_get_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chain, "_npm_packages", lambda: iter(()))
    monkeypatch.delenv("LTZD_ANVIL", raising=False)
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(Misconfigured, match="`make test` installs it, or put anvil on PATH"):
        await chain.start(folder, "anvil", 0.0, None)


async def test_auto_takes_anvil_where_there_is_one(folder: Path) -> None:
    assert (await chain.start(folder, "auto", 0.0, None)).kind == "anvil"


async def test_a_named_anvil_that_is_no_program_is_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LTZD_ANVIL", str(folder / "lock"))
    with pytest.raises(Misconfigured, match="LTZD_ANVIL names"):
        await chain.start(folder, "auto", 0.0, None)


async def test_a_node_that_is_not_there_is_a_sentence() -> None:
    with pytest.raises(Misconfigured, match="does not answer; start it, or give another --rpc-url"):
        await chain.genesis_hash("http://127.0.0.1:1")
