"""The runbook docs/runbooks/stolen-key.md, command by command, while a thief has the same key.

Each accepted event is minted once, and the books find nothing but the thief's own mints.
"""

import asyncio
import json
import re
import shlex
import subprocess
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from eth_account import Account
from eth_account.signers.local import LocalAccount

from ltzd.chain.contracts import ltz
from ltzd.chain.contracts.ltz import MintEntry
from ltzd.values import Address, Reference, bytes_of
from tests.support.chain.tester import ETHER, GWEI
from tests.support.commands import Outcome, ltzd
from tests.support.instances.books import all_minted, mints_on_chain
from tests.support.instances.chain import Chain
from tests.support.instances.instance import Answer, Instance, an_instance
from tests.support.instances.relayer import Relays, relays_of
from tests.support.keystores import cheap_keystores
from tests.support.secret_files import write_secret
from tests.support.waiting import until

__all__ = ["cheap_keystores"]

pytestmark = pytest.mark.usefixtures("cheap_keystores")

PAGE = (Path(__file__).parents[2] / "docs" / "runbooks" / "stolen-key.md").read_text()
FINAL_AFTER = 66
PASSWORD = "correct horse battery staple"
_COMMAND = re.compile(r"^    (.+)$", re.MULTILINE)


class Runbook:
    """The page's commands, with this instance's wallets and files."""

    def __init__(self, instance: Instance, stolen: str) -> None:
        self._instance = instance
        self._stolen = stolen
        self._folder = instance.folder
        self.new = ""
        self.outcomes: dict[str, Outcome] = {}
        """The last outcome of each command, by its first words."""

    async def prepare(self) -> None:
        """The keystores of guardian and admin; in dev mode one wallet is both."""
        for name in ("guardian", "admin"):
            write_secret(self._folder / f"{name}.password", PASSWORD)
        for name in ("guardian", "admin"):
            keystore = self._folder / f"{name}.json"
            done = await ltzd(
                *("key", "import", keystore, "--from", self._instance.data_dir / "keys" / "admin"),
                *("--password-file", self._folder / f"{name}.password"),
            )
            assert done.code == 0, done.err

    async def follow(self, kind: str) -> None:
        """Runs each command of the page, in order."""
        commands = _COMMAND.findall(PAGE)
        assert len(commands) == 8, commands
        for command in commands:
            if not command.startswith("ltzd "):
                await asyncio.to_thread(
                    subprocess.run, ["sh", "-c", command], cwd=self._folder, check=True
                )
                continue
            arguments = self._arguments(command.removeprefix("ltzd "), kind)
            done = await ltzd(*arguments)
            name = " ".join(arguments[:2])
            self.outcomes[name] = done
            if arguments[0] != "books":
                assert done.code == 0, f"{command}: {done.err}{done.out}"
            if name == "key new":
                self.new = _address(done)
            if name == "wallet add":
                await self._instance.rpc("anvil_setBalance", self.new, hex(100 * ETHER))

    def _arguments(self, command: str, kind: str) -> list[str]:
        arguments = shlex.split(command)
        if kind == "relay":
            arguments = ["relay" if each == "mint" else each for each in arguments]
            if "--mint-limit" in arguments:
                at = arguments.index("--mint-limit")
                del arguments[at : at + 2]
        named = [
            str(self._folder / each) if each.endswith((".json", ".password")) else each
            for each in arguments
        ]
        named = [{"0xSTOLEN": self._stolen, "0xNEW": self.new}.get(each, each) for each in named]
        if "--config" in named:
            at = named.index("--config")
            del named[at : at + 2]
        is_of_instance = named[0] != "key"
        return [*named, "--data-dir", str(self._instance.data_dir)] if is_of_instance else named


def _address(done: Outcome) -> str:
    address = re.search(r"0x[0-9a-fA-F]{40}", done.out + done.err)
    assert address is not None, done
    return address[0]


def thief_of(instance: Instance, key: str) -> LocalAccount:
    account: LocalAccount = Account.from_key((instance.data_dir / "keys" / key).read_text().strip())
    return account


async def steal_nonce(chain: Chain, thief: LocalAccount, contract: str, data: bytes) -> None:
    """Sends a transaction with the wallet's lowest unused nonce, dearer than any of ltzd's."""
    nonce = int(await chain.rpc("eth_getTransactionCount", thief.address, "latest"), 16)
    parameters: dict[str, Any] = {
        "chainId": chain.id,
        "nonce": nonce,
        "to": bytes_of(chain.contracts[contract]),
        "value": 0,
        "data": data,
        "gas": 500_000,
        "maxFeePerGas": 2_000 * GWEI,
        "maxPriorityFeePerGas": 1_000 * GWEI,
    }
    raw = bytes(thief.sign_transaction(parameters).raw_transaction)
    await chain.rpc("eth_sendRawTransaction", "0x" + raw.hex())


def stolen_mint(thief: LocalAccount, seqs: list[int]) -> bytes:
    """The call of a mint to the thief, under references that ltzd has given out."""
    to = Address(bytes_of(thief.address))
    references = [Reference(b"\xee" * 24 + seq.to_bytes(8, "big")) for seq in seqs]
    return ltz.mint_call([MintEntry(to, 10**18, reference) for reference in references])


async def post_many(instance: Instance, count: int) -> list[Answer]:
    return await asyncio.gather(
        *(instance.post_event(f"{uuid4().hex}@shop.example") for _ in range(count))
    )


