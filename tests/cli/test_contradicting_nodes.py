"""Commands that sign with a person's key believe no single node of several, not even the first."""

import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from ltzd.chain.contracts import access_control
from ltzd.chain.deployment import agreement
from ltzd.store.encryption.sealing import Sealer
from ltzd.values import checksummed, hex_of
from tests.support.chain.contracts import Contracts, Party, deployed_contracts
from tests.support.chain.faulty_node.faults import Faults
from tests.support.chain.faulty_node.lies import Lie, another_chain_id
from tests.support.chain.faulty_node.node import FaultyNode, a_faulty_node
from tests.support.commands import Outcome, ltzd
from tests.support.secret_files import write_secret

HAS_ROLE = hex_of(access_control.has_role_call("MINTER", Party().address)[:4])
FALSE, TRUE = (f"0x{value:064x}" for value in (0, 1))
SETTINGS = """\
database_url = "postgresql://nobody@127.0.0.1:1/none"
master_key_file = "{master_key}"
roles = ["http"]
[node]
urls = ["{first}", "{second}"]
chain_id = 31337
[contracts]
ltz = "{LTZ}"
perk_nft = "{PerkNFT}"
points_sale = "{PointsSale}"
business_escrow = "{BusinessEscrow}"
first_block = 0
[identity]
kind = "oidc"
issuer = "https://login.example/"
audience = "ltzd"
"""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def contracts() -> AsyncIterator[Contracts]:
    async with deployed_contracts("anvil") as deployed:
        yield deployed


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def liar(contracts: Contracts) -> AsyncIterator[FaultyNode]:
    async with a_faulty_node(contracts.rpc.url) as node:
        yield node


class Commands:
    """Runs commands with settings whose first node may lie."""

    def __init__(self, folder: Path, contracts: Contracts, liar: FaultyNode) -> None:
        self.folder, self.contracts, self.liar = folder, contracts, liar
        Sealer.from_file(folder / "master.key", create=True)
        at = {name: checksummed(address) for name, address in contracts.at.items()}
        urls = {"first": liar.url, "second": contracts.rpc.url}
        settings = SETTINGS.format(master_key=folder / "master.key", **urls, **at)
        write_secret(folder / "ltzd.toml", settings)

    async def __call__(self, by: Party, *arguments: object) -> Outcome:
        key = write_secret(self.folder / hex_of(by.address), bytes(by.account.key).hex())
        return await ltzd(*arguments, "--key", key, "--config", self.folder / "ltzd.toml")

    def lie(self, lie: Lie) -> None:
        self.liar.faults = Faults(lies=(lie,))

    async def a_collection(self, payout: Party) -> Any:
        """The id of a new collection that pays `payout`."""
        terms = ("--brand", checksummed(payout.address), "--charges", 1, "--price", 5)
        done = await self(self.contracts.registrar, "collection", "create", *terms)
        return done.json["collectionId"]

    async def payout_of(self, collection: object) -> Any:
        return (await self.contracts.view("PerkNFT", "collection", collection))[0][1]


@pytest.fixture
def commands(
    tmp_path: Path, contracts: Contracts, liar: FaultyNode, monkeypatch: pytest.MonkeyPatch
) -> Commands:
    monkeypatch.setattr(agreement, "_LAG_SECONDS", 0.2)
    liar.heal()
    liar.forget()
    return Commands(tmp_path, contracts, liar)


def answering(selector: str, value: str) -> Lie:
    """Every call of this function returns the value."""

    def lie(method: str, params: Sequence[Any], result: Any) -> Any:
        is_it = method == "eth_call" and params[0].get("data", "").startswith(selector)
        return value if is_it else result

    return lie


async def test_a_node_that_shows_another_payout_does_not_have_it_set(commands: Commands) -> None:
    """A change of the price writes the other terms as they were read."""
    owner, thief = Party(), Party()
    id_ = await commands.a_collection(owner)

    def lie(method: str, _params: Sequence[Any], result: Any) -> Any:
        shown, instead = owner.address.hex(), thief.address.hex()
        return result.replace(shown, instead) if method == "eth_call" else result

    commands.lie(lie)
    done = await commands(commands.contracts.registrar, "collection", "set", id_, "--price", 7)
    listed = await ltzd("collection", "list", "--config", commands.folder / "ltzd.toml")

    assert done.code == 1
    assert f"contradict each other about collection {id_}" in done.err
    assert commands.liar.url.removeprefix("http://") in done.err
    assert await commands.payout_of(id_) == owner.address
    assert (listed.code, listed.out) == (1, "")
    assert "contradict each other about the collections" in listed.err


async def test_roles_that_a_node_hides_are_revoked_all_the_same(commands: Commands) -> None:
    contracts = commands.contracts
    commands.lie(answering(HAS_ROLE, FALSE))

    done = await commands(
        contracts.admin, "wallet", "revoke", checksummed(contracts.relay.address), "--json"
    )

    assert len(done.json["revoked"]) == 4
    commands.liar.heal()
    again = await commands(
        contracts.admin, "wallet", "revoke", checksummed(contracts.relay.address), "--json"
    )
    assert again.json["revoked"] == []


async def test_roles_that_a_node_invents_are_granted_all_the_same(commands: Commands) -> None:
    contracts, wallet = commands.contracts, Party()
    text = checksummed(wallet.address)
    grant = ("wallet", "grant", text, "--kind", "relay", "--json")

    commands.lie(answering(HAS_ROLE, TRUE))
    refused = await commands(contracts.admin, *grant)
    assert refused.code == 1
    assert "Whether the wallet is retired was not checked: The database none at" in refused.err
    assert "has LTZ.MINTER" in refused.err

    def lie(method: str, params: Sequence[Any], result: Any) -> Any:
        of_ltz = method == "eth_call" and params[0]["to"] == hex_of(contracts.at["LTZ"])
        return result if of_ltz else answering(HAS_ROLE, TRUE)(method, params, result)

    commands.lie(lie)
    assert len((await commands(contracts.admin, *grant)).json["granted"]) == 4


async def test_nothing_is_signed_for_the_chain_that_a_node_names(commands: Commands) -> None:
    """Contracts of the same deployer have the same addresses on another chain."""
    commands.lie(another_chain_id(8453))

    done = await commands(
        commands.contracts.registrar, "business", "create", checksummed(Party().address)
    )

    assert done.code == 1
    assert re.search(r"is on chain 8453, not on 31337: .* Nothing was sent", done.err)
    assert commands.liar.called["eth_sendRawTransaction"] == 0
