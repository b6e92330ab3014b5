"""Base classes for requests whose history is a list of messages: OpenAI chat, Anthropic, Ollama, Cohere, Bedrock.

The base walks the messages for rounds and results, and writes notes, further turns and another model. A dialect
implements how a message names its calls and results, and what its vendor calls a setting. Results are messages of their
own (`ResultMessages`) or blocks of user messages (`ResultBlocks`).
"""

from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple

from callfuse.dialects.addresses import model_in
from callfuse.dialects.ask_again import AskOptions, Attempt, Reply
from callfuse.dialects.base import AnswerWriter, Note
from callfuse.dialects.history import (
    Pairing,
    RequestWithHistory,
    append_text,
    by_position,
    digest_of,
    is_own_or_reminder,
    note_places,
    pair,
    texts,
)
from callfuse.dialects.nudges import Messages, Speaker, media_of, with_media
from callfuse.dialects.typed import (
    EVENT_STREAM,
    JSON,
    NOTHING_SAID,
    OwnAnswer,
    TypedMessage,
    Utterance,
    own_text,
    read_typed,
    speech_of,
)
from callfuse.model import PastCall, PlainResult, Round, ToolCall
from callfuse.wire import Format, Payload
from callfuse.wire.jsontext import END, Edit, ExactValues, Path, apply, dumps, loads

Key = Any
"""How a result names its call: by the call's id, or by a key that the dialect's `_match` reads."""
KeyedResult = tuple[Key, PlainResult]
Match = Callable[[Sequence[ToolCall]], tuple[PastCall, ...]]
"""Pairs the calls of an answer with their results."""


class ResultPlace(NamedTuple):
    """The place of a result: the index of its message, its content's path, the key of its call, and the content."""

    message: int
    path: Path
    key: Key
    content: Any


