"""Who a request comes from, for limits: the peer, or what our own reverse proxies say of it.

A header is only as good as its writer. `X-Forwarded-For` is read from its end, an entry for each
proxy at most, and each was written by the hop after it, which must be trusted. Whatever stands
before that was sent by the client and may be invented.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address

from sanic.request import Request

from ltzd.http.errors import HttpsRequired

Address = IPv4Address | IPv6Address

UNKNOWN = "unknown"
"""The limit key of a peer without an IP address, such as a Unix socket's."""

_LONGEST = 64
_WITH_PORT = re.compile(r"\[([^\[\]]+)\](?::[0-9]{1,5})?|([0-9.]+):[0-9]{1,5}")


@dataclass(frozen=True, slots=True)
class Proxies:
    """Our reverse proxies: how many a request passes at most, and the networks they are in."""

    count: int = 0
    networks: tuple[IPv4Network | IPv6Network, ...] = ()

    def trusts(self, address: Address) -> bool:
        return any(address in network for network in self.networks)


NO_PROXIES = Proxies()


def client_network(request: Request) -> str:
    """The key of limits: an IPv4 address, or the /64 that one IPv6 subscriber has."""
    proxies: Proxies = request.app.ctx.proxies
    if not proxies.count:
        return _network_of(request.ip)
    return _key(_client(request, proxies))


def refuse_plain_http(request: Request) -> None:
    """Raises HttpsRequired when one of our proxies says that a part of the way was not https."""
    proxies: Proxies = request.app.ctx.proxies
    if not proxies.count:
        return
    said = ",".join(request.headers.getall("x-forwarded-proto", ())).lower().split(",")
    if "http" not in map(str.strip, said):
        return
    peer = _address_of(request.ip)
    if peer is not None and proxies.trusts(peer):
        raise HttpsRequired("HTTPS is required")


def _client(request: Request, proxies: Proxies) -> Address | None:
    address = _address_of(request.ip)
    lines = request.headers.getall("x-forwarded-for", ())
    entries = ",".join(lines).rsplit(",", proxies.count)[-proxies.count :]
    for entry in reversed(entries):
        if address is None or not proxies.trusts(address):
            break
        before = _address_of(entry.strip())
        if before is None:
            break
        address = before
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
    """None for what is no address. A port is dropped; an IPv4 address in IPv6 clothes undressed."""
    return _parsed(text) if len(text) <= _LONGEST else None


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
