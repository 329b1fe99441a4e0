"""Signatures by users' wallets through the provider's RPC: accepted, refused and foreign ones."""

import asyncio
import base64
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from eth_account import Account
from eth_account.messages import encode_typed_data

from ltzd.dev.sandbox.faults import Fault
from ltzd.errors import IdentityUnavailable, Misconfigured
from ltzd.providers.identity.client import IdentityClient
from ltzd.providers.identity.signing import authorization_payload, canonical, parse_signer_key
from ltzd.values import Address, address_of, hex_of
from tests.support.services.identity import EMAIL, Provider, a_provider, served
from tests.support.waiting import Stopwatch

QUICK: dict[str, Any] = {"first_pause_seconds": 0.01, "rate_limit_pause_seconds": 0.01}
DID = "did:privy:cann"
KEY = b"\x01" * 32
WALLET = address_of(Account.from_key(KEY).address)
PERMIT: dict[str, Any] = {
    "types": {
        "EIP712Domain": [
            {"name": "name", "type": "string"},
            {"name": "version", "type": "string"},
            {"name": "chainId", "type": "uint256"},
            {"name": "verifyingContract", "type": "address"},
        ],
        "Permit": [
            {"name": "owner", "type": "address"},
            {"name": "spender", "type": "address"},
            {"name": "value", "type": "uint256"},
            {"name": "nonce", "type": "uint256"},
            {"name": "deadline", "type": "uint256"},
        ],
    },
    "primaryType": "Permit",
    "domain": {
        "name": "Loyalty Token",
        "version": "1",
        "chainId": 131277322940537,
        "verifyingContract": b"\x0c" * 20,
    },
    "message": {
        "owner": hex_of(WALLET),
        "spender": "0x" + "0b" * 20,
        "value": 5 * 10**18,
        "nonce": 0,
        "deadline": 2**256 - 1,
    },
}


def readable(data: dict[str, Any]) -> dict[str, Any]:
    """Returns the data with the domain's contract as text, which eth-account demands."""
    return {**data, "domain": {**data["domain"], "verifyingContract": "0x" + "0c" * 20}}


def signed_by(key: bytes, data: dict[str, Any] = PERMIT) -> bytes:
    message = encode_typed_data(full_message=readable(data))
    return bytes(Account.sign_message(message, key).signature)


def signer(data: dict[str, Any], signature: bytes) -> Address:
    message = encode_typed_data(full_message=readable(data))
    return address_of(Account.recover_message(message, signature=signature))


@pytest.fixture
async def provider(tmp_path: Path) -> AsyncIterator[Provider]:
    async with a_provider(tmp_path) as provider:
        yield provider


@pytest.fixture
async def client(provider: Provider) -> AsyncIterator[IdentityClient]:
    async with IdentityClient(replace(provider.policy, **QUICK)) as client:
        yield client


# --- signatures -----------------------------------------------------------------------------------


async def test_a_wallet_that_we_made_signs_what_we_ask(client: IdentityClient) -> None:
    user = await client.wallet_of_email(EMAIL)

    signature = await client.sign_typed_data(user.wallet, PERMIT)

    assert len(signature) == 65
    assert signature[64] in {27, 28}
    assert signer(PERMIT, signature) == user.wallet


async def test_a_wallet_whose_user_let_us_signs_too(
    provider: Provider, client: IdentityClient
) -> None:
    wallet = address_of((await provider.log_in_with("discord", "1" * 18))["walletAddress"])

    assert signer(PERMIT, await client.sign_typed_data(wallet, PERMIT)) == wallet


async def test_a_wallets_id_is_looked_up_once(provider: Provider, client: IdentityClient) -> None:
    wallet = (await client.wallet_of_email(EMAIL)).wallet
    provider.count_requests()

    signature = await client.sign_typed_data(wallet, PERMIT)
    other = {**PERMIT, "message": {**PERMIT["message"], "nonce": 1}}

    assert await client.sign_typed_data(wallet, other) != signature
    assert provider.requests == 3


async def test_twenty_at_once_get_their_own_signatures(client: IdentityClient) -> None:
    wallet = (await client.wallet_of_email(EMAIL)).wallet
    orders = [{**PERMIT, "message": {**PERMIT["message"], "nonce": n}} for n in range(20)]

    signatures = await asyncio.gather(*(client.sign_typed_data(wallet, each) for each in orders))

    assert {signer(*pair) for pair in zip(orders, signatures, strict=True)} == {wallet}


@pytest.mark.parametrize(
    "fault",
    [
        Fault(times=2, status=502),
        Fault(times=1, status=429, retry_after_seconds=0),
        Fault(times=2, drops_reply=True),
    ],
    ids=str,
)
async def test_a_passing_fault_costs_time_only(
    provider: Provider, client: IdentityClient, fault: Fault
) -> None:
    wallet = (await client.wallet_of_email(EMAIL)).wallet
    provider.sandbox.faults.order("identity", fault)

    assert signer(PERMIT, await client.sign_typed_data(wallet, PERMIT)) == wallet


