"""Answers of OpenAI chat completions: the calls of streamed and whole ones, and the model's turn for the next request.

Rules that simple code breaks: calls are identified by (choice, index); without an index, by id; otherwise a name opens
a call, and a delta without a name continues the last one. An index that is repeated with another id and a name is a new
call. Repeated ids and names are not appended, and empty ones overwrite nothing. Arguments may be null. A whole call may
come in one chunk, with its finish reason. Finish reasons may be repeated, followed by more deltas, or missing if
`[DONE]` ends the answer.

The turn contains everything that vendors expect back unchanged: reasoning in its three spellings, details with
signatures, what a vendor added to a call. If such a part cannot be rebuilt, CannotReplay is raised; a key that no
vendor is known to expect is left out.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.base import NO_EVENTS, Entry, Event, OpenCall, Reader, What, WholeChoice, has_end
from callfuse.dialects.edits import message_at
from callfuse.dialects.openai_chat.chunk import choice_parts, number_of
from callfuse.dialects.openai_chat.details import KEY as DETAILS
from callfuse.dialects.openai_chat.details import add_detail, call_ids
from callfuse.dialects.pieces import grow, joined
from callfuse.dialects.repeats import REPEATED
from callfuse.dialects.said import REASONING, TEXT, SaidPiece, blocks_in, piece_in
from callfuse.dialects.shapes import list_of, object_of, objects_of, text_of
from callfuse.model import ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import Edit, NotJSON, apply, dumps, loads
from callfuse.wire.values import is_too_much_inside

CUTTING: Final = REPEATED | {"length", "content_filter"}
"""Finish reasons after which the last call may be incomplete."""

CUSTOM: Final = "custom"
"""The kind of calls whose input is plain text, not JSON."""

_TO_COME: Final = -1
"""The index of a call that has not begun."""
_OWN_KEYS: Final = frozenset({"index", "id", "type", "function", "custom"})
_TEXTS: Final = ("content", "reasoning_content", "reasoning", "refusal")
_LISTS: Final = ("annotations",)
_OBJECTS: Final = ("extra_content", "provider_specific_fields")
"""Objects that Google and LiteLLM expect back."""
_WHOLE_ONLY: Final = ("audio", "thinking_blocks")
"""Keys that vendors expect back and that callfuse cannot join from pieces."""
_WANTED: Final = frozenset({*_TEXTS, *_LISTS, *_OBJECTS, *_WHOLE_ONLY, DETAILS})
"""The keys that are sent back; any other is left out, such as Groq's `channel`."""
_OF_MESSAGE: Final = frozenset({*_WANTED, "role", "tool_calls", "function_call"})
"""The keys of a whole message that are sent back."""


