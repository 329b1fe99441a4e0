"""Users' tokens against the sandbox's key set, over HTTP: accepted, refused and forged ones."""

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import jwt
import pytest
from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm

from ltzd import telemetry
from ltzd.errors import IdentityUnavailable, Unauthorized
from ltzd.providers.identity import tokens as tokens_module
from ltzd.providers.identity.tokens import IdentityTokens, TokenUser
from ltzd.providers.jwks import PublicKey, key_name, verification_keys
from ltzd.providers.outbound.http_client import HttpResponse, MalformedAnswerError
from ltzd.providers.token_checks import MAX_TOKEN_LENGTH, verified_payload
from ltzd.rules.oauth.accounts import OAuthAccount
from ltzd.values import address_of
from tests.support.clocks import ManualClock
from tests.support.services.identity import (
    Provider,
    a_provider,
    as_base64,
    as_json,
    served,
)
from tests.support.waiting import Stopwatch, at_once, until

T = TypeVar("T")

REFUSED = "^Invalid or expired token$"
WALLET = "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed"
OTHER_WALLET = "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359"
QUICK: dict[str, Any] = {"max_attempts": 1, "timeout_seconds": 0.3}


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[Provider]:
    async with a_provider(tmp_path) as provider:
        yield provider


@pytest.fixture
def ticks() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def tokens(provider: Provider, ticks: ManualClock) -> AsyncIterator[IdentityTokens]:
    async with IdentityTokens(replace(provider.policy, **QUICK), clock=ticks) as tokens:
        yield tokens


async def refused(tokens: IdentityTokens, token: str) -> None:
    with pytest.raises(Unauthorized, match=REFUSED) as refusal:
        await tokens.user_of(token)
    assert refusal.value.details == {}


# --- accepted tokens ----------------------------------------------------------------------------


async def test_an_access_token_tells_its_user_and_no_wallets(
    provider: Provider, tokens: IdentityTokens
) -> None:
    given = await provider.log_in()

    assert await tokens.user_of(given["accessToken"]) == TokenUser(given["subject"], None)


async def test_an_identity_token_tells_its_users_wallets(
    provider: Provider, tokens: IdentityTokens
) -> None:
    given = await provider.log_in()

    user = await tokens.user_of(given["identityToken"])

    wallets = (address_of(given["walletAddress"]),)
    assert user == TokenUser(given["subject"], wallets, emails=("ann@shop.example",))


async def test_every_ethereum_wallet_of_an_identity_token_counts_and_nothing_else_does(
    provider: Provider, tokens: IdentityTokens
) -> None:
    def row(address: object, **other: object) -> dict[str, object]:
        return {"type": "wallet", "chain_type": "ethereum", "address": address, **other}

    accounts: list[object] = [
        row(WALLET, wallet_client_type="privy", lv=1),
        row(OTHER_WALLET.lower(), wallet_client_type="metamask", lv=1),
        row(WALLET, wallet_client_type="metamask"),
        row("0x" + "1" * 40, lv=None, wallet_client_type="metamask"),
        row("0x" + "2" * 40, chain_type="solana"),
        row("0x" + "3" * 40, type="smart_wallet"),
        row("0x" + "0" * 40),
        row(WALLET.replace("aAeb", "AAeb")),
        *map(row, ("0x12", "", None, 7, [WALLET])),
        *("nonsense", None, 7, []),
    ]
    token = provider.token(sid=None, linked_accounts=json.dumps(accounts))

    user = await tokens.user_of(token)

    assert user.wallets == (address_of(WALLET), address_of(OTHER_WALLET))


async def test_wallets_whose_keys_the_provider_holds_come_first(
    provider: Provider, tokens: IdentityTokens
) -> None:
    """Only these can sign a permit for a member who is linked with the user's first wallet."""

    def row(digit: str, **other: object) -> dict[str, object]:
        return {"type": "wallet", "chain_type": "ethereum", "address": "0x" + digit * 40, **other}

    accounts = [
        row("1", wallet_client_type="metamask", lv=1),
        row("2", wallet_client_type="privy", wallet_index=1),
        row("3", wallet_client_type="privy", wallet_index=0),
    ]
    token = provider.token(sid=None, linked_accounts=json.dumps(accounts))

    user = await tokens.user_of(token)

    assert user.wallets == tuple(address_of("0x" + digit * 40) for digit in "321")