async def test_a_lasting_fault_is_told_within_the_deadline(provider: Provider) -> None:
    policy = replace(provider.policy, timeout_seconds=0.3)
    async with IdentityClient(policy) as client:
        wallet = (await client.wallet_of_email(EMAIL)).wallet
        provider.break_down(delay_seconds=30)
        watch = Stopwatch()
        with pytest.raises(IdentityUnavailable):
            await client.sign_typed_data(wallet, PERMIT)

    assert watch.seconds() < 1.0


# --- refused requests ----------------------------------------------------------------------------


async def refused(client: IdentityClient, wallet: Address) -> None:
    with pytest.raises(IdentityUnavailable, match="does not allow ltzd to sign"):
        await client.sign_typed_data(wallet, PERMIT)


async def test_the_app_alone_may_not_sign_for_a_user(provider: Provider) -> None:
    policy = replace(provider.policy, signer_key=None)
    async with IdentityClient(policy) as client:
        await refused(client, (await client.wallet_of_email(EMAIL)).wallet)


async def test_a_wallet_that_was_made_without_us_never_signs_for_us(
    provider: Provider, client: IdentityClient
) -> None:
    await provider.make({"type": "email", "address": EMAIL})

    await refused(client, (await client.wallet_of_email(EMAIL)).wallet)


async def test_another_key_than_the_signers_is_refused(provider: Provider) -> None:
    policy = replace(provider.policy, signer_key=a_key_text(ec.SECP256R1()))
    async with IdentityClient(policy) as client:
        await refused(client, (await client.wallet_of_email(EMAIL)).wallet)


async def test_a_wallet_that_nobody_knows_is_unavailable(client: IdentityClient) -> None:
    with pytest.raises(IdentityUnavailable, match="does not know the wallet"):
        await client.sign_typed_data(WALLET, PERMIT)


