"""`ltzd sign` prints headers that the surfaces accept, and never the key."""

import asyncio
import json
import shutil
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from typer.testing import CliRunner

from ltzd.cli.main import app
from ltzd.cli.sign import KEY_VARIABLE
from ltzd.rules.request_signatures import SignedRequest, check_form, is_signed_with
from tests.support.commands import ltzd
from tests.support.secret_files import write_secret
from tests.support.surfaces.http_surface import (
    BRAND_ID,
    COLLECTION,
    PERK,
    SECURITY_KEY,
    RunningSurfaces,
    a_surface,
)

BASE = "https://relay.example"
TARGET = f"/check-perk-status?collectionId={COLLECTION}&tokenId={PERK}"
NAMES = ["X-LTZ-Brand-Id", "X-LTZ-Timestamp", "X-LTZ-Nonce", "X-LTZ-Signature"]


@pytest.fixture
def key_file(tmp_path: Path) -> Path:
    file = tmp_path / "security.key"
    write_secret(file, f"{SECURITY_KEY}\n")
    return file


@pytest.fixture(autouse=True)
def _no_key_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE, raising=False)


@pytest_asyncio.fixture(scope="module")
async def surface() -> AsyncIterator[RunningSurfaces]:
    async with a_surface() as surface:
        yield surface


def is_good(headers: dict[str, str], method: str, target: str, body: bytes = b"") -> bool:
    brand_id, timestamp, nonce, signatures = (headers[name] for name in NAMES)
    signed = SignedRequest(brand_id, timestamp, nonce, signatures, method, target.encode(), body)
    check_form(signed, time.time())
    return is_signed_with(signed, [SECURITY_KEY])


def headers_in(options: str) -> dict[str, str]:
    """The headers that curl sends for the printed options."""
    words = options.split()
    assert words[::2] == ["-H"] * 4
    return dict(word.split(":", 1) for word in words[1::2])


async def test_it_prints_curls_options_for_the_four_headers(key_file: Path) -> None:
    done = await ltzd("sign", "GET", BASE + TARGET, "--brand-id", BRAND_ID, "--key-file", key_file)

    assert (done.code, done.err) == (0, "")
    headers = headers_in(done.out)
    assert list(headers) == NAMES
    assert headers["X-LTZ-Brand-Id"] == BRAND_ID
    assert is_good(headers, "GET", TARGET)


async def test_json_has_the_same_headers(key_file: Path) -> None:
    options = ("--brand-id", BRAND_ID.upper().replace("X", "x"), "--key-file", key_file, "--json")
    done = await ltzd("sign", "get", BASE + TARGET, *options)

    assert list(done.json) == NAMES
    assert done.json["X-LTZ-Brand-Id"] == BRAND_ID
    assert is_good(done.json, "GET", TARGET)


async def test_each_signature_has_a_nonce_of_its_own(key_file: Path) -> None:
    options = ("--brand-id", BRAND_ID, "--key-file", key_file, "--json")
    nonces = {(await ltzd("sign", "GET", TARGET, *options)).json["X-LTZ-Nonce"] for _ in range(3)}

    assert len(nonces) == 3


async def test_the_key_may_be_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_VARIABLE, SECURITY_KEY)
    done = await ltzd("sign", "GET", TARGET, "--brand-id", BRAND_ID, "--json")

    assert is_good(done.json, "GET", TARGET)


async def test_a_file_wins_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, key_file: Path
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, "ltzsk_other")
    options = ("--brand-id", BRAND_ID, "--key-file", key_file, "--json")

    assert is_good((await ltzd("sign", "GET", TARGET, *options)).json, "GET", TARGET)


async def test_a_body_is_signed_byte_for_byte(tmp_path: Path, key_file: Path) -> None:
    body = b'{"reference": "caf\xc3\xa9"}\r\n\n'
    (tmp_path / "body").write_bytes(body)
    options = ["--brand-id", BRAND_ID, "--key-file", str(key_file), "--json"]
    sign = ["sign", "POST", f"{BASE}/redeem-perk", *options]

    from_file = await ltzd(*sign, "--body", tmp_path / "body")
    assert is_good(from_file.json, "POST", "/redeem-perk", body)
    from_input = await asyncio.to_thread(CliRunner().invoke, app, [*sign, "--body", "-"], body)
    assert is_good(json.loads(from_input.stdout), "POST", "/redeem-perk", body)
    assert not is_good((await ltzd(*sign)).json, "POST", "/redeem-perk", body)


