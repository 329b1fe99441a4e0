"""Each fault of the faulty node is real: it is seen by a client, and gone after it is healed.

The faults are those that `tests/support/chain/faulty_node` offers to tests; the chain is real.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from ltzd.dev.services.chain import Kind
from tests.support.chain.chains import a_chain
from tests.support.chain.faulty_node import lies, refusals
from tests.support.chain.faulty_node.faults import Faults
from tests.support.chain.faulty_node.lies import Lie
from tests.support.chain.faulty_node.node import FaultyNode, a_faulty_node
from tests.support.chain.faulty_node.refusals import Limits, Refusal
from tests.support.chain.tester import EMITTER, Rpc, RpcRefusedError, Wallet
from tests.support.waiting import until

SHORTLY = 0.3
"""Seconds in which an answer would have come."""

TRANSFER = "0x" + "11" * 20


@dataclass
class Site:
    """A chain, a faulty node in front of it, and a client of each."""

    kind: Kind
    chain: Rpc
    node: FaultyNode
    client: Rpc

    async def mine(self, blocks: int = 1) -> None:
        for _ in range(blocks):
            await self.chain("evm_mine")

    async def batch(self, *methods: str) -> Any:
        """A batch of calls without parameters, with ids from 0."""
        calls = enumerate(methods)
        return await self.client.post(
            [{"jsonrpc": "2.0", "id": id_, "method": each, "params": []} for id_, each in calls]
        )

    async def sent(self, wallet: Wallet) -> str:
        """The hash of a mined transfer."""
        sender = {"from": await self.chain.dev_account(), "to": wallet.address, "value": "0x1"}
        transaction = str(await self.chain("eth_sendTransaction", sender))
        await self.chain.receipt(transaction)
        return transaction


class Sites:
    def __init__(self, stack: AsyncExitStack, http: aiohttp.ClientSession) -> None:
        self._stack = stack
        self._http = http
        self._by_kind: dict[Kind, Site] = {}

    async def of(self, kind: Kind) -> Site:
        if kind not in self._by_kind:
            chain = await self._stack.enter_async_context(a_chain(kind))
            node = await self._stack.enter_async_context(a_faulty_node(chain.rpc_url))
            rpc = Rpc(chain.rpc_url, self._http)
            self._by_kind[kind] = Site(kind, rpc, node, Rpc(node.url, self._http))
        return self._by_kind[kind]


@pytest_asyncio.fixture(scope="module")
async def sites() -> AsyncIterator[Sites]:
    async with AsyncExitStack() as stack:
        connector = aiohttp.TCPConnector(limit=0)
        http = await stack.enter_async_context(aiohttp.ClientSession(connector=connector))
        yield Sites(stack, http)


@pytest_asyncio.fixture(params=["tester", "anvil"])
async def site(request: pytest.FixtureRequest, sites: Sites) -> AsyncIterator[Site]:
    site = await sites.of(request.param)
    yield site
    site.node.heal()


@pytest_asyncio.fixture
async def a_site(sites: Sites) -> AsyncIterator[Site]:
    """The site on anvil, for faults that do not depend on the chain."""
    site = await sites.of("anvil")
    yield site
    site.node.heal()


async def answers_within(site: Site, seconds: float) -> bool:
    try:
        await asyncio.wait_for(site.client.number(), seconds)
    except TimeoutError:
        return False
    return True


# --- the connection -----------------------------------------------------------------------------


async def test_without_faults_the_node_answers_as_the_chain(site: Site) -> None:
    sent = await site.sent(Wallet())
    for method, *params in (
        ("eth_blockNumber",),
        ("eth_chainId",),
        ("eth_getBlockByNumber", "latest", True),
        ("eth_getTransactionReceipt", sent),
        ("eth_getTransactionCount", await site.chain.dev_account(), "latest"),
    ):
        assert await site.client(method, *params) == await site.chain(method, *params)
    with pytest.raises(RpcRefusedError):
        await site.client("eth_noSuchMethod")
    assert await site.batch("eth_chainId", "eth_noSuchMethod") != []
    assert site.node.called["eth_chainId"] >= 2
    assert site.node.longest_batch >= 2


async def test_a_hung_node_accepts_requests_and_never_answers(a_site: Site) -> None:
    a_site.node.faults = Faults(hung=True)
    before = a_site.node.called["eth_blockNumber"]
    assert not await answers_within(a_site, SHORTLY)
    assert a_site.node.called["eth_blockNumber"] == before + 1
    a_site.node.heal()
    assert await answers_within(a_site, 10)


async def test_a_dead_node_refuses_connections_until_it_is_back(a_site: Site) -> None:
    await a_site.node.cut()

    async def is_refused() -> bool:
        """The client's kept connections end first."""
        with pytest.raises(aiohttp.ClientError) as error:
            await a_site.client.number()
        return isinstance(error.value, aiohttp.ClientConnectorError)

    await until(is_refused)
    await a_site.node.connect()
    assert await a_site.client.number() == await a_site.chain.number()


