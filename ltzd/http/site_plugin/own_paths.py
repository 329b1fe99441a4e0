"""Serves each site under its own path too: in a folder, or with another REST prefix or namespace.

A reverse proxy can then pass a site's path on unchanged. Routes, limits and error formats know the
path of the settings alone, since the path is exchanged before anything reads it.
"""

import re
from collections.abc import Mapping

from ltzd.http.services import SiteMemberService
from ltzd.http.site_plugin.handlers import host_name

_VERSION = b"/v1/"
_AUTHORITY = re.compile(rb"[^:/?#]+://[^/?#]*")
"""The beginning of an absolute URL, before its path."""


class OwnPaths:
    """`base` is the path of the API by the settings."""

    def __init__(self, members: SiteMemberService, base: str) -> None:
        self._members = members
        self._base = base.encode()

    def canonical(self, target: bytes, headers: Mapping[str, str]) -> bytes:
        """The request's target with the path of the settings, if its host has that path itself."""
        if _VERSION not in target or target.startswith(self._base):
            return target
        authority = _AUTHORITY.match(target)
        begin = 0 if authority is None else authority.end()
        for path in self._members.api_paths_of(host_name(headers.get("host", ""))):
            own = path.encode()
            if target.startswith(own + b"/", begin):
                return target[:begin] + self._base + target[begin + len(own) :]
        return target
