"""Users' tokens checked in a second of CPU time, beside PyJWT and a bare signature check."""

import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from time import process_time

import aiohttp
import jwt
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey
from cryptography.hazmat.primitives.hashes import SHA256
from jwt.utils import base64url_decode, raw_to_der_signature

from benchmarks.harness import results
from benchmarks.harness.results import Ratio
from ltzd.dev.sandbox import Sandbox
from ltzd.providers.identity.tokens import IdentityTokens

WANTED = 3_000
"""Checks a second on one core. CPU time is counted: whatever else runs has the rest."""
KINDS = {"access": "accessToken", "identity": "identityToken"}


async def run(*, seconds: float, rounds: int, in_document: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        sandbox = Sandbox(Path(folder), 0, "http://127.0.0.1:1", None)
        await sandbox.start()
        try:
            given, key = await _log_in(sandbox)
            async with IdentityTokens(sandbox.identity_policy()) as tokens:
                app_id = sandbox.identity_policy().app_id
                rates = {
                    kind: await _rates(tokens, given[name], key, app_id, seconds, rounds)
                    for kind, name in KINDS.items()
                }
        finally:
            await sandbox.stop()
    measurements = [ratio for kind, sides in rates.items() for ratio in _ratios(kind, *sides)]
    details = {
        kind: dict(
            zip(("ltzd_per_second", "pyjwt_per_second", "bare_per_second"), sides, strict=True)
        )
        for kind, sides in rates.items()
    }
    results.record("tokens", measurements, details, in_document=in_document)


async def _log_in(sandbox: Sandbox) -> tuple[dict[str, str], EllipticCurvePublicKey]:
    endpoints = sandbox.control_endpoints()
    async with aiohttp.ClientSession() as session:
        email = {"email": "ann@shop.example"}
        async with session.post(endpoints["identityTokenUrl"], json=email) as answer:
            given = await answer.json()
        async with session.get(endpoints["jwksUrl"]) as answer:
            key = jwt.PyJWK((await answer.json())["keys"][0]).key
    return given, key


async def _rates(
    tokens: IdentityTokens,
    token: str,
    key: EllipticCurvePublicKey,
    app_id: str,
    seconds: float,
    rounds: int,
) -> tuple[list[float], list[float], list[float]]:
    """Measures ltzd, PyJWT and cryptography in turn, round by round."""
    signing_input, _, signature = token.encode().rpartition(b".")
    der = raw_to_der_signature(base64url_decode(signature), key.curve)
    algorithm = ECDSA(SHA256())

    async def ours() -> None:
        await tokens.user_of(token)

    async def pyjwt() -> None:
        jwt.decode(token, key, algorithms=["ES256"], audience=app_id, issuer="privy.io")

    async def bare() -> None:
        key.verify(der, signing_input, algorithm)

    rates: tuple[list[float], list[float], list[float]] = ([], [], [])
    for _ in range(rounds):
        for side, check in zip(rates, (ours, pyjwt, bare), strict=True):
            side.append(await _per_second(check, seconds))
        last = [side[-1] for side in rates]
        print("  ltzd {:7,.0f}/s  PyJWT {:7,.0f}/s  bare {:7,.0f}/s".format(*last), flush=True)
    return rates


async def _per_second(check: Callable[[], Awaitable[None]], seconds: float) -> float:
    await check()
    count, start = 0, process_time()
    while (elapsed := process_time() - start) < seconds:
        await check()
        count += 1
    return count / elapsed


def _ratios(
    kind: str, ours: list[float], pyjwt: list[float], bare: list[float]
) -> tuple[Ratio, ...]:
    wanted = [float(WANTED)] * len(ours)
    sides = {
        f"checks of an {kind} token a second, one core ÷ {WANTED:,}": (wanted, 1.0),
        f"checks of an {kind} token ÷ jwt.decode of PyJWT": (pyjwt, None),
        f"checks of an {kind} token ÷ bare signature checks of cryptography": (bare, None),
    }
    return tuple(_ratio(name, ours, theirs, must) for name, (theirs, must) in sides.items())


def _ratio(name: str, ours: list[float], theirs: list[float], must: float | None) -> Ratio:
    pairs = sorted(zip(ours, theirs, strict=True), key=lambda pair: pair[0] / pair[1])
    ltzd, peer = pairs[len(pairs) // 2]
    return Ratio(
        name=name,
        rounds=tuple(mine / other for mine, other in zip(ours, theirs, strict=True)),
        must=must,
        figures=f"{ltzd:,.0f} ÷ {peer:,.0f} a second",
    )
