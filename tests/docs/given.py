"""What the pages take for granted, and what runs elsewhere: the one place for substitutions and exceptions.

A block is named by its page and the beginning of its first line that is not empty. An entry that fits no block is told
by `test_kit`.
"""

import gzip
import json
import lzma
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from callfuse import CallFuseMiddleware, LoopDetector, ToolCall
from callfuse.observe.webhook import sign
from callfuse.testing import Answer, ScriptedVendor, VendorRequest, looping_model

Key = tuple[str, str]
PROJECT = Path(__file__).parents[2]

ADDRESSES: Mapping[str, str] = {
    "https://api.openai.com": "vendor",
    "https://api.anthropic.com": "vendor",
    "https://generativelanguage.googleapis.com": "vendor",
    "http://127.0.0.1:4000": "vendor",
    "http://127.0.0.1:8000": "vendor",
    "http://127.0.0.1:8080": "vendor",
    "http://127.0.0.1:11434": "vendor",
    "http://localhost:11434": "vendor",
    "redis://127.0.0.1:6379/0": "store",
    "http://127.0.0.1:8100": "guard",
    "http://localhost:8100": "guard",
    "https://guard.example": "guard",
    "5f0c9a7be31d2846": "finding",
}
"""What stands in pages, and the attribute of `World` that takes its place. Servers that a block starts get a free port
in place of that in the command or in the settings."""

TEXTS: Mapping[str, str] = {
    "async def api(scope, receive, send): ...  # your app": "from bare import app as api",
    "host: 0.0.0.0": "host: 127.0.0.1",
}
"""What a reader fills in, and what takes its place."""

VENDORS: Mapping[str, str] = {"ANTHROPIC_BASE_URL": "", "OPENAI_BASE_URL": "/v1"}
"""The variables that tell `callfuse run` where the vendors are, and the path behind the address of the vendor here."""

