"""The client address behind reverse proxies, and the refusal of plain HTTP."""

import ipaddress
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict
from sanic.request import Request

from ltzd.http.app import build_app
from ltzd.http.errors import ErrorResponder
from ltzd.http.relayer import errors as relayer_errors
from ltzd.http.requests import client_address
from ltzd.http.requests.client_address import NO_PROXIES, UNKNOWN, Proxies, client_network
from ltzd.http.responses import Reply, json_reply
from ltzd.http.sanic_app import new_app
from ltzd.http.services import HttpPolicy
from tests.support.surfaces.http_surface import (
    FakeEvents,
    RunningSurfaces,
    a_surface,
    an_event,
    services_over,
    serving,
)

PROXY = "10.0.0.1"
TRUSTED = ("10.0.0.0/24", "2001:db8:aaaa::/48")


def proxies(count: int, *networks: str) -> Proxies:
    return Proxies(count, tuple(map(ipaddress.ip_network, networks)))


def network_of(peer: str, forwarded: Sequence[str] = (), behind: Proxies = NO_PROXIES) -> str:
    """The rate limit key of a request from `peer` with these header lines."""
    headers = CIMultiDict([("X-Forwarded-For", line) for line in forwarded])
    app = SimpleNamespace(ctx=SimpleNamespace(proxies=behind))
    request: Any = SimpleNamespace(ip=peer, headers=headers, app=app)
    return client_network(request)


@pytest.mark.parametrize(
    ("peer", "key"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("2001:db8:1:3::", "2001:db8:1:3::/64"),
        ("2001:DB8:1:2::9", "2001:db8:1:2::/64"),
        ("::1", "::/64"),
        ("fe80::1%eth0", "fe80::/64"),
        ("", UNKNOWN),
        ("/run/ltzd.sock", UNKNOWN),
        ("010.0.0.1", UNKNOWN),
        ("1" * 5_000, UNKNOWN),
    ],
)
def test_ipv4_counts_by_address_and_ipv6_by_its_64(peer: str, key: str) -> None:
    assert network_of(peer) == key
    assert network_of(peer, behind=proxies(1, *TRUSTED)) == key