async def test_an_identity_token_tells_its_users_verified_accounts(
    provider: Provider, tokens: IdentityTokens
) -> None:
    telegram = {"type": "telegram", "telegram_user_id": "77", "username": "ann77"}
    discord = {"type": "discord_oauth", "subject": "1" * 18, "username": "ann.b"}
    await provider.make({"type": "email", "address": "ann@shop.example"}, telegram, discord)
    given = await provider.log_in()

    user = await tokens.user_of(given["identityToken"])

    assert user.accounts == (
        OAuthAccount("telegram", "77", "ann77"),
        OAuthAccount("discord", "1" * 18, "ann.b"),
    )
    assert (await tokens.user_of(given["accessToken"])).accounts == ()
    rows = [{"type": "spotify_oauth", "subject": "imported", "lv": None}]
    token = provider.token(sid=None, linked_accounts=json.dumps(rows))
    assert (await tokens.user_of(token)).accounts == ()


async def test_an_identity_token_without_wallets_has_none_even_with_a_session(
    provider: Provider, tokens: IdentityTokens
) -> None:
    token = provider.token(linked_accounts="[]")

    assert (await tokens.user_of(token)).wallets == ()


async def test_the_issuer_is_a_setting(provider: Provider) -> None:
    policy = replace(provider.policy, issuer="identity.example")
    async with IdentityTokens(policy) as tokens:
        assert (await tokens.user_of(provider.token(iss="identity.example"))).subject
        await refused(tokens, provider.token())


# --- refused tokens ----------------------------------------------------------------------------


def headed(provider: Provider, **changes: object) -> str:
    return provider.signed(as_json(provider.claims()), provider.header(**changes))


def unsigned(provider: Provider, algorithm: str) -> str:
    head = as_base64(as_json(provider.header(alg=algorithm)))
    return (head + b"." + as_base64(as_json(provider.claims())) + b".").decode()


def by_hmac(provider: Provider, key: bytes, alg: str = "HS256") -> str:
    return provider.signed(as_json(provider.claims()), provider.header(alg=alg), key, "HS256")


def with_own_key(provider: Provider) -> str:
    key = a_key()
    header = provider.header(kid="mine", jwk=ECAlgorithm.to_jwk(key.public_key(), as_dict=True))
    return provider.signed(as_json(provider.claims()), header, key)


def with_payload(token: str, payload: bytes) -> str:
    head, _, signature = token.split(".")
    return f"{head}.{as_base64(payload).decode()}.{signature}"


def a_key() -> ec.EllipticCurvePrivateKey:
    return ec.generate_private_key(ec.SECP256R1())


