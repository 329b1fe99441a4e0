"""`python -m ltzd`: the same as the `ltzd` command."""

from ltzd.cli.main import app

app(prog_name="ltzd")
