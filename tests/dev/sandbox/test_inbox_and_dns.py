"""The sandbox's webhook inbox and name server: requests, storage and faults."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import aiohttp
import dns.asyncquery
import dns.flags
import dns.message
import dns.rcode
import pytest
import pytest_asyncio

from ltzd.dev.sandbox import Sandbox
from ltzd.dev.sandbox.webhooks.delivery_log import DeliveryLog, ReceivedDelivery
from ltzd.errors import DnsUnavailable, Misconfigured
from ltzd.providers.dns_txt import TxtResolver
from tests.support.waiting import until

BRAND, OTHER = "0x" + "ab" * 20, "0x" + "cd" * 20
NAME = "_ltz.shop.example"
BODY = b'{"event": "ltz_distributed",  "ltzAmount": 100}'


@pytest_asyncio.fixture
async def sandbox(tmp_path: Path) -> AsyncIterator[Sandbox]:
    sandbox = await started(tmp_path)
    yield sandbox
    await sandbox.stop()


@pytest_asyncio.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as http:
        yield http


async def started(folder: Path) -> Sandbox:
    sandbox = Sandbox(folder, 0, "http://127.0.0.1:1", None)
    await sandbox.start()
    return sandbox


class ControlEndpoints:
    """A client of one sandbox's control endpoints."""

    def __init__(self, sandbox: Sandbox, http: aiohttp.ClientSession) -> None:
        self.sandbox = sandbox
        self.http = http

    async def ask(
        self, name: str, body: object = None, method: str = "POST", status: int = 200
    ) -> Any:
        url = self.sandbox.control_endpoints()[name]
        async with self.http.request(method, url, json=body) as reply:
            assert reply.status == status, await reply.text()
            return await reply.json()

    async def deliver(
        self, body: bytes = BODY, brand: str = BRAND, headers: Mapping[str, str] | None = None
    ) -> int:
        async with self.http.post(
            self.sandbox.inbox_url(brand), data=body, headers=headers, allow_redirects=False
        ) as reply:
            return reply.status

    async def inbox(self) -> list[dict[str, Any]]:
        deliveries: list[dict[str, Any]] = await self.ask("webhookInboxUrl", method="GET")
        return deliveries

    async def order(self, **order: object) -> None:
        await self.ask("webhookInboxUrl", order)

    async def dns(self, name: str, *values: str) -> Any:
        return await self.ask("dnsUrl", {"name": name, "txt": values})

    async def texts(self, name: str = NAME) -> list[str]:
        return await TxtResolver(self.sandbox.dns_policy()).resolve(name)

    async def query(self, name: str, kind: str = "TXT", *, tcp: bool = False) -> Any:
        message = dns.message.make_query(name, kind)
        ask = dns.asyncquery.tcp if tcp else dns.asyncquery.udp
        return await ask(message, "127.0.0.1", 5, port=self.sandbox.dns_policy().port)


@pytest.fixture
def control_endpoints(sandbox: Sandbox, http: aiohttp.ClientSession) -> ControlEndpoints:
    return ControlEndpoints(sandbox, http)


# --- inbox --------------------------------------------------------------------------------------


async def test_a_delivery_is_listed_as_it_came(control_endpoints: ControlEndpoints) -> None:
    sent = {"webhook-id": "msg_1", "Content-Type": "application/json"}
    assert await control_endpoints.deliver(headers=sent) == 200
    assert await control_endpoints.deliver(b"{}", OTHER) == 200
    delivery, other = await control_endpoints.inbox()
    assert set(delivery) == {"brandId", "receivedAt", "headers", "body", "status"}
    assert (delivery["brandId"], delivery["body"], delivery["status"]) == (
        BRAND,
        BODY.decode(),
        200,
    )
    assert delivery["headers"]["webhook-id"] == "msg_1"
    assert delivery["headers"]["content-type"] == "application/json"
    age = datetime.now(UTC) - datetime.fromisoformat(delivery["receivedAt"])
    assert abs(age) < timedelta(seconds=30)
    assert (other["brandId"], other["body"]) == (OTHER, "{}")


async def test_a_brand_in_capitals_is_listed_in_small_letters_and_what_is_none_is_not(
    control_endpoints: ControlEndpoints,
) -> None:
    assert await control_endpoints.deliver(brand="0x" + "AB" * 20) == 200
    assert await control_endpoints.deliver(brand="0x12") == 404
    assert [delivery["brandId"] for delivery in await control_endpoints.inbox()] == [BRAND]