@pytest.mark.parametrize(
    ("peer", "count", "forwarded", "key"),
    [
        # One proxy wrote the last entry; the client may have forged the others.
        (PROXY, 1, ["192.0.2.7"], "192.0.2.7"),
        (PROXY, 1, ["198.51.100.9, 192.0.2.7"], "192.0.2.7"),
        (PROXY, 1, ["198.51.100.9", "192.0.2.7"], "192.0.2.7"),
        (PROXY, 1, ["198.51.100.9, 10.0.0.2"], "10.0.0.2"),
        ("::ffff:10.0.0.1", 1, ["192.0.2.7"], "192.0.2.7"),
        ("2001:db8:aaaa::1", 1, ["192.0.2.7"], "192.0.2.7"),
        (PROXY, 1, ["2001:db8:1:2:3::4"], "2001:db8:1:2::/64"),
        # Of two proxies the outer one counts only if a trusted proxy reported it.
        (PROXY, 2, ["192.0.2.7, 10.0.0.2"], "192.0.2.7"),
        (PROXY, 2, ["192.0.2.7", "10.0.0.2"], "192.0.2.7"),
        (PROXY, 2, ["198.51.100.9, 192.0.2.7"], "192.0.2.7"),
        (PROXY, 2, ["192.0.2.7"], "192.0.2.7"),
        (PROXY, 2, ["1.1.1.1, 192.0.2.7, 10.0.0.2"], "192.0.2.7"),
        (PROXY, 2, ["192.0.2.7, 10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        (PROXY, 3, ["192.0.2.7, 10.0.0.3, 10.0.0.2"], "192.0.2.7"),
        # Without a number of proxies no header counts.
        (PROXY, 0, ["192.0.2.7"], PROXY),
        # An untrusted peer's header does not count.
        ("192.0.2.1", 1, ["198.51.100.9"], "192.0.2.1"),
        ("192.0.2.1", 2, ["10.0.0.2, 10.0.0.1"], "192.0.2.1"),
        ("10.0.1.1", 1, ["198.51.100.9"], "10.0.1.1"),
        ("", 1, ["198.51.100.9"], UNKNOWN),
        # Without a header, or with a malformed one: the last valid address.
        (PROXY, 1, [], PROXY),
        (PROXY, 1, [""], PROXY),
        (PROXY, 1, ["192.0.2.7,"], PROXY),
        (PROXY, 1, ["192.0.2.7", ""], PROXY),
        (PROXY, 1, ["unknown"], PROXY),
        (PROXY, 1, ["192.0.2.7 198.51.100.9"], PROXY),
        (PROXY, 1, ["192.0.2.256"], PROXY),
        (PROXY, 1, ["192.0.2.7:"], PROXY),
        (PROXY, 1, ["192.0.2.7:123456"], PROXY),
        (PROXY, 1, ["[2001:db8::1"], PROXY),
        (PROXY, 1, ["[192.0.2.7"], PROXY),
        (PROXY, 1, ["::1" + ":0" * 900], PROXY),
        (PROXY, 1, ["\u0661.1.1.1"], PROXY),
        (PROXY, 1, ["\udcff"], PROXY),
        (PROXY, 2, ["192.0.2.7, rubbish"], PROXY),
        (PROXY, 2, ["rubbish, 10.0.0.2"], "10.0.0.2"),
        # Some proxies write ports and brackets.
        (PROXY, 1, ["192.0.2.7:567"], "192.0.2.7"),
        (PROXY, 1, ["[2001:db8:1:2::1]:80"], "2001:db8:1:2::/64"),
        (PROXY, 1, ["[2001:db8:1:2::1]"], "2001:db8:1:2::/64"),
        (PROXY, 1, ["[::ffff:192.0.2.7]:80"], "192.0.2.7"),
        (PROXY, 1, ["fe80::1%eth0"], "fe80::/64"),
        (PROXY, 1, ["\t 192.0.2.7 \t"], "192.0.2.7"),
        (PROXY, 2, ["192.0.2.7:9, 10.0.0.2:8"], "192.0.2.7"),
    ],
)
def test_each_hop_counts_only_if_a_proxy_of_ours_named_it(
    peer: str, count: int, forwarded: list[str], key: str
) -> None:
    assert network_of(peer, forwarded, proxies(count, *TRUSTED)) == key


def test_without_proxies_the_header_says_nothing() -> None:
    assert network_of("192.0.2.1", ["198.51.100.9"]) == "192.0.2.1"
    assert network_of("127.0.0.1", ["198.51.100.9"]) == "127.0.0.1"


addresses = st.one_of(
    st.sampled_from([PROXY, "10.0.0.2", "2001:db8:aaaa::9"]),
    st.ip_addresses().map(str),
)
entries = st.one_of(addresses, st.text(max_size=12), st.sampled_from(["", "unknown", "1.2.3.4:5"]))


@given(
    peer=st.one_of(addresses, st.sampled_from(["", "fe80::1%lo", "rubbish"])),
    lines=st.lists(st.lists(entries, max_size=4).map(", ".join), max_size=3),
    count=st.integers(0, 4),
)
def test_any_header_gives_a_key_and_no_error(peer: str, lines: list[str], count: int) -> None:
    key = network_of(peer, lines, proxies(count, *TRUSTED) if count else NO_PROXIES)
    assert key == UNKNOWN or ipaddress.ip_network(key).version in {4, 6}


@given(invented=st.lists(entries, max_size=6).map(", ".join), count=st.integers(1, 3))
def test_what_a_client_writes_before_the_proxies_changes_nothing(invented: str, count: int) -> None:
    """The address is the one that the outermost of `count` proxies saw."""
    hops = ["192.0.2.7", *[f"10.0.0.{number}" for number in range(2, count + 1)]]
    header = ", ".join([invented, *hops])
    assert network_of(PROXY, [header], proxies(count, *TRUSTED)) == "192.0.2.7"


def test_strangers_fill_no_memory() -> None:
    for number in range(10_000):
        network_of(PROXY, [str(ipaddress.IPv4Address(number << 8))], proxies(1, *TRUSTED))
        network_of(str(ipaddress.IPv6Address(number << 64)))
    assert client_address._parsed.cache_info().currsize <= 4096
    assert client_address._network_of.cache_info().currsize <= 4096


def test_what_is_too_long_for_an_address_is_remembered_nowhere() -> None:
    client_address._parsed.cache_clear()
    for number in range(10):
        network_of(PROXY, [f"{number}" * 5_000], proxies(1, *TRUSTED))
    assert client_address._parsed.cache_info().currsize == 1  # the proxy


@asynccontextmanager
async def a_mirror(behind: Proxies) -> AsyncIterator[str]:
    """A server that answers with the client address it sees."""
    app = new_app("mirror", ErrorResponder(relayer_errors.ERRORS))
    app.ctx.proxies = behind

    async def show(request: Request) -> Reply:
        return json_reply({"network": client_network(request)})

    app.add_route(show, "/")
    async with serving(app) as url:
        yield url


async def test_a_real_request_has_its_peers_or_its_clients_address() -> None:
    async with aiohttp.ClientSession() as client:

        async def seen(url: str, *lines: str) -> object:
            headers = CIMultiDict([("X-Forwarded-For", line) for line in lines])
            async with client.get(url, headers=headers) as answer:
                return (await answer.json())["network"]

        async with a_mirror(NO_PROXIES) as url:
            assert await seen(url, "192.0.2.7") == "127.0.0.1"
        async with a_mirror(proxies(1, "127.0.0.1/32")) as url:
            assert await seen(url) == "127.0.0.1"
            assert await seen(url, "198.51.100.9", "192.0.2.7") == "192.0.2.7"
            assert await seen(url, "2001:db8:1:2:3::4") == "2001:db8:1:2::/64"


# --- plain http behind a proxy -------------------------------------------------------------------

BEHIND_US = HttpPolicy(proxies=proxies(1, "127.0.0.0/8"))
ORIGIN = "https://shop.example"


async def ask(
    surface: RunningSurfaces,
    proto: Sequence[str],
    method: str = "GET",
    path: str = "/service-api/health",
) -> tuple[int, Any, Any]:
    headers = CIMultiDict([("X-Forwarded-Proto", line) for line in proto])
    headers["Origin"] = ORIGIN
    body = an_event() if method == "POST" else None
    async with surface.client.request(
        method, surface.url + path, headers=headers, json=body
    ) as answer:
        raw = await answer.read()
        return answer.status, json.loads(raw) if raw else None, answer.headers


@pytest.mark.parametrize(
    "proto",
    [["http"], ["HTTP"], [" http "], ["https, http"], ["http,https"], ["https", "http"]],
)
async def test_plain_http_behind_a_trusted_proxy_is_refused(proto: list[str]) -> None:
    async with a_surface(BEHIND_US) as surface:
        for method, path in (("POST", "/service-api/manual-event"), ("GET", "/service-api/health")):
            status, answer, headers = await ask(surface, proto, method, path)
            assert (status, answer) == (403, {"success": False, "error": "HTTPS is required"})
            assert headers["Access-Control-Allow-Origin"] == ORIGIN
            assert headers["Vary"] == "Origin"
            assert headers["X-Request-Id"]
        for path in ("/relay", "/docs", "/nowhere"):
            status, answer, headers = await ask(surface, proto, path=path)
            assert (status, answer) == (
                403,
                {"error": "HTTPS is required", "code": "HTTPS_REQUIRED"},
            )
            assert headers["Access-Control-Allow-Origin"] == ORIGIN
        assert surface.events.requests == []


@pytest.mark.parametrize("proto", [[], ["https"], ["https, https"], [""], ["httpx"], ["wss"]])
async def test_https_or_silence_behind_a_trusted_proxy_is_served(proto: list[str]) -> None:
    async with a_surface(BEHIND_US) as surface:
        assert (await ask(surface, proto))[0] == 200


async def test_a_preflight_over_plain_http_is_answered_so_that_the_refusal_can_be_read() -> None:
    async with a_surface(BEHIND_US) as surface:
        status, _, headers = await ask(surface, ["http"], "OPTIONS")
        assert (status, headers["Access-Control-Allow-Origin"]) == (204, ORIGIN)


@pytest.mark.parametrize(
    "policy",
    [
        HttpPolicy(),
        HttpPolicy(proxies=proxies(1, "10.0.0.0/8")),
        HttpPolicy(proxies=proxies(1, "127.0.0.0/8"), requires_https=False),
    ],
    ids=["no proxies", "an untrusted peer", "dev mode"],
)
async def test_elsewhere_the_header_is_ignored(policy: HttpPolicy) -> None:
    async with a_surface(policy) as surface:
        assert (await ask(surface, ["http"]))[0] == 200


async def test_the_public_app_knows_its_proxies() -> None:
    assert build_app(services_over(FakeEvents()), BEHIND_US).ctx.proxies == BEHIND_US.proxies