async def test_of_a_lost_reply_the_chain_has_the_request(a_site: Site) -> None:
    wallet, head = Wallet(), await a_site.chain.number()
    sender = {"from": await a_site.chain.dev_account(), "to": wallet.address, "value": "0x1"}
    a_site.node.faults = Faults(lost=True)
    with pytest.raises(aiohttp.ClientError):
        await a_site.client("eth_sendTransaction", sender)

    async def is_mined() -> bool:
        return await a_site.chain.number() == head + 1

    await until(is_mined)


async def test_of_a_dropped_request_the_chain_has_nothing(a_site: Site) -> None:
    wallet, head = Wallet(), await a_site.chain.number()
    sender = {"from": await a_site.chain.dev_account(), "to": wallet.address, "value": "0x1"}
    a_site.node.faults = Faults(dropped=True)
    with pytest.raises(aiohttp.ClientError):
        await a_site.client("eth_sendTransaction", sender)
    assert await a_site.chain.number() == head


async def test_a_late_reply_comes_after_its_delay(a_site: Site) -> None:
    a_site.node.faults = Faults(late_seconds=SHORTLY)
    begun = time.monotonic()
    assert await answers_within(a_site, 10)
    assert time.monotonic() - begun >= SHORTLY


async def test_a_doubled_request_reaches_the_chain_twice(a_site: Site) -> None:
    wallet = await a_site.chain.funded()
    a_site.node.faults = Faults(doubled="request")
    raw = wallet.signed(0, chainId=int(await a_site.chain("eth_chainId"), 16))
    with pytest.raises(RpcRefusedError, match=r"(?i)nonce too low|already"):
        await a_site.client("eth_sendRawTransaction", raw)
    assert await a_site.chain("eth_getTransactionCount", wallet.address, "latest") == "0x1"


async def test_a_doubled_reply_is_twice_in_its_batch(a_site: Site) -> None:
    a_site.node.faults = Faults(doubled="reply")
    replies = await a_site.batch("eth_chainId", "eth_blockNumber")
    assert [reply["id"] for reply in replies] == [0, 0, 1, 1]


async def test_reordered_replies_come_in_the_opposite_order(a_site: Site) -> None:
    a_site.node.faults = Faults(reordered=True)
    replies = await a_site.batch("eth_chainId", "eth_blockNumber", "net_version")
    assert [reply["id"] for reply in replies] == [2, 1, 0]
    assert replies[2]["result"] == await a_site.chain("eth_chainId")


async def test_a_gzipped_answer_says_so(a_site: Site) -> None:
    a_site.node.faults = Faults(gzipped=True)
    request = {"jsonrpc": "2.0", "id": 1, "method": "eth_chainId", "params": []}
    async with a_site.client.http.post(a_site.node.url, json=request) as reply:
        assert reply.headers["Content-Encoding"] == "gzip"
        assert (await reply.json())["result"] == await a_site.chain("eth_chainId")


async def test_a_truncated_answer_is_no_json_or_ends_with_the_connection(a_site: Site) -> None:
    a_site.node.faults = Faults(truncated="text")
    with pytest.raises(json.JSONDecodeError):
        await a_site.client.number()
    a_site.node.faults = Faults(truncated="connection")
    with pytest.raises(aiohttp.ClientPayloadError):
        await a_site.client.number()


# --- refusals -----------------------------------------------------------------------------------


