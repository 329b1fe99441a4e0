"""The commands and code in the documents work as described."""

import ast
import asyncio
import json
import os
import re
import shutil
import sys
import time
from base64 import b64encode
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from ltzd.cli.books.report import CHAIN_KINDS
from ltzd.cli.books.views import Report, as_json
from ltzd.http.services import HttpPolicy
from ltzd.http.site_plugin.operations import operations as site_operations
from ltzd.providers.brand_webhooks import WebhookMessage, signed_headers
from ltzd.rules.request_signatures import SignedRequest, check_form, is_signed_with
from ltzd.store.books import reconciliation
from ltzd.store.books.figures import ALL_TIME
from tests.support.instances.instance import Instance
from tests.support.tools import php_path
from tests.support.waiting import until

DOCS = Path(__file__).parents[2] / "docs"


def code_in(name: str, language: str = "python") -> str:
    (block,) = re.findall(rf"```{language}\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)
    return str(block)


async def run(code: str, instance: Instance) -> tuple[int, str]:
    code = code.replace(".ltzd/", f"{instance.data_dir}/")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        output, trouble = await process.communicate()
    assert process.returncode is not None
    return process.returncode, (output + trouble).decode()


@pytest.mark.parametrize("name", ["perks.md", "relaying.md", "webhooks.md"])
def test_the_code_is_where_it_is_looked_for(name: str) -> None:
    compile(code_in(name), name, "exec")


async def test_a_new_user_claims_a_token_by_the_page_on_relaying(one_instance: Instance) -> None:
    code = code_in("relaying.md").replace("grace@", f"{uuid4().hex}@")
    status, output = await run(code, one_instance)
    assert status == 0, output
    assert json.loads(output)["status"] == "confirmed"

    status, output = await run(code, one_instance)
    assert status != 0
    assert "409" in output


async def test_the_lines_of_the_page_on_sites_reach_each_endpoint(one_instance: Instance) -> None:
    code = code_in("site.md", "sh").replace(".ltzd/", f"{one_instance.data_dir}/")
    code = code.replace("http://127.0.0.1:8000", one_instance.base_url)
    process = await asyncio.create_subprocess_exec(
        *("sh", "-euc", code), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        output, trouble = await process.communicate()
    assert process.returncode == 0, trouble.decode()

    answers = map(json.loads, output.splitlines())
    checked_in, me, perks, redeemed, milestone, board, linked, unlinked = answers
    assert checked_in["streak"]["currentStreak"] == 1
    assert me["username"] == one_instance.dev_json["site"]["username"]
    assert {perk["name"] for perk in perks["perks"]} >= {"Free coffee"}
    # Other tests may have been here before: a second coffee is refused.
    assert redeemed.get("confirmationCode") or redeemed["code"] == "redeem_failed"
    assert milestone["code"] == "claim_failed"
    assert board["metric"] == "streak"
    assert linked["code"] == "link_failed"
    assert unlinked == {"success": True}
    await minted(one_instance, me["walletAddress"])


async def minted(instance: Instance, wallet: str) -> None:
    """Waits until all rewards are minted, for the other tests of the shared instance."""
    query = "SELECT bool_and(mint_block_hash IS NOT NULL) FROM rewards WHERE wallet = $1"
    await until(lambda: instance.ask(query, bytes.fromhex(wallet[2:])))


VECTORS = [
    (
        ("n-0001", "GET", "/list-perk-holders?collectionId=7&limit=50", ""),
        "v1=0bf51cdcbb37469576ea272346227f10a57d8cb43c553b091c15878575d325e1",
    ),
    (
        ("n-0002", "POST", "/redeem-perk", '{"collectionId":7,"tokenId":"12"}'),
        "v1=7a6b1d02fedeac46c2cffd6f164be88a351cb178b8e10618e1869c47f97410ad",
    ),
]
KEY = "ltzsk_test_0123456789abcdef0123456789abcdef"
BRAND = "0x" + "ab" * 20
SHOWN_BY_PYTHON = """
import json, sys
brand, key, method, target, body, *rest = sys.argv[1:]
print(json.dumps(sign(brand, key, method, target, body.encode(), *rest)))
"""
SIGNING = {
    "python": ((sys.executable, "-c"), SHOWN_BY_PYTHON, ()),
    "js": (
        ("node", "-e"),
        "\nconsole.log(JSON.stringify(sign(...process.argv.slice(1))))",
        ("--",),
    ),
    "php": (("php", "-r"), "\necho json_encode(sign(...array_slice($argv, 1)));", ("--",)),
}
"""Per language: the command for a text, the code that prints `sign(*arguments)`, arguments."""


async def signed_by(language: str, *arguments: str) -> dict[str, str]:
    program, shows, separator = SIGNING[language]
    process = await asyncio.create_subprocess_exec(
        *(*program, code_in("perks.md", language) + shows, *separator, *arguments),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        output, trouble = await process.communicate()
    assert process.returncode == 0, trouble.decode()
    headers: dict[str, str] = json.loads(output)
    return headers


def is_taken(headers: dict[str, str], method: str, target: str) -> bool:
    brand_id, timestamp, nonce, signatures = headers.values()
    signed = SignedRequest(brand_id, timestamp, nonce, signatures, method, target.encode(), b"")
    check_form(signed, time.time())
    return is_signed_with(signed, [KEY])


def skip_without(language: str) -> None:
    if language == "php":
        php_path()
    elif shutil.which(SIGNING[language][0][0]) is None:
        pytest.skip(f"there is no {language} here")


@pytest.mark.parametrize("language", SIGNING)
async def test_the_ten_lines_that_sign_meet_the_vectors(language: str) -> None:
    skip_without(language)
    for (nonce, method, target, body), expected in VECTORS:
        headers = await signed_by(language, BRAND, KEY, method, target, body, "1767225600", nonce)
        assert headers == {
            "X-LTZ-Brand-Id": BRAND,
            "X-LTZ-Timestamp": "1767225600",
            "X-LTZ-Nonce": nonce,
            "X-LTZ-Signature": expected,
        }
    request = ("GET", "/check-perk-status?collectionId=7&tokenId=12")
    first, other = [await signed_by(language, BRAND, KEY, *request, "") for _ in range(2)]
    assert is_taken(first, *request)
    assert is_taken(other, *request)
    assert first["X-LTZ-Nonce"] != other["X-LTZ-Nonce"]


def test_the_page_on_perks_shows_the_vectors_themselves() -> None:
    page = (DOCS / "perks.md").read_text()
    for (nonce, method, target, body), expected in VECTORS:
        shown = f" `{body}`" if body else ""
        assert f"| `{nonce}` | `{method} {target}` |{shown} | `{expected}` |" in page


def test_a_receiver_checks_signatures_as_the_page_on_webhooks_does() -> None:
    by_name: dict[str, Any] = {}
    exec(code_in("webhooks.md"), by_name)
    is_from_ltzd = by_name["is_from_ltzd"]
    old, new = (f"whsec_{b64encode(os.urandom(32)).decode()}" for _ in range(2))
    message = WebhookMessage(uuid4(), "https://shop.example/ltz", b'{"event":"ltz_distributed"}')
    headers = signed_headers(message, [new, old], datetime.now(UTC))
    assert is_from_ltzd(old, headers, message.body)
    assert is_from_ltzd(new, headers, message.body)
    assert not is_from_ltzd(new, headers, message.body + b" ")
    assert not is_from_ltzd("whsec_" + b64encode(bytes(32)).decode(), headers, message.body)
    late = signed_headers(message, [new], datetime.now(UTC) - timedelta(minutes=6))
    assert not is_from_ltzd(new, late, message.body)


def rows_of(page: str) -> list[list[str]]:
    """The cells of the rows of the page's tables, without the header rows."""
    lines = [line for line in page.splitlines() if line.startswith("|")]
    heads = {i for i, line in enumerate(lines) if set(line) <= set("|-")}
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for i, line in enumerate(lines)
        if i not in heads and i + 1 not in heads
    ]


def test_every_row_of_the_threat_model_names_a_test_that_exists() -> None:
    rows = rows_of((DOCS / "threat-model.md").read_text())
    assert len(rows) > 100
    for row in rows:
        named = re.fullmatch(r"`([\w/.]+)::(\w+)`", row[-1])
        assert named is not None, row
        path, name = DOCS.parent / named[1], named[2]
        assert path.is_file(), named[0]
        assert re.search(rf"(def|function) {name}\(", path.read_text()), named[0]


def test_the_page_on_sites_lists_every_error_of_each_endpoint() -> None:
    _, _, errors = (DOCS / "site.md").read_text().partition("## Errors")
    rows = re.findall(r"^\| `(\w+)` \| (\d+) \| ([^|]*) \|", errors, re.MULTILINE)
    missing = {
        (code, status, endpoint)
        for endpoint, status, code in _site_errors()
        if not any((code, str(status)) == row[:2] and _holds_at(endpoint, row[2]) for row in rows)
    }
    assert missing == set()


def _site_errors() -> set[tuple[str, int, str]]:
    return {
        (operation.path.rpartition("/")[2], status, str(body["code"]))
        for operation in site_operations(HttpPolicy())
        for status, response in operation.responses.items()
        if status >= 400
        for body in response.examples.values()
    }


def _holds_at(endpoint: str, where: str) -> bool:
    """Whether a row holds there: `where` is "all", "all but" some endpoints, or a list of them."""
    return where.startswith("all") != (f"`{endpoint}`" in where)


def test_the_sentences_that_runbooks_quote_are_sentences_of_ltzd() -> None:
    """A person at night searches the runbooks for the words of a log or of `/status`."""
    sentences = "\n".join(_sentences_in(path) for path in (DOCS.parent / "ltzd").rglob("*.py"))
    quoted = [
        (page.name, part.strip(" ,"))
        for page in (DOCS / "runbooks").glob("*.md")
        for quote in re.findall(r'\*"(.+?)"\*', page.read_text())
        for part in quote.split("…")
    ]
    assert quoted
    assert [(page, part) for page, part in quoted if part not in sentences] == []


def test_the_page_on_books_lists_every_kind_and_every_field() -> None:
    page = (DOCS / "books.md").read_text()
    rows = re.findall(r"^\| (`.+?`) \|", page.partition("| kind | meaning |")[2], re.MULTILINE)
    kinds = {*CHAIN_KINDS, *(check.kind for check in reconciliation.CHECKS)}
    assert kinds - {kind for row in rows for kind in re.findall(r"`(\w+)`", row)} == set()

    (fields,) = re.findall(r"^`--json` prints one object: (.+)$", page, re.MULTILINE)
    report = Report(ALL_TIME, brands=(), differences=(), indexed=None, notes=())
    assert [key for key in as_json(report) if f"`{key}`" not in fields] == []


def test_no_page_has_a_person_write_to_tables_of_ltzd() -> None:
    """Commands restore all that they touch; only the lease of a lost process has none."""
    writes = [
        (str(page.relative_to(DOCS)), table)
        for page in DOCS.rglob("*.md")
        for table in re.findall(r"(?:UPDATE|DELETE FROM|INSERT INTO) (\w+)", page.read_text())
    ]
    assert writes == [("operations.md", "leases")]


def test_the_page_on_nodes_lists_every_kind_of_contradiction() -> None:
    """The log `node.disagrees` and a metric name a kind, and the runbook sends to this page."""
    kinds = {
        getattr(import_module(".".join(path.relative_to(DOCS.parent).with_suffix("").parts)), name)
        for path in (DOCS.parent / "ltzd").rglob("*.py")
        for name in _reported_kinds(ast.parse(path.read_text()))
    }
    listed = re.findall(r"`(\w+)`", (DOCS / "nodes.md").read_text().partition("| kind |")[2])
    assert kinds
    assert kinds - set(listed) == set()


def _reported_kinds(module: ast.Module) -> Iterator[str]:
    """The constants by which contradictions are reported."""
    for node in ast.walk(module):
        match node:
            case ast.Call(
                func=ast.Attribute(attr="report_contradiction" | "distrust"),
                args=[ast.Name(id=name)],
            ) if name.isupper():
                yield name
            case (
                ast.Call(func=ast.Name(id="Question"), args=[_, _, _, ast.Name(id=name)])
                | ast.Call(
                    func=ast.Name(id="compare_views"), args=[_, _, _, _, ast.Name(id=name), *_]
                )
            ) if name.isupper():
                yield name
            case ast.Call(func=ast.Name(id="Question"), keywords=keywords):
                yield from (
                    keyword.value.id
                    for keyword in keywords
                    if keyword.arg == "kind" and isinstance(keyword.value, ast.Name)
                )


def _sentences_in(path: Path) -> str:
    """Every text of a module, with an ellipsis for each value that is inserted."""
    texts = []
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.Constant(value=str(text)):
                texts.append(text)
            case ast.JoinedStr(values=parts):
                inserted = (part.value if isinstance(part, ast.Constant) else "…" for part in parts)
                texts.append("".join(map(str, inserted)))
    return "\n".join(texts)
