"""Tells addresses of the public internet from those of this machine, its network or its cloud.

Python's `is_global` alone would accept multicast, 6to4, NAT64 and documentation networks, each in
some versions. IPv6 addresses that hold an IPv4 address are all refused: no public server needs
them.
"""

import ipaddress
from functools import lru_cache
from typing import Final

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

_REFUSED: Final[tuple[Network, ...]] = tuple(
    map(
        ipaddress.ip_network,
        (
            "0.0.0.0/8",  # "this" network: Linux connects to itself
            "10.0.0.0/8",
            "100.64.0.0/10",  # carriers' NAT; a cloud's metadata at 100.100.100.200
            "127.0.0.0/8",
            "168.63.129.16/32",  # a cloud's agent under a public address
            "169.254.0.0/16",  # link-local; most clouds' metadata at 169.254.169.254
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",  # 6to4 relays
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/4",  # multicast
            "240.0.0.0/4",  # reserved; broadcast
            "2001::/23",  # Teredo and other protocols
            "2001:db8::/32",
            "2002::/16",  # 6to4
            "3fff::/20",
        ),
    )
)
_IPV6_INTERNET: Final = ipaddress.IPv6Network("2000::/3")
"""Addresses outside it are loopback, mapped, NAT64, link-local, unique local, multicast or
unassigned."""


@lru_cache(maxsize=4_096)
def is_public(text: str) -> bool:
    """False also for a text that is no plain IP address. Few addresses are judged very often."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address) and (
        address.scope_id is not None or address not in _IPV6_INTERNET
    ):
        return False
    return address.is_global and not any(address in network for network in _REFUSED)
