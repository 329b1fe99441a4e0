"""`ltzd collection`, `ltzd item`, `ltzd business`: changes are sent once or printed, and listed."""

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from eth_account import Account

from ltzd.chain.contracts.offers import OfferContracts, OfferReader
from ltzd.chain.node.rpc import Rpc, RpcError
from ltzd.values import bytes_of, checksummed, hex_of
from tests.support.chain.contracts import Contracts, Party, deployed_contracts
from tests.support.commands import Outcome, ltzd
from tests.support.ports import free_port
from tests.support.secret_files import write_secret

MOST = "79228162514.264337593543950335"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def contracts() -> AsyncIterator[Contracts]:
    async with deployed_contracts("anvil") as deployed:
        yield deployed


class RegistrarCli:
    """Runs commands beside a dev.json that names the contracts, and holds the registrar's key."""

    def __init__(self, folder: Path, contracts: Contracts) -> None:
        self.folder = folder
        self.contracts = contracts
        self.key = self.key_of(contracts.registrar)
        at = {name: checksummed(address) for name, address in contracts.at.items()}
        write_secret(
            folder / "dev.json",
            json.dumps({"rpcUrl": contracts.rpc.url, "chainId": 31337, "contracts": at}),
        )

    def key_of(self, party: Party) -> Path:
        path = self.folder / hex_of(party.address)
        write_secret(path, bytes(party.account.key).hex())
        return path

    async def __call__(self, *arguments: object) -> Outcome:
        return await ltzd(*arguments, "--data-dir", self.folder)

    async def signed(self, *arguments: object) -> Any:
        """The JSON output of a command that the registrar signs."""
        return (await self(*arguments, "--key", self.key)).json

    async def nonce(self) -> int:
        return await self.contracts.node.nonce(self.contracts.registrar.address, "pending")

    async def listed(self, offer: str, key: str, id_: object) -> Any:
        rows = (await self(offer, "list", "--json")).json
        (row,) = [row for row in rows if row[key] == id_]
        return row


@pytest.fixture
def cli(tmp_path: Path, contracts: Contracts) -> RegistrarCli:
    return RegistrarCli(tmp_path, contracts)


def a_wallet() -> str:
    return checksummed(Party().address)


def without_transaction(result: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in result.items() if not key.startswith(("trans", "block"))}


# Collections


async def test_a_collection_is_created_as_told_and_listed(cli: RegistrarCli) -> None:
    brand, payout = a_wallet(), a_wallet()
    values = ("--brand", brand, "--payout", payout, "--price", MOST, "--max-supply", 7)
    more = ("--max-per-user", 2, "--charges", 65_535, "--uri", "ipfs://x/", "--requires-sig")

    made = await cli.signed("collection", "create", *values, *more, "--inactive")

    receipt = await cli.contracts.rpc.call("eth_getTransactionReceipt", made["transactionHash"])
    assert int(receipt["blockNumber"], 16) == made["blockNumber"]
    assert without_transaction(made) == {
        "collectionId": made["collectionId"],
        "brand": brand,
        "payout": payout,
        "price": float(MOST),
        "maxSupply": 7,
        "maxPerUser": 2,
        "charges": 65_535,
        "active": False,
        "requiresSig": True,
        "uri": "ipfs://x/",
        "minted": 0,
    }
    listed = await cli.listed("collection", "collectionId", made["collectionId"])
    assert listed == without_transaction(made)
    info = await cli.contracts.view("PerkNFT", "collection", made["collectionId"])
    assert info[0][2] == 2**96 - 1


async def test_a_collection_without_further_words_is_free_once_per_user_and_pays_its_brand(
    cli: RegistrarCli,
) -> None:
    brand = a_wallet()

    made = await cli.signed("collection", "create", "--brand", brand.lower(), "--charges", 0)

    assert (made["payout"], made["price"], made["maxPerUser"]) == (brand, 0, 1)
    assert (made["maxSupply"], made["active"], made["requiresSig"]) == (0, True, False)


