"""`dev.json`: the stable door for tools and tests, there exactly while the instance is ready."""

import json
from pathlib import Path
from typing import Any

from ltzd.secret_files import write_private

NAME = "dev.json"


def shut(data_dir: Path) -> None:
    """Nothing here is ready; also for what a killed instance left behind."""
    (data_dir / NAME).unlink(missing_ok=True)


def open_with(data_dir: Path, content: dict[str, Any]) -> None:
    write_private(data_dir / NAME, json.dumps(content, indent=2) + "\n")
