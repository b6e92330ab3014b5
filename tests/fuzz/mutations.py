"""Damage to bodies, each kind drawn from a seed of its own, so that a case can be told again with some of it left out.

In: bytes and dice. Out: bytes. `json` changes a value somewhere in an event's JSON, `events` the events themselves,
`bytes` single bytes, `escape` writes a letter of a JSON text as an escape, `long` makes something long.
"""

import json
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from tests.support.wire import frames, with_payloads

OBJECT = re.compile(rb"\{.*\}", re.DOTALL)
WORD = re.compile(rb'"[A-Za-z_]{2,}"')
DEEP = json.loads("[" * 150 + "]" * 150)
VALUES: tuple[Any, ...] = (
    None, True, False, 0, 1, -1, 7, 1.5, 1e308, 2**53 + 1, 2**63, 10**40, float("nan"), "", "x", " ", "\x00", "\ud800",
    "\u2028é", "a" * 300, "{}", "[DONE]", '{"a":', "null", [], {}, [None], [-1], [[]], ["x"], [{}], {"": None},
    {"type": "x"}, {"id": None}, {"index": -1}, DEEP,
)  # fmt: skip
KEYS = (
    "type", "id", "index", "name", "arguments", "input", "function", "custom", "tool_calls", "function_call", "content",
    "parts", "functionCall", "text", "role", "delta", "choices", "finish_reason", "stop_reason", "output", "item",
    "output_index", "item_id", "call_id", "content_block", "partial_json", "message", "usage", "error", "done", "tool",
    "reasoning_details", "thought", "thoughtSignature", "candidates", "finishReason", "provider_metadata", "status",
    "messages", "tools", "stream", "model", "tool_call_id", "tool_use_id", "is_error", "system", "n", "tool_choice",
    "previous_response_id", "conversation", "store", "instructions", "contents", "functionResponse", "response",
    "contentBlockIndex", "start", "toolUse", "toolUseId", "stopReason", "reasoningContent", "signature", "event_type",
    "step", "steps", "interaction", "previous_interaction_id", "delta", "summary", "result", "toolResult",
)  # fmt: skip
PIECES = (
    b"\n", b"\r", b"\r\n\r\n", b"\n\n", b"data: ", b"data:", b"data: [DONE]\n\n", b"[DONE]", b"event: ping\n", b":\n\n",
    b"event: error\n", b"\xff", b"\xc3", b"\xef\xbb\xbf", b"\x00", b"{", b"}", b"[", b"]", b",", b'"', b"\\", b"\\u",
    b"null", b"\\ud800", b"id: 1\n", b"retry: 1\n", b'"tool_calls"', b"callfuse", b"!/status", b"1e999", b"-",
)  # fmt: skip
BROKEN = (b'data: {"a"\n\n', b"data: [DONE]\n\n", b"data: null\n\n", b"data: []\n\n", b'data: ""\n\n', b"data:\n\n",
          b"event: x\n\n", b": c\n\n", b"data: {}\n\n", b'{"a"\n', b"{}\n", b"null\n", b",", b"\n", b"]")  # fmt: skip
TIMES = (2, 5, 50, 200)
LONG = (100, 3000, 20_000)
UNITS = (
    "\\u001b]",
    "\u001b]",
    " ",
    "\n",
    "!/",
    "<",
    "&",
    "[callfuse]",
    "a ",
    "0",
    "{}",
    "\\",
    '"',
    "é",
    "1.",
    "(",
    "=",
)


class Mutation(NamedTuple):
    """One damage."""

    kind: str
    seed: int


def mutate(body: bytes, mutations: tuple[Mutation, ...]) -> bytes:
    """The body with these damages, one after another."""
    for kind, seed in mutations:
        body = KINDS[kind](body, random.Random(seed))
    return body


def draw(dice: random.Random) -> tuple[Mutation, ...]:
    """None at all, or some."""
    count = dice.choice((0, 0, 1, 1, 1, 2, 2, 3, 6))
    kinds = dice.choices(list(KINDS), weights=WEIGHTS, k=count)
    return tuple(Mutation(kind, dice.getrandbits(32)) for kind in kinds)


def in_json(body: bytes, dice: random.Random) -> bytes:
    """A value in the JSON of one event is another one, is gone, or stands twice."""
    return _with_object(body, dice, _change)


def at_length(body: bytes, dice: random.Random) -> bytes:
    """A list has many items, or a text many characters."""
    return _with_object(body, dice, _lengthen)


