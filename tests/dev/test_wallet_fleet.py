"""A running instance gets, uses, drains and retires wallets by command, without a restart."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest_asyncio

from ltzd.chain.node.node import Node
from ltzd.chain.node.rpc import Rpc
from ltzd.chain.signing import Signer
from ltzd.daemon.keys import read_key
from ltzd.dev import contracts
from ltzd.values import address_of, checksummed
from tests.support.commands import Outcome, begin_ltzd, ltzd
from tests.support.instances.instance import Instance, an_instance
from tests.support.instances.load import post_all
from tests.support.instances.relayer import Relays, relays_of
from tests.support.ports import free_port
from tests.support.secret_files import write_secret
from tests.support.waiting import until

ADDED = Signer(b"\x21" * 32)
NAME = checksummed(ADDED.address)
FINAL_AFTER = 70
"""Blocks after which an earlier block is final."""


@pytest_asyncio.fixture(scope="module")
async def instance() -> AsyncIterator[Instance]:
    wallets = ("--relay-wallets", "2", "--mint-wallets", "2")
    async with an_instance("--chain", "anvil", *wallets) as instance:
        yield instance


async def wallet(instance: Instance, *arguments: object) -> Outcome:
    return await ltzd("wallet", *arguments, "--data-dir", instance.data_dir)


async def row(instance: Instance, name: str = NAME) -> Any:
    return (await wallet(instance, "show", name, "--json")).json


async def pay_and_grant(instance: Instance) -> None:
    """Send the added wallet gas money, and have the admin grant it the roles of a relay wallet."""
    admin = Signer(read_key(instance.data_dir / "keys" / "admin"))
    minter = address_of(instance.dev_json["minter"])
    terms = contracts.dev_terms(admin.address, minter, (ADDED.address,))
    async with Rpc(instance.dev_json["rpcUrl"]) as rpc:
        node = Node(rpc)
        await contracts.fund(rpc, node, [ADDED.address])
        genesis = await node.block(0)
        assert genesis is not None
        chain_id = instance.dev_json["chainId"]
        await contracts.ensure_deployed(
            instance.data_dir, rpc, chain_id, genesis.hash, admin, terms
        )


async def relay_some(relays: Relays) -> set[str]:
    """Relays calls of several users at once; returns the wallets that have sent them."""
    users = await relays.users(6)
    answers = await asyncio.gather(
        *(relays.relay(user, "PerkNFT", relays.claim(user)) for user in users)
    )
    for answer in answers:
        answer.assert_relayed()
    return {str(answer.body["from"]).lower() for answer in answers}


async def metric(instance: Instance, name: str) -> float:
    """The value of an operator's metric, such as `lanes_held{kind="mint"}`."""
    async with instance.http.get(f"http://127.0.0.1:{instance.admin_port}/metrics") as reply:
        lines = (await reply.text()).splitlines()
    (line,) = [line for line in lines if line.startswith(f"ltzd_operator_{name} ")]
    return float(line.rpartition(" ")[2])


async def test_several_mint_wallets_share_the_rewards(instance: Instance) -> None:
    minters = instance.dev_json["minters"]
    assert await metric(instance, 'lanes_held{kind="mint"}') == len(minters) == 2
    assert await metric(instance, 'lanes_held{kind="relay"}') == 2

    async def both_have_minted() -> bool:
        answers = await post_all(instance, [f"{uuid4().hex}@shop.example" for _ in range(20)])
        for answer in answers:
            await instance.minted(answer.event_id)
        sql = "SELECT count(DISTINCT wallet) = 2 FROM transactions WHERE kind = 'mint'"
        return bool(await instance.ask(sql))

    await until(both_have_minted, 30.0)
    sql = "SELECT count(*) FROM transactions WHERE kind = 'mint' AND state <> 'mined'"
    assert await instance.ask(sql) == 0


async def test_a_killed_instance_serves_all_its_wallets_again(instance: Instance) -> None:
    await instance.kill9()
    await instance.start_again()

    async def all_are_held() -> bool:
        rows = (await wallet(instance, "list", "--json")).json
        return len(rows) == 4 and all(row["process"] for row in rows)

    await until(all_are_held)
    assert (await instance.status())["ready"]


