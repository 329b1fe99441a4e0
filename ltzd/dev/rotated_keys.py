"""A demo brand's rotated key goes where its first ones lie: the next `dev.json` tells it."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ltzd.secret_files import write_private


def keep(data_dir: Path, keys: Mapping[str, str]) -> None:
    """`keys` holds `brandId` and what is new; other brands' keys are kept nowhere."""
    for path in data_dir.glob("*.keys.json"):
        # What cannot be read or written here is no reason to withhold the key from its owner.
        with suppress(OSError, ValueError, KeyError, TypeError):
            kept = json.loads(path.read_text(encoding="utf-8"))
            # Written by root, the file of another user's instance would shut that user out.
            if kept["brandId"] == keys["brandId"] and path.stat().st_uid == os.geteuid():
                write_private(path, json.dumps(kept | keys))
