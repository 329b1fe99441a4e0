"""Tokens of an OpenID Connect issuer, over real HTTP: accepted, refused and forged ones."""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from typing import Any, TypeVar

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jwt.algorithms import OKPAlgorithm, RSAAlgorithm

from ltzd.errors import IdentityUnavailable, Unauthorized
from ltzd.providers.jwks import verification_keys
from ltzd.providers.oidc.claims import OidcUser
from ltzd.providers.oidc.policy import Algorithm
from ltzd.providers.oidc.tokens import OidcTokens
from ltzd.providers.outbound.http_client import HttpResponse, MalformedAnswerError
from ltzd.providers.token_checks import MAX_TOKEN_LENGTH
from ltzd.rules.oauth.accounts import OAuthAccount
from tests.support.clocks import ManualClock
from tests.support.services.identity import as_base64, as_json
from tests.support.services.oidc import AUDIENCE, RSA_KEY, Issuer, a_p256_key, an_issuer, public_row
from tests.support.waiting import Stopwatch, at_once, until

T = TypeVar("T")

REFUSED = "^Invalid or expired token$"
ALL: tuple[Algorithm, ...] = ("RS256", "ES256", "PS256", "EdDSA")


@pytest.fixture
async def issuer() -> AsyncIterator[Issuer]:
    async with an_issuer() as issuer:
        yield issuer


@pytest.fixture
def ticks() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def tokens(issuer: Issuer, ticks: ManualClock) -> AsyncIterator[OidcTokens]:
    async with OidcTokens(issuer.policy(algorithms=ALL), clock=ticks) as tokens:
        yield tokens


async def refused(tokens: OidcTokens, token: str) -> None:
    with pytest.raises(Unauthorized, match=REFUSED) as refusal:
        await tokens.user_of(token)
    assert refusal.value.details == {}
    assert refusal.value.__cause__ is None


# --- accepted tokens ----------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ALL)
async def test_a_token_of_the_issuer_tells_its_user(
    algorithm: Algorithm, issuer: Issuer, tokens: OidcTokens
) -> None:
    assert await tokens.user_of(issuer.token(algorithm)) == OidcUser("user-7", None)


@pytest.mark.parametrize("typ", [None, "JWT", "jwt", "at+jwt", "application/at+jwt"])
async def test_id_tokens_and_access_tokens_serve_alike(
    typ: str | None, issuer: Issuer, tokens: OidcTokens
) -> None:
    assert await tokens.user_of(issuer.signed(as_json(issuer.claims()), typ=typ))


@pytest.mark.parametrize("audience", [AUDIENCE, [AUDIENCE], ["another", AUDIENCE], ["shop"]])
async def test_one_of_our_audiences_is_enough(audience: object, issuer: Issuer) -> None:
    async with OidcTokens(issuer.policy(audiences=(AUDIENCE, "shop"))) as tokens:
        assert await tokens.user_of(issuer.token(aud=audience))


async def test_what_the_issuer_vouches_for_comes_with_its_user(issuer: Issuer) -> None:
    policy = issuer.policy(
        subject_claim="oid",
        email_claim="mail",
        email_verified_claim="mail_ok",
        account_claims={"discord": "https://shop.example/discord", "telegram": "tg"},
    )
    claims: dict[str, Any] = {
        "oid": "o-1",
        "mail": "Ann@Shop.Example",
        "mail_ok": True,
        "tg": 5394817206,
    }
    claims["https://shop.example/discord"] = "308994132968210433"
    async with OidcTokens(policy) as tokens:
        user = await tokens.user_of(issuer.token(**claims))

    assert user == OidcUser(
        "o-1",
        None,
        (OAuthAccount("discord", "308994132968210433"), OAuthAccount("telegram", "5394817206")),
        "ann@shop.example",
    )