async def test_emptying_forgets_what_came_and_not_what_comes(
    control_endpoints: ControlEndpoints,
) -> None:
    await control_endpoints.deliver()
    assert await control_endpoints.ask("webhookInboxUrl", method="DELETE") == []
    assert await control_endpoints.inbox() == []
    await control_endpoints.deliver(b"later")
    assert [delivery["body"] for delivery in await control_endpoints.inbox()] == ["later"]


async def test_the_next_deliveries_fail_as_often_as_was_said_and_are_listed_too(
    control_endpoints: ControlEndpoints,
) -> None:
    await control_endpoints.order(status=500, times=2)
    statuses = [await control_endpoints.deliver() for _ in range(3)]
    assert statuses == [500, 500, 200]
    assert [delivery["status"] for delivery in await control_endpoints.inbox()] == statuses


async def test_no_times_take_an_order_back(control_endpoints: ControlEndpoints) -> None:
    await control_endpoints.order(status=410, times=5)
    await control_endpoints.order(times=0)
    assert await control_endpoints.deliver() == 200


@pytest.mark.parametrize("status", [204, 301, 304, 410, 429, 503])
async def test_any_status_can_be_ordered(control_endpoints: ControlEndpoints, status: int) -> None:
    await control_endpoints.order(status=status, times=1)
    assert await control_endpoints.deliver() == status
    assert [delivery["status"] for delivery in await control_endpoints.inbox()] == [status]


async def test_an_order_can_say_when_to_come_again_and_a_redirect_leads_back(
    control_endpoints: ControlEndpoints,
) -> None:
    await control_endpoints.order(status=503, retryAfterSeconds=7, times=1)
    async with control_endpoints.http.post(
        control_endpoints.sandbox.inbox_url(BRAND), data=BODY
    ) as reply:
        assert (reply.status, reply.headers["Retry-After"]) == (503, "7")
    await control_endpoints.order(status=307, times=1)
    async with control_endpoints.http.post(
        control_endpoints.sandbox.inbox_url(BRAND), data=BODY
    ) as reply:
        assert reply.status == 200
    assert [delivery["status"] for delivery in await control_endpoints.inbox()] == [503, 307, 200]


async def test_a_delivery_that_waits_is_listed_at_once_and_answered_later(
    control_endpoints: ControlEndpoints,
) -> None:
    await control_endpoints.order(status=502, delaySeconds=0.3, times=1)
    waiting = asyncio.create_task(control_endpoints.deliver())
    (delivery,) = await until(control_endpoints.inbox)
    assert delivery["status"] is None
    assert await waiting == 502
    assert [delivery["status"] for delivery in await control_endpoints.inbox()] == [502]


async def test_who_does_not_wait_was_not_answered(control_endpoints: ControlEndpoints) -> None:
    await control_endpoints.order(delaySeconds=0.3, times=1)
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await control_endpoints.deliver()
    assert await control_endpoints.deliver(b"after") == 200
    await control_endpoints.order(delaySeconds=0.35, times=1)
    assert await control_endpoints.deliver(b"last") == 200  # later than the first one's wait
    assert [delivery["status"] for delivery in await control_endpoints.inbox()] == [None, 200, 200]


