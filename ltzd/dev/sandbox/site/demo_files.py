"""What the demo site sends to a browser, out of the folder `dev/demo/site`.

Pages load nothing from anywhere else, and the policy header holds the browser to that.
"""

import html
from importlib import resources
from string import Template

from aiohttp import web

_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
_POLICY = "; ".join(
    (
        "default-src 'none'",
        *(f"{kind}-src 'self'" for kind in ("script", "style", "img", "connect")),
        "form-action 'self'",
        "base-uri 'none'",
        "frame-ancestors 'none'",
        # Text from the API is set as text: the browser refuses any script that makes HTML of it.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    # With no-referrer a browser sends our own forms with the Origin null, which the gate refuses.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class DemoSiteFiles:
    """Read once, when it is made."""

    def __init__(self) -> None:
        folder = resources.files("ltzd.dev").joinpath("demo/site")
        texts = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
        self._templates = {
            name: Template(text) for name, text in texts.items() if name.endswith(".html")
        }
        self._texts = {name: text for name, text in texts.items() if name.endswith(tuple(_TYPES))}

    @property
    def names(self) -> list[str]:
        """Of the files that are sent as they are."""
        return sorted(self._texts)

    def file(self, name: str) -> web.Response:
        kind = _TYPES[name[name.rindex(".") :]]
        return web.Response(text=self._texts[name], content_type=kind, headers=_HEADERS)

    def page(self, content: str, status: int = 200, **values: str) -> web.Response:
        """`content` is the file inside the frame; values become text, never markup."""
        escaped = {name: html.escape(value) for name, value in values.items()}
        inside = self._templates[content].substitute(escaped)
        text = self._templates["frame.html"].substitute(escaped | {"content": inside})
        return web.Response(text=text, status=status, content_type="text/html", headers=_HEADERS)