OPERATOR = """\
database_url = "{database_url}"
master_key_file = "{folder}/master.key"
roles = ["operator"]
[node]
rpc_url = "{rpc_url}"
[contracts]
ltz = "{LTZ}"
perk_nft = "{PerkNFT}"
points_sale = "{PointsSale}"
business_escrow = "{BusinessEscrow}"
first_block = {first_block}
[admin]
port = {port}
[operator]
minter_key_file = "{folder}/keys/minter"
relay_key_file = "{folder}/keys/operator"
[[operator.wallets]]
kind = "mint"
key_file = "{folder}/keys/minter-2"
[[operator.wallets]]
kind = "relay"
key_file = "{folder}/keys/operator-2"
[identity]
kind = "oidc"
issuer = "https://login.example/"
audience = "ltzd"
"""
"""The settings of another process with the wallets of the instance."""


async def settings_file(instance: Instance, path: Path) -> Path:
    dev = instance.dev_json
    text = OPERATOR.format(
        **dev["contracts"],
        database_url=dev["databaseUrl"],
        folder=instance.data_dir,
        rpc_url=dev["rpcUrl"],
        port=free_port(),
        first_block=await instance.ask("SELECT first_block FROM chains"),
    )
    return write_secret(path, text)


async def all_held_by(instance: Instance, pid: int) -> None:
    """Waits until this process serves every wallet."""

    async def does() -> bool:
        rows = (await wallet(instance, "list", "--json")).json
        return {str(row["process"]).rpartition("/")[2] for row in rows} == {str(pid)}

    await until(does, 30.0)


async def test_another_process_takes_over_all_wallets_and_gives_none_away(
    instance: Instance, tmp_path: Path
) -> None:
    first = instance.process
    assert first is not None
    await all_held_by(instance, first.pid)
    settings = await settings_file(instance, tmp_path / "ltzd.toml")
    other = await begin_ltzd("run", "--config", settings)
    try:
        await instance.kill9()
        await all_held_by(instance, other.pid)
        await instance.start_again()
        await all_held_by(instance, other.pid)
        other.terminate()
        assert await asyncio.wait_for(other.wait(), 20.0) == 0
    finally:
        if other.returncode is None:
            other.kill()
            await other.wait()
    second = instance.process
    assert second is not None
    await all_held_by(instance, second.pid)
    assert (await instance.status())["ready"]


async def test_a_wallet_comes_works_and_goes_while_the_instance_runs(
    instance: Instance, tmp_path: Path
) -> None:
    assert len(instance.dev_json["operators"]) == 2
    key_file = write_secret(tmp_path / "key", (b"\x21" * 32).hex())
    adding = ("add", "--kind", "relay", "--key-file", key_file)

    added = (await wallet(instance, *adding, "--json")).json
    assert (added["wallet"], added["isNew"], added["balanceWei"]) == (NAME, True, "0")
    assert added["process"] is not None
    assert added["roles"] == dict.fromkeys(added["roles"], False)
    assert [warning.split()[1] for warning in added["warnings"]] == ["has", "lacks"]
    refused = await wallet(instance, "add", "--kind", "mint", "--key-file", key_file)
    assert refused.code == 1
    assert "is a relay wallet of this database already" in refused.err

    await pay_and_grant(instance)
    again = await wallet(instance, *adding)
    assert again.code == 0, again.err
    assert "is known already" in again.err
    assert "lacks" not in again.err

    async with relays_of(instance) as relays:
        relays.flush_after = 10

        async def has_sent() -> bool:
            return NAME.lower() in await relay_some(relays)

        await until(has_sent, 30.0)

        drained = await wallet(instance, "drain", NAME)
        assert "within a second it signs nothing new" in drained.err

        assert not (await row(instance))["isDrained"]
        await instance.rpc("anvil_mine", hex(FINAL_AFTER))

        async def is_drained() -> bool:
            return bool((await row(instance))["isDrained"])

        await until(is_drained, 30.0)
        nonce = (await row(instance))["nextNonce"]
        assert NAME.lower() not in await relay_some(relays)
        assert (await row(instance))["nextNonce"] == nonce

        retired = await wallet(instance, "retire", NAME)
        assert retired.code == 0, retired.err
        assert "of the chain's coin: move it before the key is destroyed" in retired.err
        assert NAME.lower() not in await relay_some(relays)
    status = await instance.status()
    assert status["ready"], status["reasons"]
    refused = await wallet(instance, *adding)
    assert "stays so: use another key" in refused.err
