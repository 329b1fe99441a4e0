"""`dev.json`: where a running instance is, for tools and tests.

The file exists exactly while the instance is ready.
"""

import json
from pathlib import Path
from typing import Any

from ltzd.secret_files import write_private

NAME = "dev.json"


def remove(data_dir: Path) -> None:
    """Delete the file, also one that a killed instance left behind."""
    (data_dir / NAME).unlink(missing_ok=True)


def write(data_dir: Path, content: dict[str, Any]) -> None:
    write_private(data_dir / NAME, json.dumps(content, indent=2) + "\n")