@pytest.mark.parametrize(
    "claims",
    [
        {"email": "ann@shop.example"},
        {"email": "ann@shop.example", "email_verified": False},
        {"email": "ann@shop.example", "email_verified": "true"},
        {"email": "ann@shop.example", "email_verified": 1},
        {"email": "ann", "email_verified": True},
        {"email": "@shop.example", "email_verified": True},
        {"email": "a\0nn@shop.example", "email_verified": True},
        {"email": "a" * 300 + "@shop.example", "email_verified": True},
        {"email": ["ann@shop.example"], "email_verified": True},
        {"email": 7, "email_verified": True},
        # The Kelvin sign: its lower case is an ASCII k.
        {"email": "\u212aim@shop.example", "email_verified": True},
        {"discord": ""},
        {"discord": True},
        {"discord": -1},
        {"discord": 1.5},
        {"discord": ["308994132968210433"]},
        {"discord": {"id": "308994132968210433"}},
        {"discord": "3089941329682\n10433"},
        {"discord": "3" * 256},
        {"discord": None},
    ],
)
async def test_what_is_not_verified_or_malformed_vouches_for_nothing(
    claims: dict[str, object], issuer: Issuer
) -> None:
    payload = as_json({**issuer.claims(), **claims})
    async with OidcTokens(issuer.policy(account_claims={"discord": "discord"})) as tokens:
        assert await tokens.user_of(issuer.signed(payload)) == OidcUser("user-7", None)


async def test_the_issuers_clock_may_be_half_a_minute_ahead(issuer: Issuer) -> None:
    now = int(time.time())
    async with OidcTokens(issuer.policy(), wall_clock=lambda: now) as tokens:
        assert await tokens.user_of(issuer.token(iat=now + 30, nbf=now + 30))
        await refused(tokens, issuer.token(iat=now + 31))
        await refused(tokens, issuer.token(iat=now + 31, nbf=now))
        await refused(tokens, issuer.token(nbf=now + 31))
        assert await tokens.user_of(issuer.token(exp=now + 1))
        await refused(tokens, issuer.token(exp=now))


# --- refused tokens ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        *({name: None} for name in ("iss", "aud", "sub", "exp", "iat")),
        {"iss": "https://login.example/"},
        {"iss": ["https://login.example/"]},
        {"aud": "another"},
        {"aud": ["another"]},
        {"aud": []},
        {"aud": AUDIENCE[:-1]},
        {"aud": AUDIENCE.upper()},
        {"aud": [[AUDIENCE]]},
        {"aud": [AUDIENCE, 7]},
        {"aud": {AUDIENCE: AUDIENCE}},
        {"aud": [AUDIENCE] * 101},
        {"sub": ""},
        {"sub": 7},
        {"sub": "u" * 256},
        {"sub": "u\0"},
        {"sub": "u\u202e"},
        {"sub": "ltzd:5f3c1f6e-0000-4000-8000-000000000000"},
        {"exp": "4000000000"},
        {"exp": True},
        pytest.param({"exp": 10**400}, id="exp of 401 digits"),
        pytest.param({"iat": -(10**400)}, id="iat of 401 digits"),
        {"exp": 1},
        {"iat": "1"},
        {"iat": False},
        {"nbf": "1"},
        {"nbf": 4_000_000_000},
    ],
    ids=str,
)
async def test_a_claim_that_is_missing_or_wrong_refuses_the_token(
    changes: dict[str, Any], issuer: Issuer, tokens: OidcTokens
) -> None:
    await refused(tokens, issuer.token(**changes))


async def test_the_issuers_name_counts_to_the_last_letter(
    issuer: Issuer, tokens: OidcTokens
) -> None:
    await refused(tokens, issuer.token(iss=issuer.issuer.rstrip("/")))


def pem_of(key: Any) -> bytes:
    return bytes(
        key.public_key().public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )
    )


@pytest.mark.parametrize("kid", ["r1", "e1", "o1"])
@pytest.mark.parametrize("form", ["pem", "jwk"])
async def test_a_public_key_is_no_secret_of_hs256(
    kid: str, form: str, issuer: Issuer, tokens: OidcTokens
) -> None:
    key = issuer.keys[kid]
    secret = pem_of(key) if form == "pem" else as_json(public_row(kid, key))
    head = as_json({"alg": "HS256", "typ": "JWT", "kid": kid})
    text = as_base64(head) + b"." + as_base64(as_json(issuer.claims()))
    # Longer than a real signature of HS256, so that its length alone does not refuse it.
    signature = hmac.new(secret, text, hashlib.sha256).digest() + bytes(32)

    await refused(tokens, (text + b"." + as_base64(signature)).decode())


@pytest.mark.parametrize("alg", ["none", "None", "", "HS256", "ES384", "RS512", "ES256K", 7])
async def test_an_algorithm_that_is_not_in_the_list_costs_no_request(
    alg: object, issuer: Issuer, tokens: OidcTokens
) -> None:
    await refused(tokens, issuer.signed(as_json(issuer.claims()), alg=alg))
    assert issuer.requests == []


