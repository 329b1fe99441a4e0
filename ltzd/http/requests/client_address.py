"""The client address of a request, which rate limits count: the peer's, or the one a proxy reports.

`X-Forwarded-For` is read from its end, at most one entry per proxy. Each entry was written by the
next hop, which must be a trusted proxy. Entries before those come from the client and may be
forged.
"""

import re
from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

import msgspec
from sanic.request import Request

from ltzd.http.errors import HttpsRequired

Address = IPv4Address | IPv6Address

UNKNOWN = "unknown"
"""The limit key of a peer without an IP address, such as a Unix socket's."""

_MAX_LENGTH = 64
_WITH_PORT = re.compile(r"\[([^\[\]]+)\](?::[0-9]{1,5})?|([0-9.]+):[0-9]{1,5}")


class Proxies(msgspec.Struct, frozen=True):
    """The trusted reverse proxies: the most that a request passes, and their networks."""

    count: int = 0
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    def trusts(self, address: Address) -> bool:
        return any(address in network for network in self.networks)

    def is_trusted_peer(self, peer: str) -> bool:
        """Whether the peer of a connection is one of the proxies."""
        address = _address_of(peer) if self.count else None
        return address is not None and self.trusts(address)


NO_PROXIES = Proxies()


def client_network(request: Request) -> str:
    """The key of rate limits: an IPv4 address, or an IPv6 /64, which one subscriber holds."""
    proxies: Proxies = request.app.ctx.proxies
    if not proxies.count:
        return _network_of(request.ip)
    return network_of(request.ip, request.headers.getall("x-forwarded-for", ()), proxies)


def network_of(peer: str, forwarded: Iterable[str], proxies: Proxies) -> str:
    """`client_network` of a request from this peer with these X-Forwarded-For lines."""
    if not proxies.count:
        return _network_of(peer)
    return _key(_client(peer, forwarded, proxies))


def client_class(request: Request) -> str:
    """The kind of the client's address, for the log: loopback, private, public or unknown."""
    proxies: Proxies = request.app.ctx.proxies
    forwarded = request.headers.getall("x-forwarded-for", ())
    address = _client(request.ip, forwarded, proxies) if proxies.count else _address_of(request.ip)
    if address is None:
        return UNKNOWN
    if address.is_loopback:
        return "loopback"
    return "public" if address.is_global else "private"


def refuse_plain_http(request: Request) -> None:
    """Raises HttpsRequired if a trusted proxy reports that a hop used plain HTTP."""
    proxies: Proxies = request.app.ctx.proxies
    if not proxies.count:
        return
    protocols = ",".join(request.headers.getall("x-forwarded-proto", ())).lower().split(",")
    if "http" not in map(str.strip, protocols):
        return
    peer = _address_of(request.ip)
    if peer is not None and proxies.trusts(peer):
        raise HttpsRequired("HTTPS is required")


def _client(peer: str, forwarded: Iterable[str], proxies: Proxies) -> Address | None:
    address = _address_of(peer)
    entries = ",".join(forwarded).rsplit(",", proxies.count)[-proxies.count :]
    for entry in reversed(entries):
        if address is None or not proxies.trusts(address):
            break
        previous = _address_of(entry.strip())
        if previous is None:
            break
        address = previous
    return address


@lru_cache(maxsize=4096)
def _network_of(text: str) -> str:
    return _key(_address_of(text))


def _key(address: Address | None) -> str:
    if address is None:
        return UNKNOWN
    if isinstance(address, IPv4Address):
        return str(address)
    return f"{IPv6Address(int(address) >> 64 << 64)}/64"


def _address_of(text: str) -> Address | None:
    """None if the text is not an address. Drops a port, and unwraps an IPv4-mapped IPv6 address."""
    return _parsed(text) if len(text) <= _MAX_LENGTH else None


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Address | None:
    match = _WITH_PORT.fullmatch(text)
    try:
        address = ip_address(text if match is None else match[1] or match[2])
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped
    return address