FORGERIES: dict[str, Callable[[Provider], str]] = {
    "nothing": lambda _: "",
    "a word": lambda _: "token",
    "two parts": lambda p: p.token().rpartition(".")[0],
    "four parts": lambda p: p.token() + ".e30",
    "no signature": lambda p: p.token().rpartition(".")[0] + ".",
    "dots": lambda _: "..",
    "a space behind": lambda p: p.token() + " ",
    "a line end behind": lambda p: p.token() + "\n",
    "padding": lambda p: p.token() + "==",
    "not ASCII": lambda p: p.token() + "\u0660",
    "NUL": lambda p: p.token() + "\0",
    "base64 of the other alphabet": lambda p: "++//" + p.token(),
    "Bearer twice": lambda p: "Bearer " + p.token(),
    "a header of no JSON": lambda p: p.signed(as_json(p.claims()), b"{"),
    "a header that is a list": lambda p: p.signed(as_json(p.claims()), b"[]"),
    "a deep header": lambda p: p.signed(as_json(p.claims()), b"[" * 700),
    "a header of bytes": lambda p: p.signed(as_json(p.claims()), b'{"alg":"\xff"}'),
    "a long header": lambda p: headed(p, x="x" * 2000),
    "alg none": lambda p: unsigned(p, "none"),
    "alg None": lambda p: unsigned(p, "None"),
    "alg none, signed": lambda p: headed(p, alg="none"),
    "alg missing": lambda p: headed(p, alg=None),
    "alg a number": lambda p: headed(p, alg=256),
    "alg ES384": lambda p: headed(p, alg="ES384"),
    "alg ES256K": lambda p: headed(p, alg="ES256K"),
    "alg es256": lambda p: headed(p, alg="es256"),
    "HS256 with the PEM": lambda p: by_hmac(p, p.public_pem()),
    "HS256 with the JWK": lambda p: by_hmac(p, p.public_jwk()),
    "HMAC called ES256": lambda p: by_hmac(p, p.public_pem(), alg="ES256"),
    "RS256": lambda p: p.signed(
        as_json(p.claims()), p.header(alg="RS256"), rsa.generate_private_key(65537, 2048), "RS256"
    ),
    "another key": lambda p: p.signed(as_json(p.claims()), key=a_key()),
    "a key that it brings": with_own_key,
    "another curve": lambda p: p.signed(
        as_json(p.claims()), key=ec.generate_private_key(ec.SECP256K1())
    ),
    "typ missing": lambda p: headed(p, typ=None),
    "typ of another kind": lambda p: headed(p, typ="at+jwt"),
    "typ a number": lambda p: headed(p, typ=1),
    "kid missing": lambda p: headed(p, kid=None),
    "kid empty": lambda p: headed(p, kid=""),
    "kid a list": lambda p: headed(p, kid=["a"]),
    "kid unknown": lambda p: headed(p, kid="../../etc/passwd"),
    "crit": lambda p: headed(p, crit=["exp"], exp=1),
    "b64 false": lambda p: headed(p, b64=False, crit=["b64"]),
    "another payload": lambda p: with_payload(p.token(), as_json(p.claims(sub="did:privy:cbob"))),
    "a payload of no JSON": lambda p: p.signed(b"{"),
    "a payload that is a list": lambda p: p.signed(b"[]"),
    "a deep payload": lambda p: p.signed(b"[" * 9000),
    "a deep claim": lambda p: p.signed(as_json(p.claims())[:-1] + b', "x": ' + b"[" * 9000),
    "duplicate exp": lambda p: p.signed(as_json(p.claims())[:-1] + b', "exp": 1}'),
    "too long": lambda p: p.token(x="x" * MAX_TOKEN_LENGTH),
    "far too long": lambda _: "e30." * 1_000_000,
}


async def test_no_forgery_passes(provider: Provider, tokens: IdentityTokens) -> None:
    await tokens.user_of(provider.token())
    for name, forged in FORGERIES.items():
        assert await verdict(tokens, forged(provider)) == "refused", name


async def verdict(tokens: IdentityTokens, token: str) -> object:
    try:
        return await tokens.user_of(token)
    except Unauthorized:
        return "refused"


WRONG_CLAIMS: dict[str, list[object]] = {
    "iss": [None, "", "privy.io.evil.example", "PRIVY.IO", ["privy.io"], 7],
    "aud": [None, "", "another app", 7, True, {}],
    "sub": [None, "", 7, ["did:privy:cann"], "did:privy:\x00"],
    "exp": [None, True, "4000000000", [4000000000], 0, -1, 1, 1.5, -1e300],
    "iat": [None, True, "1", [1], 4000000000, 1e300, 10**400],
    "nbf": [4000000000, "1", True],
    "sid": [None, "", 7, True],
    "linked_accounts": ["", "{", "{}", "7", "null", "[" * 6000, [], {}, 7, True],
}