async def test_a_token_without_a_signature_is_none(issuer: Issuer, tokens: OidcTokens) -> None:
    text = issuer.token()
    head, body, _ = text.split(".")
    unsigned = as_base64(as_json({"alg": "none", "typ": "JWT", "kid": "e1"})).decode()
    for token in (f"{head}.{body}.", f"{head}.{body}", f"{unsigned}.{body}.", "..", "", body):
        await refused(tokens, token)


async def test_only_the_configured_algorithms_count(issuer: Issuer) -> None:
    async with OidcTokens(issuer.policy(algorithms=("ES256",))) as tokens:
        assert await tokens.user_of(issuer.token("ES256"))
        for other in ("RS256", "PS256", "EdDSA"):
            await refused(tokens, issuer.signed(as_json(issuer.claims()), other))


async def test_a_key_serves_only_algorithms_of_its_kind(issuer: Issuer, tokens: OidcTokens) -> None:
    payload = as_json(issuer.claims())
    assert await tokens.user_of(issuer.token())
    for alg, kid in (("ES256", "r1"), ("RS256", "e1"), ("EdDSA", "e1"), ("PS256", "o1")):
        for signer in ("ES256", "RS256", "PS256", "EdDSA"):
            await refused(tokens, issuer.signed(payload, signer, alg=alg, kid=kid))


async def test_a_key_that_names_its_algorithm_serves_no_other(issuer: Issuer) -> None:
    issuer.rows = [public_row("r1", RSA_KEY, alg="PS256")]
    async with OidcTokens(issuer.policy(algorithms=ALL)) as tokens:
        assert await tokens.user_of(issuer.token("PS256"))
        await refused(tokens, issuer.token("RS256"))


@pytest.mark.parametrize("algorithm", ALL)
async def test_another_key_under_the_same_name_signs_nothing(
    algorithm: Algorithm, issuer: Issuer, tokens: OidcTokens
) -> None:
    other: Any = {
        "ES256": a_p256_key,
        "EdDSA": ed25519.Ed25519PrivateKey.generate,
    }.get(algorithm, lambda: rsa.generate_private_key(public_exponent=65537, key_size=2048))()

    await refused(tokens, issuer.signed(as_json(issuer.claims()), algorithm, key=other))


@pytest.mark.parametrize(
    "header",
    [
        {"kid": None},
        {"kid": ""},
        {"kid": 7},
        {"kid": "k" * 256},
        {"alg": None},
        {"typ": "logout+jwt"},
        {"typ": "secevent+jwt"},
        {"typ": 7},
        {"crit": ["exp"], "exp": 1},
        {"b64": False, "crit": ["b64"]},
        {"b64": False},
        {"x": "x" * 1000},
    ],
    ids=",".join,
)
async def test_a_header_that_asks_for_more_or_tells_less_is_refused_without_a_request(
    header: dict[str, Any], issuer: Issuer, tokens: OidcTokens
) -> None:
    await refused(tokens, issuer.signed(as_json(issuer.claims()), **header))
    assert issuer.requests == []


async def test_a_key_in_the_token_itself_is_not_looked_at(
    issuer: Issuer, tokens: OidcTokens
) -> None:
    mine = a_p256_key()
    places: dict[str, Any] = {
        "jwk": public_row("e1", mine),
        "jku": f"{issuer.base}/mine",
        "x5u": issuer.base,
    }

    await refused(tokens, issuer.signed(as_json(issuer.claims()), key=mine, **places))
    assert set(issuer.requests) <= {"/realm/.well-known/openid-configuration", "/keys"}


async def test_a_token_that_is_too_long_is_not_read(issuer: Issuer, tokens: OidcTokens) -> None:
    await refused(tokens, issuer.token(pad="x" * MAX_TOKEN_LENGTH))
    assert issuer.requests == []


@pytest.mark.parametrize("payload", [b"", b"[]", b"null", b"{", b"\xff", b"[" * 5_000])
async def test_a_payload_that_is_no_object_is_refused(
    payload: bytes, issuer: Issuer, tokens: OidcTokens
) -> None:
    await refused(tokens, issuer.signed(payload))


