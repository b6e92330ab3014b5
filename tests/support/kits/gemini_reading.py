"""Reading Gemini's streams a second way: what a client has at the end, and the rules of a valid stream.

In: bodies. Out: views and faults. A call comes whole, or by name first and then in pieces, each at its JSONPath.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from tests.support.model import SeenCall, View, canonical
from tests.support.wire import events

_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
ENVELOPE = ("modelVersion", "responseId")


def payloads(body: bytes) -> list[dict[str, Any]]:
    """The chunks of a stream of either kind."""
    if body.lstrip()[:1] == b"[":
        return [part for part in json.loads(body) if isinstance(part, dict)]
    return [json.loads(event.data) for event in events(body)]


def put(root: Any, path: str, value: Any, *, grows: bool) -> None:
    """Set what a JSONPath names, or add to it."""
    steps = [name or int(index) for name, index in _STEP.findall(path)]
    for step, following in pairwise(steps):
        empty: Any = [] if isinstance(following, int) else {}
        if isinstance(step, int) and len(root) <= step:
            root.append(empty)
        root = root[step] if isinstance(step, int) else root.setdefault(step, empty)
    last = steps[-1]
    if isinstance(last, int) and len(root) <= last:
        root.append(value)
    else:
        root[last] = root[last] + value if grows else value


@dataclass(slots=True)
class Merged:
    """A call as it grows."""

    id: str
    name: str
    args: Any
    growing: set[str] = field(default_factory=set)

    def take(self, pieces: Iterable[dict[str, Any]]) -> None:
        """Add pieces of arguments."""
        for piece in pieces:
            path = piece["jsonPath"]
            value = next((piece[key] for key in ("stringValue", "numberValue", "boolValue") if key in piece), None)
            if isinstance(value, float) and value.is_integer():
                value = int(value)
            put(self.args, path, value, grows=path in self.growing)
            (self.growing.add if piece.get("willContinue") else self.growing.discard)(path)

    @property
    def seen(self) -> SeenCall:
        """What the client has of it."""
        return SeenCall(self.id, self.name, canonical(json.dumps(self.args)))


@dataclass(slots=True)
class Choice:
    """A candidate put together."""

    text: str = ""
    thinking: str = ""
    calls: list[Merged] = field(default_factory=list)
    finish: str | None = None

    def take(self, part: dict[str, Any]) -> None:
        """Add a part."""
        if "functionCall" in part:
            call = part["functionCall"]
            if call.get("name"):
                self.calls.append(Merged(call.get("id", ""), call["name"], call.get("args") or {}))
            self.calls[-1].take(call.get("partialArgs") or ())
        elif part.get("thought"):
            self.thinking += part["text"]
        else:
            self.text += part.get("text", "")

    @property
    def view(self) -> View:
        """What the client has of it."""
        return View(self.text, self.thinking, tuple(call.seen for call in self.calls), self.finish)


def merged(chunks: Iterable[dict[str, Any]]) -> tuple[View, ...]:
    """The candidates of a stream, or of a whole answer."""
    choices: dict[int, Choice] = {}
    for candidate in (candidate for chunk in chunks for candidate in chunk.get("candidates") or ()):
        choice = choices.setdefault(candidate.get("index") or 0, Choice())
        for part in (candidate.get("content") or {}).get("parts") or ():
            choice.take(part)
        choice.finish = candidate.get("finishReason") or choice.finish
    return tuple(choices[at].view for at in sorted(choices))


def check(chunks: list[dict[str, Any]]) -> list[str]:
    """The rules; an empty list means that the stream is valid."""
    return [*_envelopes(chunks), *_choices(chunks)]


def _envelopes(chunks: list[dict[str, Any]]) -> Iterable[str]:
    for key in ENVELOPE:
        if len({chunk.get(key) for chunk in chunks}) != 1:
            yield f"{key} changes within the stream"
    if not all(chunk.get("candidates") for chunk in chunks):
        yield "a chunk without a candidate, for which google-genai's chats drop the answer"


def _choices(chunks: list[dict[str, Any]]) -> Iterable[str]:
    parts = [candidate for chunk in chunks for candidate in chunk.get("candidates") or ()]
    for number in {part.get("index") or 0 for part in parts}:
        yield from _choice(number, [part for part in parts if (part.get("index") or 0) == number])


def _choice(number: int, listed: list[dict[str, Any]]) -> Iterable[str]:
    finishes = [at for at, candidate in enumerate(listed) if candidate.get("finishReason")]
    if finishes != [len(listed) - 1]:
        yield f"candidate {number}: finish reasons at {finishes} of {len(listed)}"
    elif listed[-1]["finishReason"] != "STOP":
        yield f"candidate {number}: finish reason {listed[-1]['finishReason']}"
    growing = False
    for candidate in listed:
        parts = (candidate.get("content") or {}).get("parts")
        if not parts or not all(parts):
            yield f"candidate {number}: a chunk without parts, for which google-genai's chats drop the answer"
        for call in [part["functionCall"] for part in parts or () if "functionCall" in part]:
            if growing is bool(call.get("name")):
                yield f"candidate {number}: {'two calls at once' if growing else 'a piece of no call'}"
            growing = bool(call.get("willContinue"))
    if growing:
        yield f"candidate {number}: a call without its end"