class MessageList(RequestWithHistory):
    """A request with `messages`: the parsed body and its bytes. Some clouds name the model only in the path."""

    __slots__ = (
        "_exact",
        "_messages",
        "_payload",
        "body",
        "choices",
        "length",
        "model",
        "probe",
        "stream",
        "structured",
    )

    chain: Final = None

    _speaking: ClassVar[tuple[str, ...]]
    """Roles of messages with results or a person's words. A tuple, because a role may be of any type."""
    _joins_roles: ClassVar[bool] = False
    """Whether the vendor joins neighbouring messages of one role."""
    _names_calls_by_id: ClassVar[bool] = True
    """Whether results name their calls by id only; else `_match` is used."""
    _alternates: ClassVar[bool] = False
    """Whether the vendor refuses neighbouring messages of one role."""
    _name_keys: ClassVar[tuple[str, ...]] = ()
    """Keys of a message with a result that may name its tool. The first is written; empty if there is no such key."""
    _text_type: ClassVar[str | None] = "text"
    """The type of text parts in a result; None if they have no type."""
    _stream_type: ClassVar[bytes] = EVENT_STREAM

    def __init__(self, body: bytes, payload: Payload, target: str = "") -> None:
        super().__init__()
        self.body = body
        self._exact = ExactValues(body)
        self._payload = payload
        self._messages: list[Any] = payload["messages"]
        self.length = len(self._messages)
        self.model = str(payload.get("model") or "") or model_in(target)
        self.stream = payload.get("stream") is True
        self.choices = 1
        self.structured = False
        self.probe = not payload.get("tools")

    # Reading messages: implemented by dialects.

    @abstractmethod
    def _calls(self, position: int, message: Payload) -> list[ToolCall]:
        """Return the calls for the client in the assistant message at `position`."""

    @abstractmethod
    def _results(self, position: int, message: Payload, role: Any) -> list[KeyedResult]:
        """Return the results in a message that the model did not write, last first."""

    @abstractmethod
    def _result_places(self, place: int, message: Payload, role: Any) -> Iterable[ResultPlace]:
        """Return the results in the message at index `place`, with their paths."""

    def _match(self, calls: Sequence[ToolCall], keys: Sequence[Key]) -> tuple[list[str] | None, Sequence[str]]:
        """Return the keys that pair calls with results: those of the calls (None: their ids) and of the results."""
        return None, keys

    def _is_real_user(self, position: int, message: Payload) -> bool:
        """Whether a person wrote a user message, rather than callfuse, a harness or a tool."""
        return not is_own_or_reminder(message.get("content"))

    # Asking again: implemented by dialects.

    @abstractmethod
    def _reply_messages(self, turn: bytes, replies: Sequence[Reply]) -> Iterable[bytes]:
        """Return the messages with the replies to the calls of a turn."""

    @abstractmethod
    def _without_reasoning(self, message: Any, path: Path, reader: str) -> Iterable[Edit]:
        """Return the edits that prepare the model's message at `path` for another model, `reader`."""

    def _in_clients_hand(self, turn: bytes) -> bytes:
        """Rewrite the model's turn as this client would write it, because servers differ in what they accept."""
        return turn

    def _without_reasoning_setting(self) -> Iterable[Edit]:
        """Return the edits that turn off reasoning if the vendor would otherwise demand it in the history."""
        return ()

    @abstractmethod
    def _forbid_calls(self) -> Iterable[Edit]:
        """Return the edits that forbid all tools. Raises CannotReplay if the vendor has no setting for it."""

    @abstractmethod
    def _loosen_choice(self) -> Iterable[Edit]:
        """Return the edits that no longer force the model to call one certain tool."""

    # Writing answers: implemented by dialects.

    @abstractmethod
    def writer(self, *, usage: str, form: Format | None = None) -> AnswerWriter:
        """Return a writer for the answer to this request. `usage`: `last` or `sum`."""

    @abstractmethod
    def own_answer(self, text: str) -> bytes:
        """Return a whole answer with this text."""

    @abstractmethod
    def _own_stream(self, text: str) -> bytes:
        """Return a streamed answer with this text."""

    # Shared by all.

    @abstractmethod
    def opening(self) -> list[bytes]:
        """Return the system prompt and the first user message, as texts."""

    def last_user_message(self, end: int | None = None) -> tuple[int, bytes]:
        """Return the position and the digest of the last message of a person before `end`."""
        for position in range((self.length if end is None else end) - 1, -1, -1):
            message = self._messages[position]
            if type(message) is dict and message.get("role") == "user" and self._begins_turn(position, message):
                behind_results = None if self._is_no_nudge(position) else self._nudges.digests.get(position)
                return position, behind_results or digest_of(texts(message.get("content")))
        return -1, b""

    def _said_from(self, begin: int) -> Messages:
        for position, message in enumerate(self._messages[begin:], begin):
            role = message.get("role") if type(message) is dict else None
            if role == "assistant":
                yield Speaker.MODEL, position, None
            elif role in self._speaking:
                if self._results(position, message, role):
                    yield Speaker.TOOL, position, None
                if role == "user" and self._is_real_user(position, message):
                    yield Speaker.USER, position, self._spoken(message)

    def _begins_turn(self, position: int, message: Payload) -> bool:
        """Whether a user message begins a timeline: a person wrote it, and it is not a nudge."""
        if not self._is_real_user(position, message):
            return False
        return self._is_no_nudge(position) or position not in self._nudges.added

    def _is_no_nudge(self, position: int) -> bool:
        """Whether a cheap check shows that a user message is not a nudge: no results are before it or in it."""
        before: Any = self._messages[position - 1] if position else None
        if type(before) is dict and before.get("role") in self._speaking:
            return False
        message: Payload = self._messages[position]
        return type(message.get("content")) is not list or not self._results(position, message, "user")

    def _spoken(self, message: Payload) -> Any:
        """Return the content of a user message, without results."""
        return message.get("content")

    def _shown_behind(self, position: int) -> Sequence[Any]:
        """Return the images in the user message after the result at `position`, if that message has no results."""
        behind: Any = self._messages[position + 1] if position + 1 < self.length else None
        if type(behind) is not dict or behind.get("role") != "user" or self._results(position + 1, behind, "user"):
            return ()
        return media_of(self._spoken(behind))

    def _is_seam(self, position: int) -> bool:
        """Whether an answer begins at a position, after a message that is not the model's."""
        if not 0 < position < self.length:
            return False
        before, message = self._messages[position - 1 : position + 1]
        is_answer = type(message) is dict and message.get("role") == "assistant"
        return is_answer and type(before) is dict and before.get("role") in self._speaking

    def _rounds_from(self, begin: int) -> Iterator[Round | None]:
        """Yield the rounds of the messages from a position on."""
        calls_of, results_of, begins_turn = self._calls, self._results, self._begins_turn
        speaking, joins_roles, by_id = self._speaking, self._joins_roles, self._names_calls_by_id
        results: list[KeyedResult] = []
        match: Match | None = None
        answered = False
        position = self.length
        for message in reversed(self._messages[begin:]):
            position -= 1
            if type(message) is not dict:
                continue
            role = message.get("role")
            if role == "assistant":
                if calls := calls_of(position, message):
                    if not by_id:
                        yield Round(self._pair(calls, results[::-1]), position)
                    elif len(results) < 2:  # as in most rounds
                        yield Round(pair(calls, results), position)
                    else:
                        match = match or _matcher(results[::-1])
                        yield Round(match(calls), position)
                if joins_roles:
                    answered = True  # an assistant message before this one may share these results
                else:
                    results, match = [], None
            elif role in speaking:
                match = None
                found = results_of(position, message, role)
                begins = role == "user" and begins_turn(position, message)
                if begins:
                    yield None
                if begins or answered:
                    results = found
                else:
                    results += found
                answered = False

    def _pair(self, calls: list[ToolCall], results: list[KeyedResult]) -> tuple[PastCall, ...]:
        """Return the calls with their results, matched by the dialect's keys."""
        names, ids = self._match(calls, [key for key, _ in results])
        return pair(calls, [(id_, result) for id_, (_, result) in zip(ids, results, strict=True)], names)

    def with_notes(self, notes: Sequence[Note]) -> bytes:
        """Return the body with texts appended to the results of these calls."""
        wanted = by_position(notes)
        found: dict[Path, tuple[Any, list[str]]] = {}
        for position, calls, places, matched in self._paired(wanted) if wanted else ():
            for at, text in note_places(wanted[position], calls, matched):
                found.setdefault(places[at].path, (places[at].content, []))[1].append(text)
        edits: list[Edit] = []
        for path, (content, added) in found.items():
            edits += append_text(path, content, "\n\n".join(added), text_part=self._text_type)
        return apply(self.body, edits)

    def name_results(self) -> list[Edit]:
        """Return the edits that name the tool at each result without a name; none if the format has no key for it."""
        edits: list[Edit] = []
        answers = range(self.length if self._name_keys else 0)
        for _, calls, places, matched in self._paired(answers) if answers else ():
            for call, at in zip(calls, matched, strict=True):
                if at is None or not call.name.strip():
                    continue
                place = places[at].message
                if not any(map(self._messages[place].get, self._name_keys)):
                    edits.append(Edit(("messages", place, self._name_keys[0]), dumps(call.name)))
        return edits

    def _paired(
        self, wanted: Container[int]
    ) -> Iterator[tuple[int, list[ToolCall], list[ResultPlace], list[int | None]]]:
        """Yield the answers at the `wanted` positions, as (position, calls, results, index of each call's result)."""
        for positions, places in self._results_behind(wanted):
            keys = [place.key for place in places]
            pairing = Pairing(keys) if self._names_calls_by_id else None
            for position in positions:
                calls = self._calls(position, self._messages[position])
                names, ids = self._match(calls, keys)
                yield position, calls, places, (pairing or Pairing(ids)).places(names or [call.id for call in calls])

    def _results_behind(self, wanted: Container[int]) -> list[tuple[list[int], list[ResultPlace]]]:
        """Return, for answers at the `wanted` positions, the results that follow, as (positions, results). Neighbouring
        answers that the vendor joins share results."""
        found: list[tuple[list[int], list[ResultPlace]]] = []
        positions: list[int] = []
        places: list[ResultPlace] = []
        answered = True
        for at, message in enumerate(self._messages):
            role = message.get("role") if type(message) is dict else None
            if role == "assistant":
                if answered or not self._joins_roles:
                    positions, places = [], []
                    found.append((positions, places))
                    answered = False
                if at in wanted:
                    positions.append(at)
            elif role in self._speaking:
                answered = True
                places += self._result_places(at, message, role)
                if role == "user" and self._begins_turn(at, message):
                    places = []
        return found

    def ask_again(self, attempts: Sequence[Attempt], options: AskOptions) -> bytes:
        """Return the body with each turn and the replies to its calls appended. Raises CannotReplay."""
        reader = options.model or self.model
        edits = [*(self._forbid_calls() if options.text_only else self._loosen_choice())]
        new: list[bytes] = []
        for attempt in attempts:
            turn, replies, model, said = attempt
            if said is not None:
                new += map(self._plain_message, ("assistant", "user"), attempt.spoken)
                continue
            own = model == options.model
            turn = turn if own else apply(turn, self._without_reasoning(loads(turn), (), reader))
            new.append(self._in_clients_hand(turn))
            new += self._reply_messages(turn, replies)
        edits.append(Edit(("messages", END), b",".join(new)))
        if options.model:
            if self._payload.get("model"):
                edits.append(Edit(("model",), dumps(options.model)))
            edits += self._without_reasoning_setting()
            for at, message in enumerate(self._messages):
                edits += self._without_reasoning(message, ("messages", at), reader)
        return apply(self.body, edits)

    def _plain_message(self, role: str, text: str) -> bytes:
        """Return a message that has only a text."""
        return dumps({"role": role, "content": text if self._text_type else [{"text": text}]})

    def synthetic_reply(self, text: str) -> OwnAnswer:
        """Return an answer of callfuse's own, whole or as a stream."""
        if self.stream:
            return OwnAnswer(self._stream_type, self._own_stream(text))
        return OwnAnswer(JSON, self.own_answer(text))

    def typed_message(self, at: int) -> TypedMessage | None:
        """Return what a person typed in a message; None if it is not a person's."""
        message = self._messages[at]
        if type(message) is not dict or message.get("role") != "user" or not self._is_real_user(at, message):
            return None
        images = bool(message.get("images"))
        return read_typed(("messages", at), message.get("content"), more=images, needs_answer=self._alternates)

    def has_result(self, at: int) -> bool:
        """Whether a message has the result of a tool."""
        message = self._messages[at]
        role = message.get("role") if type(message) is dict else None
        return role in self._speaking and bool(self._results(at, message, role))

    def speech(self, at: int) -> Utterance:
        """Return what the model says in a message."""
        message = self._messages[at]
        if type(message) is not dict or message.get("role") != "assistant":
            return NOTHING_SAID
        said = message.get("content") or message.get("refusal") or message.get("tool_plan")  # `tool_plan` is Cohere's
        return speech_of(said, calls=bool(self._calls(at, message)))

    def append_to_user(self, at: int, text: str) -> list[Edit]:
        """Return the edits that append a text to a user's message; none for other messages."""
        message = self._messages[at]
        is_user = type(message) is dict and message.get("role") == "user"
        content = message.get("content") if is_user else None
        path = ("messages", at, "content")
        return append_text(path, content, text, text_part=self._text_type) if type(content) in (str, list) else []

    def own_text(self, at: int) -> str | None:
        """Return callfuse's own text in an assistant message; None for other messages."""
        message = self._messages[at]
        if type(message) is not dict or message.get("role") != "assistant":
            return None
        calls = bool(message.get("tool_calls") or message.get("function_call"))
        return own_text(message.get("content") or message.get("refusal"), more=calls)


