"""Files with secrets in tests, as ltzd demands them: readable by their owner alone."""

from pathlib import Path


def write_secret(path: Path, text: str) -> Path:
    """Write it, or write it anew; answers the path."""
    path.touch(mode=0o600)
    path.chmod(0o600)
    path.write_text(text)
    return path