VARIABLES: Mapping[str, str] = {
    **dict.fromkeys(("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "COHERE_API_KEY"), "none"),
    "CALLFUSE_GUARDRAIL_KEY": "the-key-of-the-guardrail",
    "NO_PROXY": "127.0.0.1,localhost",
}
"""The environment of commands, beside the admin token."""

CURL = "silent\nshow-error\nfail-with-body\n"
"""How curl behaves: it fails on errors of HTTP."""

PROGRAMS: Mapping[str, str] = {
    **{name: f'exec "{{python}}" -m {name} "$@"' for name in ("callfuse", "pytest", "uvicorn")},
    "claude": 'ANTHROPIC_BASE_URL="$ANTHROPIC_BASE_URL/v1" exec "{python}" '
    '"{project}/tests/docs/agent.py" ANTHROPIC_BASE_URL "$@"',
    "codex": 'exec "{python}" "{project}/tests/docs/agent.py" OPENAI_BASE_URL "$@"',
    "opentelemetry-instrument": 'exec "$@"',
}
"""A script for each program of the tests' own environment, and for those that are not installed. The real agents are
run by `tests/cli/test_run_agents.py`."""

STATUS: Mapping[str, int] = {"callfuse run ": 3}
"""What stands in commands that are to end with another status than 0: here a block ends the run, for the model of the
coding agent does not listen."""


def record(*arguments: str, success: bool = True) -> dict[str, Any]:
    """A recorded run of a tool with these arguments."""
    calls = [{"turn": n, "name": "search", "arguments": {"q": q}, "result": q} for n, q in enumerate(arguments)]
    return {"id": "r", "source": "crm", "success": success, "calls": calls}


def runs() -> bytes:
    """Recorded runs, enough for a promise of 1 %: good ones of one call, two, ..., and some that loop."""
    good = [record(*[f"a{n}" for n in range(1 + number % 9)]) for number in range(220)]
    bad = [record("a", *["b"] * 6, success=False) for _ in range(9)]
    return "\n".join(map(json.dumps, [*good, *bad])).encode()


def request() -> bytes:
    """A request whose history repeats a call."""
    messages: list[Any] = [{"role": "user", "content": "Find it."}]
    for number in range(3):
        function = {"name": "search", "arguments": '{"q": "it"}'}
        messages += [
            {"role": "assistant", "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}]},
            {"role": "tool", "tool_call_id": f"c{number}", "content": "no results"},
        ]
    tools = [{"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}]
    return json.dumps({"model": "gpt-4o", "messages": messages, "tools": tools}).encode()


SETTINGS = b"tool_call_loop: {max_repeats: 3}\n"
FILES: Mapping[str, Callable[[], bytes]] = {
    "callfuse.yaml": lambda: SETTINGS,
    "new.yaml": lambda: SETTINGS,
    "envoy.yaml": (PROJECT / "deploy" / "envoy" / "envoy.yaml").read_bytes,
    "callfuse.jsonl": lambda: b'{"logger": "callfuse.access", "gen_ai.conversation.id": "s"}\n',
    "feedback.jsonl": lambda: b"",
    "request.json": request,
    "run.json": lambda: json.dumps(record("a", *["b"] * 6)).encode(),
    "runs.jsonl": runs,
    "runs.jsonl.xz": lambda: lzma.compress(runs()),
    "logs/one.jsonl": runs,
    "logs/one.jsonl.gz": lambda: gzip.compress(runs()),
    "spend.jsonl.gz": lambda: gzip.compress(runs()),
}
"""Files that readers have, made where a block names them and does not write them itself."""

SAVED: Mapping[Key, str] = {
    ("docs/start/recordings.md", '{"id": "monday-7"'): "run.json",
}
"""Blocks that a page tells to save, and under which name, where their first line cannot say so in a comment."""


def _message() -> Any:
    function = SimpleNamespace(name="search", arguments='{"query": "llamas"}')
    return SimpleNamespace(tool_calls=[SimpleNamespace(id="c1", function=function)])


def _agents() -> dict[str, Any]:
    """One call of a search, a detector that stays the same, and functions of the reader's own."""
    detector = LoopDetector({"tool_call_loop": {"mode": "graduated"}})
    return {
        "message": _message(),
        "messages": [],
        "search": lambda query: query,
        "read_file": lambda path: Path(path).read_text(),
        "LoopDetector": lambda *_, **__: detector,
        "calls": [ToolCall("", "a", {})],
        "tell": None,
        "run": lambda call: "x",
    }


def _observing() -> dict[str, Any]:
    """A middleware around a model that loops, somebody to page, and a signed delivery of the webhook."""
    vendor = ScriptedVendor(looping_model(stubborn=True))
    body = b'{"callfuse.event": "finding"}'
    secret = b"a-secret-of-16-characters-or-more"
    paged: list[tuple[str, str]] = []
    return {
        "middleware": CallFuseMiddleware(vendor, {"tool_call_loop": {"mode": "block"}}),
        "page_somebody": lambda session, finding_id: paged.append((session, finding_id)),
        "paged": paged,
        "secret": secret,
        "body": body,
        "headers": {"x-callfuse-signature": sign(secret.decode(), body)},
    }


def _settings() -> dict[str, Any]:
    """A model that loops with the first tool of its request, whatever it is told."""

    def script(request: VendorRequest) -> Answer:
        return looping_model(request.body["tools"][0]["function"]["name"], stubborn=True)(request)

    return {"app": ScriptedVendor(script)}


NAMES: Mapping[str, Callable[[], dict[str, Any]]] = {
    "docs/agents.md": _agents,
    "docs/observing.md": _observing,
    "docs/settings.md": _settings,
}
"""Names that a page's Python blocks find, by page: a reader's own variables and functions."""

FRAMEWORKS = "tests/hosts/test_agents.py::test_a_framework"
LOOPS = "tests/inprocess/test_loops_of_the_page.py::test_a_model_that_listens"
ELSEWHERE: Mapping[Key, str] = {
    ("docs/frameworks.md", "from langchain.agents"): FRAMEWORKS,
    ("docs/frameworks.md", "from langgraph.prebuilt"): FRAMEWORKS,
    ("docs/frameworks.md", "from langgraph.graph"): FRAMEWORKS,
    ("docs/frameworks.md", "from pydantic_ai"): FRAMEWORKS,
    ("docs/frameworks.md", "from agents"): FRAMEWORKS,
    ("docs/frameworks.md", "from google.adk"): FRAMEWORKS,
    ("docs/frameworks.md", "from callfuse import GuardedTools"): LOOPS,
    ("docs/frameworks.md", "const messages"): LOOPS,
    ("docs/deploy.md", "export CALLFUSE_SERVE_UPSTREAM=https"): (
        "tests/hosts/test_servers.py::test_a_loop_is_blocked_and_a_stream_goes_on"
    ),
    ("docs/fleet.md", "# values.yaml of callfuse"): "tests/deploy/test_helm.py::test_the_values_of_the_page_fit_it",
    ("docs/tasks/nginx.md", "# guard.conf"): "tests/docs/test_nginx_task.py::test_the_page_s_server",
    ("docs/mount/mcp.md", "from fastmcp"): "tests/hosts/test_mcp.py::test_the_page",
    **dict.fromkeys(
        [
            ("docs/start/mcp.md", start)
            for start in ("# server.py", "uvicorn", "# client.py", "1 no results", "ran: search")
        ],
        "tests/hosts/test_mcp.py::test_the_first_page",
    ),
}
"""Blocks that another test runs, as it stands on the page: that test."""

WHOLE_PAGES: Mapping[str, str] = {"docs/tutorial.md": "tests/docs/test_tutorial.py::test_the_tutorial"}
"""Pages whose blocks are run in their order by another test: that test."""

NO_COMMANDS = frozenset({"callfuse blown", "python -m llama_cpp.server"})
"""What stands between backticks and only looks like a command of callfuse: the name of an event, another's program."""

NO_SETTINGS = frozenset({"store: false", 'models: {"openai:gpt-4o": {...}}'})
"""The same for settings: a key of OpenAI's, and one with something left out."""

EXCEPTIONS: Mapping[Key, str] = {
    ("docs/architecture.md", "bytes in -> framing"): "a drawing",
    ("docs/fleet.md", "# values.yaml of prometheus-adapter"): "another program's, which no test starts",
    ("docs/observing.md", "(guarded changed"): "a formula, for people",
}
"""Blocks that nobody runs, and why."""
