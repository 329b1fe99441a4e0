"""TXT records from a real name server on loopback, working and failing."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dns.flags
import dns.message
import dns.rcode
import dns.resolver
import dns.rrset
import pytest
import pytest_asyncio
from msgspec.structs import replace

from ltzd.dev.sandbox.dns.records import name_of
from ltzd.dev.sandbox.dns.server import DnsServer
from ltzd.dev.sandbox.faults import DNS, Fault, Faults
from ltzd.errors import DnsUnavailable
from ltzd.providers.dns_txt import DnsPolicy, TxtResolver
from ltzd.providers.txt_lookups import MAX_RECORD_BYTES, MAX_RECORDS, TxtLookups
from tests.support.waiting import Stopwatch, until

NAME = "_ltz.shop.example"


@dataclass
class World:
    server: DnsServer
    faults: Faults

    def policy(self, seconds: float = 5.0) -> DnsPolicy:
        return replace(self.server.policy(), timeout_seconds=seconds)

    async def stands(self, *values: str, name: str = NAME) -> None:
        assert self.server._store is not None
        await self.server._store.set(name_of(name), values, "control")

    async def at(self, name: str = NAME, seconds: float = 5.0) -> list[str]:
        return await TxtResolver(self.policy(seconds)).resolve(name)


@pytest_asyncio.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    faults = Faults()
    server = DnsServer(tmp_path, faults)
    await server.start()
    yield World(server, faults)
    faults.release_delays()
    await server.stop()


# --- records ------------------------------------------------------------------------------------


async def test_every_record_of_a_name_is_told_in_one_order(world: World) -> None:
    await world.stands("v=spf1 -all", "brand_id=0x1;api_key=k", "another")
    assert await world.at() == ["another", "brand_id=0x1;api_key=k", "v=spf1 -all"]


async def test_strings_of_one_record_are_joined_without_a_gap(world: World) -> None:
    long = "brand_id=" + "".join(str(n % 10) for n in range(900))
    await world.stands(long)
    assert await world.at() == [long]


async def test_a_name_in_another_letter_case_has_the_same_records(world: World) -> None:
    await world.stands("here", name="_LTZ.Shop.Example.")
    assert await world.at("_ltz.SHOP.example") == ["here"]


async def test_bytes_that_are_no_text_do_no_harm() -> None:
    records = [b"\xff\xfe;brand_id=\x00", b"fine"]
    async with an_answerer(lambda query: a_response(query, *records)) as policy:
        assert await TxtResolver(policy).resolve(NAME) == ["fine", "\ufffd\ufffd;brand_id=\x00"]


@pytest.mark.parametrize("name", [NAME, "shop.example", "_ltz." + "a." * 124 + "example"])
async def test_a_name_without_records_has_none(world: World, name: str) -> None:
    await world.stands("there", name="_ltz.other.example")
    assert await world.at(name) == []


async def test_a_name_that_has_only_other_kinds_or_lies_above_a_record_has_none(
    world: World,
) -> None:
    await world.stands("there")
    assert await world.at("shop.example") == []
    assert await world.at("example") == []


async def test_an_alias_is_followed() -> None:
    def alias(query: dns.message.Message) -> dns.message.Message:
        response = a_response(query)
        response.answer = [
            dns.rrset.from_text(NAME + ".", 60, "IN", "CNAME", "records.host.example."),
            dns.rrset.from_text("records.host.example.", 60, "IN", "TXT", '"far"'),
        ]
        return response

    async with an_answerer(alias) as policy:
        assert await TxtResolver(policy).resolve(NAME) == ["far"]


async def test_an_answer_too_long_for_a_datagram_is_asked_for_again_over_tcp(world: World) -> None:
    values = [f"{number:03} " + "x" * 200 for number in range(20)]
    await world.stands(*values)
    query = dns.message.make_query(NAME, "TXT")
    cut = dns.message.from_wire(await world.server.reply(query.to_wire(), 0) or b"")
    assert cut.flags & dns.flags.TC
    assert await world.at() == values


async def test_no_more_than_a_bounded_part_of_the_records_is_looked_at(world: World) -> None:
    values = [f"{number:03}" for number in range(MAX_RECORDS + 10)]
    await world.stands("000 " + "x" * MAX_RECORD_BYTES, *values)
    assert await world.at() == values[:MAX_RECORDS]


async def test_an_answer_as_long_as_dns_allows_is_not_read() -> None:
    """Whoever has a domain's records may have them looked up, as often as the limit allows."""
    records = [number.to_bytes(2) for number in range(4_000)]
    async with a_tcp_answerer(lambda query: a_response(query, *records)) as policy:
        with pytest.raises(DnsUnavailable, match="NoNameservers"):
            await TxtResolver(policy).resolve(NAME)


