"""A loop in streams of the scripted vendor, with what a plain installation has: no SDK, no server, no framework."""

import json
from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from callfuse.testing import looping_model
from tests.support.asgi import App, Exchange, Request, run
from tests.support.rules import StrictVendor

TOOLS = [{"type": "function", "function": {"name": "search_web", "parameters": {"type": "object"}}}]


LLAMAS = '{"query":"llamas"}'


def agent(app: App, most: int = 5) -> tuple[str, list[str], list[Exchange]]:
    """Asks until there is a text, or too often: the last text, the arguments of the calls, and every exchange."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "What are llamas?"}]
    exchanges: list[Exchange] = []
    called: list[str] = []
    for _ in range(most):
        body = {"model": "any", "messages": messages, "tools": TOOLS, "stream": True}
        exchanges.append(run(app, Request("/v1/chat/completions", json.dumps(body).encode())))
        deltas = [chunk["choices"][0]["delta"] for chunk in chunks(exchanges[-1]) if chunk["choices"]]
        pieces = [one for delta in deltas for one in delta.get("tool_calls") or ()]
        if not pieces:
            return "".join(delta.get("content") or "" for delta in deltas), called, exchanges
        called.append("".join(one["function"].get("arguments") or "" for one in pieces))
        call: dict[str, Any] = {"id": pieces[0]["id"], "type": "function"}
        call["function"] = {"name": pieces[0]["function"]["name"], "arguments": called[-1]}
        messages.append({"role": "assistant", "content": None, "tool_calls": [call]})
        messages.append({"role": "tool", "tool_call_id": call["id"], "content": "nothing was found"})
    return "", called, exchanges


def chunks(exchange: Exchange) -> list[Any]:
    """The objects of a stream."""
    lines = exchange.body.decode().splitlines()
    return [json.loads(line[6:]) for line in lines if line.startswith("data: {")]


def test_a_loop_is_caught_in_the_stream() -> None:
    """Without callfuse it goes on; with it the third call never leaves, and the stream goes on."""
    vendor = StrictVendor(looping_model("search_web", {"query": "llamas"}, conclusion="I do not know."))
    assert agent(vendor)[1] == [LLAMAS] * 5
    text, called, exchanges = agent(CallFuseMiddleware(vendor))
    assert text == "I do not know."
    assert called[:2] == [LLAMAS] * 2
    assert LLAMAS not in called[2:]
    assert all(exchange.complete and exchange.status == 200 for exchange in exchanges)
    assert all(len(exchange.sent) > 3 for exchange in exchanges), "each leaves piece by piece"


@pytest.mark.parametrize("mode", ["block", "observe"])
def test_the_mode_decides(mode: str) -> None:
    """By a dict, as every host gives it."""
    vendor = StrictVendor(looping_model("search_web", {"query": "llamas"}))
    text, called, _ = agent(CallFuseMiddleware(vendor, {"tool_call_loop": {"mode": mode}}))
    assert text.startswith("[callfuse]") == (mode == "block")
    assert called == [LLAMAS] * (2 if mode == "block" else 5)