async def test_no_change_of_a_token_passes(issuer: Issuer, tokens: OidcTokens) -> None:
    honest = [issuer.token(algorithm) for algorithm in ALL]
    for token in honest:
        await tokens.user_of(token)
    # The look-up that an unknown key may cause in ten seconds is used up, so no check waits.
    await refused(tokens, issuer.signed(as_json(issuer.claims()), kid="unknown"))

    @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
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


async def test_no_claims_make_a_check_fail_otherwise_than_by_refusing(issuer: Issuer) -> None:
    policy = issuer.policy(account_claims={"discord": "discord"})
    async with OidcTokens(policy) as tokens:
        await tokens.user_of(issuer.token())
        values = st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
            lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner),
            max_leaves=5,
        )
        names = ["iss", "aud", "sub", "exp", "iat", "nbf", "email", "email_verified", "discord"]

        @settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))
        @given(st.dictionaries(st.sampled_from(names), values, min_size=1, max_size=4))
        def claimed(changes: dict[str, object]) -> None:
            token = issuer.signed(json.dumps({**issuer.claims(), **changes}).encode())
            try:
                user = at_once(tokens.user_of(token))
            except Unauthorized:
                return
            assert 0 < len(user.subject) <= 255

        claimed()


# --- keys ---------------------------------------------------------------------------------------

BOTH = ["/realm/.well-known/openid-configuration", "/keys"]


async def test_a_hundred_first_callers_ask_once(issuer: Issuer, tokens: OidcTokens) -> None:
    await asyncio.gather(*(tokens.user_of(issuer.token()) for _ in range(100)))

    assert issuer.requests == BOTH


async def test_a_new_key_counts_at_once_and_the_old_one_no_more(
    issuer: Issuer, tokens: OidcTokens
) -> None:
    old = issuer.token()
    await tokens.user_of(old)

    del issuer.keys["e1"]
    issuer.keys["e2"] = a_p256_key()
    issuer.requests.clear()
    new = issuer.token()

    assert await asyncio.gather(*(tokens.user_of(new) for _ in range(50)))
    assert issuer.requests == BOTH
    await refused(tokens, old)


async def test_both_keys_count_while_the_set_has_both(issuer: Issuer, tokens: OidcTokens) -> None:
    old = issuer.token()
    await tokens.user_of(old)
    issuer.keys = {"e2": a_p256_key(), **issuer.keys}

    assert await tokens.user_of(issuer.token())
    assert await tokens.user_of(old)


async def test_invented_keys_are_looked_for_once_in_ten_seconds(
    issuer: Issuer, tokens: OidcTokens, ticks: ManualClock
) -> None:
    payload = as_json(issuer.claims())
    await tokens.user_of(issuer.token())
    issuer.requests.clear()
    for number in range(20):
        await refused(tokens, issuer.signed(payload, kid=f"invented {number}"))
    assert issuer.requests == BOTH

    ticks.now += 10
    await asyncio.gather(
        *(refused(tokens, issuer.signed(payload, kid=f"more {number}")) for number in range(20))
    )
    assert issuer.requests == BOTH * 2


async def test_keys_are_read_again_in_the_background_before_they_are_old(
    issuer: Issuer, tokens: OidcTokens, ticks: ManualClock
) -> None:
    old = issuer.token()
    await tokens.user_of(old)
    issuer.keys["e1"] = a_p256_key()
    ticks.now += 46 * 60

    assert at_once(tokens.user_of(old)), "no caller waits for the new set"

    async def is_refused() -> bool:
        try:
            await tokens.user_of(old)
        except Unauthorized:
            return True
        return False

    await until(is_refused)


async def test_a_key_set_that_moved_is_found_where_the_document_says(
    issuer: Issuer, tokens: OidcTokens, ticks: ManualClock
) -> None:
    old = issuer.token()
    await tokens.user_of(old)
    async with an_issuer() as other:
        issuer.document["jwks_uri"] = f"{other.base}/keys"
        issuer.keys = other.keys
        ticks.now += 3600

        assert await tokens.user_of(issuer.token())
        await refused(tokens, old)
        assert other.requests == ["/keys"]


# --- failures of the issuer --------------------------------------------------------------------


async def unavailable(tokens: OidcTokens, token: str) -> str:
    with pytest.raises(IdentityUnavailable) as failure:
        await tokens.user_of(token)
    return failure.value.message


