"""`dev.json`: where a dev instance tells tools what runs."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from ltzd.errors import Misconfigured

NAME = "dev.json"


@dataclass(frozen=True, slots=True)
class DevInstance:
    admin_url: str
    database_url: str = field(repr=False)


def read(data_dir: Path) -> DevInstance:
    """Raises Misconfigured if no dev instance has left its `dev.json` there."""
    path = data_dir / NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return DevInstance(content["adminUrl"], content["databaseUrl"])
    except FileNotFoundError:
        raise Misconfigured(
            f"No dev instance runs in {data_dir}: start `ltzd dev` there first, "
            "or name another place with --data-dir."
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Misconfigured(
            f"{path} cannot be understood; start `ltzd dev` anew to have it written again."
        ) from error