@pytest.mark.parametrize("wording", [*refusals.BUSY, "429 with a date"])
async def test_a_busy_node_refuses_every_request_in_its_wording(a_site: Site, wording: str) -> None:
    refusal = refusals.BUSY.get(wording) or refusals.retry_after_date(60)
    a_site.node.faults = Faults(refusal=refusal)
    status, headers, text = await posted(a_site, [call("eth_chainId")])
    assert status == refusal.status
    if wording == "429 with a date":
        assert parsedate_to_datetime(headers["Retry-After"]).timestamp() > time.time() + 30
    assert_worded(text, refusal)


@pytest.mark.parametrize("wording", refusals.BATCH_TOO_LARGE)
async def test_a_batch_above_the_limit_is_refused_and_another_is_not(
    a_site: Site, wording: str
) -> None:
    a_site.node.faults = Faults(limits=Limits(batch_items=100, batch_wording=wording))
    refusal = refusals.BATCH_TOO_LARGE[wording]
    status, _, text = await posted(a_site, [call("eth_chainId")] * 101)
    assert status == refusal.status
    assert_worded(text, refusal)
    status, _, text = await posted(a_site, [call("eth_chainId")] * 100)
    assert (status, len(json.loads(text))) == (200, 100)


async def test_a_body_above_the_limit_is_answered_413(a_site: Site) -> None:
    a_site.node.faults = Faults(limits=Limits(body_bytes=1_000))
    assert (await posted(a_site, [call("eth_chainId")] * 100))[0] == 413
    assert (await posted(a_site, [call("eth_chainId")] * 2))[0] == 200


@pytest.mark.parametrize("wording", refusals.RANGE_TOO_WIDE)
async def test_a_range_of_logs_above_the_limit_is_refused(a_site: Site, wording: str) -> None:
    a_site.node.faults = Faults(limits=Limits(log_blocks=10, range_wording=wording))
    with pytest.raises(RpcRefusedError) as refused:
        await logs(a_site.client, 0, 10)
    assert refused.value.message == refusals.RANGE_TOO_WIDE[wording].text
    assert await logs(a_site.client, 0, 9) == await logs(a_site.chain, 0, 9)


@pytest.mark.parametrize("wording", refusals.TOO_MANY_RESULTS)
async def test_too_many_logs_are_refused(a_site: Site, wording: str) -> None:
    first = await emitted(a_site, 3)
    a_site.node.faults = Faults(limits=Limits(log_results=2, results_wording=wording))
    with pytest.raises(RpcRefusedError) as refused:
        await logs(a_site.client, first, first + 2)
    assert refused.value.message == refusals.TOO_MANY_RESULTS[wording].text
    assert len(await logs(a_site.client, first, first + 1)) == 2


async def test_a_request_that_comes_again_unchanged_after_its_refusal_is_recorded(
    a_site: Site,
) -> None:
    a_site.node.faults = Faults(limits=Limits(batch_items=2, log_blocks=10))
    a_site.node.repeated.clear()
    await a_site.batch("eth_chainId", "eth_chainId")
    for _ in range(2):
        assert a_site.node.repeated == []
        await posted(a_site, [call("eth_chainId")] * 3)
    assert len(a_site.node.repeated) == 1
    for _ in range(2):
        assert len(a_site.node.repeated) == 1
        with pytest.raises(RpcRefusedError):
            await logs(a_site.client, 0, 11)
    assert len(a_site.node.repeated) == 2
    await logs(a_site.client, 0, 9)
    assert len(a_site.node.repeated) == 2


# --- views --------------------------------------------------------------------------------------


