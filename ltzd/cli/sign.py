"""`ltzd sign`: signs one request for a brand (LTZ-HMAC v1) and prints the headers for curl.

The key comes from a file or from the environment, because every user of the machine can read a
process's arguments.
"""

# ruff: noqa: PLC0415 - the command imports what it runs only when it runs

import os
import re
import secrets
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from ltzd.cli.options import AsJson
from ltzd.errors import Misconfigured
from ltzd.values import BRAND_ID

KEY_VARIABLE = "LTZ_SECURITY_KEY"

_METHOD = re.compile(r"[A-Z]+")
_URL = re.compile(r"(?:https?://[^/?#]+|(?=/))((?:/[^?#]*)?(?:\?[^#]*)?)(?:#.*)?")
_PRINTABLE_ASCII = re.compile(r"[!-~]+")
_DOT_SEGMENT = re.compile(r"/\.{1,2}(?:/|\Z)")


def sign(
    method: Annotated[str, typer.Argument(help="The HTTP method, such as GET.", metavar="METHOD")],
    url: Annotated[str, typer.Argument(help="The request's URL with its query.", metavar="URL")],
    brand_id: Annotated[str, typer.Option(help="The id of the brand that signs.", metavar="0x…")],
    key_file: Annotated[
        Path | None,
        typer.Option(
            help=f"The brand's securityKey; default: the variable {KEY_VARIABLE}.",
            metavar="FILE",
        ),
    ] = None,
    body: Annotated[
        str | None,
        typer.Option(
            help="The request's body, signed byte for byte; - is standard input.", metavar="FILE"
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Print the four headers of a signed request: curl $(ltzd sign GET URL …) URL."""
    headers = signed_headers(
        method.upper(),
        target_of(url),
        _read_body(body),
        _parse_brand(brand_id),
        _read_key(key_file),
    )
    if as_json:
        from ltzd.cli.output import print_json

        print_json(headers)
    else:
        # A shell splits this output at its spaces; quotes would become part of a header.
        print(*(f"-H {name}:{value}" for name, value in headers.items()), sep="\n")


def signed_headers(
    method: str, target: bytes, body: bytes, brand_id: str, key: str
) -> dict[str, str]:
    from ltzd.rules.request_signatures import signature

    if not _METHOD.fullmatch(method):
        raise Misconfigured("METHOD must be an HTTP method, such as GET or POST.")
    timestamp, nonce = str(int(time.time())), secrets.token_hex(16)
    return {
        "X-LTZ-Brand-Id": brand_id,
        "X-LTZ-Timestamp": timestamp,
        "X-LTZ-Nonce": nonce,
        "X-LTZ-Signature": signature(key, timestamp, nonce, method, target, body),
    }


def target_of(url: str) -> bytes:
    """The path and query as a client sends them.

    Raises Misconfigured for a URL that clients rewrite before they send it.
    """
    match = _URL.fullmatch(url)
    if match is None:
        raise Misconfigured("URL must begin with https://, http:// or /.")
    target = match[1] if match[1].startswith("/") else "/" + match[1]
    if not _PRINTABLE_ASCII.fullmatch(target):
        raise Misconfigured(
            "URL must be percent-encoded: it holds spaces or characters outside ASCII."
        )
    if _DOT_SEGMENT.search(target.partition("?")[0]):
        raise Misconfigured("URL must not hold /./ or /../, because clients remove them.")
    return target.encode()


def _parse_brand(text: str) -> str:
    brand_id = text.lower()
    if not BRAND_ID.fullmatch(brand_id):
        raise Misconfigured("--brand-id must be the brand's address: 0x and 40 hex digits.")
    return brand_id


def _read_key(file: Path | None) -> str:
    if file is not None:
        from ltzd.daemon.settings.section import secret_from_file

        return secret_from_file(file).get_secret_value()
    key = os.environ.get(KEY_VARIABLE, "").strip()
    if not key:
        raise Misconfigured(
            f"There is no key: give --key-file FILE, or set the variable {KEY_VARIABLE}."
        )
    return key


def _read_body(source: str | None) -> bytes:
    if source is None:
        return b""
    if source == "-":
        return sys.stdin.buffer.read()
    try:
        return Path(source).read_bytes()
    except OSError as error:
        raise Misconfigured(f"The body's file {source} cannot be read.") from error
