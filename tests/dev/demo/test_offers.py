"""The demo brand's offers exist once on the chain, also after an interrupted start."""

import json
from collections.abc import AsyncIterator
from importlib import resources
from typing import Any

import pytest_asyncio

from ltzd.chain.contracts import offers
from ltzd.chain.contracts.offers import OfferContracts, OfferReader
from ltzd.chain.signing import Signer
from ltzd.dev.demo import offers as demo_offers
from ltzd.rules.brands.configuration import Brand, parse_brand_file
from ltzd.values import checksummed, hex_of
from tests.support.chain.contracts import Contracts, Party, deployed_contracts
from tests.support.commands import ltzd
from tests.support.instances.instance import Instance


def the_brand() -> Brand:
    file = resources.files("ltzd.dev").joinpath("demo/brand.toml")
    return parse_brand_file(file.read_text(encoding="utf-8"), "brand.toml")


@pytest_asyncio.fixture
async def contracts() -> AsyncIterator[Contracts]:
    """Contracts of this test alone: a fresh PerkNFT numbers collections from 1."""
    async with deployed_contracts("anvil") as deployed:
        yield deployed


class Demo:
    def __init__(self, contracts: Contracts) -> None:
        at = contracts.at
        self._contracts = contracts
        self._at = OfferContracts(at["PerkNFT"], at["PointsSale"], at["BusinessEscrow"])
        self.business = Party()

    async def ensure(self) -> dict[str, Any]:
        registrar, business = self._contracts.registrar.signer, self.business.address
        return await demo_offers.ensure(
            self._contracts.rpc, self._at, registrar, the_brand(), business
        )

    async def sent(self) -> int:
        """The number of transactions of the registrar."""
        return await self._contracts.node.nonce(self._contracts.registrar.address)

    async def counts(self) -> tuple[int, int, int]:
        """The collections, items and businesses on the chain."""
        reader = OfferReader(self._contracts.rpc, self._at)
        businesses = await reader.businesses()
        return len(await reader.collections()), len(await reader.items()), len(businesses)


async def test_the_offers_are_what_the_choices_say_and_are_made_once(contracts: Contracts) -> None:
    demo = Demo(contracts)

    made = await demo.ensure()
    again = await demo.ensure()

    free, priced = made["collections"]
    assert (free["collectionId"], free["price"], free["maxPerUser"], free["charges"]) == (
        1,
        0,
        1,
        3,
    )
    assert (priced["collectionId"], priced["maxPerUser"], priced["charges"]) == (2, 2, 10)
    assert 0 < 2 * priced["price"] <= 100, "a user's first event pays for what he may claim"
    (item,) = made["items"]
    assert item.keys() == {"itemId", "perkId", "name", "price", "stock", "maxPerOrder"}
    assert made["businesses"] == [checksummed(demo.business.address)]
    assert json.loads(json.dumps(made)) == again
    assert (await demo.counts(), await demo.sent()) == ((2, 1, 1), 4)


async def test_every_perk_of_the_demo_brand_is_an_offer_of_its_own(contracts: Contracts) -> None:
    made, brand = await Demo(contracts).ensure(), the_brand()

    perks = {perk.id: perk for perk in brand.perks}
    shown = [*made["collections"], *made["items"]]
    assert [each["perkId"] for each in shown] == list(perks)
    assert [each["name"] for each in shown] == [perk.name for perk in perks.values()]
    info = await contracts.view("PerkNFT", "collection", 1)
    _, owner = await contracts.view("PointsSale", "item", 1)
    assert (info[0][0], owner) == (brand.address, brand.address)


async def test_a_start_killed_between_two_of_them_is_made_good(contracts: Contracts) -> None:
    demo, brand = Demo(contracts), the_brand()
    first, _ = demo_offers.collection_terms(brand.address)
    data = offers.create_collection(first)
    raw = await contracts.sign(contracts.registrar, contracts.at["PerkNFT"], data)
    await contracts.publish(raw)

    made = await demo.ensure()

    assert [each["collectionId"] for each in made["collections"]] == [1, 2]
    assert (await demo.counts(), await demo.sent()) == ((2, 1, 1), 4)


async def test_what_a_killed_start_has_under_way_is_waited_for(contracts: Contracts) -> None:
    """The collection must not be created twice, since a creation cannot be undone."""
    demo = Demo(contracts)
    first, _ = demo_offers.collection_terms(the_brand().address)
    raw = await contracts.sign(
        contracts.registrar, contracts.at["PerkNFT"], offers.create_collection(first)
    )
    await contracts.rpc.call("evm_setAutomine", False)
    await contracts.rpc.call("eth_sendRawTransaction", "0x" + raw.hex())
    await contracts.rpc.call("evm_setIntervalMining", 1)

    made = await demo.ensure()

    assert [each["collectionId"] for each in made["collections"]] == [1, 2]
    assert (await demo.counts(), await demo.sent()) == ((2, 1, 1), 4)


async def test_what_somebody_has_changed_stays_changed_and_is_told(contracts: Contracts) -> None:
    demo = Demo(contracts)
    await demo.ensure()
    change = (2, 3 * 10**18 // 2, 0, 5, True)
    await contracts.send(contracts.registrar, "PerkNFT", "updateCollection", *change)

    priced = (await demo.ensure())["collections"][1]

    assert (priced["price"], priced["maxPerUser"]) == (1.5, 5)
    assert await demo.sent() == 5


OFFERED = ("collections", "items", "businesses")


async def test_dev_json_tells_what_is_on_chain_and_the_brand_declares_it(
    instance: Instance,
) -> None:
    listed = (await ltzd("collection", "list", "--json", "--data-dir", instance.data_dir)).json
    items = (await ltzd("item", "list", "--json", "--data-dir", instance.data_dir)).json
    shown = await ltzd("brand", "show", "Demo", "--json", "--data-dir", instance.data_dir)

    expected = instance.dev_json
    assert [each["collectionId"] for each in expected["collections"]] == [1, 2]
    for each in expected["collections"]:
        on_chain = listed[each["collectionId"] - 1]
        assert {key: on_chain[key] for key in each if key in on_chain} == {
            key: value for key, value in each.items() if key in on_chain
        }
        assert on_chain["brand"].lower() == expected["brand"]["brandId"]
    assert items[0]["itemId"] == expected["items"][0]["itemId"] == 1
    perks = shown.json["configuration"]["perks"]
    assert [perk["id"] for perk in perks] == [
        each["perkId"] for each in [*expected["collections"], *expected["items"]]
    ]


async def test_a_killed_instance_finds_its_offers_again(one_instance: Instance) -> None:
    before = {name: one_instance.dev_json[name] for name in OFFERED}
    admin = await one_instance.rpc("eth_getTransactionCount", registrar(one_instance), "latest")
    await one_instance.kill9()

    await one_instance.start_again()

    assert {name: one_instance.dev_json[name] for name in OFFERED} == before
    assert admin == await one_instance.rpc(
        "eth_getTransactionCount", registrar(one_instance), "latest"
    )


def registrar(instance: Instance) -> str:
    """The admin wallet's address; its key is the instance's own."""
    path = instance.data_dir / "keys" / "admin"
    return hex_of(Signer(bytes.fromhex(path.read_text().strip())).address)
