"""Measure how long one body blocks the event loop: the longest gap between two ticks of a concurrent task.

    python -m benchmarks.stalls [--only NAME] [--mb 1 4 16 60]

In process, under the default settings, over an app that answers at once with a call. With most bodies it is a loop, so
the model is asked again, and the call is blocked. Each body is sent twice, and the longest gap of both counts. Gaps are
CPU time of the process, so other programs do not matter. The goal is 50 ms, which bodies up to 16 MB meet. A longer one
may block the loop for about 2 ms per MB, in one call of the parser.
"""

import argparse
import asyncio
import base64
import gzip
import json
import logging
import random
import time
from collections.abc import Callable
from typing import Any, Final

from benchmarks.driving import Message, Receive, Scope, Send, scope_of
from callfuse import CallFuseMiddleware

GOAL_MS: Final = 50
TICK_S: Final = 0.0005
MB: Final = 1_000_000
TEXT: Final = "The quick brown fox jumps over the lazy dog, while the build goes on. "
CALL: Final = {"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"path": "a"}'}}
MESSAGE: Final = {"role": "assistant", "content": None, "tool_calls": [CALL]}
ANSWER: Final = json.dumps({"choices": [{"index": 0, "message": MESSAGE, "finish_reason": "tool_calls"}]}).encode()
TOOL: Final = {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}


def chat(messages: list[Any]) -> bytes:
    """Return a request of chat completions."""
    return json.dumps({"model": "gpt-test", "messages": messages, "tools": [TOOL]}).encode()


def rounds(result: str, count: int) -> list[Any]:
    """Return a user's message, and `count` rounds of the same call with this result."""
    made: list[Any] = [{"role": "user", "content": "Read it."}]
    for at in range(count):
        made.append({**MESSAGE, "tool_calls": [{**CALL, "id": f"c{at}"}]})
        made.append({"role": "tool", "tool_call_id": f"c{at}", "content": result})
    return made


def image(size: int) -> str:
    """Return an image of `size` bytes, as base64."""
    return "data:image/png;base64," + base64.b64encode(random.Random(1).randbytes(size * 3 // 4)).decode()


def filled(value: bytes, size: int) -> bytes:
    """Return a request whose messages repeat this value, up to `size` bytes."""
    body = chat(["FILL"])
    return body.replace(b'"FILL"', b",".join([value] * ((size - len(body)) // (len(value) + 1))))


def packed(body: bytes) -> bytes:
    """Return the body, compressed."""
    return gzip.compress(body, 1)


BODIES: Final[dict[str, Callable[[int], bytes]]] = {
    "text in 200 rounds": lambda size: chat(rounds(TEXT * (size // 200 // len(TEXT)), 200)),
    "short rounds": lambda size: chat(rounds("ok", size // 190)),
    "two long results": lambda size: chat(rounds(TEXT * (size // 2 // len(TEXT)), 2)),
    "two results of \\n": lambda size: chat(rounds("a\n" * (size // 6), 2)),
    "one image": lambda size: chat(
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": image(size)}}]}]
    ),
    "messages {}": lambda size: filled(b"{}", size),
    "messages []": lambda size: filled(b"[]", size),
    "short messages": lambda size: filled(b'{"role":"user","content":"a"}', size),
    "escaped quotes": lambda size: chat(rounds('{"a": "b"}' * (size // 28), 2)),
    "members of one object": lambda size: filled(
        b"{" + b",".join(b'"%d":1' % at for at in range(size // 12)) + b"}", size
    ),
    "text, gzip": lambda size: packed(chat(rounds(TEXT * (size // 200 // len(TEXT)), 200))),
    "messages {}, gzip": lambda size: packed(filled(b"{}", size)),
}


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the body, and answer."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]})
    await send({"type": "http.response.body", "body": ANSWER, "more_body": False})


async def longest_gap(body: bytes, *, coded: bool) -> tuple[float, float]:
    """Return the longest gap, and the time of both requests, in milliseconds."""
    guarded = CallFuseMiddleware(app)
    gaps: list[float] = []

    async def tick() -> None:
        last = time.process_time()
        while True:
            await asyncio.sleep(TICK_S)
            now = time.process_time()
            gaps.append(now - last)
            last = now

    async def send(message: Message) -> None:
        """Drop a message."""

    ticking = asyncio.create_task(tick())
    await asyncio.sleep(0.01)
    gaps.clear()
    began = time.perf_counter()
    for _ in range(2):
        scope = scope_of("/v1/chat/completions")
        scope["headers"] = [*scope["headers"], *([(b"content-encoding", b"gzip")] if coded else [])]
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive(left: list[Message] = messages) -> Message:
            return left.pop() if left else {"type": "http.disconnect"}

        await guarded(scope, receive, send)
    took = time.perf_counter() - began
    await asyncio.sleep(0.01)
    ticking.cancel()
    return max(gaps) * 1000, took * 1000


def main() -> None:
    """Print a row for each body and length."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="")
    parser.add_argument("--mb", type=float, nargs="+", default=[0.25, 1, 4, 16, 60])
    options = parser.parse_args()
    logging.disable()
    for name, made in BODIES.items():
        if options.only in name:
            for size in options.mb:
                body = made(int(size * MB))
                gap, took = asyncio.run(longest_gap(body, coded="gzip" in name))
                over = "  over" if gap > GOAL_MS else ""
                print(f"{name:24} {size:6.2f} MB  longest gap {gap:8.1f} ms, both {took:8.1f} ms{over}", flush=True)


if __name__ == "__main__":
    main()