async def test_no_token_with_a_wrong_claim_passes(
    provider: Provider, tokens: IdentityTokens
) -> None:
    for claim, values in WRONG_CLAIMS.items():
        for value in values:
            token = provider.token(**{claim: value})
            assert await verdict(tokens, token) == "refused", (claim, value)


async def test_a_list_of_audiences_is_refused_though_we_are_in_it(
    provider: Provider, tokens: IdentityTokens
) -> None:
    await refused(tokens, provider.token(aud=[provider.policy.app_id]))


@pytest.mark.parametrize("exp", ["NaN", "Infinity", "1e999", "9" * 6000, "0x7fffffff"])
async def test_an_expiry_that_is_no_number_of_json_is_refused(
    provider: Provider, tokens: IdentityTokens, exp: str
) -> None:
    payload = as_json(provider.claims(exp=7777777777)).replace(b"7777777777", exp.encode())

    await refused(tokens, provider.signed(payload))


async def test_a_huge_expiry_is_a_number_like_others(
    provider: Provider, tokens: IdentityTokens
) -> None:
    assert await tokens.user_of(provider.token(exp=10**400))
    assert await tokens.user_of(provider.token(exp=1e300))


async def test_a_token_ends_in_the_second_it_says(provider: Provider) -> None:
    clock = ManualClock(time.time())
    token = provider.token(exp=int(clock.now) + 60)
    async with IdentityTokens(provider.policy, clock) as tokens:
        clock.now = int(clock.now) + 59.9
        assert await tokens.user_of(token)
        clock.now += 0.1
        await refused(tokens, token)
        clock.now += 1
        await refused(tokens, token)


@pytest.mark.parametrize("claim", ["iat", "nbf"])
async def test_a_token_of_the_future_is_refused_beyond_half_a_minute(
    provider: Provider, claim: str
) -> None:
    clock = ManualClock(time.time())
    async with IdentityTokens(provider.policy, clock) as tokens:
        assert await tokens.user_of(provider.token(**{claim: clock.now + 29.5}))
        await refused(tokens, provider.token(**{claim: clock.now + 30.5}))


async def test_a_token_of_the_doors_that_has_expired_or_is_for_others_is_refused(
    provider: Provider, tokens: IdentityTokens
) -> None:
    for order in ({"expiresIn": -1}, {"claims": {"aud": "another"}}, {"claims": {"iss": "x"}}):
        given = await provider.log_in(**order)
        await refused(tokens, given["accessToken"])
        await refused(tokens, given["identityToken"])


async def test_a_long_token_passes_up_to_the_bound(
    provider: Provider, tokens: IdentityTokens
) -> None:
    token = provider.token(x="x" * (MAX_TOKEN_LENGTH * 3 // 4 - 400))

    assert MAX_TOKEN_LENGTH - 400 < len(token) <= MAX_TOKEN_LENGTH
    assert await tokens.user_of(token)


async def test_no_mutation_of_a_token_passes(provider: Provider, tokens: IdentityTokens) -> None:
    given_tokens = await provider.log_in()
    honest = [given_tokens["accessToken"], given_tokens["identityToken"]]
    for token in honest:
        await tokens.user_of(token)
    # The look-up that an unknown key may cause in ten seconds is used up, so no check waits.
    await refused(tokens, headed(provider, kid="unknown"))

    @settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        st.sampled_from(honest),
        st.integers(0, 2000),
        st.integers(0, 40),
        st.text("AQgw_-.=+/ \0\u00e9{}[]9", max_size=12) | st.text(max_size=4),
    )
    def mutated(token: str, at: int, cut: int, put: str) -> None:
        at %= len(token) + 1
        other = token[:at] + put + token[at + cut :]
        if other != token:
            with pytest.raises(Unauthorized, match=REFUSED):
                at_once(tokens.user_of(other))

    mutated()


async def test_no_claims_make_a_check_fail_otherwise_than_by_refusing(
    provider: Provider, tokens: IdentityTokens
) -> None:
    await tokens.user_of(provider.token())
    values = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=5,
    )
    names = st.sampled_from(["iss", "aud", "sub", "exp", "iat", "nbf", "sid", "linked_accounts"])

    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.dictionaries(names, values | values.map(json.dumps), min_size=1, max_size=4))
    def changed(changes: dict[str, object]) -> None:
        token = provider.signed(as_json({**provider.claims(), **changes}))
        try:
            user = at_once(tokens.user_of(token))
        except Unauthorized:
            return
        assert user.subject

    changed()


