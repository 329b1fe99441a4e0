"""Names under which only this machine can be meant."""

import ipaddress
import re

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(?::[0-9]{1,5})?")


def is_loopback(host: str) -> bool:
    """`host` without a port; IPv6 addresses with or without brackets."""
    name = host.strip("[]").removesuffix(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """A Host header's host without its port; empty for nonsense."""
    match = _HOST.fullmatch(header)
    return "" if match is None else match[1]
