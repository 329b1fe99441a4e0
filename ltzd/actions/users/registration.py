"""Finds or creates the user of an e-mail address, for every request that is not an event.

The user has a row once this returns, so a later event creates no second wallet. A created wallet
counts towards the brand's limit of new wallets an hour, also if its caller is cancelled meanwhile:
the identity provider makes the wallet all the same.
"""

import asyncio
import sys
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from ltzd.actions.users.identity_provider import IdentityProvider
from ltzd.concurrency.single_flight import SingleFlight
from ltzd.errors import RateLimited
from ltzd.rules.brands.configuration import Brand
from ltzd.rules.event_handler.brand_limits import rate_limited, refuse_more_wallets, wallets_of
from ltzd.store.database import Pool, session
from ltzd.store.users import registrations, users
from ltzd.store.users.erased_addresses import ErasedAddresses
from ltzd.store.users.users import User
from ltzd.values import Address


class UserRegistration:
    def __init__(self, pool: Pool, identity: IdentityProvider, erased: ErasedAddresses) -> None:
        self._pool = pool
        self._erased = erased
        self._identity = identity
        # Unbounded here: the identity provider's client bounds the look-ups.
        self._flights: SingleFlight[tuple[Address, str], User] = SingleFlight(
            "user registration", sys.maxsize
        )

    async def user_of(self, email: str, brand: Brand) -> User:
        """Raises RateLimited, InvalidFields, and Unavailable while the wallet cannot be found."""
        return await self._flights.call(*self._flight(email, brand))

    def begin(self, email: str, brand: Brand) -> asyncio.Task[User]:
        """As `user_of`, for a caller that does not wait; concurrent calls share the task."""
        return self._flights.begin(*self._flight(email, brand))

    def _flight(
        self, email: str, brand: Brand
    ) -> tuple[tuple[Address, str], Callable[[], Coroutine[Any, Any, User]]]:
        """The key under which concurrent callers share a call, and the call itself."""
        key = users.email_key(email)
        return (brand.address, key), partial(self._user_of, email, key, brand)

    async def _user_of(self, email: str, key: str, brand: Brand) -> User:
        async with session(self._pool) as connection:
            known = await self._erased.find_user(connection, key)
            if known is not None:
                return known
            made, now = await registrations.wallets_this_hour(connection, brand.address)
        quota = wallets_of(brand, now)
        try:
            refuse_more_wallets(quota, made, now)
        except RateLimited:
            # The count is newer than the user's absence: it may hold this user's own wallet.
            async with session(self._pool) as connection:
                known = await self._erased.find_user(connection, key)
            if known is None:
                raise
            return known
        identity = await self._identity.wallet_of_email(email, brand.address)
        user = User(users.user_id(identity.subject, key), key, identity.subject, identity.wallet)
        async with session(self._pool) as connection:
            is_met = await registrations.insert_user(connection, user, brand.address, quota)
            kept = await self._erased.find_user(connection, key)
        if quota is not None and not is_met:
            raise rate_limited("new wallets an hour", quota.maximum, quota.seconds_left(now))
        # A concurrent request may have created the user under another subject and wallet.
        return kept or user
