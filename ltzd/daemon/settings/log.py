"""The settings of the section `[log]`."""

from typing import Literal

from ltzd.daemon.settings.section import Section


class LogSettings(Section):
    """Where neither format is given, a terminal gets text and anything else gets JSON."""

    level: Literal["debug", "info", "warning", "error", "critical"] = "info"
    """Lines below it are not written."""
    format: Literal["json", "console"] | None = None
    access: bool = False
    """Whether each request of the public server is a line, `http.request`."""

    @property
    def as_json(self) -> bool | None:
        return None if self.format is None else self.format == "json"
