"""Reading chat completions a second way: a client that understands every quirk, and the rules of a valid stream.

In: bodies. Out: views and faults. Calls are kept apart by (choice, index); without an index by id, else a name
opens a call.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.support.model import SeenCall, View, canonical
from tests.support.wire import events

ENVELOPE = ("id", "object", "created", "model", "choices")


@dataclass(slots=True)
class _OpenCall:
    index: int | None
    id: str
    name: str
    arguments: str = ""


@dataclass(slots=True)
class _Choice:
    text: str = ""
    thinking: str = ""
    calls: list[_OpenCall] = field(default_factory=list)
    finish: str | None = None

    def take(self, fragment: dict[str, Any]) -> None:
        """Join one fragment of a call to the call that it belongs to."""
        index, function = fragment.get("index"), fragment.get("function") or {}
        call_id, name = fragment.get("id") or "", function.get("name") or ""
        call = self._known(index, call_id, name)
        if call is None:
            call = _OpenCall(index, call_id, name)
            self.calls.append(call)
        call.arguments += function.get("arguments") or ""

    def _known(self, index: int | None, call_id: str, name: str) -> _OpenCall | None:
        if index is not None:
            same = [call for call in self.calls if call.index == index]
            return same[-1] if same and (not call_id or same[-1].id == call_id) else None
        same = [call for call in self.calls if call_id and call.id == call_id]
        if same:
            return same[-1]
        return None if name or not self.calls else self.calls[-1]

    def view(self) -> View:
        """What the client has."""
        calls = tuple(SeenCall(call.id, call.name, canonical(call.arguments)) for call in self.calls)
        return View(self.text, self.thinking, calls, self.finish)


def payloads(body: bytes) -> list[dict[str, Any]]:
    """The JSON of every event but `[DONE]`."""
    return [json.loads(event.data) for event in events(body) if event.data != "[DONE]"]


def read_stream(body: bytes) -> tuple[View, ...]:
    """A stream put together."""
    choices: dict[int, _Choice] = {}
    for part in (choice for chunk in payloads(body) for choice in chunk.get("choices") or []):
        choice = choices.setdefault(part["index"], _Choice())
        delta = part.get("delta") or {}
        choice.text += delta.get("content") or ""
        choice.thinking += delta.get("reasoning_content") or ""
        for fragment in delta.get("tool_calls") or []:
            choice.take(fragment)
        choice.finish = part.get("finish_reason") or choice.finish
    return tuple(choices[at].view() for at in sorted(choices))


def read_whole(body: dict[str, Any]) -> tuple[View, ...]:
    """A whole answer."""
    return tuple(_whole(choice) for choice in body["choices"])


def _whole(choice: dict[str, Any]) -> View:
    message = choice["message"]
    calls = tuple(
        SeenCall(call["id"], call["function"]["name"], canonical(call["function"]["arguments"]))
        for call in message.get("tool_calls") or []
    )
    return View(
        message.get("content") or "", message.get("reasoning_content") or "", calls, choice.get("finish_reason")
    )


def usage_of(chunks: list[dict[str, Any]]) -> tuple[int, int] | None:
    """Input and output tokens by the last usage."""
    found = [chunk["usage"] for chunk in chunks if chunk.get("usage")]
    return (found[-1]["prompt_tokens"], found[-1]["completion_tokens"]) if found else None


def check(body: bytes) -> list[str]:
    """The rules of a stream of chunks; an empty list means that it is valid."""
    return [*_envelopes(payloads(body)), *_ends(body), *_choices(payloads(body))]


def _envelopes(chunks: list[dict[str, Any]]) -> Iterable[str]:
    for chunk in chunks:
        if missing := [key for key in ENVELOPE if key not in chunk]:
            yield f"a chunk lacks {missing}"
    for key in ("id", "created", "model", "system_fingerprint"):
        if len({chunk.get(key) for chunk in chunks}) > 1:
            yield f"{key} changes within the stream"
    if any(chunk.get("usage") for chunk in chunks[:-1]):
        yield "usage comes before the end"


def _ends(body: bytes) -> Iterable[str]:
    at = [place for place, event in enumerate(events(body)) if event.data == "[DONE]"]
    if at != [len(events(body)) - 1]:
        yield f"[DONE] stands at {at} of {len(events(body))} events"


def _choices(chunks: list[dict[str, Any]]) -> Iterable[str]:
    parts = [choice for chunk in chunks for choice in chunk.get("choices") or []]
    for number in {part["index"] for part in parts}:
        yield from _choice(number, [part for part in parts if part["index"] == number])


def _choice(number: int, parts: list[dict[str, Any]]) -> Iterable[str]:
    fragments = [fragment for part in parts for fragment in part["delta"].get("tool_calls") or []]
    finishes = [at for at, part in enumerate(parts) if part.get("finish_reason")]
    if finishes != [len(parts) - 1] and (finishes or not fragments):  # vendors leave it out, but only behind calls
        yield f"choice {number}: finish reasons at {finishes} of {len(parts)} parts"
    if sum("role" in part["delta"] for part in parts) != 1:
        yield f"choice {number}: not one role"
    indexes = [fragment.get("index") for fragment in fragments if "index" in fragment]
    firsts = list(dict.fromkeys(indexes))
    if firsts != list(range(len(firsts))):
        yield f"choice {number}: call indexes {firsts}"
    opened = {fragment.get("index") for fragment in fragments if (fragment.get("function") or {}).get("name")}
    if opened != {fragment.get("index") for fragment in fragments}:
        yield f"choice {number}: a call without a name"
    wanted = "tool_calls" if fragments else "stop"
    if finishes and parts[-1]["finish_reason"] != wanted:
        yield f"choice {number}: finish reason {parts[-1]['finish_reason']} where {wanted} belongs"