async def test_every_answer_of_a_node_that_is_behind_fits_its_older_head(site: Site) -> None:
    wallet = await site.chain.funded()
    chain_id = int(await site.chain("eth_chainId"), 16)
    emitter = await site.chain.deploy(EMITTER)
    await site.mine()
    height = await site.chain.number()
    old_balance = await site.chain("eth_getBalance", TRANSFER, "latest")
    raw = wallet.signed(0, chainId=chain_id)
    sent = await site.chain("eth_sendRawTransaction", raw)
    receipt = await site.chain.receipt(sent)
    data = "0x" + "00" * 64
    emit = {"from": await site.chain.dev_account(), "to": emitter, "data": data}
    await site.chain.receipt(await site.chain("eth_sendTransaction", emit))
    await site.mine()

    site.node.faults = Faults(behind=3)
    for view in (site.client, site.chain):
        is_behind = view is site.client
        assert await view.number() == (height if is_behind else height + 3)
        assert int((await view.block())["number"], 16) == await view.number()
        assert (await view.block(height + 1) is None) is is_behind
        by_hash = await view("eth_getBlockByHash", receipt["blockHash"], False)
        assert (by_hash is None) is is_behind
        assert (await view("eth_getTransactionReceipt", sent) is None) is is_behind
        pending = (await view("eth_getTransactionByHash", sent))["blockHash"] is None
        assert pending is is_behind
        assert (await view("eth_getBlockReceipts", hex(height + 1)) is None) is is_behind
        nonce = await view("eth_getTransactionCount", wallet.address, "latest")
        assert nonce == ("0x0" if is_behind else "0x1")
        balance = int(await view("eth_getBalance", TRANSFER, "latest"), 16)
        assert balance == int(old_balance, 16) + (0 if is_behind else 1)
        assert len(await logs(view, height + 1, height + 3)) == (0 if is_behind else 1)
        fees = await view("eth_feeHistory", "0x1", "latest", [])
        assert int(fees["oldestBlock"], 16) == await view.number()
    with pytest.raises(RpcRefusedError, match="header not found"):
        await site.client("eth_getBalance", wallet.address, {"blockHash": receipt["blockHash"]})
    with pytest.raises(RpcRefusedError, match="header not found"):
        await site.client("eth_getLogs", {"blockHash": receipt["blockHash"]})
    await site.mine()
    assert await site.client.number() == height + 1, "the older head moves with the chain"


async def test_a_frozen_head_stops_while_the_chain_goes_on(site: Site) -> None:
    await site.mine()
    await site.node.freeze()
    head = await site.chain.block()
    await site.mine(3)
    assert await site.client.block() == head
    assert await site.client.number() == await site.chain.number() - 3
    site.node.heal()
    assert await site.client.number() == await site.chain.number()


async def test_an_alternating_node_shows_two_heads_in_turn(site: Site) -> None:
    await site.mine(5)
    head = await site.chain.number()
    site.node.faults = Faults(behind=4, alternates=True)
    seen = [await site.client.number() for _ in range(4)]
    assert sorted(seen) == [head - 4] * 2 + [head] * 2
    assert seen[0] == seen[2]


async def test_a_frozen_node_stays_on_a_branch_that_the_chain_has_left(sites: Sites) -> None:
    """Only the tester chain still has the blocks that a reorg has replaced."""
    site = await sites.of("tester")
    wallet = await site.chain.funded()
    emitter = await site.chain.deploy(EMITTER)
    await site.mine()
    fork = await site.chain.number()
    raw = wallet.signed(0)
    emit = {"from": await site.chain.dev_account(), "to": emitter, "data": "0x" + "00" * 64}
    sent = await site.chain("eth_sendRawTransaction", raw)
    receipt = await site.chain.receipt(sent)
    await site.chain.receipt(await site.chain("eth_sendTransaction", emit))
    await site.node.freeze()
    try:
        await site.chain("anvil_reorg", 2, [])
        await site.mine(2)
        for view in (site.client, site.chain):
            is_frozen = view is site.client
            by_hash = await view("eth_getBlockByNumber", hex(fork + 1), False)
            assert (by_hash["hash"] == receipt["blockHash"]) is is_frozen
            assert (await view("eth_getTransactionReceipt", sent) == receipt) is is_frozen
            nonce = await view("eth_getTransactionCount", wallet.address, "latest")
            assert nonce == ("0x1" if is_frozen else "0x0")
            assert len(await logs(view, fork - 1, fork + 2)) == (1 if is_frozen else 0)
            receipts = await view("eth_getBlockReceipts", hex(fork + 1))
            assert (receipts == [receipt]) is is_frozen
        at = {"blockHash": receipt["blockHash"], "requireCanonical": True}
        assert await site.client("eth_getTransactionCount", wallet.address, at) == "0x1"
        new_head = {"blockHash": (await site.chain.block())["hash"]}
        with pytest.raises(RpcRefusedError, match="header not found"):
            await site.client("eth_getTransactionCount", wallet.address, new_head)
    finally:
        site.node.heal()


