"""The layout of the sandbox's pages, and the only functions that turn text into HTML.

`Html` is escaped text; `text` and `link` create it. Pages load no resources, which their
Content-Security-Policy enforces.
"""

import base64
import hashlib
import html
from collections.abc import Sequence
from typing import NewType
from urllib.parse import quote

from aiohttp import web

Html = NewType("Html", str)

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2330; --dim: #667085; --line: #d9dee7; --card: #fff;
  --paper: #f4f6fa; --mark: #2557d6; --good: #14794b; --bad: #b42318; }
@media (prefers-color-scheme: dark) { :root { --ink: #e7eaf1; --dim: #98a2b3; --line: #323a49;
  --card: #1a1f2b; --paper: #10141d; --mark: #86a8ff; --good: #55d199; --bad: #ff8a80; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, sans-serif; }
main { max-width: 62rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
header { background: var(--card); border-bottom: 1px solid var(--line); }
header p { max-width: 62rem; margin: 0 auto; padding: .8rem 1rem; font-weight: 600; }
header a { color: inherit; margin-right: 1.2rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: .6rem;
  overflow-x: auto; }
table { width: 100%; border-collapse: collapse; }
th, td { text-align: left; padding: .55rem .9rem; border-top: 1px solid var(--line);
  vertical-align: top; }
tr:first-child > * { border-top: 0; }
th { color: var(--dim); font-weight: 500; white-space: nowrap; }
td { font-family: ui-monospace, monospace; font-size: .86rem; overflow-wrap: anywhere; }
a { color: var(--mark); text-decoration: none; } a:hover { text-decoration: underline; }
.good { color: var(--good); font-weight: 600; } .bad { color: var(--bad); font-weight: 600; }
.dim, p.note { color: var(--dim); }
.actions { display: flex; flex-wrap: wrap; gap: .6rem; }
p.note + .actions { margin-top: 1rem; }
form { margin: 0; }
button { font: inherit; font-weight: 600; padding: .5rem 1.1rem; border-radius: .45rem;
  border: 1px solid var(--mark); cursor: pointer; }
button.main { background: var(--mark); color: var(--card); }
button.plain { background: none; color: var(--mark); }
label { display: block; font-weight: 600; margin-bottom: .9rem; max-width: 26rem; }
input { display: block; width: 100%; margin-top: .25rem; padding: .5rem .7rem;
  font: inherit; font-weight: 400; color: var(--ink); background: var(--card);
  border: 1px solid var(--dim); border-radius: .45rem; }
:focus-visible { outline: 3px solid var(--mark); outline-offset: 2px; }
p.code { font: 700 clamp(1.5rem, 8vw, 2.4rem)/1.3 ui-monospace, monospace; letter-spacing: .12em;
  margin: .5rem 0; overflow-wrap: anywhere; }
"""

_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    # With no-referrer a browser sends forms with the Origin null, which `access` refuses.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def text(value: object, style: str | None = None) -> Html:
    escaped = html.escape(str(value))
    return Html(
        escaped if style is None else f'<span class="{html.escape(style)}">{escaped}</span>'
    )


def link(path: str, label: object) -> Html:
    return Html(f'<a href="{html.escape(quote(path))}">{text(label)}</a>')


def heading(title: str) -> Html:
    return Html(f"<h2>{text(title)}</h2>")


def note(message: str) -> Html:
    return Html(f'<p class="note">{text(message)}</p>')


def facts(rows: Sequence[tuple[str, Html]]) -> Html:
    lines = (f'<tr><th scope="row">{text(name)}</th><td>{value}</td></tr>' for name, value in rows)
    return _table("".join(lines))


def table(titles: Sequence[str], rows: Sequence[Sequence[Html]]) -> Html:
    head = "".join(f'<th scope="col">{text(title)}</th>' for title in titles)
    lines = ("".join(f"<td>{cell}</td>" for cell in row) for row in rows)
    return _table(f"<tr>{head}</tr>" + "".join(f"<tr>{line}</tr>" for line in lines))


def button(path: str, label: str, style: str, about: str | None = None) -> Html:
    """A form of one button; `about` completes its label for screen readers."""
    named = "" if about is None else f' aria-label="{text(label)} {text(about)}"'
    return Html(
        f'<form method="post" action="{html.escape(quote(path))}">'
        f'<button class="{html.escape(style)}"{named}>{text(label)}</button></form>'
    )


def field(name: str, label: str, value: str, **attributes: str) -> Html:
    """A required text field."""
    more = "".join(f' {key}="{html.escape(each)}"' for key, each in attributes.items())
    return Html(
        f'<label>{text(label)}<input name="{html.escape(name)}" value="{html.escape(value)}"'
        f" required{more}></label>"
    )


def hidden(name: str, value: str) -> Html:
    return Html(f'<input type="hidden" name="{html.escape(name)}" value="{html.escape(value)}">')


def form(path: str, label: str, *fields: Html, style: str = "main") -> Html:
    """A form with a button below its fields."""
    return Html(
        f'<form method="post" action="{html.escape(quote(path))}">{"".join(fields)}'
        f'<button class="{html.escape(style)}">{text(label)}</button></form>'
    )


def alert(message: str) -> Html:
    return Html(f'<p class="bad" role="alert">{text(message)}</p>')


def code(message: str) -> Html:
    return Html(f'<p class="code" role="status">{text(message)}</p>')


def actions(buttons: Sequence[Html]) -> Html:
    return Html(f'<div class="actions">{"".join(buttons)}</div>')


def page(title: str, *parts: Html, status: int = 200, form_action: str = "'none'") -> web.Response:
    """`form_action` is the form-action directive of the Content-Security-Policy."""
    headers = {**_HEADERS, "Content-Security-Policy": f"{_POLICY}; form-action {form_action}"}
    content = (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{text(title)} · ltzd sandbox</title><style>{_STYLE}</style></head><body>"
        f"<header><p>{link('/', 'ltzd sandbox')} {link('/explorer/', 'Explorer')} "
        f"{link('/pay/', 'Payments')}</p></header>"
        f"<main><h1>{text(title)}</h1>{''.join(parts)}</main></body></html>"
    )
    return web.Response(text=content, status=status, content_type="text/html", headers=headers)


def notice(status: int, title: str, message: str) -> web.Response:
    return page(title, note(message), status=status)


def _table(rows: str) -> Html:
    return Html(f'<div class="card"><table>{rows}</table></div>')
