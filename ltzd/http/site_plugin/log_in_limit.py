"""The limit of failed log-ins per client address and host, beyond which the site is not asked.

Behind a site's plugin or a proxy all visitors share an address. Successful log-ins therefore do
not count, and a log-in that the site confirmed within the hour passes while others are refused.
Once the site denies such a log-in it loses that privilege, so that it cannot be repeated past the
limit.
"""

from sanic.request import Request

from ltzd.actions.site_plugin.members import AuthenticatedMember
from ltzd.cache.rate_limits import RateLimit, RateLimits
from ltzd.errors import HostSiteRefused, LoginRateLimited, NotLoggedIn
from ltzd.http.requests.client_address import client_network
from ltzd.http.requests.rate_limits import seconds_left
from ltzd.http.services import SiteMemberService
from ltzd.providers.host_sites import HostCredentials, login_headers

FAILED_LOG_INS = RateLimit("site_log_in_ip", 60, 60)
"""Per address and host."""


class LogInLimit:
    def __init__(self, members: SiteMemberService, limits: RateLimits) -> None:
        self._members = members
        self._limits = limits

    async def member(
        self, request: Request, host: str, credentials: HostCredentials
    ) -> AuthenticatedMember:
        """As `SiteMemberService.member`; also raises LoginRateLimited.

        Credentials that cannot prove a log-in do not count, since the site is not asked. A refusal
        by a firewall in front of the site counts: the client can provoke it.
        """
        if login_headers(credentials) is None:
            return await self._members.member(host, credentials)
        client = client_network(request)
        exhausted = self._limits.exhausted(FAILED_LOG_INS, client, host)
        if exhausted is not None and not self._members.is_confirmed(host, credentials):
            raise too_many_log_ins(seconds_left(exhausted))
        try:
            return await self._members.member(host, credentials)
        except (NotLoggedIn, HostSiteRefused):
            window = await self._limits.hit(FAILED_LOG_INS, client, host)
            if not window.is_within:
                raise too_many_log_ins(seconds_left(window)) from None
            raise


def too_many_log_ins(seconds: int) -> LoginRateLimited:
    return LoginRateLimited(
        f"Too many log-ins have failed from your address. Please try again in {seconds} seconds.",
        limit=FAILED_LOG_INS.max_hits,
        retryAfterSeconds=seconds,
    )