# --- keys ---------------------------------------------------------------------------------------


async def test_a_hundred_first_callers_ask_for_the_keys_once(
    provider: Provider, tokens: IdentityTokens
) -> None:
    provider.count_requests()

    await asyncio.gather(*(tokens.user_of(provider.token()) for _ in range(100)))

    assert provider.requests == 1


async def test_a_new_key_counts_at_once_and_the_old_one_no_more(
    provider: Provider, tokens: IdentityTokens
) -> None:
    old = provider.token()
    await tokens.user_of(old)

    provider.sandbox.rotate_signing_key()
    provider.count_requests()
    new = provider.token()

    assert await asyncio.gather(*(tokens.user_of(new) for _ in range(50)))
    assert provider.requests == 1
    await refused(tokens, old)


async def test_both_keys_count_while_the_set_has_both(
    provider: Provider, tokens: IdentityTokens
) -> None:
    old = provider.token()
    await tokens.user_of(old)

    provider.sandbox.rotate_signing_key(keeps_old=True)

    assert await tokens.user_of(provider.token())
    assert await tokens.user_of(old)


async def test_invented_keys_are_looked_for_once_in_ten_seconds(
    provider: Provider, tokens: IdentityTokens, ticks: ManualClock
) -> None:
    provider.count_requests()
    await refused(tokens, headed(provider, kid="invented"))
    assert provider.requests == 1, "the first set was read after the token had come"
    for _ in range(20):
        await refused(tokens, headed(provider, kid=secrets.token_hex(8)))
    assert provider.requests == 2

    ticks.now += 10
    before = provider.requests
    await asyncio.gather(
        *(refused(tokens, headed(provider, kid=secrets.token_hex(8))) for _ in range(20))
    )
    assert provider.requests == before + 1


async def test_what_the_provider_would_never_sign_costs_it_no_request(
    provider: Provider, tokens: IdentityTokens
) -> None:
    provider.count_requests()
    for changes in ({"alg": "ES384"}, {"typ": "at+jwt"}, {"kid": ""}, {"x": "x" * 1000}):
        await refused(tokens, headed(provider, **changes))
    await refused(tokens, "x" * 1000)

    assert provider.requests == 0


async def test_a_key_that_is_new_while_inventors_drum_counts_within_ten_seconds(
    provider: Provider, tokens: IdentityTokens, ticks: ManualClock
) -> None:
    await tokens.user_of(provider.token())
    await refused(tokens, headed(provider, kid="invented"))
    provider.sandbox.rotate_signing_key()
    ticks.now += 9.9
    await refused(tokens, provider.token())

    ticks.now += 0.1

    assert await tokens.user_of(provider.token())


async def test_keys_are_read_again_in_the_background_before_they_are_old(
    provider: Provider, tokens: IdentityTokens, ticks: ManualClock
) -> None:
    old = provider.token()
    await tokens.user_of(old)
    provider.sandbox.rotate_signing_key()
    ticks.now += 46 * 60

    assert await tokens.user_of(old), "no caller waits for the new set"

    async def is_refused() -> bool:
        return await verdict(tokens, old) == "refused"

    await until(is_refused)


async def test_after_an_hour_without_tokens_the_first_one_waits_for_the_keys_of_now(
    provider: Provider, tokens: IdentityTokens, ticks: ManualClock
) -> None:
    old = provider.token()
    await tokens.user_of(old)
    provider.sandbox.rotate_signing_key()
    ticks.now += 3600

    await refused(tokens, old)


# --- failures of the provider -------------------------------------------------------------------