class ResultMessages(MessageList):
    """A request in which each result is a message of its own."""

    __slots__ = ()

    _speaking: ClassVar[tuple[str, ...]] = ("user", "tool")

    @abstractmethod
    def _key(self, message: Payload) -> Key:
        """Return the key by which a message with a result names its call."""

    def _results(self, position: int, message: Payload, role: Any) -> list[KeyedResult]:
        if role == "user":
            return []
        content, shown = message.get("content"), self._shown_behind(position)
        return [(self._key(message), (with_media(content, shown) if shown else content, None))]

    def _result_places(self, place: int, message: Payload, role: Any) -> Iterable[ResultPlace]:
        if role != "user":
            yield ResultPlace(place, ("messages", place, "content"), self._key(message), message.get("content"))

    def opening(self) -> list[bytes]:
        """Return the roles and texts of system and developer messages, up to and including the first user message."""
        found: list[bytes] = []
        for message in self._messages:
            role = message.get("role") if type(message) is dict else None
            if role in ("system", "developer", "user"):
                found.append(role.encode())
                found += texts(message.get("content"))
            if role == "user":
                break
        return found


class ResultBlocks(MessageList):
    """A request whose results are blocks of user messages, and whose system prompt has a key of its own."""

    __slots__ = ()

    _speaking = ("user",)
    _block_path: ClassVar[Path]
    """The path of a result's content within its block."""

    @staticmethod
    @abstractmethod
    def _read_result(block: Any) -> KeyedResult | None:
        """Return the result in a content block; None if it has none."""

    def _results(self, position: int, message: Payload, role: Any) -> list[KeyedResult]:
        content = message.get("content")
        if type(content) is not list:
            return []
        read = self._read_result
        if len(content) == 1:  # the usual case, without a copy
            return [result] if (result := read(content[0])) else []
        found = [result for block in reversed(content) if (result := read(block))]
        if found and len(found) < len(content) and (shown := media_of(self._spoken(message))):
            key, (said, is_error) = found[0]
            found[0] = key, (with_media(said, shown), is_error)
        return found

    def _result_places(self, place: int, message: Payload, role: Any) -> Iterable[ResultPlace]:
        content = message.get("content")
        for at, block in enumerate(content if type(content) is list else ()):
            if (found := self._read_result(block)) is not None:
                key, result = found
                yield ResultPlace(place, ("messages", place, "content", at, *self._block_path), key, result[0])

    def _is_real_user(self, position: int, message: Payload) -> bool:
        content = self._spoken(message)
        return content != [] and not is_own_or_reminder(content)

    def _spoken(self, message: Payload) -> Any:
        content = message.get("content")
        if type(content) is not list:
            return content
        return [block for block in content if self._read_result(block) is None]

    def opening(self) -> list[bytes]:
        """Return the system prompt and the first user message."""
        found = texts(self._payload.get("system"))
        for message in self._messages:
            if type(message) is dict and message.get("role") == "user":
                return found + texts(message.get("content"))
        return found


def _matcher(results: Sequence[KeyedResult]) -> Match:
    """Return a function that pairs an answer's calls with these results by id. Several answers may share it."""
    return partial(pair, results=results, pairing=Pairing([id_ for id_, _ in results]))


def has_messages(payload: Any) -> bool:
    """Whether a parsed body is an object with a list of messages."""
    return type(payload) is dict and type(payload.get("messages")) is list
