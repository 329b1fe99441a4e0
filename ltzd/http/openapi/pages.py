"""Serves the OpenAPI document at /docs/openapi.json, and a page of it at /docs.

The page has no scripts and loads nothing.
"""

import itertools
from collections.abc import Iterator, Sequence
from functools import cache
from html import escape
from typing import Any

import msgspec
from sanic import Blueprint
from sanic.request import Request

from ltzd.http.openapi.document import document
from ltzd.http.openapi.operations import Operation
from ltzd.http.responses import JSON, Reply
from ltzd.http.routes import add_route
from ltzd.http.surface import READ_METHODS, Surface

PAGE_HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
}

LIMITS = ("pattern", "minLength", "maxLength", "minimum", "maximum")
"""The keywords of a schema that the page shows."""

_encoder = msgspec.json.Encoder(decimal_format="number")

STYLE = """
body{font:16px/1.5 system-ui,sans-serif;max-width:56rem;margin:2rem auto;padding:0 1rem;
color:#1c2430;background:#fff}
h2{margin-top:2.5rem;font-size:1.1rem}code,.m{font-family:ui-monospace,monospace}
.m{background:#1d4ed8;color:#fff;border-radius:4px;padding:.1rem .5rem;margin-right:.5rem}
table{border-collapse:collapse;width:100%;margin:.5rem 0}
pre{white-space:pre-wrap;margin:.3rem 0;font-size:.85rem}td,h2{overflow-wrap:anywhere}
th,td{text-align:left;padding:.3rem .6rem;border-bottom:1px solid #d5dbe5;vertical-align:top}
@media(max-width:40rem){th,td{display:block;padding:.1rem 0;border:0}
th{padding-top:.5rem;border-top:1px solid #d5dbe5}}
@media(prefers-color-scheme:dark){body{color:#e6eaf2;background:#11151c}
th,td{border-color:#313a48}a{color:#8ab4ff}}
"""


def surface(operations: Sequence[Operation]) -> Surface:
    """Make the document for its first reader: it does not change while the program runs."""

    @cache
    def as_json_and_page() -> tuple[bytes, str]:
        described = document(operations)
        return _encoder.encode(described), page(described)

    async def openapi(_request: Request) -> Reply:
        as_json, _ = as_json_and_page()
        return Reply(as_json, content_type=JSON)

    async def docs(_request: Request) -> Reply:
        _, as_page = as_json_and_page()
        return Reply(as_page, 200, PAGE_HEADERS, "text/html; charset=utf-8")

    blueprint = Blueprint("docs", url_prefix="/docs")
    add_route(blueprint, openapi, "/openapi.json", READ_METHODS)
    add_route(blueprint, docs, "/", READ_METHODS)
    return Surface(blueprint)


def page(described: dict[str, Any]) -> str:
    """The document as HTML."""
    components = described["components"]
    schemas, schemes = components["schemas"], components["securitySchemes"]
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8>",
        '<meta name=viewport content="width=device-width,initial-scale=1">',
        f"<title>ltzd API</title><style>{STYLE}</style><h1>ltzd API</h1>",
        f"<p>{escape(described['info']['description'])} ",
        'As JSON: <a href="/docs/openapi.json">openapi.json</a>.</p>',
    ]
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            parts += _operation(path, method, operation, schemes)
    parts.append("<h2>Schemas</h2>")
    for name, schema in schemas.items():
        parts += _schema(name, schema)
    return "".join(parts)


def _operation(
    path: str, method: str, operation: dict[str, Any], schemes: dict[str, Any]
) -> Iterator[str]:
    yield f"<h2><span class=m>{method.upper()}</span><code>{escape(path)}</code></h2>"
    yield f"<p>{escape(operation['summary'])}</p><table>"
    alternatives = operation.get("security", [])
    for name in itertools.chain(*alternatives):
        note = f"{schemes[name]['scheme'].title()}: {escape(schemes[name]['description'])}"
        yield _parameter("Authorization", "header", {} not in alternatives, note)
    for parameter in operation["parameters"]:
        notes = _kind(parameter["schema"]), escape(parameter.get("description", ""))
        note = ". ".join(filter(None, notes))
        yield _parameter(parameter["name"], parameter["in"], parameter["required"], note)
    if "requestBody" in operation:
        body = operation["requestBody"]
        yield f"<tr><th>body<td>{_kind(_content(body)['schema'])}{_examples(body)}</tr>"
    for status, response in operation["responses"].items():
        yield f"<tr><th>{status}<td>{escape(response['description'])}"
        if "content" not in response:
            yield f", without a body{_headers(response)}</tr>"
            continue
        kind = _kind(_content(response)["schema"])
        yield f": {kind}{_headers(response)}{_examples(response)}</tr>"
    yield "</table>"


def _parameter(name: str, place: str, is_required: bool, note: str) -> str:
    presence = "" if is_required else ", optional"
    return f"<tr><th><code>{name}</code><td>in the {place}{presence}: {note}</tr>"


def _content(holder: dict[str, Any]) -> dict[str, Any]:
    (content,) = holder["content"].values()
    described: dict[str, Any] = content
    return described


def _headers(response: dict[str, Any]) -> str:
    names = ", ".join(f"<code>{escape(name)}</code>" for name in response.get("headers", ()))
    return f"<br>Headers: {names}" if names else ""


def _examples(holder: dict[str, Any]) -> str:
    return "".join(
        f"<details><summary>{escape(name)}</summary><pre>{_formatted(example['value'])}</pre></details>"
        for name, example in _content(holder).get("examples", {}).items()
    )


def _formatted(value: Any) -> str:
    return escape(msgspec.json.format(_encoder.encode(value), indent=2).decode())


def _schema(name: str, schema: dict[str, Any]) -> Iterator[str]:
    yield f'<h2 id="{name}"><code>{name}</code></h2><p>{escape(schema.get("description", ""))}</p>'
    required = schema.get("required", ())
    yield "<table>"
    for field, described in schema.get("properties", {}).items():
        presence = "required" if field in required else "optional"
        note = escape(described.get("description", ""))
        yield f"<tr><th><code>{field}</code><td>{_kind(described)}<td>{presence}<td>{note}</tr>"
    yield "</table>"


def _kind(schema: dict[str, Any]) -> str:
    """A schema as a short phrase."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f'<a href="#{name}">{name}</a>'
    if "anyOf" in schema:
        return " or ".join(_kind(choice) for choice in schema["anyOf"])
    if "enum" in schema or "const" in schema:
        return ", ".join(escape(repr(value)) for value in schema.get("enum", [schema.get("const")]))
    if schema.get("type") == "array":
        return f"array of {_kind(schema.get('items', {}))}"
    limits = [f"{key} {schema[key]}" for key in LIMITS if key in schema]
    return escape(" ".join([str(schema.get("format", schema.get("type", "any"))), *limits]))