async def test_without_any_key_and_provider_nobody_can_tell(
    provider: Provider, tokens: IdentityTokens, ticks: ManualClock
) -> None:
    provider.break_down()
    with pytest.raises(IdentityUnavailable):
        await tokens.user_of(provider.token())
    requests_before = provider.requests

    with pytest.raises(IdentityUnavailable):
        await tokens.user_of(provider.token())
    assert provider.requests == requests_before, "pauses between failures"

    provider.count_requests()
    ticks.now += 10
    assert await tokens.user_of(provider.token())


async def test_known_keys_count_however_old_while_the_provider_is_away(
    provider: Provider, tokens: IdentityTokens, ticks: ManualClock
) -> None:
    token = provider.token(exp=4_000_000_000)
    await tokens.user_of(token)
    provider.break_down(drops_request=True)

    for _ in range(48):
        ticks.now += 1800
        assert await tokens.user_of(token)
    await refused(tokens, provider.signed(as_json(provider.claims()), key=a_key()))
    with pytest.raises(IdentityUnavailable):
        await tokens.user_of(headed(provider, kid="perhaps new"))


async def test_keys_of_now_count_again_once_the_provider_is_back(
    provider: Provider, tokens: IdentityTokens, ticks: ManualClock
) -> None:
    await tokens.user_of(provider.token())
    provider.break_down()
    provider.sandbox.rotate_signing_key()
    with pytest.raises(IdentityUnavailable):
        await tokens.user_of(provider.token())

    provider.count_requests()
    ticks.now += 10

    assert await tokens.user_of(provider.token())


async def test_a_slow_provider_keeps_nobody_waiting_whose_key_is_known(
    provider: Provider, tokens: IdentityTokens, ticks: ManualClock
) -> None:
    await tokens.user_of(provider.token())
    provider.break_down(delay_seconds=30)
    ticks.now += 50 * 60

    assert at_once(tokens.user_of(provider.token()))


async def test_a_slow_provider_keeps_waiting_only_the_first_of_those_whose_key_is_old(
    provider: Provider, tokens: IdentityTokens, ticks: ManualClock
) -> None:
    await tokens.user_of(provider.token())
    provider.break_down(delay_seconds=30)
    ticks.now += 3600

    assert await tokens.user_of(provider.token())
    for _ in range(3):
        ticks.now += 10
        assert at_once(tokens.user_of(provider.token()))
        await asyncio.sleep(0)


async def test_a_slow_provider_is_given_up_in_time(
    provider: Provider, tokens: IdentityTokens
) -> None:
    provider.break_down(delay_seconds=30)
    watch = Stopwatch()

    with pytest.raises(IdentityUnavailable):
        await tokens.user_of(provider.token())

    assert watch.seconds() < 1.0


async def test_a_caller_that_gives_up_does_not_take_the_keys_from_the_others(
    provider: Provider, tokens: IdentityTokens
) -> None:
    provider.break_down(delay_seconds=0.1)
    first = asyncio.create_task(tokens.user_of(provider.token()))
    second = asyncio.create_task(tokens.user_of(provider.token()))
    await asyncio.sleep(0)

    first.cancel()

    assert await second
    assert first.cancelled()


async def test_who_waits_for_keys_hears_that_we_close(
    provider: Provider, tokens: IdentityTokens
) -> None:
    provider.break_down(delay_seconds=30)
    caller = asyncio.create_task(tokens.user_of(provider.token()))
    await asyncio.sleep(0)

    await tokens.close()

    with pytest.raises(IdentityUnavailable):
        await caller


async def test_an_application_that_the_provider_does_not_know_is_not_the_users_fault(
    provider: Provider,
) -> None:
    async with IdentityTokens(replace(provider.policy, app_id="no/../app?")) as tokens:
        with pytest.raises(IdentityUnavailable):
            await tokens.user_of(provider.token())


# --- key sets -----------------------------------------------------------------------------------


def a_jwk(kid: object = "k", curve: ec.EllipticCurve | None = None, **other: object) -> object:
    key = ec.generate_private_key(curve or ec.SECP256R1())
    return {**ECAlgorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, **other}


