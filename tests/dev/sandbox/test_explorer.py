"""The explorer's pages, served from a stub node with stored blocks."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import UUID

import aiohttp
import pytest
from aiohttp import web
from eth_hash.auto import keccak

from ltzd.dev.sandbox import Sandbox
from ltzd.values import LTZ, Address, address_of, checksummed, hex_of, reward_reference

OPERATOR = address_of("0x5aaeb6053f3e94c9b9a09f33669435e7ef1beaed")
USER = address_of("0xfb6916095ca1df60bb79ce92ce3ea74c37c5d359")
TOKEN = address_of("0xdbf03b407c01e7cd3cbea99509d93f8dddc8c6fb")
EVENT = UUID("7c0a3d5e-93b1-4f0e-9d5f-1a2b3c4d5e6f")
SCRIPT = "<script>alert(1)</script>"
MINTED = hex_of(keccak(b"RewardMinted(address,bytes32,uint256)"))
SKIPPED = hex_of(keccak(b"RewardSkipped(address,bytes32,uint256)"))

Json = dict[str, Any]


class Node:
    """Stores one block per transaction, as JSON-RPC objects."""

    def __init__(self) -> None:
        self.blocks: list[Json] = []
        self.transactions: dict[str, Json] = {}
        self.receipts: dict[str, Json] = {}
        self.nonsense: object = None
        self.add_block()

    def add_block(self, *transactions: Json) -> Json:
        number = len(self.blocks)
        block = {
            "number": hex(number),
            "hash": "0x" + f"{number:064x}",
            "parentHash": "0x" + "00" * 32,
            "timestamp": hex(1_800_000_000 + number),
            "gasUsed": "0x5208",
            "transactions": list(transactions),
        }
        self.blocks.append(block)
        return block

    def send(self, to: str | None = None, **other: object) -> str:
        tx_hash = hex_of(keccak(str(len(self.transactions)).encode()))
        self.transactions[tx_hash] = {
            "hash": tx_hash,
            "from": hex_of(OPERATOR),
            "to": hex_of(TOKEN) if to is None else to,
            "nonce": hex(len(self.transactions)),
            "value": "0x0",
            "gas": "0x30d40",
            "input": "0x12345678",
            "blockNumber": None,
            **other,
        }
        return tx_hash

    def mine(self, tx_hash: str, *logs: Json, status: str = "0x1") -> None:
        block = self.add_block(self.transactions[tx_hash])
        self.receipts[tx_hash] = {
            "transactionHash": tx_hash,
            "blockHash": block["hash"],
            "blockNumber": block["number"],
            "gasUsed": "0x5208",
            "effectiveGasPrice": "0x3b9aca00",
            "status": status,
            "contractAddress": None,
            "logs": [{**log, "transactionHash": tx_hash} for log in logs],
        }

    async def answer(self, request: web.Request) -> web.Response:
        call = await request.json()
        result = self.nonsense or getattr(self, call["method"])(*call["params"])
        return web.json_response({"jsonrpc": "2.0", "id": call["id"], "result": result})

    def eth_blockNumber(self) -> str:  # noqa: N802
        return hex(len(self.blocks) - 1)

    def eth_chainId(self) -> str:  # noqa: N802
        return hex(31337)

    def eth_getTransactionByHash(self, tx_hash: str) -> Json | None:  # noqa: N802
        return self.transactions.get(tx_hash)

    def eth_getTransactionReceipt(self, tx_hash: str) -> Json | None:  # noqa: N802
        return self.receipts.get(tx_hash)

    def eth_getBlockByNumber(self, number: str, whole: bool) -> Json | None:  # noqa: N802
        place = int(number, 16)
        if place >= len(self.blocks):
            return None
        block = self.blocks[place]
        hashes = [transaction["hash"] for transaction in block["transactions"]]
        return block if whole else {**block, "transactions": hashes}

    def eth_getBalance(self, _address: str, _block: str) -> str:  # noqa: N802
        return hex(12345)

    def eth_getTransactionCount(self, _address: str, _block: str) -> str:  # noqa: N802
        return "0x2"

    def eth_getCode(self, address: str, _block: str) -> str:  # noqa: N802
        return "0x6001" if address == hex_of(TOKEN) else "0x"

    def eth_call(self, call: Json, _block: str) -> str:
        assert call["to"] == hex_of(TOKEN)
        return hex_of((1_234 * LTZ + LTZ // 2).to_bytes(32, "big"))

    def eth_getLogs(self, query: Json) -> list[Json]:  # noqa: N802
        logs = [log for receipt in self.receipts.values() for log in receipt["logs"]]
        return [log for log in logs if log["topics"][:2][1] == query["topics"][1]]


def a_reward(
    amount: int = 250 * LTZ, to: Address = USER, by: Address = TOKEN, topic: str = MINTED
) -> Json:
    reference = reward_reference(EVENT, 1, 42)
    return {
        "address": hex_of(by),
        "topics": [topic, hex_of(bytes(12) + to), hex_of(reference)],
        "data": hex_of(amount.to_bytes(32, "big")),
    }


@pytest.fixture
async def node() -> AsyncIterator[Node]:
    node = Node()
    application = web.Application()
    application.router.add_post("/", node.answer)
    runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    node.url = f"http://127.0.0.1:{runner.addresses[0][1]}"  # type: ignore[attr-defined]
    yield node
    await runner.cleanup()


@pytest.fixture
async def browser(tmp_path: Path, node: Node) -> AsyncIterator["Browser"]:
    sandbox = Sandbox(tmp_path, 0, node.url, TOKEN)  # type: ignore[attr-defined]
    await sandbox.start()
    async with aiohttp.ClientSession() as session:
        yield Browser(session, sandbox.explorer_url)
    await sandbox.stop()


class Browser:
    def __init__(self, session: aiohttp.ClientSession, base: str) -> None:
        self._session = session
        self._base = base

    async def open(self, path: str) -> tuple[int, str]:
        async with self._session.get(self._base + path) as response:
            assert response.content_type == "text/html"
            assert "default-src 'none'" in response.headers["Content-Security-Policy"]
            return response.status, await response.text()


async def test_a_mined_reward_is_shown_with_recipient_amount_and_reference(
    node: Node, browser: Browser
) -> None:
    tx_hash = node.send()
    node.mine(tx_hash, a_reward(250 * LTZ + LTZ // 4))
    node.add_block()

    status, page = await browser.open(f"/tx/{tx_hash.upper().replace('0X', '0x')}")

    assert status == 200
    assert "Success" in page
    assert "250.25 LTZ" in page
    assert "(depth 2)" in page
    for part in (checksummed(USER), checksummed(OPERATOR), str(EVENT), ">42<"):
        assert part in page


async def test_only_ltz_itself_can_show_a_reward(node: Node, browser: Browser) -> None:
    tx_hash = node.send()
    node.mine(
        tx_hash, a_reward(by=USER), {**a_reward(), "data": "0x12"}, {**a_reward(), "topics": []}
    )

    _, page = await browser.open(f"/tx/{tx_hash}")

    assert "250 LTZ" not in page


async def test_a_skipped_reward_is_not_shown_as_minted(node: Node, browser: Browser) -> None:
    tx_hash = node.send()
    node.mine(tx_hash, a_reward(topic=SKIPPED))

    _, page = await browser.open(f"/tx/{tx_hash}")

    assert "skipped" in page
    assert ">minted<" not in page


async def test_a_reverted_and_a_waiting_transaction_say_so(node: Node, browser: Browser) -> None:
    reverted, waiting = node.send(), node.send()
    node.mine(reverted, status="0x0")

    assert "Reverted" in (await browser.open(f"/tx/{reverted}"))[1]
    assert "Pending" in (await browser.open(f"/tx/{waiting}"))[1]


@pytest.mark.parametrize("given", ["0x" + "ab" * 32, "0x12", "nonsense", "0x" + "zz" * 32])
async def test_an_unknown_transaction_is_a_404_in_words(browser: Browser, given: str) -> None:
    status, page = await browser.open(f"/tx/{given}")

    assert status == 404
    assert "No such transaction" in page


async def test_an_address_shows_its_balances_and_rewards(node: Node, browser: Browser) -> None:
    tx_hash = node.send()
    node.mine(tx_hash, a_reward(77 * LTZ), a_reward(5 * LTZ, to=OPERATOR))

    status, page = await browser.open(f"/address/{checksummed(USER)}")

    assert status == 200
    for part in ("1,234.5 LTZ", "12345 wei", "77 LTZ", tx_hash, "Account"):
        assert part in page
    assert "5 LTZ <" not in page.replace("1,234.5 LTZ", "")
    assert "Contract" in (await browser.open(f"/address/{hex_of(TOKEN)}"))[1]
    assert (await browser.open("/address/0x12"))[0] == 404


async def test_recent_blocks_and_a_blocks_transactions_are_listed(
    node: Node, browser: Browser
) -> None:
    tx_hash = node.send()
    node.mine(tx_hash)
    for _ in range(30):
        node.add_block()

    status, page = await browser.open("/")
    assert status == 200
    assert "head at block 31" in page
    assert page.count("/explorer/block/") == 20
    assert (await browser.open(""))[0] == 200

    assert tx_hash in (await browser.open("/block/1"))[1]
    for number in ("99", "x", "-1", "%C2%B2", "9" * 30):
        assert (await browser.open(f"/block/{number}"))[0] == 404


async def test_what_the_node_sends_is_never_taken_for_html(node: Node, browser: Browser) -> None:
    tx_hash = node.send(to=SCRIPT, input=SCRIPT, **{"from": f'"{SCRIPT}'})
    node.mine(tx_hash)
    node.receipts[tx_hash]["blockHash"] = SCRIPT
    node.blocks[-1]["hash"] = SCRIPT
    node.blocks[-1]["parentHash"] = SCRIPT

    for path in (f"/tx/{tx_hash}", "/", "/block/1", f"/tx/{SCRIPT}", f"/{SCRIPT}"):
        _, page = await browser.open(path)
        assert "<script" not in page
        assert "http:" not in page
        assert "https:" not in page


async def test_a_silent_or_senseless_node_is_told_in_words(
    tmp_path: Path, node: Node, browser: Browser
) -> None:
    tx_hash = node.send()
    answers: list[object] = [7, "x", {"a": 1}, [[]]]
    for nonsense in answers:
        node.nonsense = nonsense
        for path in ("/", f"/tx/{tx_hash}", "/block/0", f"/address/{hex_of(USER)}"):
            status, page = await browser.open(path)
            assert status == 502
            assert "The node cannot be read" in page

    sandbox = Sandbox(tmp_path / "other", 0, "http://127.0.0.1:1", None)
    await sandbox.start()
    async with aiohttp.ClientSession() as session:
        assert (await Browser(session, sandbox.explorer_url).open("/"))[0] == 502
    await sandbox.stop()
