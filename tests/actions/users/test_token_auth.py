"""A user's token and the wallets it speaks for, with the sandbox as identity provider."""

from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from ltzd.actions.users.token_auth import TokenAuthenticator
from ltzd.errors import IdentityUnavailable, Unauthorized, ValidationFailed
from ltzd.providers.identity.client import IdentityClient
from ltzd.providers.identity.tokens import IdentityTokens
from ltzd.values import address_of
from tests.support.services.identity import Provider, a_provider

BOTH = ["accessToken", "identityToken"]


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[Provider]:
    async with a_provider(tmp_path) as provider:
        yield provider


@pytest.fixture
async def users(provider: Provider) -> AsyncIterator[TokenAuthenticator]:
    policy = replace(provider.policy, max_attempts=1)
    async with IdentityTokens(policy) as tokens, IdentityClient(policy) as identity:
        yield TokenAuthenticator(tokens, identity)


@pytest.mark.parametrize("kind", BOTH)
async def test_either_token_speaks_for_its_users_wallet(
    provider: Provider, users: TokenAuthenticator, kind: str
) -> None:
    given = await provider.log_in()
    wallet = address_of(given["walletAddress"])

    user = await users.user_of(given[kind])

    assert user.subject == given["subject"]
    assert await users.wallets_of(user) == (wallet,)
    await users.require_wallet(user, wallet)


@pytest.mark.parametrize("kind", BOTH)
async def test_neither_token_speaks_for_another_users_wallet(
    provider: Provider, users: TokenAuthenticator, kind: str
) -> None:
    mine = await provider.log_in()
    theirs = await provider.log_in("bob@shop.example")
    user = await users.user_of(mine[kind])

    with pytest.raises(ValidationFailed, match="not a wallet of the token's user"):
        await users.require_wallet(user, address_of(theirs["walletAddress"]))


async def test_a_wallet_linked_after_the_log_in_is_the_users_too(
    provider: Provider, users: TokenAuthenticator
) -> None:
    given = await provider.log_in()
    user = await users.user_of(given["accessToken"])
    await provider.add_wallet(given["subject"])

    assert len(await users.wallets_of(user)) == 2


async def test_an_identity_token_needs_no_provider_to_name_its_wallets(
    provider: Provider, users: TokenAuthenticator
) -> None:
    given = await provider.log_in()
    wallet = address_of(given["walletAddress"])
    access = await users.user_of(given["accessToken"])
    provider.break_down()

    await users.require_wallet(await users.user_of(given["identityToken"]), wallet)
    with pytest.raises(IdentityUnavailable):
        await users.require_wallet(access, wallet)


async def test_a_user_whom_the_provider_has_deleted_has_no_wallet(
    provider: Provider, users: TokenAuthenticator
) -> None:
    given = await provider.log_in()
    user = await users.user_of(provider.token(sub="did:privy:cgone"))

    with pytest.raises(ValidationFailed):
        await users.require_wallet(user, address_of(given["walletAddress"]))


async def test_an_invalid_token_has_no_user(users: TokenAuthenticator) -> None:
    with pytest.raises(Unauthorized):
        await users.user_of("token")
