"""URLs of PostgreSQL that name several servers: `host:port,host:port`, as libpq takes them.

A client tries the servers in this order, and takes the first one that `target_session_attrs` fits.
"""

from urllib.parse import parse_qs, urlsplit


def each_server(url: str) -> tuple[str, ...]:
    """The URL of each of its servers; a URL with one server alone is returned as it is.

    Raises ValueError if the URL cannot be read.
    """
    parts = urlsplit(url)
    user, at, netloc = parts.netloc.rpartition("@")
    servers = netloc.split(",")
    if len(servers) == 1:
        return (url,)
    return tuple(parts._replace(netloc=f"{user}{at}{server}").geturl() for server in servers)


def session_attributes(url: str) -> str | None:
    """Return the `target_session_attrs` of the URL, of several the last one, or None.

    Raises ValueError if the URL cannot be read.
    """
    return parse_qs(urlsplit(url).query).get("target_session_attrs", [None])[-1]
