"""`callfuse allow` against a running `callfuse serve`: what was refused passes."""

import json
import re
import urllib.request

import yaml

from callfuse.config import load_config
from tests.cli.processes import callfuse
from tests.cli.test_feedback import CHAT, looping
from tests.cli.test_serve import TOKEN, serving
from tests.support.meeting import ask
from tests.support.plain import spin

__all__ = ["looping"]


def turn(url: str) -> bool:
    """The model makes its call again: whether the client gets it."""
    request = ask(CHAT, spin(), stream=False)
    headers = {"content-type": "application/json", "x-session-id": "one"}
    asked = urllib.request.Request(url + request.path, request.body, headers)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return b'"tool_calls"' in answer.read()


def test_what_was_refused_passes(looping: str) -> None:
    """By the id of the log; it can be taken back, and a tool can pass as a whole, or everywhere by the settings."""
    with serving("--upstream", looping, "--log-format", "json", TOOL_LOOP_MODE="block") as served:
        url = f"http://127.0.0.1:{served.port}"
        assert not turn(url)
        assert served.process.stderr is not None
        lines = iter(served.process.stderr.readline, "")
        found = next(one for line in lines if "callfuse.finding.id" in (one := json.loads(line)))["callfuse.finding.id"]

        def allow(*options: str, token: str = TOKEN) -> tuple[int, str]:
            ended = callfuse("allow", found, *options, "--url", f"{url}/_callfuse", CALLFUSE_ADMIN_TOKEN=token)
            return ended.returncode, re.sub(r"one\.[0-9a-f]{32}", "one", ended.stdout or ended.stderr)

        assert allow() == (0, f"{found}: this call of search passes in session one\n")
        assert turn(url)
        assert allow("--undo") == (0, f"{found}: nothing passes any more in session one\n")
        assert not turn(url)
        assert allow("--tool") == (0, f"{found}: every call of search passes in session one\n")
        assert turn(url)
        code, told = allow("--always")
        config = load_config(yaml.safe_load(told), {})
        assert (code, config.tool_call_loop.for_tool("search").settings.observes) == (0, True)
        assert allow("--tool", "--undo")[0] == 2
        assert allow(token="another-token-than-that")[0] == 1
        other = callfuse("allow", "0" * 16, "--url", f"{url}/_callfuse", CALLFUSE_ADMIN_TOKEN=TOKEN)
        assert (other.returncode, "no finding with this id is known" in other.stderr) == (1, True)