async def test_a_collections_change_is_one_transaction_and_the_same_again_none(
    cli: RegistrarCli,
) -> None:
    made = await cli.signed("collection", "create", "--brand", a_wallet(), "--charges", 1)
    id_, payout, before = made["collectionId"], a_wallet(), await cli.nonce()
    brand = a_wallet()
    terms = ("--price", "0.5", "--payout", payout, "--brand", brand, "--inactive")
    change = ("collection", "set", id_, *terms)

    changed = await cli.signed(*change)
    again = await cli(*change, "--key", cli.key)

    assert without_transaction(changed) == without_transaction(made) | {
        "brand": brand,
        "price": 0.5,
        "payout": payout,
        "active": False,
    }
    assert without_transaction(changed) == await cli.listed("collection", "collectionId", id_)
    assert again.json == changed | {"transactionHash": None, "blockNumber": None}
    assert "Nothing changes" in again.err
    assert (await cli(*change, "--unsigned")).json == again.json
    assert await cli.nonce() == before + 1
    back = await cli.signed("collection", "set", id_, "--active")
    assert (back["price"], back["payout"], back["active"]) == (0.5, payout, True)


async def test_a_collection_that_there_is_not_cannot_be_set(cli: RegistrarCli) -> None:
    done = await cli("collection", "set", 10**12, "--price", 1, "--key", cli.key)

    assert (done.code, done.out) == (1, "")
    assert "There is no collection 1000000000000" in done.err


# Items


async def test_an_item_is_put_up_changed_and_listed(cli: RegistrarCli) -> None:
    brand, payout, metadata = a_wallet(), a_wallet(), "0x" + "5a" * 32
    made = await cli.signed(
        *("item", "create", 7, "--brand", brand, "--stock", 4, "--price", "2.5"),
        *("--max-per-order", 3, "--metadata", metadata, "--burns"),
    )
    assert without_transaction(made) == {
        "itemId": 7,
        "brand": brand,
        "payout": brand,
        "price": 2.5,
        "stock": 4,
        "sold": 0,
        "maxPerOrder": 3,
        "active": True,
        "burns": True,
    }

    changed = await cli.signed(
        "item", "set", 7, "--stock", 9, "--payout", payout, "--pays", "--inactive"
    )

    assert without_transaction(changed) == without_transaction(made) | {
        "stock": 9,
        "payout": payout,
        "burns": False,
        "active": False,
    }
    assert await cli.listed("item", "itemId", 7) == without_transaction(changed)
    receipt = await cli.contracts.rpc.call("eth_getTransactionReceipt", changed["transactionHash"])
    event = cli.contracts.event("PointsSale", receipt, "ItemSet")
    assert event["metadata"] == bytes_of(metadata)


async def test_an_item_is_created_once_and_what_was_sold_stays_sold(cli: RegistrarCli) -> None:
    contracts, user = cli.contracts, Party()
    create = ("item", "create", 8, "--brand", a_wallet(), "--stock", 4)
    await cli.signed(*create)
    order = (user.address, 8, 2, 0, bytes(32))
    await contracts.send(contracts.relay, "PointsSale", "buyFor", *order)
    before = await cli.nonce()

    again = await cli(*create, "--key", cli.key)
    too_few = await cli("item", "set", 8, "--stock", 1, "--key", cli.key)

    assert "Item 8 exists already; `ltzd item set` changes it." in again.err
    assert "StockBelowSold(id: 8, sold: 2): more than that stock is sold already" in too_few.err
    assert (again.code, too_few.code, await cli.nonce()) == (1, 1, before)
    assert (await cli.signed("item", "set", 8, "--stock", 2))["sold"] == 2


# Businesses


async def test_a_business_is_approved_and_revoked_once_each(cli: RegistrarCli) -> None:
    business, before = a_wallet(), await cli.nonce()

    approved = await cli.signed("business", "create", business)
    again = await cli.signed("business", "set", business, "--approved")
    assert (approved["business"], approved["approved"]) == (business, True)
    assert again["transactionHash"] is None
    assert (await cli.listed("business", "business", business))["approved"]

    await cli.signed("business", "set", business, "--revoked")
    assert not (await cli.listed("business", "business", business))["approved"]
    assert await cli.nonce() == before + 2
    table = (await cli("business", "list")).out
    assert f"{business}  no" in table


# Refusals


