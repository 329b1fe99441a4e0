"""The upstream and the location of config/proxy/nginx.conf, served without TLS for tests."""

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

_SITE = Path(__file__).resolve().parents[3] / "config" / "proxy" / "nginx.conf"
_STOP_SECONDS = 60
_ONE_SERVER = "    server 127.0.0.1:8000 max_fails=3 fail_timeout=1s;"


def _site(port: int, backends: Sequence[int]) -> str:
    text = _SITE.read_text()
    assert _ONE_SERVER in text
    servers = "\n".join(_ONE_SERVER.replace("8000", str(backend)) for backend in backends)
    upstream = text[text.index("upstream ltzd") : text.index("server {\n    listen 80;")]
    (location,) = re.findall(r"(?ms)^    location / \{\n        proxy_pass.*?^    \}\n", text)
    # ltzd refuses plain HTTP, and the test's clients are spared TLS.
    assert "X-Forwarded-Proto $scheme;" in location
    location = location.replace("X-Forwarded-Proto $scheme;", "X-Forwarded-Proto https;")
    limits = "\n".join(re.findall(r"(?m)^    (?:client_|large_).*;$", text))
    return (
        f"{upstream.replace(_ONE_SERVER, servers)}"
        f"server {{\n    listen 127.0.0.1:{port};\n{limits}\n{location}}}\n"
    )


@asynccontextmanager
async def an_nginx(
    program: Path, folder: Path, port: int, backends: Sequence[int]
) -> AsyncIterator[None]:
    """Runs nginx in the empty `folder`, before processes that listen on the ports `backends`."""
    temporary = "\n".join(
        f"{kind}_temp_path {folder};"
        for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(
        f"daemon off;\nuser root;\npid {folder}/pid;\nerror_log {folder}/error.log;\n"
        f"events {{}}\nhttp {{\naccess_log off;\n{temporary}\n{_site(port, backends)}\n}}\n"
    )
    process = await asyncio.create_subprocess_exec(
        *(program, "-c", folder / "nginx.conf", "-p", folder),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        await asyncio.wait_for(process.wait(), _STOP_SECONDS)
