"""The plain loops of `docs/frameworks.md` run as they stand: in Python in process, in JavaScript on the wire."""

import json
import shutil
import subprocess
from typing import Any

import openai
import pytest

from callfuse import CallFuseMiddleware
from callfuse.testing import ScriptedVendor, looping_model, served
from tests.project.sources import blocks, document
from tests.support.rules import StrictVendor

MARK = "[callfuse]"
PAGE = document("docs/frameworks.md")
SCHEMAS = [{"type": "function", "function": {"name": "search_web", "parameters": {"type": "object"}}}]


def in_python(vendor: ScriptedVendor) -> tuple[list[str], list[dict[str, Any]]]:
    """What was searched for, and the messages at the end."""
    (loop,) = [block for block in blocks(PAGE, "python") if "GuardedTools" in block]
    used: list[str] = []

    def search_web(query: str) -> str:
        used.append(query)
        return "Nothing new."

    with served(vendor) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:
        names = {"client": client, "model": "m", "question": "?", "schemas": SCHEMAS, "search_web": search_web}
        exec(compile(loop, "docs/frameworks.md", "exec"), names)
    messages: Any = names["messages"]
    return used, messages


def in_javascript(vendor: ScriptedVendor) -> tuple[list[str], list[dict[str, Any]]]:
    """The same."""
    (loop,) = blocks(PAGE, "js")
    with served(CallFuseMiddleware(vendor, {"tool_call_loop": {}})) as url:
        program = f"""
            const baseURL = "{url}/v1", apiKey = "none", model = "m", question = "?", used = [];
            const schemas = {json.dumps(SCHEMAS)};
            const tools = {{ search_web: async ({{ query }}) => (used.push(query), "Nothing new.") }};
            {loop}
            console.log(JSON.stringify([used, messages]));
        """
        command = ["node", "--input-type=module", "--eval", program]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    used, messages = json.loads(done.stdout)
    return used, messages


with_node = pytest.mark.skipif(shutil.which("node") is None, reason="Node is not installed")
both = pytest.mark.parametrize("play", [in_python, pytest.param(in_javascript, marks=with_node)])


@pytest.mark.slow
@both
def test_a_model_that_listens(play: Any) -> None:
    """Its third equal call does not run, then it goes another way."""
    used, messages = play(StrictVendor(looping_model(conclusion="Got it.")))
    assert used == ["current status", "current status", "something else"]
    assert messages[-1]["content"] == "Got it."


@pytest.mark.slow
@both
def test_a_model_that_does_not(play: Any) -> None:
    """The run ends with the text of the block, after two calls."""
    used, messages = play(StrictVendor(looping_model(stubborn=True)))
    assert used == ["current status"] * 2
    assert messages[-1]["role"] == "assistant"
    assert messages[-1]["content"].startswith(f"{MARK} Stopped a tool call loop")