@pytest.mark.parametrize(
    ("arguments", "faults"),
    [
        (
            ("collection", "create"),
            [
                "--key, --unsigned: give exactly one of them",
                "--brand: is missing",
                "--charges: is missing",
            ],
        ),
        (
            (
                *("collection", "create", "--unsigned", "--key", "k", "--from", "0x1"),
                *("--brand", "0x12", "--payout", "0x" + "00" * 20, "--price", "1e3"),
                *("--max-supply", 2**32, "--max-per-user", 65_536, "--charges", "1.0"),
                *("--uri", "a\nb"),
            ),
            [
                "--key, --unsigned: give exactly one of them",
                "--from: must be an address: 0x and 40 hex digits",
                "--brand: must be an address: 0x and 40 hex digits",
                "--payout: must not be the zero address",
                "--price: must be an amount of LTZ in digits, such as 12 or 12.5",
                "--max-supply: must be at most 4294967295",
                "--max-per-user: must be at most 65535",
                "--charges: must be a whole number",
                "--uri: must not hold control characters",
            ],
        ),
        (
            ("collection", "set", "0", "--unsigned", "--price", "79228162514.264337593543950336"),
            [
                "COLLECTION: must be at least 1",
                f"--price: must be at most {MOST} LTZ",
            ],
        ),
        (
            ("collection", "set", "1", "--unsigned"),
            ["no change is given: name at least one option to change"],
        ),
        (
            ("item", "create", "x", "--unsigned", "--metadata", "0x12", "--stock", "-1"),
            [
                "ITEM: must be a whole number",
                "--brand: is missing",
                "--stock: must be a whole number",
                "--metadata: must be 0x and 64 hex digits",
            ],
        ),
        (
            ("business", "create", "0xDB90d3E3eE8E1e9F5EdF4fB6F23e2bb6f47C1Aab", "--unsigned"),
            ["ADDRESS: has a wrong checksum (EIP-55): look for a typing mistake"],
        ),
        (
            ("item", "set", "1", "--unsigned", "--price", "1." + "0" * 18 + "1", "--from", "me"),
            ["--from: must be an address: 0x and 40 hex digits", "--price: must have at most 18"],
        ),
    ],
)
async def test_every_fault_of_the_options_is_told_at_once(
    cli: RegistrarCli, arguments: tuple[object, ...], faults: list[str]
) -> None:
    done = await cli(*arguments)

    assert (done.code, done.out) == (1, "")
    lines = [line.strip() for line in done.err.splitlines()[1:]]
    assert len(lines) == len(faults)
    assert all(any(line.startswith(fault) for line in lines) for fault in faults), lines


async def test_a_key_without_the_role_is_refused_in_words_and_sends_nothing(
    cli: RegistrarCli,
) -> None:
    stranger = Party()
    create = ("collection", "create", "--brand", a_wallet(), "--charges", 1)

    done = await cli(*create, "--key", cli.key_of(stranger))

    assert (done.code, done.out) == (1, "")
    assert "nothing was sent: AccessControlUnauthorizedAccount" in done.err
    assert "that wallet does not hold REGISTRAR on this contract." in done.err
    assert "Sending" not in done.err


async def test_a_keystore_is_opened_with_its_password_file(cli: RegistrarCli) -> None:
    keystore, password = cli.folder / "keystore.json", cli.folder / "password"
    secret = bytes(cli.contracts.registrar.account.key)
    write_secret(
        keystore, json.dumps(Account.encrypt(secret, "open sesame", kdf="pbkdf2", iterations=1))
    )
    write_secret(password, "open sesame\n")
    create = ("business", "create", a_wallet(), "--key", keystore)

    closed = await cli(*create)
    opened = await cli(*create, "--password-file", password)

    assert "is encrypted; name its password's file too" in closed.err
    assert opened.json["approved"]