class ChatReader(Reader):
    """Assembles the calls of one streamed answer."""

    __slots__ = ("_by_id", "_by_key", "_count", "_cut", "_ended", "_growing", "_open_calls", "_trace")

    def __init__(self, *, trace: bool = False) -> None:
        super().__init__()
        self._trace = trace
        self._by_key: dict[tuple[int, object], OpenCall] = {}
        self._growing: dict[int, OpenCall] = {}
        self._by_id: dict[tuple[int, str], OpenCall] = {}
        self._count: dict[int, int] = {}
        self._open_calls: dict[int, list[OpenCall]] = {}
        self._cut: set[int] = set()
        self._ended = False

    def read(self, payload: Payload) -> Sequence[Event]:
        """Return the events in one chunk."""
        if self._trace:
            self.entries = []
        choices = payload.get("choices")
        if type(choices) is not list or not choices:
            return (Event(What.BROKE),) if payload.get("error") else NO_EVENTS
        events: list[Event] = []
        for place, choice in enumerate(choices):
            if type(choice) is not dict:
                continue
            number, delta = choice.get("index"), choice.get("delta")
            if type(number) is not int:
                number = 0
            if type(delta) is dict:
                self._read_delta(events, number, place, delta)
            if reason := choice.get("finish_reason"):
                self._finish(events, number, reason)
        return events or NO_EVENTS

    def _read_delta(self, events: list[Event], choice: int, place: int, delta: Payload) -> None:
        """Read the delta of a choice. `place`: the choice's place in the list of choices."""
        if self._trace and delta.get(DETAILS):
            self._announce(events, choice, delta)
        parts = delta.get("tool_calls")
        if type(parts) is list:
            self._read_calls(events, choice, place, parts)
        if part := delta.get("function_call"):
            self._read_legacy(events, choice, place, object_of(part))

    def _read_calls(self, events: list[Event], choice: int, place: int, parts: Sequence[Any]) -> None:
        """Read the parts of calls in a choice's delta. `place`: the choice's place in the list of choices."""
        for at, part in enumerate(parts):
            if type(part) is not dict:
                continue
            call = piece = None
            if len(part) == 2 and type(index := part.get("index")) is int:
                call = self._by_key.get((choice, index))
                function = part.get("function")
                piece = function.get("arguments") if type(function) is dict and len(function) == 1 else None
            if call is not None and type(piece) is str and call.name:
                call.pieces.append(piece)  # index and arguments of a known call, which grows
            else:
                call = self._grow(events, choice, part)
            if self._trace:
                self.entries.append(Entry(("choices", place, "delta", "tool_calls", at), call))

    def _read_legacy(self, events: list[Event], choice: int, place: int, part: Payload) -> None:
        """Read the older form of a call in a choice's delta. `place`: the choice's place in the list of choices."""
        if not says_nothing(part):
            call = self._grow(events, choice, {"index": "function_call", "function": part})
            if self._trace:
                self.entries.append(Entry(("choices", place, "delta", "function_call"), call))

    def end(self) -> Sequence[Event]:
        """End the answer. A choice without a finish reason (some vendors send none) finishes if its calls are whole."""
        if self._ended:
            return (Event(What.ENDED),)
        self._ended = True
        events: list[Event] = []
        growing = [call for call in self.calls if not call.closed and call.choice not in self._cut]
        begun = [call for call in growing if call.arguments.strip() and call.kind != CUSTOM]  # a text may end anywhere
        broken = {call.choice for call in begun if not _is_complete(call.arguments)}
        for choice in sorted({call.choice for call in growing} - broken):
            self._finish(events, choice, "")
        return (*events, Event(What.ENDED))

    def _grow(self, events: list[Event], choice: int, part: Payload) -> OpenCall:
        """Add a delta to its call, or open the call. A name may come in pieces, or be repeated."""
        function, kind = _function_of(part)
        name, id_, index = _name_in(function), text_of(part.get("id")), _index_of(part)
        arguments = function.get("input" if kind else "arguments")
        call = self._lookup(choice, index, id_, name)
        if call is None:
            call = self._open(events, choice, index, id_, name)
            call.name_grows = not arguments
        elif name and name != call.name:
            call.name += name
        if arguments:
            call.pieces.append(arguments if isinstance(arguments, str) else dumps(arguments).decode())
        call.kind = call.kind or kind
        call.id = call.id or id_
        if extra := {key: value for key, value in part.items() if key not in _OWN_KEYS}:
            _add_extra(call, extra)
        return call

    def _lookup(self, choice: int, index: object, id_: str, name: str) -> OpenCall | None:
        """Return the call that a delta continues; None if the delta opens a new call."""
        if index is not None:
            call = self._by_key.get((choice, index))
            return None if call and id_ and name and call.id and id_ != call.id else call
        if id_ and (call := self._by_key.get((choice, "id " + id_))):
            return call
        return None if name else self._growing.get(choice)

    def _open(self, events: list[Event], choice: int, index: object, id_: str, name: str) -> OpenCall:
        before = self._growing.get(choice)
        if before and not before.closed and before.kind != CUSTOM and _is_complete(before.arguments):
            before.closed = True
            events.append(Event(What.CLOSED, choice, before))
        place = self._count.get(choice, 0)
        self._count[choice] = place + 1
        call = self._by_id.get((choice, id_)) if id_ else None
        if call is None or call.index != _TO_COME:
            call = self._by_id[choice, id_] = OpenCall(choice, place, id_)
        call.index, call.name, call.numbered = place, name, index is not None
        self.calls.append(call)
        self._open_calls.setdefault(choice, []).append(call)
        self._growing[choice] = call
        self._by_key[choice, "id " + id_ if index is None else index] = call
        events.append(Event(What.OPENED, choice, call))
        return call

    def _announce(self, events: list[Event], choice: int, delta: Payload) -> None:
        """Open calls that have not begun but whose ids are in a detail: the detail must wait for their verdict."""
        for id_ in call_ids(delta):
            if (choice, id_) not in self._by_id:
                call = self._by_id[choice, id_] = OpenCall(choice, _TO_COME, id_)
                events.append(Event(What.OPENED, choice, call))

    def _finish(self, events: list[Event], choice: int, reason: Any) -> None:
        """Finish a choice: close its calls, except the last one if it was cut off."""
        open_calls = [call for call in self._open_calls.pop(choice, ()) if not call.closed]
        cuts = type(reason) is str and reason in CUTTING
        cut = None
        if cuts:
            self._cut.add(choice)
            cut = open_calls.pop() if open_calls and not has_end(open_calls[-1].arguments) else None
            self._open_calls[choice] = [cut] if cut else []
        for call in open_calls:
            call.closed = True
            events.append(Event(What.CLOSED, choice, call))
        events.append(Event(What.CUT, choice, cut) if cuts else Event(What.FINISHED, choice))


