"""The files of the demo site, from the folder `dev/demo/site`.

Pages load nothing from other origins, which their Content-Security-Policy enforces.
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
        # Scripts insert the API's text as text; the browser refuses to parse strings as HTML.
        "require-trusted-types-for 'script'",
        "trusted-types 'none'",
    )
)
_HEADERS = {
    "Content-Security-Policy": _POLICY,
    "X-Content-Type-Options": "nosniff",
    # With no-referrer a browser sends forms with the Origin null, which `access` refuses.
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class DemoSiteFiles:
    """Reads all files once, when it is created."""

    def __init__(self) -> None:
        folder = resources.files("ltzd.dev").joinpath("demo/site")
        texts = {file.name: file.read_text(encoding="utf-8") for file in folder.iterdir()}
        self._templates = {
            name: Template(text) for name, text in texts.items() if name.endswith(".html")
        }
        self._texts = {name: text for name, text in texts.items() if name.endswith(tuple(_TYPES))}

    @property
    def names(self) -> list[str]:
        """The names of the static files."""
        return sorted(self._texts)

    def file(self, name: str) -> web.Response:
        kind = _TYPES[name[name.rindex(".") :]]
        return web.Response(text=self._texts[name], content_type=kind, headers=_HEADERS)

    def page(self, content: str, status: int = 200, **values: str) -> web.Response:
        """Render the file `content` inside the frame; values are escaped."""
        escaped = {name: html.escape(value) for name, value in values.items()}
        inside = self._templates[content].substitute(escaped)
        text = self._templates["frame.html"].substitute(escaped | {"content": inside})
        return web.Response(text=text, status=status, content_type="text/html", headers=_HEADERS)