async def test_addresses_without_code_and_a_node_that_is_away_are_sentences(
    cli: RegistrarCli,
) -> None:
    dev = json.loads((cli.folder / "dev.json").read_text())
    create = ("collection", "create", "--brand", a_wallet(), "--charges", 1, "--key", cli.key)
    nowhere = dev | {"contracts": dev["contracts"] | {"PerkNFT": a_wallet()}}
    (cli.folder / "dev.json").write_text(json.dumps(nowhere))
    at_nowhere, listed = await cli(*create), await cli("collection", "list")
    away = dev | {"rpcUrl": f"http://127.0.0.1:{free_port()}"}
    (cli.folder / "dev.json").write_text(json.dumps(away))
    without_node = await cli("item", "list")
    (cli.folder / "dev.json").write_text("{}")
    malformed = await cli("business", "list")

    assert "There is no contract at 0x" in at_nowhere.err
    assert "is that contract at this address?" in listed.err
    assert "No connection to the node: connection refused" in without_node.err
    assert "is malformed" in malformed.err
    assert {at_nowhere.code, listed.code, without_node.code, malformed.code} == {1}


# For a multisig


async def test_an_unsigned_transaction_is_printed_and_does_what_it_says_once_sent(
    cli: RegistrarCli,
) -> None:
    contracts, brand = cli.contracts, a_wallet()
    before = await cli.nonce()
    create = ("item", "create", 9, "--brand", brand, "--stock", 4, "--unsigned")

    printed = (await cli(*create)).json

    assert printed == {
        "chainId": contracts.chain_id,
        "to": checksummed(contracts.at["PointsSale"]),
        "data": printed["data"],
        "value": "0x0",
    }
    assert await cli.nonce() == before
    raw = await contracts.sign(
        contracts.registrar, contracts.at["PointsSale"], bytes_of(printed["data"])
    )
    assert (await contracts.publish(raw))["status"] == "0x1"
    listed = await cli.listed("item", "itemId", 9)
    assert (listed["brand"], listed["stock"]) == (brand, 4)


async def test_an_unsigned_transaction_is_tried_out_for_whoever_will_send_it(
    cli: RegistrarCli,
) -> None:
    registrar, stranger = checksummed(cli.contracts.registrar.address), a_wallet()
    approve = ("business", "create", a_wallet(), "--unsigned", "--from")

    tried, refused = await cli(*approve, registrar), await cli(*approve, stranger)

    assert tried.json["from"] == registrar
    assert "AccessControlUnauthorizedAccount" in refused.err
    assert (refused.code, refused.out) == (1, "")


# Reading


class LimitedRpc(Rpc):
    """A node that refuses to return the logs of more than three blocks."""

    async def call(self, method: str, *params: Any) -> Any:
        if method == "eth_getLogs":
            span = int(params[0]["toBlock"], 16) - int(params[0]["fromBlock"], 16)
            if span >= 3:
                raise RpcError(-32005, "query returned more than 10000 results")
        return await super().call(method, *params)


async def test_logs_are_asked_for_by_halves_where_a_node_gives_few(cli: RegistrarCli) -> None:
    businesses = [a_wallet() for _ in range(5)]
    for business in businesses:
        await cli.signed("business", "create", business)
    at = cli.contracts.at
    where = OfferContracts(at["PerkNFT"], at["PointsSale"], at["BusinessEscrow"])

    async with LimitedRpc(cli.contracts.rpc.url) as rpc:
        listed = await OfferReader(rpc, where).businesses()

    assert [checksummed(address) for address in listed][-5:] == businesses


async def test_the_settings_name_node_and_contracts_too(cli: RegistrarCli, tmp_path: Path) -> None:
    write_secret(tmp_path / "master.key", "11" * 32)
    at = {name: checksummed(address) for name, address in cli.contracts.at.items()}
    settings = tmp_path / "ltzd.toml"
    write_secret(
        settings,
        f"""
        database_url = "postgresql://ltzd@db.internal/ltzd"
        master_key_file = "{tmp_path / "master.key"}"
        roles = ["http"]
        [node]
        rpc_url = "{cli.contracts.rpc.url}"
        [contracts]
        ltz = "{at["LTZ"]}"
        perk_nft = "{at["PerkNFT"]}"
        points_sale = "{at["PointsSale"]}"
        business_escrow = "{at["BusinessEscrow"]}"
        first_block = 0
        [identity]
        base_url = "https://identity.example"
        app_id = "id"
        app_secret = "secret"
        """,
    )

    created = await ltzd(
        "business", "create", (business := a_wallet()), "--key", cli.key, "--config", settings
    )
    listed = await ltzd("business", "list", "--json", "--config", settings)

    assert created.json["approved"]
    assert {"business": business, "approved": True} in listed.json