async def test_a_waiting_delivery_does_not_hold_up_the_stop(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    control_endpoints = ControlEndpoints(await started(tmp_path), http)
    await control_endpoints.order(delaySeconds=600, times=1)
    waiting = asyncio.create_task(control_endpoints.deliver())
    await until(control_endpoints.inbox)
    async with asyncio.timeout(20):
        await control_endpoints.sandbox.stop()
    with pytest.raises(aiohttp.ClientError):
        await waiting


@pytest.mark.parametrize(
    ("order", "field"),
    [
        ({}, "times"),
        ({"times": 1}, "status"),
        ({"times": -1, "status": 500}, "times"),
        ({"times": 1, "status": 99}, "status"),
        ({"times": 1, "status": "500"}, "status"),
        ({"times": 1, "delaySeconds": -1}, "delaySeconds"),
        ({"times": 1, "status": 500, "drop": True}, "drop"),
    ],
    ids=str,
)
async def test_a_bad_order_names_the_field_and_changes_nothing(
    control_endpoints: ControlEndpoints, order: dict[str, object], field: str
) -> None:
    answer = await control_endpoints.ask("webhookInboxUrl", order, status=400)
    assert answer["field"] == field
    assert await control_endpoints.deliver() == 200


async def test_what_came_is_there_after_a_restart_with_its_answers(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    first = ControlEndpoints(await started(tmp_path), http)
    await first.deliver(b"gone")
    await first.ask("webhookInboxUrl", method="DELETE")
    await first.order(status=500, delaySeconds=0.01, times=1)
    await first.deliver(b"one")
    await first.deliver(b"two")
    before = await first.inbox()
    on_disk = (tmp_path / "sandbox" / "inbox.jsonl").read_text()
    assert all(f'"body":"{body}"' in on_disk for body in ("one", "two"))  # so a kill loses none
    await first.sandbox.stop()

    second = ControlEndpoints(await started(tmp_path), http)
    assert await second.inbox() == before
    assert [(delivery["body"], delivery["status"]) for delivery in before] == [
        ("one", 500),
        ("two", 200),
    ]
    await second.sandbox.stop()


async def test_the_page_shows_what_came_and_runs_none_of_it(
    control_endpoints: ControlEndpoints,
) -> None:
    url = f"{control_endpoints.sandbox.url}/inbox/"
    async with control_endpoints.http.get(url) as reply:
        assert "No delivery has arrived yet" in await reply.text()
    await control_endpoints.deliver(
        b'{"x": "<script>alert(1)</script>"}', headers={"webhook-id": "<b>msg_1</b>"}
    )
    async with control_endpoints.http.get(url) as reply:
        page = await reply.text()
        assert "default-src 'none'" in reply.headers["Content-Security-Policy"]
    assert "&lt;script&gt;" in page
    assert "&lt;b&gt;msg_1" in page
    assert "<script" not in page
    assert BRAND in page


def a_delivery(number: int) -> ReceivedDelivery:
    return ReceivedDelivery(BRAND, "2026-11-20T12:00:00.000Z", {}, str(number), 200)


async def test_only_the_newest_are_kept_and_the_file_stays_in_bounds(tmp_path: Path) -> None:
    path = tmp_path / "inbox.jsonl"
    log = DeliveryLog(path, max_deliveries=5).open()
    await asyncio.gather(*(log.record_arrival(a_delivery(number)) for number in range(100)))
    await log.record_answer(99, 503)
    bodies = [delivery.body for delivery in log.deliveries()]
    assert bodies == ["95", "96", "97", "98", "99"]
    assert len(path.read_bytes().splitlines()) <= 12
    await log.close()

    again = DeliveryLog(path, max_deliveries=5).open()
    assert again.deliveries() == log.deliveries()
    assert again.deliveries()[-1].status == 503
    await again.record_arrival(a_delivery(100))
    assert [delivery.body for delivery in again.deliveries()] == ["96", "97", "98", "99", "100"]
    await again.close()


async def test_nobody_else_may_read_the_inbox_file_also_when_it_was_written_anew(
    tmp_path: Path,
) -> None:
    log = DeliveryLog(tmp_path / "inbox.jsonl", max_deliveries=1).open()
    for number in range(5):
        await log.record_arrival(a_delivery(number))
        assert (tmp_path / "inbox.jsonl").stat().st_mode & 0o777 == 0o600
    await log.close()


@pytest.mark.parametrize("name", ["inbox.jsonl", "dns.jsonl"])
async def test_a_damaged_file_is_a_plain_sentence(tmp_path: Path, name: str) -> None:
    (tmp_path / "sandbox").mkdir()
    (tmp_path / "sandbox" / name).write_text('{"kind": "came"}\n')
    with pytest.raises(Misconfigured, match="--clean"):
        await started(tmp_path)


# --- name server --------------------------------------------------------------------------------


async def test_records_are_set_changed_and_removed_by_the_control_endpoint(
    control_endpoints: ControlEndpoints,
) -> None:
    assert await control_endpoints.dns(NAME, "one", "two") == {"name": NAME, "txt": ["one", "two"]}
    assert await control_endpoints.texts() == ["one", "two"]
    await control_endpoints.dns("_LTZ.Shop.Example.", "three")
    assert await control_endpoints.texts() == ["three"]
    assert await control_endpoints.dns(NAME) == {"name": NAME, "txt": []}
    assert await control_endpoints.texts() == []


async def test_long_text_is_cut_into_strings_of_255_bytes(
    control_endpoints: ControlEndpoints,
) -> None:
    text = "é" * 300
    await control_endpoints.dns(NAME, text, "")
    answer = await control_endpoints.query(NAME, tcp=True)
    strings = sorted([len(delivery) for delivery in record.strings] for record in answer.answer[0])
    assert strings == [[0], [255, 255, 90]]
    assert await control_endpoints.texts() == ["", text]


@pytest.mark.parametrize("tcp", [False, True])
async def test_unknown_names_and_other_kinds_are_told_apart(
    control_endpoints: ControlEndpoints, tcp: bool
) -> None:
    await control_endpoints.dns(NAME, "there")
    for name, kind, code, count in (
        (NAME, "TXT", dns.rcode.NOERROR, 1),
        ("_LTZ.shop.EXAMPLE", "TXT", dns.rcode.NOERROR, 1),
        (NAME, "ANY", dns.rcode.NOERROR, 1),
        (NAME, "A", dns.rcode.NOERROR, 0),
        ("shop.example", "TXT", dns.rcode.NOERROR, 0),
        ("_ltz.other.example", "TXT", dns.rcode.NXDOMAIN, 0),
        ("below." + NAME, "TXT", dns.rcode.NXDOMAIN, 0),
    ):
        answer = await control_endpoints.query(name, kind, tcp=tcp)
        assert (answer.rcode(), len(answer.answer)) == (code, count), (name, kind)


async def test_what_does_not_fit_a_datagram_is_cut_and_whole_over_tcp(
    control_endpoints: ControlEndpoints,
) -> None:
    await control_endpoints.dns(NAME, *(f"{number} " + "x" * 250 for number in range(100)))
    cut = await control_endpoints.query(NAME)
    assert cut.flags & dns.flags.TC
    assert cut.answer == []
    whole = await control_endpoints.query(NAME, tcp=True)
    assert not whole.flags & dns.flags.TC
    assert len(whole.answer[0]) == 100
    large = dns.message.make_query(NAME, "TXT", use_edns=0, payload=4096)
    await control_endpoints.dns(NAME, "x" * 1000)
    port = control_endpoints.sandbox.dns_policy().port
    answer = await dns.asyncquery.udp(large, "127.0.0.1", 5, port=port)
    assert len(answer.answer) == 1


class Heard(asyncio.DatagramProtocol):
    def __init__(self) -> None:
        self._received: list[bytes] = []

    def datagram_received(self, data: bytes, _addr: tuple[str, int]) -> None:
        self._received.append(data)

    async def all(self) -> list[bytes]:
        return self._received


async def test_rubbish_and_answers_get_no_answer_and_stop_nobody(
    control_endpoints: ControlEndpoints,
) -> None:
    await control_endpoints.dns(NAME, "there")
    policy = control_endpoints.sandbox.dns_policy()
    transport, received = await asyncio.get_running_loop().create_datagram_endpoint(
        Heard, remote_addr=("127.0.0.1", policy.port)
    )
    response = dns.message.make_response(dns.message.make_query(NAME, "TXT")).to_wire()
    no_question = b"\x00" * 12
    for raw in (b"", b"x", b"\xff" * 600, response, no_question):
        transport.sendto(raw)
        assert await control_endpoints.texts() == ["there"]
    (only,) = await until(received.all)
    assert dns.message.from_wire(only).rcode() == dns.rcode.FORMERR
    transport.close()
    reader, writer = await asyncio.open_connection("127.0.0.1", policy.port)
    writer.write(b"\x00\x04rubb")
    assert await reader.read() == b""
    writer.close()
    await writer.wait_closed()
    assert await control_endpoints.texts() == ["there"]


async def test_one_connection_carries_several_questions(
    control_endpoints: ControlEndpoints,
) -> None:
    await control_endpoints.dns(NAME, "there")
    port = control_endpoints.sandbox.dns_policy().port
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(3):
        query = dns.message.make_query(NAME, "TXT")
        raw = query.to_wire()
        writer.write(len(raw).to_bytes(2, "big") + raw)
        size = int.from_bytes(await reader.readexactly(2), "big")
        answer = dns.message.from_wire(await reader.readexactly(size))
        assert (answer.id, len(answer.answer)) == (query.id, 1)
    writer.close()
    await writer.wait_closed()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "name"),
        ({"name": NAME}, "txt"),
        ({"name": "a..b", "txt": []}, "name"),
        ({"name": "x" * 64 + ".example", "txt": []}, "name"),
        ({"name": "a." * 130, "txt": []}, "name"),
        ({"name": NAME, "txt": "one"}, "txt"),
        ({"name": NAME, "txt": [1]}, "txt"),
        ({"name": NAME, "txt": ["x" * 33_000]}, "txt"),
        ({"name": NAME, "txt": ["x"] * 257}, "txt"),
        ({"name": NAME, "txt": [], "ttl": 5}, "ttl"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_bad_record_is_refused_naming_the_field(
    control_endpoints: ControlEndpoints, body: dict[str, object], field: str
) -> None:
    await control_endpoints.dns(NAME, "stays")
    answer = await control_endpoints.ask("dnsUrl", body, status=400)
    assert answer["field"] == field
    assert await control_endpoints.texts() == ["stays"]


async def test_the_largest_accepted_record_is_answered(control_endpoints: ControlEndpoints) -> None:
    values = [f"{number:03}" + "x" * 125 for number in range(256)]
    await control_endpoints.dns(NAME, *values)
    answer = await control_endpoints.query(NAME, tcp=True)
    assert len(answer.answer[0]) == 256


@pytest.mark.parametrize("fault", [{"status": 500}, {"drop": True}, {"drop": "reply"}], ids=str)
async def test_faults_ordered_for_dns_hold_so_many_questions(
    control_endpoints: ControlEndpoints, fault: dict[str, object]
) -> None:
    await control_endpoints.dns(NAME, "there")
    await control_endpoints.ask("faultUrl", {"service": "dns", "times": 1, **fault})
    if "status" in fault:
        with pytest.raises(DnsUnavailable):
            await control_endpoints.texts()
    else:
        with pytest.raises(dns.exception.Timeout):
            await dns.asyncquery.udp(
                dns.message.make_query(NAME, "TXT"),
                "127.0.0.1",
                0.1,
                port=control_endpoints.sandbox.dns_policy().port,
            )
    assert await control_endpoints.texts() == ["there"]


async def test_a_delay_ordered_for_dns_holds_and_identity_is_not_touched(
    control_endpoints: ControlEndpoints,
) -> None:
    await control_endpoints.dns(NAME, "there")
    await control_endpoints.ask("faultUrl", {"service": "dns", "times": 1, "delaySeconds": 0.2})
    begun = asyncio.get_running_loop().time()
    async with control_endpoints.http.get(
        control_endpoints.sandbox.control_endpoints()["jwksUrl"]
    ) as reply:
        assert reply.status == 200
    assert await control_endpoints.texts() == ["there"]
    assert asyncio.get_running_loop().time() - begun >= 0.2
    assert control_endpoints.sandbox.faults.left("dns") == 0


async def test_records_and_port_are_kept_over_a_restart(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    first = ControlEndpoints(await started(tmp_path), http)
    await first.dns(NAME, "kept")
    port = first.sandbox.dns_policy().port
    assert "kept" in (tmp_path / "sandbox" / "dns.jsonl").read_text()  # so a kill loses nothing
    await first.sandbox.stop()

    second = ControlEndpoints(await started(tmp_path), http)
    assert second.sandbox.dns_policy().port == port
    assert await second.texts() == ["kept"]
    await second.sandbox.stop()


async def test_another_port_is_taken_where_the_old_one_is_not_free(tmp_path: Path) -> None:
    first = await started(tmp_path / "one")
    port = first.dns_policy().port
    (tmp_path / "two" / "sandbox").mkdir(parents=True)
    (tmp_path / "two" / "sandbox" / "dns.port").write_text(str(port))
    second = await started(tmp_path / "two")
    assert second.dns_policy().port != port
    await second.stop()
    await first.stop()
    (tmp_path / "two" / "sandbox" / "dns.port").write_text("rubbish")
    await (await started(tmp_path / "two")).stop()


async def test_the_start_sets_records_that_the_control_endpoint_changes_for_good(
    tmp_path: Path, http: aiohttp.ClientSession
) -> None:
    other = "_ltz.other.example"
    for start in ("first", "second"):
        control_endpoints = ControlEndpoints(await started(tmp_path), http)
        await control_endpoints.sandbox.set_txt(NAME, [f"{start} start"])
        await control_endpoints.sandbox.set_txt(other, [f"{start} start"])
        assert await control_endpoints.texts(other) == [f"{start} start"]
        assert await control_endpoints.texts() == (["first start"] if start == "first" else [])
        await control_endpoints.dns(NAME)
        await control_endpoints.sandbox.stop()


async def test_dev_json_has_both_control_endpoints(sandbox: Sandbox) -> None:
    endpoints = json.loads(json.dumps(sandbox.control_endpoints()))
    assert endpoints["webhookInboxUrl"].startswith(sandbox.url)
    assert endpoints["dnsUrl"].startswith(sandbox.url)
    assert sandbox.inbox_url(BRAND) == f"{sandbox.url}/inbox/{BRAND}"
