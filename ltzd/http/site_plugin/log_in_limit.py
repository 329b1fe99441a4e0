"""How often an address may fail to log in at a brand's site, before the site is asked no more.

Behind a site's plugin or a proxy all visitors have one address, so good log-ins are not counted,
and a log-in that the site confirmed within the hour passes while others are refused. Once the site
denies such a log-in it is as the others are, so that it cannot be repeated past the limit.
"""

import math
import time

from sanic.request import Request

from ltzd.actions.site_plugin.members import AuthenticatedMember
from ltzd.cache.rate_limits import RateLimit, RateLimits, RateLimitStatus
from ltzd.errors import HostSiteRefused, LoginRateLimited, NotLoggedIn
from ltzd.http.requests.client_address import client_network
from ltzd.http.services import SiteMembers
from ltzd.providers.host_sites import HostCredentials, login_headers

FAILED_LOG_INS = RateLimit("site_log_in_ip", 60, 60)
"""Of an address at one host."""


class LogInLimit:
    def __init__(self, members: SiteMembers, limits: RateLimits) -> None:
        self._members = members
        self._limits = limits

    async def member(
        self, request: Request, host: str, credentials: HostCredentials
    ) -> AuthenticatedMember:
        """`SiteMembers.member`. Raises LoginRateLimited, too.

        What could prove no log-in is not counted: the site is not asked about it. What a firewall
        before the site refuses is counted: whoever writes the log-in can bring that about.
        """
        if login_headers(credentials) is None:
            return await self._members.member(host, credentials)
        client = client_network(request)
        spent = self._limits.exhausted(FAILED_LOG_INS, client, host)
        if spent is not None and not self._members.is_confirmed(host, credentials):
            raise limited(_seconds_left(spent))
        try:
            return await self._members.member(host, credentials)
        except (NotLoggedIn, HostSiteRefused):
            window = await self._limits.hit(FAILED_LOG_INS, client, host)
            if not window.is_within:
                raise limited(_seconds_left(window)) from None
            raise


def limited(seconds: int) -> LoginRateLimited:
    return LoginRateLimited(
        f"Too many log-ins have failed from your address. Please try again in {seconds} seconds.",
        limit=FAILED_LOG_INS.max_hits,
        retryAfterSeconds=seconds,
    )


def _seconds_left(window: RateLimitStatus) -> int:
    return max(1, math.ceil(window.reset_at - time.time()))
