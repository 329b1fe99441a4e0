"""`ltzd` commands in tests: in this process, which costs no start, or as processes of their own."""

import asyncio
import json
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from typer.testing import CliRunner

from ltzd.cli.main import app
from ltzd.store.encryption.sealing import Sealer
from tests.support.secret_files import write_secret

COMMANDS = typer.main.get_command(app)
"""The tree of commands. typer's runner would build it anew for each command."""


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)


async def ltzd(*arguments: object) -> Outcome:
    """Here, in a thread, so one at a time; a traceback fails the test."""
    return await asyncio.to_thread(_run, list(map(str, arguments)))


def _run(arguments: list[str]) -> Outcome:
    runner = CliRunner()
    with runner.isolation() as (out, err, _):
        try:
            COMMANDS.main(arguments, prog_name="ltzd")
        except SystemExit as ended:
            code = ended.code or 0
        sys.stdout.flush()
        sys.stderr.flush()
        assert isinstance(code, int)
        return Outcome(code, out.getvalue().decode(), err.getvalue().decode())


async def begin_ltzd(*arguments: object, **variables: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "ltzd", *map(str, arguments)),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | variables,
    )


async def ltzd_apart(*arguments: object, **variables: str) -> Outcome:
    """As a person runs it, with these variables beside the environment's."""
    process = await begin_ltzd(*arguments, **variables)
    out, err = await asyncio.wait_for(process.communicate(), timeout=60)
    assert process.returncode is not None
    return Outcome(process.returncode, out.decode(), err.decode())


def a_data_directory_of(folder: Path, database_url: str) -> Path:
    """The files of a dev instance that commands read: its `dev.json` and its master key."""
    folder.mkdir()
    dev = {"adminUrl": "http://127.0.0.1:9464", "databaseUrl": database_url}
    write_secret(folder / "dev.json", json.dumps(dev))
    Sealer.from_file(folder / "master.key", create=True)
    return folder
