"""URLs in customers' files, to which ltzd sends requests.

The addresses behind a URL are checked at each request (providers/outbound/guarded_http.py). A URL
that could never be requested is refused at once, with the reason.
"""

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

from ltzd.rules.domains.names import is_ip_address, url_host


@lru_cache(maxsize=4_096)
def is_loopback_host(host: str) -> bool:
    """`host` is in the form of `url_host`; does not recognise other spellings of the address."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
    # Later versions of Python also count ::ffff:127.0.0.1 as loopback.
    return address.is_loopback and getattr(address, "ipv4_mapped", None) is None


def check_public_url(url: str) -> None:
    """Accept an https URL with a host name and port 443, and any URL of this machine.

    Only dev mode sends requests to this machine. Raises ValueError.
    """
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