async def test_without_any_key_and_issuer_nobody_can_tell(
    issuer: Issuer, tokens: OidcTokens, ticks: ManualClock
) -> None:
    issuer.status = 503
    await unavailable(tokens, issuer.token())
    assert issuer.requests == BOTH[:1] * 2, "a transient failure is retried once"

    await unavailable(tokens, issuer.token())
    assert len(issuer.requests) == 2, "pauses between failures"

    issuer.status = 200
    ticks.now += 10
    assert await tokens.user_of(issuer.token())


async def test_known_keys_count_however_old_while_the_issuer_is_away(
    issuer: Issuer, tokens: OidcTokens, ticks: ManualClock
) -> None:
    token = issuer.token()
    await tokens.user_of(token)
    issuer.status = 500

    for _ in range(20):
        ticks.now += 3600
        assert await tokens.user_of(token)
    await unavailable(tokens, issuer.signed(as_json(issuer.claims()), kid="perhaps new"))


async def test_a_slow_issuer_is_given_up_in_time_and_keeps_nobody_waiting_whose_key_is_known(
    issuer: Issuer, ticks: ManualClock
) -> None:
    policy = issuer.policy(timeout_seconds=0.2)
    async with OidcTokens(policy, clock=ticks) as tokens:
        await tokens.user_of(issuer.token())
        issuer.may_answer.clear()
        ticks.now += 50 * 60
        assert at_once(tokens.user_of(issuer.token()))

    async with OidcTokens(policy) as strangers:
        watch = Stopwatch()
        await unavailable(strangers, issuer.token())
        assert watch.seconds() < 1.0


async def test_who_waits_for_keys_hears_that_we_close(issuer: Issuer, tokens: OidcTokens) -> None:
    issuer.may_answer.clear()
    caller = asyncio.create_task(tokens.user_of(issuer.token()))

    async def is_asked() -> bool:
        return bool(issuer.requests)

    await until(is_asked)
    await tokens.close()

    with pytest.raises(IdentityUnavailable):
        await caller


@pytest.mark.parametrize(
    "document",
    [
        {"issuer": "https://login.example/"},
        {"issuer": None},
        {"issuer": 7},
        {"jwks_uri": None},
        {"jwks_uri": 7},
        {"jwks_uri": "/keys"},
        {"jwks_uri": "file:///etc/ltzd/keys"},
        {"jwks_uri": "http://[::1"},
        {"jwks_uri": "http://h:port/"},
    ],
    ids=str,
)
async def test_a_document_of_another_issuer_or_without_keys_is_not_believed(
    document: dict[str, object], issuer: Issuer, tokens: OidcTokens
) -> None:
    issuer.document = document

    await unavailable(tokens, issuer.token())
    assert issuer.requests == BOTH[:1]


async def test_the_documents_issuer_counts_to_the_last_letter(
    issuer: Issuer, tokens: OidcTokens
) -> None:
    issuer.document = {"issuer": issuer.issuer.rstrip("/")}

    await unavailable(tokens, issuer.token())


async def test_keys_without_tls_are_not_fetched_for_an_issuer_with_it(issuer: Issuer) -> None:
    policy = issuer.policy(
        issuer="https://login.example/", discovery_url=f"{issuer.base}/elsewhere"
    )
    issuer.document = {"issuer": "https://login.example/"}
    async with OidcTokens(policy) as tokens:
        await unavailable(tokens, issuer.token())

    assert issuer.requests == ["/elsewhere"]


async def test_the_discovery_document_may_lie_elsewhere(issuer: Issuer) -> None:
    async with OidcTokens(issuer.policy(discovery_url=f"{issuer.base}/elsewhere")) as tokens:
        assert await tokens.user_of(issuer.token())

    assert issuer.requests == ["/elsewhere", "/keys"]


@pytest.mark.parametrize("status", [204, 302, 400, 404])
async def test_what_is_no_document_is_not_asked_for_twice(
    status: int, issuer: Issuer, tokens: OidcTokens
) -> None:
    issuer.status = status

    await unavailable(tokens, issuer.token())
    assert issuer.requests == BOTH[:1]


async def test_nobody_is_followed_to_another_place(issuer: Issuer, tokens: OidcTokens) -> None:
    issuer.status, issuer.headers = 302, {"Location": f"{issuer.base}/elsewhere"}

    await unavailable(tokens, issuer.token())
    assert issuer.requests == BOTH[:1]


async def test_a_document_without_an_end_is_given_up(issuer: Issuer, tokens: OidcTokens) -> None:
    issuer.document = {"pad": "x" * (1 << 18)}

    await unavailable(tokens, issuer.token())