def keys_in(*rows: object) -> list[str]:
    names = verification_keys(HttpResponse(200, {}, as_json({"keys": rows})), ["ES256"])
    return [name.removeprefix("ES256 ") for name in names]


def test_keys_of_another_kind_and_what_is_no_key_are_skipped() -> None:
    off_the_curve = as_base64(b"\x01" * 32).decode()
    assert keys_in(
        a_jwk("good"),
        a_jwk("marked", use="sig", alg="ES256"),
        a_jwk("for encryption", use="enc"),
        a_jwk("for another algorithm", alg="ES384"),
        a_jwk("P-384", ec.SECP384R1()),
        a_jwk("secp256k1", ec.SECP256K1()),
        a_jwk("P-384 said to be P-256", ec.SECP384R1(), crv="P-256"),
        a_jwk("RSA", kty="RSA"),
        a_jwk("off the curve", x=off_the_curve, y=off_the_curve),
        a_jwk("short", x="AA"),
        a_jwk("no base64", x="!" * 43),
        a_jwk("not ASCII", x="\u0660" * 43),
        a_jwk("a number", y=7),
        a_jwk("a list", crv=["P-256"]),
        a_jwk(""),
        a_jwk(7),
        a_jwk(None),
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a secret"},
        *("nonsense", 7, None, [], {}),
    ) == ["good", "marked"]


def test_a_private_key_in_a_set_counts_as_its_public_half() -> None:
    key = a_key()
    jwk = {**ECAlgorithm.to_jwk(key, as_dict=True), "kid": "k"}

    keys = verification_keys(HttpResponse(200, {}, as_json({"keys": [jwk]})), ["ES256"])

    assert keys == {key_name("ES256", "k"): key.public_key()}


def key_set(provider: Provider) -> bytes:
    jwk = json.loads(provider.public_jwk())
    return as_json({"keys": [{**jwk, "kid": provider.header()["kid"]}]})


NO_SETS = [
    b"",
    b"<html>",
    b"[]",
    b"[" * 100_000,
    b'{"keys": null}',
    b'{"keys": {}}',
    b'{"keys": []}',
    b'{"keys": [7]}',
    as_json({"keys": [a_jwk(str(number)) for number in range(101)]}),
]


@pytest.mark.parametrize("body", NO_SETS, ids=range(len(NO_SETS)))
def test_a_set_without_keys_or_with_too_many_makes_no_sense(body: bytes) -> None:
    with pytest.raises(MalformedAnswerError):
        verification_keys(HttpResponse(200, {}, body), ["ES256"])


async def test_a_set_of_no_sense_leaves_the_known_keys_as_they_are(provider: Provider) -> None:
    bodies = [as_json({"keys": [{"kid": "k"}]}), b"x" * (2 << 20), b""]
    answers = [(200, key_set(provider)), *((200, body) for body in bodies), (404, b"{}")]

    async def answer(_request: web.Request) -> web.Response:
        status, body = answers.pop(0)
        return web.Response(status=status, body=body, content_type="application/json")

    ticks = ManualClock()
    async with (
        served(answer, provider.policy) as policy,
        IdentityTokens(policy, clock=ticks) as tokens,
    ):
        while answers:
            assert await tokens.user_of(provider.token())
            ticks.now += 3600
            left = len(answers)

            async def is_asked(left: int = left) -> bool:
                await tokens.user_of(provider.token())
                return len(answers) < left or not answers

            await until(is_asked)
        assert await tokens.user_of(provider.token())


async def test_a_verified_token_is_refused_once_its_keys_id_names_another_key(
    provider: Provider,
) -> None:
    known = key_set(provider)
    (row,) = json.loads(known)["keys"]
    answers = [known]

    async def answer(_request: web.Request) -> web.Response:
        return web.Response(body=answers[-1], content_type="application/json")

    ticks, token = ManualClock(), provider.token()
    async with (
        served(answer, provider.policy) as policy,
        IdentityTokens(policy, clock=ticks) as tokens,
    ):
        await tokens.user_of(token)
        answers.append(as_json({"keys": [a_jwk(row["kid"])]}))
        ticks.now += 2 * 3600
        await refused(tokens, token)