@asynccontextmanager
async def finality(instance: Instance) -> AsyncIterator[None]:
    """Mines blocks, many at once, until the block has ended.

    Waits each time until they are indexed: a chain that still mines, or is read, is slow to answer
    anybody else.
    """
    is_over = False

    async def is_indexed() -> bool:
        return bool((await instance.status())["chain"]["lagBlocks"] == 0)

    async def mine() -> None:
        while not is_over:
            await instance.rpc("anvil_mine", hex(FINAL_AFTER))
            await until(is_indexed)
            await asyncio.sleep(0.5)

    task = asyncio.create_task(mine())
    try:
        yield
    finally:
        is_over = True
        await task


async def watched_to_the_end(instance: Instance, wallet: str) -> None:
    async def is_over() -> bool:
        count = await instance.ask(
            "SELECT count(*) FROM transactions WHERE wallet = $1 AND state IN "
            "('signed', 'published', 'mined')",
            bytes_of(wallet),
        )
        return bool(count == 0)

    await until(is_over, 30.0)


async def test_the_runbook_of_a_stolen_mint_key() -> None:
    async with an_instance("--chain", "anvil") as instance:
        chain, thief = Chain(instance), thief_of(instance, "minter")
        runbook = Runbook(instance, thief.address)
        await runbook.prepare()
        accepted = await post_many(instance, 10)
        await all_minted(instance)

        await chain.rpc("evm_setAutomine", False)
        accepted += await post_many(instance, 10)
        seqs = await instance.ask(
            "SELECT array_agg(seq ORDER BY seq) FROM rewards WHERE mint_block_hash IS NULL"
        )
        counter = await instance.ask("SELECT next_seq FROM reference_counters")
        stolen = [seqs[-1], seqs[-2], counter + 3]
        await steal_nonce(chain, thief, "LTZ", stolen_mint(thief, stolen))
        await chain.rpc("evm_mine")
        accepted += await post_many(instance, 5)
        await chain.rpc("evm_setAutomine", True)

        await runbook.follow("mint")
        accepted += await post_many(instance, 5)
        await begin_behind_made_up_references(instance)
        async with finality(instance):
            await watched_to_the_end(instance, thief.address)
            await all_minted(instance, 40.0)

        assert all(answer.status in {200, 202} for answer in accepted)
        assert (await instance.ask("SELECT count(*) FROM events")) == len(accepted) == 30
        mints = await mints_on_chain(instance)
        times = Counter(mint.reward for mint in mints if mint.recipient != thief.address.lower())
        async with instance.database() as connection:
            rewards = {row["id"] for row in await connection.fetch("SELECT id FROM rewards")}
        assert times == Counter(dict.fromkeys(rewards, 1))
        assert not {mint.seq for mint in mints if mint.reward in rewards} & set(seqs[-2:])
        # Whether the thief's nonce or the lost role is proven first is a matter of milliseconds.
        assert await ended_as(instance, thief.address) & {"displaced", "voided"}
        await only_the_thief_disagrees(instance)
        left = await ltzd(
            "wallet", "show", thief.address, "--json", "--data-dir", instance.data_dir
        )
        assert (left.json["state"], left.json["inFlight"]) == ("retired", 0)


async def begin_behind_made_up_references(instance: Instance) -> None:
    """The new lane is stopped by the reference that the thief made up; the page says what helps."""

    async def is_stopped() -> bool:
        return "has minted reference" in json.dumps((await instance.status())["reasons"])

    await until(is_stopped, 60.0)
    assert "ltzd restore apply" in PAGE
    done = await ltzd("restore", "apply", "--data-dir", instance.data_dir)
    assert done.code == 0, done.err


async def ended_as(instance: Instance, wallet: str) -> set[str]:
    states = await instance.ask(
        "SELECT array_agg(DISTINCT state) FROM transactions WHERE wallet = $1", bytes_of(wallet)
    )
    return set(states)


async def only_the_thief_disagrees(instance: Instance) -> None:
    done = await ltzd("books", "--json", "--data-dir", instance.data_dir)
    kinds = [each["kind"] for each in json.loads(done.out)["disagreements"]]
    assert kinds == ["foreign_mint"], done.out


async def test_the_runbook_of_a_stolen_relay_key() -> None:
    async with (
        an_instance("--chain", "tester") as instance,
        relays_of(instance) as relays,
    ):
        chain, thief = relays.chain, thief_of(instance, "operator")
        runbook = Runbook(instance, thief.address)
        await runbook.prepare()
        users = await relays.users(3)
        for user in users:
            (await relays.relay(user, "PerkNFT", relays.claim(user))).assert_relayed()
        user = await relays.user()
        await chain.rpc("evm_setAutomine", False)
        claim = relays.claim(user)
        asking = asyncio.create_task(relays.relay(user, "PerkNFT", claim, key="stolen"))
        await until(lambda: is_published(instance))
        await steal_nonce(chain, thief, "LTZ", b"\x95\xd8\x9b\x41")
        await chain.rpc("evm_mine")
        await chain.rpc("evm_setAutomine", True)

        await runbook.follow("relay")
        async with finality(instance):
            await watched_to_the_end(instance, thief.address)
        await asyncio.gather(asking, return_exceptions=True)
        failed = await relays.relay(user, "PerkNFT", claim, key="stolen")
        assert (
            "nonce was used by another"
            in failed.assert_refused(500, "TRANSACTION_FAILED")["reason"]
        )
        await users_are_served(relays, user)
        sender = await instance.ask("SELECT wallet FROM transactions ORDER BY id DESC LIMIT 1")
        assert sender == bytes_of(runbook.new)


async def is_published(instance: Instance) -> bool:
    sql = "SELECT count(*) = 1 FROM transactions WHERE state = 'published' AND kind = 'relay'"
    return bool(await instance.ask(sql))


async def users_are_served(relays: Relays, *users: Any) -> None:
    for user in users:
        (await relays.relay(user, "PerkNFT", relays.claim(user))).assert_relayed()
