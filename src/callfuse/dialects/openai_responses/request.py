"""Requests of the Responses API: the rounds with their results, and changes that leave the rest alone."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from callfuse.dialects.base import AskError, Block, Note, Reply
from callfuse.dialects.history import digest_of, grown, is_own_or_reminder, pair, result_at, texts
from callfuse.dialects.openai_responses.items import (
    answer_to,
    call_id,
    call_of,
    is_client_call,
    is_result,
    result_of,
)
from callfuse.dialects.openai_responses.message import OwnMessage, own_id
from callfuse.dialects.openai_responses.trail import Trail
from callfuse.dialects.openai_responses.turn import items_of
from callfuse.dialects.openai_responses.whole import splice_whole, thin_whole
from callfuse.dialects.openai_responses.write import ResponsesWriter
from callfuse.framing import Payload
from callfuse.jsontext import END, Edit, apply, dumps
from callfuse.model import Result, Round, ToolCall

_SCHEMAS: Final = frozenset({"json_schema", "json_object"})
_SPEAKERS: Final = frozenset({"user", "system", "developer"})


class ResponsesRequest:
    """A parsed body and the bytes it came from."""

    __slots__ = (
        "_items",
        "_payload",
        "body",
        "choices",
        "length",
        "model",
        "probe",
        "stored",
        "stream",
        "structured",
        "trail",
    )

    def __init__(self, body: bytes, payload: Payload) -> None:
        self.body = body
        self._payload = payload
        spoken = payload.get("input")
        self._items: list[Any] = spoken if isinstance(spoken, list) else [{"role": "user", "content": spoken}]
        self.length = len(self._items)
        self.model = str(payload.get("model") or "")
        self.stream = payload.get("stream") is True
        self.choices = 1
        self.probe = not (payload.get("tools") or payload.get("prompt"))
        form = (payload.get("text") or {}).get("format")
        self.structured = isinstance(form, dict) and form.get("type") in _SCHEMAS
        self.stored = payload.get("store") is not False
        self.trail = Trail(stored=self.stored)

    def opening(self) -> Iterator[bytes]:
        """Instructions, system and developer texts up to and with the first user message."""
        yield from texts(self._payload.get("instructions"))
        for item in self._items:
            role = _role(item)
            if role in _SPEAKERS:
                yield role.encode()
                yield from texts(item.get("content"))
            if role == "user":
                return

    def turn(self) -> tuple[int, bytes]:
        """Where the last real user message stands, and its digest."""
        for position in range(self.length - 1, -1, -1):
            if _is_real_user(item := self._items[position]):
                return position, digest_of(texts(item.get("content")))
        return -1, b""

    def rounds(self) -> Iterator[Round | None]:
        """The rounds with their results, newest first; None for a real user message.

        A round is a run of the model's items: it begins behind a result or another speaker's message.
        """
        results: list[tuple[str, Result]] = []
        calls: list[ToolCall] = []
        for position in range(self.length - 1, -2, -1):
            item = self._items[position] if position >= 0 else None
            ends = position < 0 or is_result(item) or _role(item) in _SPEAKERS
            if ends and calls:
                calls.reverse()
                pair(calls, results[::-1])
                yield Round(tuple(calls), position + 1)
                calls, results = [], []
            if is_result(item):
                results.append((call_id(item), result_of(item)))
            elif is_client_call(item):
                calls.append(call_of(item))
            elif _is_real_user(item):
                yield None
                results = []

    def with_notes(self, notes: Sequence[Note]) -> bytes:
        """The body with texts added to the results of the named calls."""
        found = self._results_of(notes).items()
        return apply(self.body, [edit for place, text in found for edit in self._grown(place, text)])

    def _results_of(self, notes: Sequence[Note]) -> dict[int, str]:
        """The indexes of the items that are the results, with the texts for them."""
        found: dict[int, str] = {}
        for note in notes:
            calls: list[ToolCall] = []
            places: list[int] = []
            for place in range(note.position, self.length):
                item = self._items[place]
                if is_result(item):
                    places.append(place)
                elif places or _role(item) in _SPEAKERS:
                    break
                elif is_client_call(item):
                    calls.append(call_of(item))
            at = result_at(calls, [call_id(self._items[place]) for place in places], note.call)
            if at is not None:
                found[places[at]] = f"{found[places[at]]}\n\n{note.text}" if places[at] in found else note.text
        return found

    def _grown(self, place: int, text: str) -> list[Edit]:
        """The edit that adds a text to a result; none where it has no room for one."""
        item = self._items[place]
        path, output = ("input", place, "output"), item.get("output")
        if item["type"] in ("computer_call_output", "tool_search_output"):
            return []
        if item["type"] != "shell_call_output":
            return grown(path, output, text, text_part="input_text")
        if not isinstance(output, list) or not output or not isinstance(output[-1], dict):
            return []
        at = len(output) - 1
        return grown((*path, at, "stderr"), output[at].get("stderr"), text)

    def ask_again(self, body: bytes, turn: bytes, replies: Sequence[Reply]) -> bytes:
        """The body with the model's items and a result for each of its calls at the end of the input."""
        items = items_of(turn)
        for _, item in items:
            known = self.stored or item.get("encrypted_content") or item.get("content")
            if item.get("type") == "reasoning" and not known:
                raise AskError("reasoning")
        new = b",".join((*(raw for raw, _ in items), *_results(replies)))
        edit = Edit(("input", END), new)
        if not isinstance(self._payload.get("input"), list):
            edit = Edit(("input",), partial(_listed, new))
        return apply(body, [edit, *self._loosened()])

    def writer(self, *, usage: str) -> ResponsesWriter:
        """A writer for the stream that answers this request."""
        return ResponsesWriter(structured=self.structured, summed=usage == "sum", trail=self.trail)

    def own_answer(self, text: str) -> bytes:
        """A response that says this text."""
        message = OwnMessage(own_id("", 0), text, refuses=self.structured).item()
        self.trail.wrote(message)
        return dumps(
            {
                "id": "resp_callfuse",
                "object": "response",
                "created_at": 0,
                "status": "completed",
                "error": None,
                "incomplete_details": None,
                "instructions": None,
                "model": self.model,
                "output": [message],
                "parallel_tool_calls": True,
                "tool_choice": "auto",
                "tools": [],
                "usage": None,
            }
        )

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """A whole answer without the withheld calls."""
        return thin_whole(body, withheld, blocks, structured=self.structured, trail=self.trail)

    def splice_whole(self, first: bytes, second: bytes, *, usage: str) -> bytes:
        """Two whole answers as one."""
        return splice_whole(first, second, summed=usage == "sum")

    def _loosened(self) -> list[Edit]:
        """A choice that names one tool becomes `auto`; `required` stays while another tool is open."""
        choice = self._payload.get("tool_choice")
        few = len(self._payload.get("tools") or ()) < 2
        if isinstance(choice, dict) and choice.get("type") == "allowed_tools":
            narrow = len(choice.get("tools") or ()) < 2 and choice.get("mode") == "required"
            return [Edit(("tool_choice", "mode"), b'"auto"')] if narrow else []
        if isinstance(choice, dict) or (choice == "required" and few):
            return [Edit(("tool_choice",), b'"auto"')]
        return []


def _results(replies: Sequence[Reply]) -> list[bytes]:
    return [dumps(answer_to(reply.call, reply.text)) for reply in replies]


def _listed(new: bytes, text: bytes) -> bytes:
    """An input that was a plain text, as a list of items with others behind it."""
    return b'[{"role":"user","content":' + text + b"}," + new + b"]"


def _role(item: Any) -> str:
    """Who speaks in an item; nobody where it is no message."""
    if not isinstance(item, dict) or item.get("type", "message") != "message":
        return ""
    return str(item.get("role") or "")


def _is_real_user(item: Any) -> bool:
    """Whether a person has spoken here: not callfuse, and not a harness's reminder."""
    return _role(item) == "user" and not is_own_or_reminder(item.get("content"))