# --- key sets -----------------------------------------------------------------------------------


def keys_in(*rows: object, algorithms: tuple[Algorithm, ...] = ALL) -> list[str]:
    return sorted(verification_keys(HttpResponse(200, {}, as_json({"keys": rows})), algorithms))


def test_keys_of_another_kind_and_what_is_no_key_are_skipped() -> None:
    short = rsa.generate_private_key(public_exponent=65537, key_size=1024)
    good = public_row("good", a_p256_key())
    rows: list[object] = [
        good,
        public_row("for encryption", RSA_KEY, use="enc"),
        public_row("to sign only", RSA_KEY, key_ops=["sign"]),
        public_row("ops are a text", RSA_KEY, key_ops="verify"),
        public_row("RSA-OAEP", RSA_KEY, alg="RSA-OAEP"),
        public_row("short", short),
        public_row("large exponent", RSA_KEY, e=as_base64(b"\x01" + bytes(4) + b"\x01").decode()),
        public_row("even exponent", RSA_KEY, e="BA"),
        public_row("huge", RSA_KEY, n=as_base64(b"\xff" * 2000).decode()),
        public_row("no n", RSA_KEY, n=None),
        public_row("P-384", ec.generate_private_key(ec.SECP384R1())),
        public_row("off the curve", a_p256_key(), x=good["y"]),
        {
            **json.loads(OKPAlgorithm.to_jwk(ed448.Ed448PrivateKey.generate().public_key())),
            "kid": "448",
        },
        {"kty": "oct", "k": "c2VjcmV0", "kid": "a secret"},
        public_row("", a_p256_key()),
        {**good, "kid": 7},
        {**good, "kid": None},
        {**good, "kid": "another kind", "kty": "RSA"},
        {**good, "kid": "a list", "kty": ["EC"]},
        *("nonsense", 7, None, [], {}),
    ]
    assert keys_in(*rows) == ["ES256 good"]


def test_a_key_serves_each_configured_algorithm_that_it_can() -> None:
    rows = public_row("r", RSA_KEY), public_row("e", a_p256_key(), use=None)

    assert keys_in(*rows) == ["ES256 e", "PS256 r", "RS256 r"]
    assert keys_in(*rows, algorithms=("RS256",)) == ["RS256 r"]


def test_a_private_key_in_a_set_counts_as_its_public_half() -> None:
    row = {**json.loads(RSAAlgorithm.to_jwk(RSA_KEY)), "kid": "k", "key_ops": ["verify"]}

    keys = verification_keys(HttpResponse(200, {}, as_json({"keys": [row]})), ("RS256",))

    assert keys == {"RS256 k": RSA_KEY.public_key()}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"[" * 100_000,
        b'{"keys": {}}',
        b'{"keys": []}',
        as_json({"keys": [public_row("P-384", ec.generate_private_key(ec.SECP384R1()))]}),
        as_json({"keys": [public_row(str(number), RSA_KEY) for number in range(101)]}),
    ],
    ids=range(7),
)
def test_a_set_without_a_key_for_us_or_with_too_many_makes_no_sense(body: bytes) -> None:
    with pytest.raises(MalformedAnswerError):
        verification_keys(HttpResponse(200, {}, body), ALL)


# --- logs and errors ---------------------------------------------------------------------------


async def test_neither_tokens_nor_what_is_in_them_is_printed_or_logged(
    issuer: Issuer,
    tokens: OidcTokens,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    token = issuer.token(sub="hush-sub", email="hush@shop.example", email_verified=True)
    user = await tokens.user_of(token)
    assert user.email == "hush@shop.example"
    broken = token[:-4] + "AAAA"
    errors_and_logs = []
    for each in (broken, issuer.signed(b"{}", kid="hush-kid"), issuer.token(sub="", a="hush")):
        with pytest.raises(Unauthorized) as refusal:
            await tokens.user_of(each)
        errors_and_logs += [repr(refusal.value), repr(refusal.value.__cause__)]
    issuer.status = 500
    async with OidcTokens(issuer.policy()) as others:
        errors_and_logs.append(await unavailable(others, token))

    everything = "".join([*errors_and_logs, *capsys.readouterr(), caplog.text])
    assert "identity_unavailable" in everything
    assert "hush" not in everything
    assert broken[:40] not in everything
