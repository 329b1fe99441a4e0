"""A second process stands by and takes over from one that is frozen, or killed; books agree."""

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp

from tests.support.instances.books import all_minted, assert_books_agree, minted_so_far
from tests.support.instances.instance import START_SECONDS, Instance
from tests.support.instances.load import Load, a_load
from tests.support.instances.shared import Instances
from tests.support.ports import free_port
from tests.support.secret_files import write_secret
from tests.support.waiting import Stopwatch, until

TAKEOVER_SECONDS = 10.0
"""A takeover takes at most 5 s; twice as long is allowed for a loaded machine."""
CLIENTS = 8
LEASES = 3
"""Of the mint lane, of the relay lane, and of the chain."""
SETTINGS = """
database_url = "{database_url}"
master_key_file = "{data_dir}/master.key"
roles = ["operator", "indexer"]
[node]
urls = ["{rpc_url}"]
poll_seconds = 0.1
[contracts]
ltz = "{ltz}"
perk_nft = "{perk_nft}"
points_sale = "{points_sale}"
business_escrow = "{business_escrow}"
first_block = {first_block}
[identity]
kind = "oidc"
issuer = "https://login.invalid/"
audience = "ltzd"
[operator]
minter_key_file = "{data_dir}/keys/minter"
relay_key_file = "{data_dir}/keys/operator"
[admin]
port = {admin_port}
"""


@asynccontextmanager
async def a_standby(instance: Instance) -> AsyncIterator[asyncio.subprocess.Process]:
    """Another process with the wallets of the instance, on its database and its chain."""
    contracts, admin_port = instance.dev_json["contracts"], free_port()
    path = instance.folder / "standby.toml"
    write_secret(
        path,
        SETTINGS.format(
            database_url=instance.dev_json["databaseUrl"],
            data_dir=instance.data_dir,
            rpc_url=instance.dev_json["rpcUrl"],
            ltz=contracts["LTZ"],
            perk_nft=contracts["PerkNFT"],
            points_sale=contracts["PointsSale"],
            business_escrow=contracts["BusinessEscrow"],
            first_block=await instance.ask("SELECT first_block FROM chains"),
            admin_port=admin_port,
        ),
    )
    with (instance.folder / "standby.log").open("wb") as output:
        process = await instance.command("run", "--config", str(path), output=output)
    try:

        async def answers() -> bool:
            assert process.returncode is None, (instance.folder / "standby.log").read_text()
            try:
                async with instance.http.get(f"http://127.0.0.1:{admin_port}/healthz") as answer:
                    return answer.status == 200
            except aiohttp.ClientError:
                return False

        await until(answers, START_SECONDS)
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def taken_over(instance: Instance, pid: int) -> float:
    """Waits until the process with this id holds all leases; returns how many seconds that took."""
    watch = Stopwatch()

    async def holds_all() -> bool:
        held = await instance.ask("SELECT count(*) FROM leases WHERE process LIKE $1", f"%/{pid}")
        return bool(held >= LEASES)

    await until(holds_all, 60.0)
    return watch.seconds()


async def accepted_more(load: Load, count: int = 20) -> None:
    goal = len(load.accepted) + count

    async def reached() -> bool:
        return len(load.accepted) >= goal

    await until(reached, 60.0)


async def test_a_frozen_process_is_replaced_and_harms_nothing_when_it_wakes_up(
    instances: Instances,
) -> None:
    instance = await instances.of("anvil")
    frozen = instance.process
    assert frozen is not None
    async with a_standby(instance) as standby, a_load(instance, CLIENTS) as load:
        await accepted_more(load)
        frozen.send_signal(signal.SIGSTOP)
        try:
            assert await taken_over(instance, standby.pid) < TAKEOVER_SECONDS
            await all_minted(instance, 60.0)
        finally:
            frozen.send_signal(signal.SIGCONT)
        await accepted_more(load)
        await minted_so_far(instance)
        assert await taken_over(instance, standby.pid) < TAKEOVER_SECONDS, "the sleeper stands by"

        standby.kill()
        assert await taken_over(instance, frozen.pid) < TAKEOVER_SECONDS
        await accepted_more(load)
    await all_minted(instance, 60.0)
    await assert_books_agree(instance, load.accepted)
    assert instance.process is frozen
