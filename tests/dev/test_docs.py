"""What the documents tell people to run does what they say."""

import asyncio
import json
import re
import sys
from pathlib import Path
from uuid import uuid4

import pytest

from tests.support.instance import Instance

DOCS = Path(__file__).parents[2] / "docs"


def code_in(name: str) -> str:
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / name).read_text(), re.DOTALL)
    return str(block)


async def run(code: str, instance: Instance) -> tuple[int, str]:
    code = code.replace(".ltzd/", f"{instance.data_dir}/")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    async with asyncio.timeout(60):
        said, trouble = await process.communicate()
    assert process.returncode is not None
    return process.returncode, (said + trouble).decode()


@pytest.mark.parametrize("name", ["relaying.md"])
def test_the_code_is_where_it_is_looked_for(name: str) -> None:
    compile(code_in(name), name, "exec")


async def test_a_newcomer_claims_a_token_by_the_page_on_relaying(one_instance: Instance) -> None:
    code = code_in("relaying.md").replace("grace@", f"{uuid4().hex}@")
    status, said = await run(code, one_instance)
    assert status == 0, said
    assert json.loads(said)["status"] == "confirmed"

    status, said = await run(code, one_instance)
    assert status != 0
    assert "409" in said
