"""URLs that customers write into their files, and that ltzd then asks.

Where such a URL leads is decided when it is asked (providers/outbound/guarded_http.py). What could
never be asked is refused at once, with the reason.
"""

import ipaddress
from urllib.parse import urlsplit

from ltzd.rules.domains.names import is_ip_address, url_host


def is_loopback_host(host: str) -> bool:
    """`host` as `url_host` answers it; not for odd spellings of the address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    # Later versions of Python count ::ffff:127.0.0.1 in, too.
    return address.is_loopback and getattr(address, "ipv4_mapped", None) is None


def refuse_unguarded(url: str) -> None:
    """https, port 443, a name; or this machine, which only dev mode asks. Raises ValueError."""
    host = url_host(url)
    parts = urlsplit(url)
    if "#" in url:
        raise ValueError("must not have a fragment")
    if is_loopback_host(host):
        return
    if is_ip_address(host):
        raise ValueError("must name its host, not give an IP address")
    if parts.scheme != "https":
        raise ValueError("must be an https URL")
    if parts.port not in (None, 443):
        raise ValueError("must use port 443")