async def test_a_node_led_to_another_chain_shows_that_chain(sites: Sites) -> None:
    site, other = await sites.of("anvil"), await sites.of("tester")
    own = site.chain.url
    site.node.lead_to(other.chain.url)
    try:
        for method, *params in (("eth_chainId",), ("eth_getBlockByNumber", "0x0", False)):
            answer = await site.client(method, *params)
            assert answer == await other.chain(method, *params)
            assert answer != await site.chain(method, *params)
    finally:
        site.node.lead_to(own)


# --- lies ---------------------------------------------------------------------------------------


async def differences(site: Site, *node_lies: Lie) -> set[str]:
    """The questions that the node answers otherwise than the chain."""
    emitted_at = hex(await emitted(site, 2))
    sent = await site.sent(Wallet())
    head, account = await site.chain.block(), await site.chain.dev_account()
    contract = (await site.chain.receipt(await created(site)))["contractAddress"]
    blocks = {"fromBlock": "0x0", "toBlock": head["number"]}
    questions: dict[str, tuple[Any, ...]] = {
        "head": ("eth_getBlockByNumber", "latest", False),
        "height": ("eth_blockNumber",),
        "block": ("eth_getBlockByNumber", head["number"], False),
        "genesis": ("eth_getBlockByNumber", "0x0", False),
        "receipt": ("eth_getTransactionReceipt", sent),
        "receipts": ("eth_getBlockReceipts", emitted_at),
        "bloom": ("eth_getBlockByNumber", emitted_at, False),
        "logs": ("eth_getLogs", blocks),
        "nonce": ("eth_getTransactionCount", account, "latest"),
        "chain": ("eth_chainId",),
        "network": ("net_version",),
        "code": ("eth_getCode", contract, "latest"),
    }
    site.node.faults = Faults(lies=node_lies)
    return {
        name
        for name, question in questions.items()
        if await site.client(*question) != await site.chain(*question)
    }


@pytest.mark.parametrize(
    ("node_lies", "differing"),
    [
        ((lies.null_receipts,), {"receipt"}),
        ((lies.empty_logs,), {"logs", "receipts"}),
        ((lies.empty_blooms,), {"bloom"}),
        ((lies.forged_head,), {"head"}),
        ((lies.forged_blocks,), {"head", "block", "bloom"}),
        ((lies.future_head(1000),), {"head", "height"}),
        ((lies.false_nonce(-3),), {"nonce"}),
        ((lies.false_nonce(3),), {"nonce"}),
        ((lies.another_chain_id(5),), {"chain", "network"}),
        ((lies.another_genesis,), {"genesis"}),
        ((lies.no_code,), {"code"}),
    ],
)
async def test_a_lie_changes_these_answers_and_no_others(
    site: Site, node_lies: Sequence[Lie], differing: set[str]
) -> None:
    assert await differences(site, *node_lies) == differing


async def test_forged_blocks_are_a_chain_of_their_own(site: Site) -> None:
    await site.mine(3)
    site.node.faults = Faults(lies=(lies.forged_blocks,))
    head = await site.client.block()
    parent = await site.client.block(int(head["number"], 16) - 1)
    assert head["parentHash"] == parent["hash"]
    assert head["hash"] != (await site.chain.block())["hash"]


# --- WebSocket ----------------------------------------------------------------------------------