def a_key_text(curve: ec.EllipticCurve) -> str:
    der = ec.generate_private_key(curve).private_bytes(
        serialization.Encoding.DER,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return base64.b64encode(der).decode()


@pytest.mark.parametrize(
    "text",
    ["", "secret", "wallet-auth:", "wallet-auth:AAAA", a_key_text(ec.SECP256K1()), "\u0660"],
    ids=range(6),
)
async def test_a_signers_key_that_is_none_is_told_at_once_and_not_repeated(
    provider: Provider, text: str
) -> None:
    with pytest.raises(Misconfigured, match="identity signer's key") as refusal:
        IdentityClient(replace(provider.policy, signer_key=text))

    assert not text or text not in str(refusal.value)


def test_a_signers_key_may_bear_its_vendors_prefix() -> None:
    text = a_key_text(ec.SECP256R1())

    assert parse_signer_key("wallet-auth:" + text).private_numbers() == (
        parse_signer_key(text).private_numbers()
    )


# --- signatures that are not the wallet's -------------------------------------------------------


def a_user(wallet: Address = WALLET, **other: object) -> dict[str, object]:
    row = {
        "type": "wallet",
        "id": "w1",
        "address": hex_of(wallet),
        "chain_type": "ethereum",
        "connector_type": "embedded",
        "wallet_client_type": "privy",
    }
    return {"id": DID, "linked_accounts": [{"type": "email"}, {**row, **other}]}


async def answers_to(provider: Provider, user: object, data: object) -> IdentityUnavailable:
    async def answer(request: web.Request) -> web.Response:
        if request.path == "/v1/users/wallet/address":
            return web.json_response(user)
        assert request.path == "/v1/wallets/w1/rpc"
        return web.json_response({"method": "eth_signTypedData_v4", "data": data})

    async with served(answer, provider.policy) as policy, IdentityClient(policy) as client:
        with pytest.raises(IdentityUnavailable) as failure:
            await client.sign_typed_data(WALLET, PERMIT)
        return failure.value


@pytest.mark.parametrize(
    "data",
    [
        {"signature": hex_of(signed_by(b"\x02" * 32))},
        {
            "signature": hex_of(
                signed_by(KEY, {**PERMIT, "domain": {**PERMIT["domain"], "chainId": 1}})
            )
        },
        {"signature": hex_of(signed_by(KEY))[:-2]},
        {"signature": hex_of(signed_by(KEY)) + "00"},
        {"signature": hex_of(signed_by(KEY))[2:]},
        {"signature": "0x" + "00" * 65},
        {"signature": ""},
        {"signature": 7},
        {},
        [],
        None,
    ],
    ids=range(11),
)
async def test_a_signature_that_is_not_the_wallets_is_no_answer(
    provider: Provider, data: object
) -> None:
    failure = await answers_to(provider, a_user(), data)

    assert failure.message == "The identity provider's answer is malformed"


async def test_a_v_of_0_or_1_is_told_as_27_or_28(provider: Provider) -> None:
    signature = signed_by(KEY)

    async def answer(request: web.Request) -> web.Response:
        if request.path == "/v1/users/wallet/address":
            return web.json_response(a_user())
        low_v_signature = signature[:64] + bytes((signature[64] - 27,))
        return web.json_response({"data": {"signature": hex_of(low_v_signature)}})

    async with served(answer, provider.policy) as policy, IdentityClient(policy) as client:
        assert await client.sign_typed_data(WALLET, PERMIT) == signature


@pytest.mark.parametrize(
    "user",
    [
        a_user(id=None),
        a_user(id="../users"),
        a_user(id=7),
        a_user(Address(b"\x09" * 20)),
    ],
    ids=["no id", "a path", "a number", "another's"],
)
async def test_a_wallet_whose_key_the_provider_does_not_hold_is_unavailable(
    provider: Provider, user: object
) -> None:
    failure = await answers_to(provider, user, None)

    assert failure.message == "The identity provider does not hold the wallet's key"


async def test_a_linked_wallet_whose_owner_keeps_the_key_is_refused_for_good(
    provider: Provider,
) -> None:
    """The same request would fail again, so its caller must not be told to repeat it."""
    user = a_user(wallet_client_type="metamask", connector_type="injected")

    async def answer(_request: web.Request) -> web.Response:
        return web.json_response(user)

    async with served(answer, provider.policy) as policy, IdentityClient(policy) as client:
        with pytest.raises(ValueError, match="owner keeps"):
            await client.sign_typed_data(WALLET, PERMIT)


@pytest.mark.parametrize("status", [302, 400, 401, 403, 404, 422])
async def test_a_refusal_is_unavailable_and_not_repeated(provider: Provider, status: int) -> None:
    signing_requests = 0

    async def answer(request: web.Request) -> web.Response:
        nonlocal signing_requests
        if not request.path.endswith("/rpc"):
            return web.json_response(a_user())
        signing_requests += 1
        return web.json_response({"data": {"signature": hex_of(signed_by(KEY))}}, status=status)

    async with served(answer, provider.policy) as policy, IdentityClient(policy) as client:
        with pytest.raises(IdentityUnavailable) as failure:
            await client.sign_typed_data(WALLET, PERMIT)

    assert signing_requests == 1
    assert ("does not allow ltzd to sign" in failure.value.message) == (status in {401, 403})


async def test_what_is_no_typed_data_reaches_nobody(
    provider: Provider, client: IdentityClient
) -> None:
    provider.count_requests()

    with pytest.raises(ValueError, match="typed data"):
        await client.sign_typed_data(WALLET, {**PERMIT, "primaryType": "Nothing"})
    assert provider.requests == 0


# --- the request's own signature -----------------------------------------------------------------


async def test_a_request_is_signed_over_method_url_body_and_the_vendors_headers(
    provider: Provider,
) -> None:
    seen: list[web.Request] = []
    bodies: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        if request.path.endswith("/rpc"):
            seen.append(request)
            bodies.append(await request.json())
            return web.json_response({"data": {"signature": hex_of(signed_by(KEY))}})
        return web.json_response(a_user())

    async with served(answer, provider.policy) as policy, IdentityClient(policy) as client:
        for _ in range(2):
            await client.sign_typed_data(WALLET, PERMIT)

    assert policy.signer_key is not None
    key = parse_signer_key(policy.signer_key).public_key()
    for request, body in zip(seen, bodies, strict=True):
        ours = {"privy-idempotency-key": request.headers["privy-idempotency-key"]}
        payload = authorization_payload(policy.app_id, str(request.url), body, ours)
        signature = base64.b64decode(request.headers["privy-authorization-signature"])
        key.verify(signature, payload, ec.ECDSA(hashes.SHA256()))
    assert len({request.headers["privy-idempotency-key"] for request in seen}) == 1
    assert str(seen[0].url) == policy.base_url + "/v1/wallets/w1/rpc"


def test_the_canonical_form_is_that_of_rfc_8785() -> None:
    value = {"b": [True, None, 9007199254740991], "a": {"é": '"\\\b\n\u001f/\u20ac'}, "A": -0}

    assert canonical(value) == (
        '{"A":0,"a":{"é":"\\"\\\\\\b\\n\\u001f/€"},"b":[true,null,9007199254740991]}'.encode()
    )


async def test_neither_key_nor_signature_is_printed_or_logged(
    provider: Provider, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    policy = replace(provider.policy, signer_key=a_key_text(ec.SECP256R1()))
    async with IdentityClient(policy) as client:
        await refused(client, (await client.wallet_of_email(EMAIL)).wallet)

    output = "".join((*capsys.readouterr(), caplog.text, repr(policy)))
    assert "identity_signing_refused" in output
    assert "zero_correct_authorization_signatures" in output
    assert str(policy.signer_key) not in output
    assert EMAIL not in output
