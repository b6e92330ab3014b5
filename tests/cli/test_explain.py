"""`callfuse doctor --explain`: what of a request would be guarded, why not, and what a repeated call would meet."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from callfuse.cli.diagnosis import Check, CheckState
from callfuse.cli.explain import ADVICE, explain
from callfuse.config import resolve
from callfuse.dialects import DIALECTS, Dialect
from tests.cli.processes import callfuse

TOOL = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}


def chat(*queries: str, results: tuple[str, ...] = (), **more: Any) -> dict[str, Any]:
    """A chat request whose history has a call for each query, and `nothing` as each result that is not given."""
    messages: list[Any] = [{"role": "user", "content": "Find it."}]
    for at, query in enumerate(queries):
        call = {"name": "search", "arguments": json.dumps({"query": query})}
        messages.append({"role": "assistant", "tool_calls": [{"id": f"c{at}", "type": "function", "function": call}]})
        result = results[at] if at < len(results) else "nothing"
        messages.append({"role": "tool", "tool_call_id": f"c{at}", "content": result})
    return {"model": "gpt-4o", "messages": messages, "tools": [TOOL], **more}


BODIES: dict[str, dict[str, Any]] = {
    "openai-chat": chat(),
    "openai-responses": {"model": "m", "input": "Hi", "tools": [{"type": "function", "name": "f", "parameters": {}}]},
    "anthropic": {
        "model": "m",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    },
    "gemini": {
        "contents": [{"role": "user", "parts": [{"text": "Hi"}]}],
        "tools": [{"functionDeclarations": [{"name": "f"}]}],
    },
    "ollama": {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [TOOL]},
    "cohere-v2": {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "tools": [TOOL]},
    "bedrock-converse": {
        "messages": [{"role": "user", "content": [{"text": "Hi"}]}],
        "toolConfig": {"tools": [{"toolSpec": {"name": "f", "inputSchema": {"json": {}}}}]},
    },
    "gemini-interactions": {
        "model": "m",
        "input": "Hi",
        "tools": [{"type": "function", "name": "f", "parameters": {}}],
    },
    "bedrock-invoke": {
        "anthropic_version": "bedrock-2023-05-31",
        "max_tokens": 9,
        "messages": [{"role": "user", "content": "Hi"}],
        "tools": [{"name": "f", "input_schema": {"type": "object"}}],
    },
}


def explained(tmp_path: Path, body: Any, path: str = "", **settings: Any) -> list[Check]:
    """What is said of a body with these settings."""
    file = tmp_path / "request.json"
    file.write_bytes(body if isinstance(body, bytes) else json.dumps(body).encode())
    return explain(str(file), path, resolve({"tool_call_loop": settings}, {}))


def last(checks: list[Check]) -> tuple[CheckState, str]:
    """The last thing that is said."""
    return checks[-1].state, checks[-1].found


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_request_of_each_format_is_guarded(tmp_path: Path, dialect: Dialect) -> None:
    """Its path is known by the format; all is well."""
    checks = explained(tmp_path, BODIES[dialect.name], dialect.usual_path)
    assert {one.state for one in checks} == {CheckState.OK}, checks
    assert any(one.found.startswith("it is guarded") for one in checks)


def test_a_call_that_would_be_found_says_how(tmp_path: Path) -> None:
    """The rungs, the kind and the count with its limit; these settings hold."""
    found = 'if the model calls search {"query": "it"} again now, callfuse uses: '
    loop = chat("it", "it", "it")
    assert last(explained(tmp_path, loop)) == (CheckState.OK, f"{found}steer, then block (repeat, 4 with a limit of 3)")
    assert last(explained(tmp_path, loop, mode="warn")) == (CheckState.OK, f"{found}warn (repeat, 4 with a limit of 3)")
    assert last(explained(tmp_path, loop, max_repeats=9, detectors={"no_news": False}))[1].endswith(
        "again now, the call passes: no limit is reached"
    )


def test_what_does_not_fire_says_why(tmp_path: Path) -> None:
    """Other results, other arguments, no call at all, and a person who has spoken."""
    checks = explained(tmp_path, chat("it", "it", results=("one llama", "two camels")))
    said = "the last one occurs 2 times, with 2 different results (last: line 1: 'one llama' -> 'two camels')"
    assert said in checks[-2].found
    assert "max_repeats_changing" in checks[-2].advice
    checks = explained(tmp_path, chat("a", "b", "c"))
    assert "the last one occurs 1 time, and its tool 2 times with other" in checks[-2].found
    assert "ignore" in checks[-2].advice
    spoken = chat("it", "it")
    spoken["messages"].append({"role": "user", "content": "Go on."})
    assert last(explained(tmp_path, spoken))[1].startswith("no call counts yet")


@pytest.mark.parametrize("path", ["/v1beta/models/m:generateContent?key=AIzaS3cret", "/v1/other?key=AIzaS3cret"])
def test_the_query_is_not_shown(tmp_path: Path, path: str) -> None:
    """Google's clients send their key in it."""
    assert "S3cret" not in str(explained(tmp_path, BODIES["gemini"], path))
    assert "S3cret" not in str(explained(tmp_path, {"body": BODIES["gemini"], "url": f"https://x.test{path}"}))


