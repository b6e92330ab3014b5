"""The scripted check of a host: agents that ask it over a real socket, and what must come of it.

    python client.py URL [--http2] [--whole]

ends with status 0 if a loop is withheld and healthy streams pass in pieces. It needs httpx only, so that it runs in the
tests' own environment and in that of a host. `--whole`: the host cannot stream.
"""

import json
import queue
import sys
import threading
import time
import uuid
from typing import Any

import httpx

MOST_ROUNDS = 8
TIMEOUT_S = 30
TOOL = "search_web"
LOOPING = {"query": "current status"}
TEXT = "Llamas are camelids of the Andes, kept for their wool and as beasts of burden."
CONCLUSION = "I could not find it, so here is what I know without it."
TOOLS = [{"type": "function", "function": {"name": TOOL, "parameters": {"type": "object"}}}]
PATH = "/v1/chat/completions"
WAITS = 3
"""How often the model `waiting` waits."""


def check(base_url: str, *, http2: bool = False, streams: bool = True, ends: bool = True, path: str = PATH) -> None:
    """Raise AssertionError where a host does not do what it must. `streams`, `ends`: what it can at all."""
    with open_client(base_url, http2=http2) as client:
        for streamed in (True, False) if streams else (False,):
            calls, text = run_agent(client, path, "looping", streamed=streamed)
            assert calls == [LOOPING, LOOPING, {"query": "something else"}], (streamed, calls, text)
            assert text == CONCLUSION, (streamed, text)
            calls, text = run_agent(client, path, "stubborn", streamed=streamed)
            assert calls == [LOOPING, LOOPING], (streamed, calls, text)
            assert text.startswith("[callfuse]"), (streamed, text)
    if streams:
        assert not is_buffered(base_url, path, http2=http2), "the stream has been held back by the host"
    if ends:
        assert is_ended(base_url, path, http2=http2), "the model goes on after the client has left"


def open_client(base_url: str, *, http2: bool = False) -> httpx.Client:
    """A client with connections of its own: httpx does not tell a server that it drops one stream of HTTP/2."""
    return httpx.Client(base_url=base_url, timeout=TIMEOUT_S, http1=not http2, http2=http2, trust_env=False)


def run_agent(client: httpx.Client, path: str, model: str, *, streamed: bool) -> tuple[list[Any], str]:
    """The arguments of the calls that an agent executes, and the text that it ends with."""
    said: list[dict[str, Any]] = [{"role": "user", "content": f"What is the status? ({model}, {streamed})"}]
    executed: list[Any] = []
    for _ in range(MOST_ROUNDS):
        message = ask(client, path, {"model": model, "messages": said, "tools": TOOLS, "stream": streamed})
        said.append(message)
        if not message.get("tool_calls"):
            return executed, message["content"]
        for call in message["tool_calls"]:
            executed.append(json.loads(call["function"]["arguments"]))
            said.append({"role": "tool", "tool_call_id": call["id"], "content": "no change"})
    return executed, ""


def ask(client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The assistant's message of one answer."""
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    if not body["stream"]:
        message: dict[str, Any] = response.json()["choices"][0]["message"]
        return {"role": "assistant", "content": message.get("content") or "", **_calls(message.get("tool_calls"))}
    assert response.headers["content-type"].startswith("text/event-stream"), response.headers
    text = ""
    calls: dict[int, dict[str, str]] = {}
    for line in response.text.splitlines():
        for delta in deltas(line):
            text += delta.get("content") or ""
            for piece in delta.get("tool_calls", ()):
                call = calls.setdefault(piece["index"], {"id": "", "name": "", "arguments": ""})
                call["id"] += piece.get("id") or ""
                for key in ("name", "arguments"):
                    call[key] += piece.get("function", {}).get(key) or ""
    made = [
        {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": c["arguments"]}}
        for c in calls.values()
    ]
    return {"role": "assistant", "content": text, **_calls(made)}


def _calls(made: Any) -> dict[str, Any]:
    return {"tool_calls": made} if made else {}


def deltas(line: str) -> list[dict[str, Any]]:
    """Return the deltas in a line of a stream."""
    data = line.removeprefix("data: ")
    if data == line or data == "[DONE]":
        return []
    return [choice["delta"] for choice in json.loads(data)["choices"]]


def is_buffered(base_url: str, path: str = PATH, timeout_s: float = TIMEOUT_S, *, http2: bool = False) -> bool:
    """Whether a piece of an answer has not come before the model, which waits for that, goes on."""
    messages = [{"role": "user", "content": f"Tell me. ({uuid.uuid4()})"}]
    lengths: queue.Queue[int] = queue.Queue()
    text = ""

    def read() -> None:
        nonlocal text
        body = {"model": "waiting", "messages": messages, "stream": True}
        with open_client(base_url, http2=http2) as client, client.stream("POST", path, json=body) as response:
            for line in response.iter_lines():
                if pieces := "".join(delta.get("content") or "" for delta in deltas(line)):
                    text += pieces
                    lengths.put(len(text))

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    is_late = False
    for _ in range(WAITS):
        try:
            lengths.get(timeout=timeout_s)  # one piece of text for each wait
        except queue.Empty:
            is_late = True
        with open_client(base_url, http2=http2) as client:
            ask(client, path, {"model": "releasing", "messages": messages, "stream": False})
    reader.join(TIMEOUT_S)
    assert text == TEXT, text
    return is_late


def is_ended(base_url: str, path: str = PATH, timeout_s: float = TIMEOUT_S, *, http2: bool = False) -> bool:
    """Whether the host ends the model's work when the client leaves in the middle of an answer."""
    messages = [{"role": "user", "content": f"Tell me. ({uuid.uuid4()})"}]
    body = {"model": "waiting", "messages": messages, "stream": True}
    with open_client(base_url, http2=http2) as client, client.stream("POST", path, json=body) as response:
        next(line for line in response.iter_lines() if TEXT[:5] in line)
    end = time.monotonic() + timeout_s
    with open_client(base_url, http2=http2) as client:
        while time.monotonic() < end:
            if ask(client, path, {"model": "left", "messages": messages, "stream": False})["content"] == "yes":
                return True
            time.sleep(0.1)
    return False


if __name__ == "__main__":
    check(sys.argv[1], http2="--http2" in sys.argv, streams="--whole" not in sys.argv)
    sys.stdout.write("{}\n")
