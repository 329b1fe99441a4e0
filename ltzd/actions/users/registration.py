"""The user of an e-mail address, met by another door than an event.

He has a row once this answers, so that a later event of his brings no new wallet; until then he
counts towards the new wallets that the brand allows itself in an hour.
"""

from ltzd.actions.users.identity_provider import IdentityProvider
from ltzd.rules.brands.configuration import Brand
from ltzd.rules.event_handler.brand_limits import rate_limited, refuse_more_wallets, wallets_of
from ltzd.store import payments
from ltzd.store.database import Pool, session
from ltzd.store.users import users
from ltzd.store.users.users import User


class UserRegistration:
    def __init__(self, pool: Pool, identity: IdentityProvider) -> None:
        self._pool = pool
        self._identity = identity

    async def user_of(self, email: str, brand: Brand) -> User:
        """Raises RateLimited, InvalidFields, and Unavailable while nobody can tell his wallet."""
        key = users.email_key(email)
        async with session(self._pool) as connection:
            known = await users.find(connection, key)
            if known is not None:
                return known
            made, now = await payments.wallets_this_hour(connection, brand.address)
        quota = wallets_of(brand, now)
        refuse_more_wallets(quota, made, now)
        found = await self._identity.wallet_of_email(email)
        user = User(users.user_id(found.subject, key), key, found.subject, found.wallet)
        async with session(self._pool) as connection:
            is_met = await payments.insert_user(connection, user, brand.address, quota)
            kept = await users.find(connection, key)
        if quota is not None and not is_met:
            raise rate_limited("new wallets an hour", quota.maximum, quota.seconds_left(now))
        # Whoever was faster may have met him under another subject, with another wallet.
        return kept or user