async def test_an_answer_over_tcp_to_another_question_is_not_taken() -> None:
    def forging(query: dns.message.Message) -> dns.message.Message:
        response = a_response(query, b"forged")
        response.id = query.id ^ 1
        return response

    async with a_tcp_answerer(forging) as policy:
        with pytest.raises(DnsUnavailable, match="NoNameservers"):
            await TxtResolver(policy).resolve(NAME)


async def test_a_change_is_seen_at_once(world: World) -> None:
    records = TxtResolver(world.policy())
    for values in (["one"], ["two"], [], ["three"]):
        await world.stands(*values)
        assert await records.resolve(NAME) == values


# --- failures -----------------------------------------------------------------------------------


async def test_a_resolver_that_is_down_is_no_missing_record() -> None:
    records = TxtResolver(DnsPolicy(("127.0.0.1",), a_port_of_nobody(), 0.2))
    with pytest.raises(DnsUnavailable, match="Timeout"):
        await records.resolve(NAME)


async def test_silence_ends_with_the_time_for_the_whole_question(world: World) -> None:
    await world.stands("there")
    world.faults.order(DNS, Fault(times=100, drops_request=True))
    begun = time.monotonic()
    watch = Stopwatch()
    with pytest.raises(DnsUnavailable, match="Timeout"):
        await world.at(seconds=0.3)
    assert time.monotonic() - begun > 0.2
    assert watch.seconds() < 1.5


async def test_one_lost_datagram_is_asked_for_again(world: World) -> None:
    await world.stands("there")
    world.faults.order(DNS, Fault(times=1, drops_request=True))
    assert await world.at(seconds=4.0) == ["there"]
    assert world.faults.left(DNS) == 0


async def test_a_resolver_that_fails_is_no_missing_record(world: World) -> None:
    await world.stands("there")
    world.faults.order(DNS, Fault(times=1, status=500))
    with pytest.raises(DnsUnavailable, match="NoNameservers"):
        await world.at()
    assert await world.at() == ["there"]


@pytest.mark.parametrize("code", [dns.rcode.REFUSED, dns.rcode.FORMERR, dns.rcode.NOTIMP])
async def test_a_resolver_that_will_not_say_is_no_missing_record(code: dns.rcode.Rcode) -> None:
    def refusing(query: dns.message.Message) -> dns.message.Message:
        response = a_response(query)
        response.set_rcode(code)
        return response

    async with an_answerer(refusing) as policy:
        with pytest.raises(DnsUnavailable, match="NoNameservers"):
            await TxtResolver(policy).resolve(NAME)


async def test_rubbish_is_no_missing_record() -> None:
    async with an_answerer(lambda _query: b"rubbish") as policy:
        with pytest.raises(DnsUnavailable, match="Timeout"):
            await TxtResolver(replace(policy, timeout_seconds=0.2)).resolve(NAME)


async def test_an_answer_to_another_question_is_not_taken() -> None:
    def forging(query: dns.message.Message) -> dns.message.Message:
        response = a_response(query, b"forged")
        response.id = query.id ^ 1
        return response

    async with an_answerer(forging) as policy:
        with pytest.raises(DnsUnavailable, match="Timeout"):
            await TxtResolver(replace(policy, timeout_seconds=0.2)).resolve(NAME)


async def test_the_second_resolver_answers_when_the_first_is_silent(world: World) -> None:
    await world.stands("there")
    policy = world.policy(1.2)
    # No server listens on that address; the port is the server's.
    records = TxtResolver(replace(policy, nameservers=("127.0.0.2", "127.0.0.1")))
    assert await records.resolve(NAME) == ["there"]