def _add_extra(call: OpenCall, extra: Payload) -> None:
    """Add a vendor's further keys in a part of a call to the call. The first ones replace the shared empty object."""
    if call.extra:
        call.extra.update(extra)
    else:
        call.extra = extra


def _index_of(part: Payload) -> int | str | None:
    """Return the index in a part of a call; None if the part has none."""
    index = part.get("index")
    return index if type(index) is int or type(index) is str else None


def _is_complete(arguments: str) -> bool:
    """Whether arguments are complete, so that the call may end: some servers send pieces of several calls by turns."""
    if is_too_much_inside(arguments):
        return arguments.rstrip().endswith("}")
    try:
        loads(arguments)
    except NotJSON:
        return False
    return True


def calls_of(message: Payload) -> list[ToolCall]:
    """Return the calls of a whole assistant message, of an answer or of a history."""
    parts = message.get("tool_calls")
    calls = [
        _custom_call(part) if part.get("custom") else _call(part.get("id"), part.get("function"))
        for part in (parts if type(parts) is list else ())
        if type(part) is dict
    ]
    if type(part := message.get("function_call")) is dict and not says_nothing(part):
        calls.append(_call("", part))
    return calls


def says_nothing(value: Any) -> bool:
    """Whether a value is empty, or an object of empty values only: Snowflake Cortex writes out what does not apply."""
    return not value or (type(value) is dict and not any(value.values()))


def _name_in(function: Payload) -> str:
    """Return the name in a function; empty if it is not a text, or blank: no client can execute such a call."""
    name = function.get("name")
    return name if type(name) is str and not name.isspace() else ""


def _function_of(part: Payload) -> tuple[Payload, str]:
    """Return the function or custom tool in a part of a call, and the call's kind. Snowflake sends empty `custom`s."""
    custom = part.get("custom")
    if type(custom) is dict and not says_nothing(custom):
        return custom, CUSTOM
    return object_of(part.get("function")), ""


def _custom_call(part: Payload) -> ToolCall:
    """Return the call in a part with a custom tool. An empty custom tool beside a function is ignored."""
    function, kind = _function_of(part)
    if not kind:
        return _call(part.get("id"), part.get("function"))
    text = function.get("input") or ""
    if type(text) is not str:
        text = dumps(text).decode()
    return ToolCall(str(part.get("id") or ""), _name_in(function), text, kind=kind)


def _call(id_: Any, function: Any) -> ToolCall:
    """Return a call from its id and its function. Both may be of any type or missing."""
    if type(function) is not dict:
        function = {}
    arguments = function.get("arguments")
    if type(arguments) is not str:
        arguments = "" if arguments is None else dumps(arguments).decode()
    return ToolCall(id_ if type(id_) is str else "", _name_in(function), arguments)


def read_whole(payload: Payload) -> list[WholeChoice]:
    """Return the calls of each choice of a whole answer; none for a choice that is not an object."""
    return [_read_choice(object_of(choice)) for choice in list_of(payload.get("choices"))]


def _read_choice(choice: Payload) -> WholeChoice:
    reason = choice.get("finish_reason")
    cut = type(reason) is str and reason in CUTTING
    return WholeChoice(number_of(choice), tuple(calls_of(object_of(choice.get("message")))), cut=cut)