@pytest.mark.parametrize(
    ("url", "target"),
    [
        ("/redeem-perk", "/redeem-perk"),
        (BASE, "/"),
        (f"{BASE}/", "/"),
        (f"{BASE}?x=1", "/?x=1"),
        (f"{BASE}:8443/a?b=c&a=%20&b", "/a?b=c&a=%20&b"),
        ("http://[::1]:80/a#part", "/a"),
        (f"{BASE}/a?next=/../b#part", "/a?next=/../b"),
        (f"{BASE}/a//b.c/..d", "/a//b.c/..d"),
    ],
)
async def test_what_is_signed_is_path_and_query_as_clients_send_them(
    key_file: Path, url: str, target: str
) -> None:
    options = ("--brand-id", BRAND_ID, "--key-file", key_file, "--json")

    assert is_good((await ltzd("sign", "GET", url, *options)).json, "GET", target)


@pytest.mark.parametrize(
    ("arguments", "trouble"),
    [
        (["GET", "relay.example/a"], "URL must begin with https://, http:// or /."),
        (["GET", ""], "URL must"),
        (["GET", f"{BASE}/a b"], "URL must be percent-encoded"),
        (["GET", f"{BASE}/é"], "URL must be percent-encoded"),
        (["GET", f"{BASE}/a/../b"], "URL must not hold /./ or /../"),
        (["GET", f"{BASE}/a/.."], "URL must not hold /./ or /../"),
        (["G T", TARGET], "METHOD must be an HTTP method"),
        (["GET", TARGET, "--body", "none"], "The body's file none cannot be read."),
        (["GET", TARGET, "--key-file", "none"], "none cannot be read: No such file or directory"),
        (["GET", TARGET, "--brand-id", "0x12"], "--brand-id must be the brand's address"),
    ],
)
async def test_what_cannot_be_signed_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], trouble: str
) -> None:
    monkeypatch.setenv(KEY_VARIABLE, SECURITY_KEY)
    done = await ltzd("sign", "--brand-id", BRAND_ID, *arguments)

    assert (done.code, done.out) == (1, "")
    assert done.err.startswith(f"ltzd: {trouble}")
    assert SECURITY_KEY not in done.err


async def test_without_a_key_it_says_where_one_may_be() -> None:
    done = await ltzd("sign", "GET", TARGET, "--brand-id", BRAND_ID)

    assert (done.code, done.out) == (1, "")
    assert "--key-file" in done.err
    assert KEY_VARIABLE in done.err


@pytest.mark.skipif(shutil.which("curl") is None, reason="there is no curl here")
async def test_curl_sends_what_was_signed(
    surface: RunningSurfaces, key_file: Path, tmp_path: Path
) -> None:
    sign = ("--brand-id", BRAND_ID, "--key-file", key_file)
    body = tmp_path / "redeem.json"
    body.write_text(json.dumps({"collectionId": COLLECTION, "tokenId": str(PERK)}) + "\n")
    redeem = surface.url + "/redeem-perk"

    checked = await ltzd("sign", "GET", surface.url + TARGET, *sign)
    assert (await curl(checked.out, f"'{surface.url}{TARGET}'"))["chargesRemaining"] == 3
    redeemed = await ltzd("sign", "POST", redeem, *sign, "--body", body)
    more = f"-H 'Content-Type: application/json' --data-binary @{body} {redeem}"
    assert (await curl(redeemed.out, more))["chargesRemaining"] == 2
    assert (await curl(redeemed.out, more))["code"] == "UNAUTHORIZED"


async def curl(options: str, more: str) -> dict[str, object]:
    """Run curl in a shell, which splits the printed options at spaces."""
    process = await asyncio.create_subprocess_exec(
        *("sh", "-c", f"curl -s $OPTIONS {more}"),
        env={"OPTIONS": options, "PATH": "/usr/local/bin:/usr/bin:/bin"},
        stdout=asyncio.subprocess.PIPE,
    )
    body, _ = await asyncio.wait_for(process.communicate(), 20)
    answer: dict[str, object] = json.loads(body)
    return answer