class Subscriber:
    """A WebSocket that subscribes to new heads."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.socket = socket

    async def ask(self, method: str, *params: object) -> Any:
        request = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        await self.socket.send_json(request)
        return await self.next()

    async def next(self) -> Any:
        return await self.socket.receive_json(timeout=20)

    async def head(self) -> int:
        message = await self.next()
        assert message["method"] == "eth_subscription"
        return int(message["params"]["result"]["number"], 16)

    async def is_silent(self) -> bool:
        try:
            await self.socket.receive(timeout=SHORTLY)
        except TimeoutError:
            return True
        return False


@pytest_asyncio.fixture
async def subscriber(site: Site) -> AsyncIterator[Subscriber]:
    async with site.client.http.ws_connect(site.node.ws_url) as socket:
        subscriber = Subscriber(socket)
        assert "result" in await subscriber.ask("eth_subscribe", "newHeads")
        yield subscriber


async def test_a_socket_has_answers_and_new_heads(site: Site, subscriber: Subscriber) -> None:
    assert (await subscriber.ask("eth_chainId"))["result"] == await site.chain("eth_chainId")
    await site.mine()
    assert await subscriber.head() == await site.chain.number()


async def test_new_heads_fit_the_nodes_view(site: Site, subscriber: Subscriber) -> None:
    await site.mine(2)
    assert await subscriber.head() == await site.chain.number() - 1
    await subscriber.head()
    site.node.faults = Faults(behind=2)
    await site.mine()
    assert await subscriber.head() == await site.chain.number() - 2
    site.node.faults = Faults(lies=(lies.future_head(1000),))
    await site.mine()
    assert await subscriber.head() == await site.chain.number() + 1000


async def freeze(site: Site) -> None:
    await site.node.freeze()


async def hang(site: Site) -> None:
    site.node.faults = Faults(hung=True)


async def mute(site: Site) -> None:
    site.node.faults = replace(site.node.faults, silent=True)


@pytest.mark.parametrize("begin", [freeze, hang, mute])
async def test_a_silent_socket_shows_no_new_head(
    site: Site, subscriber: Subscriber, begin: Any
) -> None:
    await begin(site)
    await site.mine()
    assert await subscriber.is_silent()


async def test_replies_on_a_socket_are_doubled_truncated_and_lost(
    site: Site, subscriber: Subscriber
) -> None:
    site.node.faults = Faults(doubled="reply")
    assert await subscriber.ask("eth_chainId") == await subscriber.next()
    site.node.faults = Faults(truncated="text")
    with pytest.raises(json.JSONDecodeError):
        await subscriber.ask("eth_chainId")
    site.node.faults = Faults(lost=True)
    await subscriber.socket.send_json(call("eth_chainId"))
    await assert_broken(subscriber)


async def test_dropped_sockets_end_and_new_ones_open(site: Site, subscriber: Subscriber) -> None:
    site.node.drop_sockets()
    await assert_broken(subscriber)
    async with site.client.http.ws_connect(site.node.ws_url) as socket:
        assert "result" in await Subscriber(socket).ask("eth_chainId")


async def test_a_dead_node_ends_its_sockets(site: Site, subscriber: Subscriber) -> None:
    await site.node.cut()
    try:
        await assert_broken(subscriber)
        with pytest.raises(aiohttp.ClientError):
            await site.client.http.ws_connect(site.node.ws_url)
    finally:
        await site.node.connect()


async def assert_broken(subscriber: Subscriber) -> None:
    async def is_over() -> bool:
        message = await subscriber.socket.receive(timeout=20)
        ends = {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.CLOSE, aiohttp.WSMsgType.ERROR}
        return message.type in ends

    await until(is_over)


# --- requests -----------------------------------------------------------------------------------


def call(method: str, *params: object) -> dict[str, object]:
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": list(params)}


async def posted(site: Site, body: object) -> tuple[int, Any, str]:
    async with site.client.http.post(site.node.url, json=body) as reply:
        return reply.status, reply.headers, await reply.text()


def assert_worded(text: str, refusal: Refusal) -> None:
    if refusal.text:
        assert json.loads(text)["error"] == {"code": refusal.code, "message": refusal.text}
    else:
        assert f"<h1>{refusal.status} {refusal.reason}</h1>" in text


async def logs(rpc: Rpc, first: int, last: int) -> Any:
    return await rpc("eth_getLogs", {"fromBlock": hex(first), "toBlock": hex(last)})


async def created(site: Site) -> str:
    sender = {"from": await site.chain.dev_account(), "data": EMITTER}
    return str(await site.chain("eth_sendTransaction", sender))


async def emitted(site: Site, count: int) -> int:
    """Emits a log in each of `count` blocks; returns the height of the first."""
    emitter = await site.chain.deploy(EMITTER)
    first = await site.chain.number() + 1
    emit = {"from": await site.chain.dev_account(), "to": emitter, "data": "0x" + "00" * 64}
    for _ in range(count):
        await site.chain.receipt(await site.chain("eth_sendTransaction", emit))
    return first