def said(payload: Payload) -> Iterator[SaidPiece]:
    """Yield what the model says in a chunk, or in a whole answer. Some vendors send reasoning twice, under two keys."""
    for choice in objects_of(payload.get("choices")):
        number, message = number_of(choice), object_of(choice.get("delta") or choice.get("message"))
        content = message.get("content")
        if type(content) is list:  # Mistral's parts
            yield from blocks_in(content, number, {"text": ("text", TEXT)})
            for part in objects_of(content):
                yield from blocks_in(part.get("thinking"), (number, "thinking"), {"text": ("text", REASONING)})
        yield from piece_in(TEXT, number, content)
        yield from piece_in(TEXT, (number, "refusal"), message.get("refusal"))
        reasoning = message.get("reasoning_content") or message.get("reasoning")
        yield from piece_in(REASONING, (number, "reasoning"), reasoning)
        if not reasoning:
            details = blocks_in(message.get(DETAILS), (number, DETAILS), {"reasoning.text": ("text", REASONING)})
            yield from details


def model_turn(payloads: Sequence[Payload]) -> bytes:
    """Return the assistant message assembled from the chunks of one choice, without calls that have no name."""
    reader = ChatReader()
    message: Payload = {"role": "assistant", "content": None}
    is_legacy = False
    for payload in payloads:
        reader.read(payload)
        for part in choice_parts(payload):
            for key, value in part.delta.items():
                if key in _WANTED and not says_nothing(value):
                    _add(message, key, value)
                is_legacy |= key == "function_call" and not says_nothing(value)
    message = joined(message)
    if DETAILS in message:
        message[DETAILS] = [joined(detail) for detail in message[DETAILS]]
    calls = [call for call in reader.calls if call.has_name]
    if is_legacy and calls:
        message["function_call"] = _part_of(calls[0])["function"]
    else:
        message["tool_calls"] = [call.extra | _part_of(call) for call in calls]
    return dumps(message)


def _part_of(call: OpenCall) -> Payload:
    """Return a call in the form in which a message lists it."""
    if call.kind == CUSTOM:
        return {"id": call.id, "type": CUSTOM, "custom": {"name": call.name, "input": call.arguments}}
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def model_turn_of_whole(body: bytes, payload: Payload) -> bytes:
    """Return the message of a whole answer, without empty keys, keys that no vendor is known to expect, and calls that
    have no name. Raises CannotReplay if there is no message."""
    choices = list_of(payload.get("choices"))
    message = object_of(object_of(choices[0]).get("message")) if choices else {}
    wanted = {key for key, value in message.items() if key in _OF_MESSAGE and not says_nothing(value)}
    gone = message.keys() - wanted - {"content"}
    raw = message_at(body, ("choices", 0, "message"), without=gone)
    edits: list[Edit] = []
    for at, part in enumerate(list_of(message.get("tool_calls"))):
        if type(part) is not dict or not _name_in(_function_of(part)[0]):
            edits.append(Edit(("tool_calls", at), None))
        else:
            unused = [key for key in ("function", CUSTOM) if key in part and says_nothing(part[key])]
            edits += [Edit(("tool_calls", at, key), None) for key in unused]
    return apply(raw, edits)


def _add(message: Payload, key: str, value: Any) -> None:
    """Add the value of one delta to the message."""
    if key in _TEXTS and isinstance(value, str):
        grow(message, key, value)
    elif key in _LISTS and isinstance(value, list):
        message.setdefault(key, []).extend(value)
    elif key in _OBJECTS and isinstance(value, dict):
        _merge(message.setdefault(key, {}), value)
    elif key == DETAILS and isinstance(value, list):
        details: list[Payload] = message.setdefault(key, [])
        for detail in value:
            add_detail(details, detail)
    else:
        raise CannotReplay(f"delta.{key}")


def _merge(known: Payload, new: Payload) -> None:
    """Merge a later delta's object into an earlier one, including the objects in it."""
    for key, value in new.items():
        before = known.get(key)
        if isinstance(before, dict) and isinstance(value, dict):
            before.update(value)
        elif isinstance(value, dict):
            known[key] = dict(value)
        elif value is not None or key not in known:
            known[key] = value
