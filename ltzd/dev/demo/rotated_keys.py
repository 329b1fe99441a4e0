"""Keeps a demo brand's rotated key beside its first keys, so that the next `dev.json` has it."""

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ltzd.secret_files import write_private


def keep(data_dir: Path, keys: Mapping[str, str]) -> None:
    """Store `keys`, which hold `brandId` and the new keys, if the brand is a demo brand."""
    for path in data_dir.glob("*.keys.json"):
        # The rotation succeeded; a file that cannot be updated must not hide the new key.
        with suppress(OSError, ValueError, KeyError, TypeError):
            stored = json.loads(path.read_text(encoding="utf-8"))
            # A file written by root would lock the user of another instance out.
            if stored["brandId"] == keys["brandId"] and path.stat().st_uid == os.geteuid():
                write_private(path, json.dumps(stored | keys))