async def test_more_questions_than_may_wait_are_refused_at_once(world: World) -> None:
    await world.stands("there")
    world.faults.order(DNS, Fault(times=2, delay_seconds=0.2))
    records = TxtResolver(replace(world.policy(), max_waiting=2))
    waiting = [asyncio.create_task(records.resolve(NAME)) for _ in range(2)]

    async def both_wait() -> bool:
        return records._waiting == 2

    await until(both_wait)
    with pytest.raises(DnsUnavailable, match="under way"):
        await records.resolve(NAME)
    assert await asyncio.gather(*waiting) == [["there"], ["there"]]
    assert await records.resolve(NAME) == ["there"]


async def test_a_machine_without_resolvers_says_so_when_it_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nothing(_self: object, _file: object) -> None:
        raise dns.resolver.NoResolverConfiguration

    monkeypatch.setattr(dns.resolver.BaseResolver, "read_resolv_conf", nothing)
    with pytest.raises(DnsUnavailable, match=r"dns\.nameservers"):
        await TxtResolver(DnsPolicy()).resolve(NAME)


def test_without_nameservers_the_machines_own_are_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tmp_path / "resolv.conf"
    own.write_text("nameserver 192.0.2.53\nsearch shop.example\n")
    read = dns.resolver.BaseResolver.read_resolv_conf
    monkeypatch.setattr(
        dns.resolver.BaseResolver, "read_resolv_conf", lambda self, _file: read(self, str(own))
    )
    resolver = TxtLookups((), port=5353, timeout_seconds=5.0)._resolver
    assert resolver is not None
    assert list(map(str, resolver.nameservers)) == ["Do53:192.0.2.53@53"]


# --- support ------------------------------------------------------------------------------------


def a_response(query: dns.message.Message, *records: bytes) -> dns.message.Message:
    response = dns.message.make_response(query, recursion_available=True)
    if records:
        question = query.question[0]
        texts = ['"' + "".join(f"\\{byte:03}" for byte in record) + '"' for record in records]
        response.answer.append(dns.rrset.from_text_list(question.name, 60, "IN", "TXT", texts))
    return response


def truncated(query: dns.message.Message) -> dns.message.Message:
    response = a_response(query)
    response.flags |= dns.flags.TC
    return response


Answer = Callable[[dns.message.Message], dns.message.Message | bytes]


class Answerer(asyncio.DatagramProtocol):
    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        reply = self._answer(dns.message.from_wire(data))
        self._transport.sendto(reply if isinstance(reply, bytes) else reply.to_wire(), addr)


@asynccontextmanager
async def an_answerer(answer: Answer) -> AsyncIterator[DnsPolicy]:
    """A resolver that answers each query with the result of `answer`, over UDP alone."""
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: Answerer(answer), local_addr=("127.0.0.1", 0)
    )
    try:
        yield DnsPolicy(("127.0.0.1",), transport.get_extra_info("sockname")[1], 2.0)
    finally:
        transport.close()


@asynccontextmanager
async def a_tcp_answerer(
    answer: Callable[[dns.message.Message], dns.message.Message],
) -> AsyncIterator[DnsPolicy]:
    """A resolver whose datagrams are cut short, and which answers over TCP."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        length = int.from_bytes(await reader.readexactly(2))
        query = dns.message.from_wire(await reader.readexactly(length))
        writer.write(answer(query).to_wire(prepend_length=True))
        writer.close()

    server, transport = await two_sockets_of_one_port(serve)
    async with server:
        yield DnsPolicy(("127.0.0.1",), server.sockets[0].getsockname()[1], 30.0)
        transport.close()


async def two_sockets_of_one_port(serve: Any) -> tuple[asyncio.Server, asyncio.DatagramTransport]:
    while True:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address: tuple[str, int] = server.sockets[0].getsockname()
        try:
            transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
                lambda: Answerer(truncated), local_addr=address
            )
        except OSError:  # another program's
            server.close()
        else:
            return server, transport


def a_port_of_nobody() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