def in_events(body: bytes, dice: random.Random) -> bytes:
    """An event stands elsewhere, twice, not at all, or beside a broken one."""
    parts = frames(body)
    if not parts:
        return dice.choice(BROKEN)
    at, other = dice.randrange(len(parts)), dice.randrange(len(parts))
    match dice.randrange(6):
        case 0:
            del parts[at]
        case 1:
            parts.insert(other, parts[at])
        case 2:
            parts[at], parts[other] = parts[other], parts[at]
        case 3:
            parts.append(parts.pop(at))
        case 4:
            parts[at] = parts[at].rstrip()
        case _:
            parts.insert(at, dice.choice(BROKEN))
    return b"".join(parts)


def in_bytes(body: bytes, dice: random.Random) -> bytes:
    """Some bytes are others, gone, or twice; or the body ends early."""
    at = dice.randrange(len(body) + 1)
    end = min(len(body), at + dice.choice((1, 1, 4, 40)))
    match dice.randrange(5):
        case 0:
            return body[:at] + bytes([dice.randrange(256)]) + body[at + 1 :]
        case 1:
            return body[:at] + body[end:]
        case 2:
            return body[:end] + body[at:]
        case 3:
            return body[:at]
        case _:
            return body[:at] + dice.choice(PIECES) + body[at:]


def escaped(body: bytes, dice: random.Random) -> bytes:
    """A letter of a JSON text is written as an escape, which changes nothing that it says."""
    words = list(WORD.finditer(body))
    if not words:
        return body
    word = dice.choice(words)
    at = dice.randrange(word.start() + 1, word.end() - 1)
    return body[:at] + b"\\u%04x" % body[at] + body[at + 1 :]


KINDS: dict[str, Callable[[bytes, random.Random], bytes]] = {
    "json": in_json,
    "events": in_events,
    "bytes": in_bytes,
    "escape": escaped,
    "long": at_length,
}
WEIGHTS = (10, 4, 4, 2, 1)


def _with_object(body: bytes, dice: random.Random, change: Callable[[Any, random.Random], Any]) -> bytes:
    parts = frames(body)
    dice_order = dice.sample(range(len(parts)), min(4, len(parts)))
    for at in dice_order:
        found = OBJECT.search(parts[at])
        if found is None:
            continue
        try:
            value = json.loads(found[0])
        except (ValueError, RecursionError):
            continue
        changed = json.dumps(change(value, dice), ensure_ascii=dice.random() < 0.5, separators=(",", ":"))
        text = changed.encode(errors="surrogatepass")
        parts[at] = _with_text(parts[at], found.start(), found.end(), text)
        return b"".join(parts)
    return in_bytes(body, dice)


def _with_text(part: bytes, start: int, end: int, text: bytes) -> bytes:
    """An event with this text in place of its JSON. A message of AWS's gets the checksum that it needs then: with a
    wrong one nobody would read it."""
    if part.startswith(b"\0"):
        return with_payloads(part, lambda _: text)
    return part[:start] + text + part[end:]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Each place in a value: what holds it, and its key or index."""
    waiting = [value]
    while waiting:
        holder = waiting.pop()
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        for key in keys:
            yield holder, key
            if isinstance(holder[key], dict | list):
                waiting.append(holder[key])


def _change(value: Any, dice: random.Random) -> Any:
    places = list(_places(value))
    if not places or dice.random() < 0.02:
        return dice.choice(VALUES)
    holder, key = dice.choice(places)
    match dice.randrange(6):
        case 0 | 1:
            holder[key] = dice.choice(VALUES)
        case 2:
            del holder[key]
        case 3:
            other, there = dice.choice(places)
            holder[key] = json.loads(json.dumps(other[there])) if _has(other, there) else None
        case 4 if isinstance(holder, dict):
            holder[dice.choice(KEYS)] = dice.choice(VALUES)
        case 4:
            holder.insert(key, dice.choice(VALUES))
        case _ if isinstance(holder, dict):
            holder[dice.choice(KEYS)] = holder.pop(key)
        case _:
            holder.insert(key, json.loads(json.dumps(holder[key])))
    return value


def _has(holder: Any, key: Any) -> bool:
    return key in holder if isinstance(holder, dict) else key < len(holder)


def _lengthen(value: Any, dice: random.Random) -> Any:
    places = [(holder, key) for holder, key in _places(value) if isinstance(holder[key], str | list) and holder[key]]
    if not places:
        return value
    holder, key = dice.choice(places)
    if isinstance(holder[key], list):
        holder[key] = holder[key] * dice.choice(TIMES)
    else:
        unit = dice.choice(UNITS)
        holder[key] += unit * (dice.choice(LONG) // len(unit))
    return value
