"""The keys that sign the identity provider's tokens for one application."""

from urllib.parse import quote

from ltzd.concurrency.clock import Clock
from ltzd.providers.identity.calls import IdentityCalls, IdentityPolicy, refusal_in
from ltzd.providers.jwks import PublicKey, verification_keys
from ltzd.providers.key_cache import KeyCache


class IdentityKeyCache(KeyCache):
    def __init__(self, policy: IdentityPolicy, calls: IdentityCalls, clock: Clock) -> None:
        super().__init__(clock)
        self._path = f"/v1/apps/{quote(policy.app_id, safe='')}/jwks.json"
        self._calls = calls

    async def fetch_keys(self) -> dict[str, PublicKey]:
        async with self._calls.operation() as deadline:
            response = await self._calls.send("GET", self._path, deadline=deadline)
            if not response.is_success:
                raise refusal_in(response)
            return verification_keys(response, ("ES256",))