def test_secrets_are_starred(tmp_path: Path) -> None:
    """What is printed may be pasted into an issue."""
    key = "sk-proj-" + "abcdefghijklmnopqrstuvwxyz0123456789"
    assert key not in str(explained(tmp_path, chat(key, key, key)))


@pytest.mark.parametrize(
    ("body", "path", "settings", "cause"),
    [
        ({**chat("it"), "tools": []}, "", {}, "no tools"),
        ({"model": "m", "prompt": "Hi"}, "/v1/chat/completions", {}, "other body"),
        (chat("it"), "", {"enabled": False}, "disabled"),
        (chat("it"), "", {"models": {"openai:gpt-4o": {"enabled": False}}}, "disabled"),
        (b"{nope", "", {}, "request not JSON"),
        (b"[" + b"1," * 100_001 + b"1]", "", {}, "request values"),
        (chat("it"), "", {"max_request_bytes": 10}, "max_request_bytes"),
    ],
)
def test_what_is_not_guarded_says_why(
    tmp_path: Path, body: Any, path: str, settings: dict[str, Any], cause: str
) -> None:
    """The cause as logs and metrics name it, and what to do."""
    check = explained(tmp_path, body, path, **settings)[-1]
    assert check.found == f"it is not guarded: {cause}"
    assert check.state is not CheckState.OK
    assert check.advice == ADVICE[cause]


@pytest.mark.parametrize(
    ("path", "said"),
    [("/v1/completions", "no format is known"), ("/v1beta/threads/t/runs", "no format is known")],
)
def test_a_path_that_is_not_read_is_named(tmp_path: Path, path: str, said: str) -> None:
    """It passes, whatever the body is."""
    state, found = last(explained(tmp_path, chat("it"), path))
    assert (state, found.startswith(said)) == (CheckState.FAILED, True)


def test_a_body_of_another_format_says_which(tmp_path: Path) -> None:
    """With a path where it belongs."""
    check = explained(tmp_path, BODIES["gemini"], "/v1/messages")[-1]
    assert check.found == "it is not guarded: other body"
    assert check.advice.startswith("it looks like gemini, which has paths such as /v1beta/models/")


def test_a_recorded_request_has_path_and_headers(tmp_path: Path) -> None:
    """They count: session, codings, signatures and another callfuse."""
    body = chat("it", "it", "it")
    url = "https://gateway.example/openai/v1/chat/completions?a=1"
    record = {"url": url, "headers": {"X-Session-Id": "mine", "Content-Encoding": "gzip"}, "body": body}
    checks = explained(tmp_path, record)
    assert checks[0].found.endswith("sent to /openai/v1/chat/completions")
    assert checks[2].found == "its session is mine, named by x-session-id"
    checks = explained(tmp_path, record | {"body": json.dumps(body), "headers": {"x-callfuse-via": "callfuse"}})
    assert any("another callfuse" in one.found and one.state is CheckState.WARNING for one in checks)
    checks = explained(tmp_path, record | {"headers": {"authorization": "AWS4-HMAC-SHA256 Credential=a/b"}})
    assert any("it is signed" in one.found and one.state is CheckState.WARNING for one in checks)


def test_a_coded_body_that_lacks_its_header_is_no_json(tmp_path: Path) -> None:
    """As it would be on the wire."""
    assert last(explained(tmp_path, gzip.compress(b"{}")))[1] == "it is not guarded: request not JSON"


def test_nothing_leaves_the_process(tmp_path: Path) -> None:
    """No store and no webhook of the settings is asked."""
    file = tmp_path / "request.json"
    file.write_text(json.dumps(chat("it", "it", "it")))
    settings = {"store": "redis://127.0.0.1:1", "events": {"webhook": "http://127.0.0.1:1/hook"}}
    assert {one.state for one in explain(str(file), "", resolve(settings, {}))} == {CheckState.OK}


def test_as_a_command(tmp_path: Path) -> None:
    """The exit code is 0 where it is guarded or needs no guard, else 1; the log is not printed."""
    file = tmp_path / "request.json"
    file.write_text("{nope")
    done = callfuse("doctor", "--explain", str(file))
    assert (done.returncode, done.stderr) == (1, "")
    assert "failed   request    it is not guarded: request not JSON\n                 -> does the file" in done.stdout
    file.write_text(json.dumps(chat("it")))
    done = callfuse("doctor", "--explain", str(file), "--json")
    assert (done.returncode, json.loads(done.stdout)["well"]) == (0, True)
    file.write_text(json.dumps({**chat(), "tools": []}))
    done = callfuse("doctor", "--explain", str(file))
    assert (done.returncode, "note     request    it is not guarded: no tools\n" in done.stdout) == (0, True)
    assert callfuse("doctor", "--path", "/v1/messages").returncode == 2
