"""Recognizes the host names of this machine's loopback interface."""

import ipaddress
import re

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^:\[\]]*)(?::[0-9]{1,5})?")


def is_loopback(host: str) -> bool:
    """`host` has no port. An IPv6 address may have brackets."""
    name = host.strip("[]").removesuffix(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def host_of(header: str) -> str:
    """The host in a Host header, without the port; empty if the header is malformed."""
    match = _HOST.fullmatch(header)
    return "" if match is None else match[1]