# --- signatures that are not verified anew -------------------------------------------------------


@pytest.fixture
def verified(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The tokens whose signatures are verified, in their order."""
    texts: list[str] = []

    def noted(jws: jwt.PyJWS, token: str, key: PublicKey, algorithm: str) -> bytes:
        texts.append(token)
        return verified_payload(jws, token, key, algorithm)

    monkeypatch.setattr(tokens_module, "verified_payload", noted)
    return texts


async def test_the_tokens_used_last_are_kept_up_to_their_number(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, verified: list[str]
) -> None:
    monkeypatch.setattr(tokens_module, "_TOKENS_KEPT", 2)
    first, second, third = (provider.token(sub=f"did:privy:{name}") for name in "abc")
    async with IdentityTokens(replace(provider.policy, **QUICK)) as tokens:
        for token in (first, second, first, third, first, second):
            await tokens.user_of(token)

    assert verified == [first, second, third, second]


async def test_the_tokens_used_last_are_kept_up_to_their_length(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, verified: list[str]
) -> None:
    short, other, long = (provider.token(sub="did:privy:" + text) for text in ("a", "b", "c" * 50))
    monkeypatch.setattr(tokens_module, "_CHARACTERS_KEPT", len(short) + len(other) + len(long) - 1)
    async with IdentityTokens(replace(provider.policy, **QUICK)) as tokens:
        for token in (short, other, long, other, long, short, long):
            await tokens.user_of(token)

    assert verified == [short, other, long, short]


# --- logs and errors ---------------------------------------------------------------------------


async def test_checks_are_counted_by_their_verdict(
    provider: Provider, tokens: IdentityTokens
) -> None:
    def counted() -> dict[str, float]:
        return {
            sample.labels["outcome"]: sample.value
            for family in telemetry.TOKEN_CHECKS.collect()
            for sample in family.samples
            if sample.name.endswith("_total")
        }

    before = counted()
    await tokens.user_of(provider.token())
    for token in (
        "x",
        provider.token(exp=1),
        provider.token(aud="another"),
        provider.signed(as_json(provider.claims()), key=a_key()),
        headed(provider, kid="unknown"),
    ):
        await refused(tokens, token)
    provider.break_down()
    with pytest.raises(IdentityUnavailable):
        async with IdentityTokens(replace(provider.policy, **QUICK)) as others:
            await others.user_of(provider.token())

    after = counted()
    assert {name: after[name] - before.get(name, 0) for name in after} == dict.fromkeys(
        (
            *("accepted", "malformed", "expired", "wrong_claims"),
            *("bad_signature", "unknown_key", "unavailable"),
        ),
        1,
    )


async def test_neither_tokens_nor_what_is_in_them_is_printed_or_logged(
    provider: Provider,
    tokens: IdentityTokens,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = await provider.log_in()
    await tokens.user_of(given["identityToken"])
    broken = given["identityToken"][:-4] + "AAAA"
    errors_and_logs = []
    for token in (broken, headed(provider, kid="secret-kid"), headed(provider, crit=["hush"])):
        with pytest.raises(Unauthorized) as refusal:
            await tokens.user_of(token)
        errors_and_logs += [repr(refusal.value), repr(refusal.value.__cause__)]
    provider.break_down()
    with pytest.raises(IdentityUnavailable) as failure:
        async with IdentityTokens(replace(provider.policy, **QUICK)) as others:
            await others.user_of(given["identityToken"])

    errors_and_logs += [repr(failure.value), *capsys.readouterr(), caplog.text]
    everything = "".join(errors_and_logs)
    assert "identity_unavailable" in everything
    for secret in (broken[:40], given["subject"], "ann@", given["walletAddress"], "-kid", "hush"):
        assert secret.lower() not in everything.lower()
