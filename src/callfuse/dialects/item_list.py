"""Base class for requests whose history is a list of items in `input`: the Responses API, Gemini's Interactions API.

The input may also be a text. The items of one answer begin after a result, or after an item that the model did not
write. The vendor stores answers: a request may continue one by its id (a chain), and then results come without their
calls; `recall` supplies these.
"""

from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Iterator, Sequence, Set
from enum import Enum, auto
from functools import cache, partial
from typing import Any, ClassVar, Self

from callfuse.dialects.ask_again import AskOptions, Attempt, Reply
from callfuse.dialects.base import Note
from callfuse.dialects.edits import raw_list
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
from callfuse.dialects.stateful import Recall
from callfuse.dialects.typed import TypedMessage, read_typed
from callfuse.model import Result, Round, ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import END, Edit, apply, dumps, loads


class Part(Enum):
    """The role of an item in a conversation."""

    CALL = auto()
    """A call for the client."""
    MODEL = auto()
    """Anything else by the model, or by tools that the vendor runs."""
    RESULT = auto()
    """A result that the client sends."""
    SPOKEN = auto()
    """A message of a user, a system or a developer."""


class ItemList(RequestWithHistory):
    """A request with an `input`: the parsed body and its bytes. The request is also its own `ChainedRequest`."""

    __slots__ = (
        "_items",
        "_known",
        "_known_turn",
        "_payload",
        "_place",
        "body",
        "length",
        "model",
        "probe",
        "stream",
        "structured",
    )

    choices: int = 1

    _chain_key: ClassVar[str]
    """The key that contains the id of the stored answer which a request continues."""
    _own_prefix: ClassVar[str]
    """The prefix of the ids of callfuse's own answers."""
    _text_type: ClassVar[str]
    """The type of text parts in a user's item."""

    def __init__(self, body: bytes, payload: Payload, items: list[Any]) -> None:
        super().__init__()
        self.body = body
        self._payload = payload
        self._items = items
        self.length = len(items)
        self.model = str(payload.get("model") or "")
        self.stream = payload.get("stream") is True
        self.structured = False
        self._place = self._find_place()
        self.probe = not (payload.get("tools") or self.chained)  # a stored conversation may have tools
        self._known: Recall | None = None
        self._known_turn = b""

    # Reading items: implemented by dialects.

    @abstractmethod
    def _part(self, item: Any) -> Part:
        """Return the role of an item in the conversation."""

    @abstractmethod
    def _id(self, item: Payload) -> str:
        """Return the id that a call and its result share."""

    @abstractmethod
    def _call(self, position: int, item: Payload) -> ToolCall:
        """Return the call in an item."""

    @abstractmethod
    def _keyed_result(self, item: Payload) -> tuple[str, Result]:
        """Return the call's id and the result in an item."""

    @abstractmethod
    def _is_user(self, item: Any) -> bool:
        """Whether an item is a user's."""

    def _is_real_user(self, item: Any) -> bool:
        """Whether a person wrote an item, rather than callfuse or a harness."""
        return self._is_user(item) and not is_own_or_reminder(item.get("content"))

    # Asking again: implemented by dialects.

    @abstractmethod
    def _append_text(self, place: int, text: str) -> Iterable[Edit]:
        """Return the edits that append a text to the result at `place`; none if the result cannot have a text."""

    @abstractmethod
    def _user_item(self, content: bytes) -> bytes:
        """Return a user's item with this content (JSON text), equivalent to an input that is not a list of items."""

    @abstractmethod
    def _said_item(self, text: str) -> Payload:
        """Return an item in which the model says a text."""

    @abstractmethod
    def _turn_items(self, attempt: Attempt, options: AskOptions) -> Iterable[bytes]:
        """Return the items of a turn in a form that the asked model accepts. Raises CannotReplay."""

    @abstractmethod
    def _reply_item(self, reply: Reply) -> Payload:
        """Return the result with the reply to a call."""

    @abstractmethod
    def _without_reasoning(self) -> Iterable[Edit]:
        """Return the edits that prepare the items for another model."""

    @abstractmethod
    def _forbid_calls(self) -> Edit:
        """Return the edit that forbids all tools."""

    @abstractmethod
    def _loosen_choice(self) -> list[Edit]:
        """Return the edits that no longer force the model to call one certain tool."""

    # Chains.

    def _find_place(self) -> tuple[bytes, ...]:
        """Return the key and id of the stored answer that the request continues; empty if it continues none."""
        return opening_of(self._chain_key, self._payload.get(self._chain_key))

    @property
    def chain(self) -> Self:
        """The request itself: the vendor stores answers."""
        return self

    @property
    def stored(self) -> bool:
        """Whether the vendor stores the answer."""
        return self._payload.get("store") is not False

    @property
    def chained(self) -> bool:
        """Whether the request continues a stored answer."""
        return bool(self._place)

    @property
    def begins_chain(self) -> bool:
        """Whether the vendor may store the answer, and the request continues no earlier answer."""
        return self.stored and not self.chained and all(self._part(item) is Part.SPOKEN for item in self._items)

    def after(self, answer_id: str) -> tuple[bytes, ...]:
        """Return the opening of a request that continues this answer."""
        return opening_of(self._chain_key, answer_id) if self.chained or self.begins_chain else ()

    def recall(self, calls: Recall, turn: bytes) -> None:
        """Supply calls, by id, whose results may come without them; `turn`: see `ChainedRequest`."""
        self._known = calls
        if self.chained:
            self._known_turn = turn

    def _own_answer_id(self) -> str:
        """Return the id for an answer by callfuse. In a chain this is the id of the answer before it, so that the next
        request continues that answer."""
        return self._payload.get(self._chain_key) or self._own_prefix + digest_of((self.body,)).hex()

    def after_synthetic_reply(self) -> tuple[bytes, ...]:
        """Return the opening of a request that continues `synthetic_reply`."""
        return self.after(self._own_answer_id())

    def detach_from_synthetic_reply(self) -> list[Edit]:
        """Return the edit that removes the id of an answer of callfuse's own, which the vendor does not know."""
        is_own = str(self._payload.get(self._chain_key)).startswith(self._own_prefix)
        return [Edit((self._chain_key,), None)] if is_own else []

    # Shared by all.

    def last_user_message(self, end: int | None = None) -> tuple[int, bytes]:
        """Return the position and digest of the last item of a person before `end`; a chain counts earlier ones."""
        for position in range((self.length if end is None else end) - 1, -1, -1):
            if self._begins_turn(position):
                before = (self._known_turn, *self._place) if self.chained else ()
                behind_results = None if self._is_no_nudge(position) else self._nudges.digests.get(position)
                return position, behind_results or digest_of((*before, *texts(self._items[position].get("content"))))
        return -1, self._known_turn

    def _is_seam(self, position: int) -> bool:
        if self.chained or not 0 < position < self.length:  # the messages before are not in the request
            return False
        return self._is_models(position) and not self._is_models(position - 1)

    def _is_models(self, position: int) -> bool:
        return self._part(self._items[position]) in (Part.CALL, Part.MODEL)

    def _said_from(self, begin: int) -> Messages:
        for position, item in enumerate(self._items[begin:], begin):
            part = self._part(item)
            if part is Part.RESULT:
                yield Speaker.TOOL, position, None
            elif part is not Part.SPOKEN:
                yield Speaker.MODEL, position, None
            elif self._is_real_user(item):
                yield Speaker.USER, position, item.get("content")

    def _begins_turn(self, position: int) -> bool:
        """Whether an item begins a timeline: a person wrote it, and it is not a nudge. In a chain, an item after
        results that repeats the last user message counts as a nudge."""
        if not self._is_real_user(self._items[position]):
            return False
        if self._is_no_nudge(position):
            return True
        found = self._nudges
        is_said_again = self.chained and found.digests.get(position) == self._known_turn
        return not (is_said_again or position in found.added)

    def _is_no_nudge(self, position: int) -> bool:
        """Whether a cheap check shows that a user's item is not a nudge: no result comes before it."""
        return not position or self._is_models(position - 1)

    def _rounds_from(self, begin: int) -> Iterator[Round | None]:
        for answer in self._answers(begin):
            if answer is None:
                yield None
                continue
            position, calls, places = answer
            results = [self._keyed_result(self._items[place]) for place in places]
            if places and (shown := self._shown_behind(places[-1])):
                id_, (content, is_error) = results[-1]
                results[-1] = id_, Result(with_media(content, shown), is_error)
            yield Round(pair(calls, results), position)

    def _shown_behind(self, place: int) -> Sequence[Any]:
        """Return the media in the user's item that follows the last result of an answer."""
        behind = self._items[place + 1 : place + 2]
        return media_of(behind[0].get("content")) if behind and self._is_real_user(behind[0]) else ()

    def _answers(self, begin: int = 0) -> Iterator[tuple[int, list[ToolCall], list[int]] | None]:
        """Yield the answers with calls from a position on, newest first, as (position, calls, indexes of results), with
        None for each item of a person."""
        calls: list[ToolCall] = []
        results: list[int] = []
        begun = False
        listed = cache(self._listed_ids)
        part_of, call_of = self._part, self._call
        for position in range(self.length - 1, begin - 2, -1):
            item: Any = self._items[position] if position >= begin else None
            part = part_of(item) if position >= begin else Part.SPOKEN  # anything before `begin` ends the answer
            if part is Part.CALL:
                begun = True
                calls.append(call_of(position, item))
                continue
            if part is Part.MODEL:
                begun = True
                continue
            if begun or (results and part is Part.SPOKEN):
                calls += self._missing_calls(results, calls, listed)
                if calls:
                    yield position + 1, calls[::-1], results[::-1]
                calls, results, begun = [], [], False
            if part is Part.RESULT:
                results.append(position)
            elif position >= begin and self._begins_turn(position):
                yield None

    def _missing_calls(
        self, results: Sequence[int], own: Sequence[ToolCall], listed: Callable[[], Set[str]]
    ) -> list[ToolCall]:
        """Return the calls of these results that are missing in the input, if `recall` supplied them; newest first.
        `own`: the calls of the answer before the results."""
        own_ids = {call.id for call in own}
        ids = [id_ for place in results if (id_ := self._id(self._items[place])) not in own_ids]
        if not ids:  # so for most answers
            return []
        if self._history is not None:
            self._history.is_kept = False
        if (recall := self._known) is None:
            return []
        return [call for id_ in ids if (call := recall(id_)) is not None and id_ not in listed()]

    def _listed_ids(self) -> Set[str]:
        """Return the ids of the calls in the input."""
        return {self._id(item) for item in self._items if self._part(item) is Part.CALL}

    def _paired(self, wanted: Container[int]) -> Iterator[tuple[int, list[ToolCall], list[int], Sequence[int | None]]]:
        """Yield the answers at the `wanted` positions, as (position, calls, indexes of results, and for each call which
        of these results it has)."""
        for answer in self._answers():
            if answer is not None and answer[0] in wanted:
                position, calls, places = answer
                pairing = Pairing([self._id(self._items[place]) for place in places])
                yield position, calls, places, pairing.places([call.id for call in calls])

    def with_notes(self, notes: Sequence[Note]) -> bytes:
        """Return the body with texts appended to the results of these calls."""
        wanted = by_position(notes)
        found: dict[int, list[str]] = {}
        for position, calls, places, matched in self._paired(wanted) if wanted else ():
            for at, text in note_places(wanted[position], calls, matched):
                found.setdefault(places[at], []).append(text)
        edits = [edit for place, added in found.items() for edit in self._append_text(place, "\n\n".join(added))]
        return apply(self.body, edits)

    def ask_again(self, attempts: Sequence[Attempt], options: AskOptions) -> bytes:
        """Return the body with each turn's items and a result for each call appended. In a chain, send only the last
        results, to continue the answer that the vendor has just stored. Raises CannotReplay."""
        edits = [self._forbid_calls()] if options.text_only else self._loosen_choice()
        if options.model and self._payload.get("model"):
            edits.append(Edit(("model",), dumps(options.model)))
        if self.chained:
            edits.append(Edit(("input",), raw_list(self._replies(attempts[-1]))))
            if self._chain_key in self._payload:
                edits.append(Edit((self._chain_key,), dumps(str(loads(attempts[-1].turn).get("id") or ""))))
            return apply(self.body, edits)
        new = b",".join(raw for one in attempts for raw in self._items_of(one, options))
        if not self._is_listed:
            return apply(self.body, [*edits, Edit(("input",), partial(self._put_last, new))])
        edits.append(Edit(("input", END), new))
        return apply(self.body, [*edits, *(self._without_reasoning() if options.model else ())])

    def _items_of(self, attempt: Attempt, options: AskOptions) -> Iterable[bytes]:
        """Return the items of a turn, and the replies to it."""
        if attempt.said is None:
            return (*self._turn_items(attempt, options), *self._replies(attempt))
        said, reply = attempt.spoken
        return (dumps(self._said_item(said)), self._user_item(dumps(reply)))

    @property
    def _is_listed(self) -> bool:
        """Whether the input is a list of items; otherwise it is the content of a single user's item."""
        return self._items is self._payload["input"]

    def _replies(self, attempt: Attempt) -> list[bytes]:
        """Return a result for each call of a turn."""
        return [dumps(self._reply_item(reply)) for reply in attempt.replies]

    def _put_last(self, items: bytes, spoken: bytes) -> bytes:
        """Turn an input that is not a list of items into a list, with items appended."""
        return raw_list((self._user_item(spoken), items))

    def append_to_user(self, at: int, text: str) -> list[Edit]:
        """Return the edits that append a text to a user's item, or to an input that is not a list; else none."""
        item = self._items[at]
        content = item.get("content") if self._is_user(item) else None
        path = ("input", at, "content") if self._is_listed else ("input",)
        return append_text(path, content, text, text_part=self._text_type) if type(content) in (str, list) else []

    def typed_message(self, at: int) -> TypedMessage | None:
        """Return what a person typed in an item (or in an input that is not a list); None if no person wrote it."""
        item = self._items[at]
        if not self._is_real_user(item):
            return None
        if not self._is_listed:
            return read_typed((), item.get("content"), key="input")
        return read_typed(("input", at), item.get("content"))


def opening_of(key: str, id_: Any) -> tuple[bytes, ...]:
    """Return a key and an id as the opening of a conversation; empty without an id."""
    return (key.encode(), id_.encode("utf-8", "surrogatepass")) if isinstance(id_, str) and id_ else ()
