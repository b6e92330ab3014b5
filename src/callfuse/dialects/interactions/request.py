"""Requests of the Interactions API: reads rounds with their results, writes changed bodies that keep all other bytes.

The input is a text, a list of contents, or a list of steps. The steps of one answer begin after a result or a step of
the user's. In a chain (`previous_interaction_id`) results come without their calls; `recall` supplies these.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from functools import cache, partial
from typing import Any, Final

from callfuse.dialects.base import AskOptions, Attempt, Block, Continuation, Note, StoredAnswer
from callfuse.dialects.declared import DescribedTool, RequestWithTools, described, entries, name_of
from callfuse.dialects.edits import raw_elements, raw_list
from callfuse.dialects.history import (
    Pairing,
    append_text,
    by_position,
    digest_of,
    is_own_or_reminder,
    note_places,
    pair,
    texts,
)
from callfuse.dialects.interactions.answer import COMPLETED, splice_whole, thin_whole
from callfuse.dialects.interactions.steps import (
    CALL,
    OUTPUT,
    RESULT,
    THOUGHT,
    USER,
    answer_to,
    call_of,
    is_of,
    keyed_result_of,
    own_step,
    steps_of,
)
from callfuse.dialects.interactions.writer import InteractionsWriter, event
from callfuse.dialects.session_ids import INTERACTION
from callfuse.dialects.shapes import is_one_of, list_of, object_of
from callfuse.dialects.typed import EVENT_STREAM, JSON, OwnAnswer, Speech, TypedMessage, own_text, read_typed, speech_of
from callfuse.model import Round, ToolCall
from callfuse.wire import Payload
from callfuse.wire.jsontext import END, Edit, ExactValues, apply, dumps, loads

OWN_INTERACTION: Final = "callfuse_"
"""Prefix of the ids of callfuse's own interactions."""
_GOOGLES: Final = frozenset({
    "code_execution", "computer_use", "file_search", "google_maps", "google_search", "retrieval", "url_context",
})  # fmt: skip
"""Tools that Google runs, or whose calls have steps of their own."""
_CHOICE: Final = ("generation_config", "tool_choice")
_BEFORE_ALL: Final = {"type": USER}

Recall = Mapping[str, Callable[[], ToolCall]]
"""Calls by id, each made on demand."""


class InteractionsRequest(RequestWithTools):
    """One request: parsed body and its bytes. Also its own `ChainedRequest`."""

    __slots__ = (
        "_exact",
        "_known",
        "_known_turn",
        "_payload",
        "_steps",
        "begins_chain",
        "body",
        "length",
        "model",
        "probe",
        "stream",
        "structured",
    )

    choices: int = 1

    def __init__(self, body: bytes, payload: Payload) -> None:
        super().__init__()
        self.body = body
        self._payload = payload
        self._exact = ExactValues(body)
        self._steps = steps_of(payload["input"])
        self.length = len(self._steps)
        self.model = str(payload.get("model") or payload.get("agent") or "")
        self.stream = payload.get("stream") is True
        self.structured = bool(payload.get("response_format"))
        limit = self._config.get("max_output_tokens")
        self.probe = limit == 1 or not (payload.get("tools") or self.chained)
        models_turn = any(not is_of(step, USER) for step in self._steps)
        self.begins_chain = self.stored and not self.chained and not models_turn
        self._known: Recall = {}
        self._known_turn = b""

    @property
    def _config(self) -> Payload:
        return object_of(self._payload.get("generation_config"))

    @property
    def chain(self) -> "InteractionsRequest":
        """The request itself: Google stores interactions."""
        return self

    @property
    def stored(self) -> bool:
        """Whether the vendor stores the answer."""
        return self._payload.get("store") is not False

    @property
    def chained(self) -> bool:
        """Whether the request continues a stored interaction."""
        return bool(self._place)

    @property
    def _place(self) -> tuple[bytes, ...]:
        """The key and id of the stored interaction that the request continues; empty if it continues none."""
        place = self._payload.get(INTERACTION)
        return (
            (INTERACTION.encode(), place.encode("utf-8", "surrogatepass")) if isinstance(place, str) and place else ()
        )

    def opening(self) -> Iterator[bytes]:
        """The instruction and the first step of the user's; for a chain the id that it continues."""
        if self.chained:
            yield from self._place
            return
        yield from texts(self._payload.get("system_instruction"))
        for step in self._steps:
            if is_of(step, USER):
                yield from texts(step.get("content"))
                return

    def last_user_message(self, end: int | None = None) -> tuple[int, bytes]:
        """The position and the digest of the last step of a person before `end`. In a chain, earlier ones count."""
        for position in range((self.length if end is None else end) - 1, -1, -1):
            if _is_real_user(step := self._steps[position]):
                before = (self._known_turn, *self._place) if self.chained else ()
                return position, digest_of((*before, *texts(step.get("content"))))
        return -1, self._known_turn

    def rounds(self) -> Iterator[Round | None]:
        """The rounds with their results, newest first, with None for each step of a person."""
        for answer in self._answers():
            if answer is None:
                yield None
                continue
            position, calls, places = answer
            results = [keyed_result_of(self._steps[place]) for place in places]
            yield Round(pair(calls, results), position)

    def _answers(self) -> Iterator[tuple[int, list[ToolCall], list[int]] | None]:
        """The answers with calls, newest first, as (position, calls, indexes of results); None for a step of a
        person."""
        calls: list[ToolCall] = []
        results: list[int] = []
        begun = False
        listed = cache(self._listed_ids)
        position = self.length
        for step in (*reversed(self._steps), _BEFORE_ALL):
            position -= 1
            is_report = is_of(step, RESULT)
            if not (is_report or is_of(step, USER)):
                begun = True
                if is_of(step, CALL):
                    calls.append(call_of(step, partial(self._exact.read, "input", position, "arguments")))
                continue
            if begun or (results and not is_report):
                calls += self._missing_calls(results, listed)
                if calls:
                    yield position + 1, calls[::-1], results[::-1]
                calls, results, begun = [], [], False
            if is_report:
                results.append(position)
            elif _is_real_user(step):
                yield None

    def _missing_calls(self, results: Sequence[int], listed: Callable[[], Set[str]]) -> list[ToolCall]:
        """The calls of these results that are not in the input, as far as `recall` supplied them; newest first."""
        if not self._known:
            return []
        ids = [str(self._steps[place].get("call_id") or "") for place in results]
        return [self._known[id_]() for id_ in ids if id_ in self._known and id_ not in listed()]

    def _listed_ids(self) -> Set[str]:
        """The ids of the calls in the input."""
        return {str(step.get("id") or "") for step in self._steps if is_of(step, CALL)}

    @property
    def lists_tools(self) -> bool:
        """Whether all tools are in the request itself, and it lists them."""
        return not (self.chained or self._payload.get("agent")) and super().lists_tools

    def declares(self, name: str) -> bool:
        """Whether there may be a tool of this name: a stored interaction or an agent may have others."""
        return not self.lists_tools or super().declares(name)

    def _tool_names(self) -> Iterator[Any]:
        """The names of the functions; None for an entry that may bring any tool, e.g. an MCP server."""
        for tool in entries(self._payload.get("tools")):
            kind = tool.get("type") if isinstance(tool, dict) else None
            if kind == "function":
                yield name_of(tool)
            elif not is_one_of(kind, _GOOGLES):
                yield None

    def described_tools(self) -> Iterator[DescribedTool]:
        """The functions."""
        for at, tool in enumerate(list_of(self._payload.get("tools"))):
            if is_of(tool, "function"):
                yield from described(tool, ("tools", at))

    def name_results(self) -> list[Edit]:
        """The edits that name the function at each result without a name."""
        return [
            Edit(("input", places[at], "name"), dumps(call.name))
            for _, calls, places, matched in self._paired(range(self.length))
            for call, at in zip(calls, matched, strict=True)
            if at is not None and call.name.strip() and not self._steps[places[at]].get("name")
        ]

    def _paired(self, wanted: Container[int]) -> Iterator[tuple[int, list[ToolCall], list[int], Sequence[int | None]]]:
        """The answers at the `wanted` positions, as (position, calls, indexes of results, which of these is each
        call's)."""
        for answer in self._answers():
            if answer is not None and answer[0] in wanted:
                position, calls, places = answer
                ids = [str(self._steps[place].get("call_id") or "") for place in places]
                yield position, calls, places, Pairing(ids).places([call.id for call in calls])

    def with_notes(self, notes: Sequence[Note]) -> bytes:
        """The body with texts appended to the results of these calls."""
        wanted = by_position(notes)
        found: dict[int, list[str]] = {}
        for position, calls, places, matched in self._paired(wanted) if wanted else ():
            for at, text in note_places(wanted[position], calls, matched):
                found.setdefault(places[at], []).append(text)
        edits: list[Edit] = []
        for place, added in found.items():
            edits += append_text(("input", place, "result"), self._steps[place].get("result"), "\n\n".join(added),
                                 text_part="text")  # fmt: skip
        return apply(self.body, edits)

    def ask_again(self, attempts: Sequence[Attempt], options: AskOptions) -> bytes:
        """The body with each turn's steps and a result for each call appended. In a chain only the last results, to
        continue the interaction that the vendor has just stored."""
        edits = [self._choose("none")] if options.text_only else self._loosen_choice()
        if options.model and self._payload.get("model"):
            edits.append(Edit(("model",), dumps(options.model)))
        if self.chained:
            edits.append(Edit(("input",), raw_list(_results(attempts[-1]))))
            edits.append(Edit((INTERACTION,), dumps(str(loads(attempts[-1].turn).get("id") or ""))))
            return apply(self.body, edits)
        new = b",".join(raw for one in attempts for raw in (*_turn_steps(one, options), *_results(one)))
        if self._steps is not self._payload["input"]:
            return apply(self.body, [*edits, Edit(("input",), partial(_put_last, new))])
        edits.append(Edit(("input", END), new))
        if options.model:
            edits += [Edit(("input", at), None) for at, step in enumerate(self._steps) if is_of(step, THOUGHT)]
        return apply(self.body, edits)

    def _choose(self, choice: str) -> Edit:
        """The edit that sets the tool choice."""
        if isinstance(self._payload.get("generation_config"), dict):
            return Edit(_CHOICE, dumps(choice))
        return Edit(_CHOICE[:1], dumps({"tool_choice": choice}))

    def _loosen_choice(self) -> list[Edit]:
        """A choice of one tool becomes `auto`; `any` stays if there is another tool to call."""
        choice = self._config.get("tool_choice")
        if isinstance(choice, dict):
            allowed = object_of(choice.get("allowed_tools"))
            narrow = len(list_of(allowed.get("tools"))) < 2 and allowed.get("mode") == "any"
            return [Edit((*_CHOICE, "allowed_tools", "mode"), b'"auto"')] if narrow else []
        few = len(list_of(self._payload.get("tools"))) < 2
        return [Edit(_CHOICE, b'"auto"')] if choice == "any" and few else []

    def writer(self, *, usage: str) -> InteractionsWriter:
        """A writer for the stream that answers this request. `usage`: `last` or `sum`."""
        return InteractionsWriter(structured=self.structured, summed=usage == "sum", model=self.model)

    def own_answer(self, text: str) -> bytes:
        """An interaction with this text."""
        return dumps(self._own_head() | {"status": COMPLETED, "steps": [own_step(text)]})

    def _own_head(self) -> Payload:
        """An interaction of callfuse's own. In a chain it repeats the id of the one before it, so that the next request
        continues that one."""
        place = self._payload.get(INTERACTION) or OWN_INTERACTION + digest_of((self.body,)).hex()
        times = {"created": "1970-01-01T00:00:00Z", "updated": "1970-01-01T00:00:00Z"}
        return {"id": place, "object": "interaction", "model": self.model, **times}

    def synthetic_reply(self, text: str) -> OwnAnswer:
        """An interaction of callfuse's own, whole or as events."""
        if not self.stream:
            return OwnAnswer(JSON, self.own_answer(text))
        writer = self.writer(usage="last")
        created = {"event_type": "interaction.created", "interaction": self._own_head() | {"status": "in_progress"}}
        writer.note_sent(created)
        return OwnAnswer(EVENT_STREAM, event(created) + writer.close({0: Block(text)}))

    def after_synthetic_reply(self) -> tuple[bytes, ...]:
        """The opening of a request that continues `synthetic_reply`."""
        return self.after(str(self._own_head()["id"]))

    def detach_from_synthetic_reply(self) -> list[Edit]:
        """The edit that removes the id of an interaction of callfuse's own, which the vendor does not know."""
        own = str(self._payload.get(INTERACTION)).startswith(OWN_INTERACTION)
        return [Edit((INTERACTION,), None)] if own else []

    def typed_message(self, at: int) -> TypedMessage | None:
        """What a person typed in a step (or in an input that is no list of steps); None if it is not a person's."""
        step = self._steps[at]
        if not _is_real_user(step):
            return None
        if self._steps is not self._payload["input"]:
            return read_typed((), step.get("content"), key="input")
        return read_typed(("input", at), step.get("content"))

    def has_result(self, at: int) -> bool:
        """Whether a step is the result of a tool."""
        return is_of(self._steps[at], RESULT)

    def speech(self, at: int) -> Speech:
        """What the model says in a step, calls of Google's own tools included."""
        step = self._steps[at]
        if is_of(step, OUTPUT):
            return speech_of(step.get("content"))
        kind = str(step.get("type")) if isinstance(step, dict) else ""
        return Speech.CALLS if kind.endswith(("_call", "_result")) else Speech.NOTHING

    def own_text(self, at: int) -> str | None:
        """callfuse's own text in a step of the model's; None for steps of the user's."""
        step = self._steps[at]
        if is_of(step, USER):
            return None
        return own_text(step.get("content")) if is_of(step, OUTPUT) else ""

    def thin_whole(self, body: bytes, withheld: Sequence[tuple[int, int]], blocks: Mapping[int, Block]) -> bytes:
        """A whole answer without the withheld calls."""
        return thin_whole(body, withheld, blocks)

    def splice_whole(self, first: bytes, second: bytes, *, usage: str, foreign: bool) -> bytes:
        """Two whole answers as one. See `base.Request`."""
        return splice_whole(first, second, summed=usage == "sum", foreign=foreign, structured=self.structured)

    def after(self, answer_id: str) -> tuple[bytes, ...]:
        """The opening of a request that continues this answer."""
        may = answer_id and (self.chained or self.begins_chain)
        return (INTERACTION.encode(), answer_id.encode("utf-8", "surrogatepass")) if may else ()

    def recall(self, calls: Recall, turn: bytes) -> None:
        """Supply calls, by id, whose results may come without them; `turn`: see `base.ChainedRequest`."""
        self._known = calls
        if self.chained:
            self._known_turn = turn

    def resume(self, known: Continuation) -> bytes:
        """The body adapted to what the vendor stored: it continues the last interaction, with a result for each call
        that the client did not get."""
        edits: list[Edit] = []
        if known.go_on and self.chained:
            edits.append(Edit((INTERACTION,), dumps(known.go_on)))
        if known.unanswered:
            first = b",".join(known.unanswered)
            is_list = self._steps is self._payload["input"]
            edits.append(Edit(("input",), partial(_put_first if is_list else _put_before, first)))
        return apply(self.body, edits)

    def continuation(self, known: Continuation, answers: Sequence[StoredAnswer]) -> Continuation:
        """What later requests need: the answer to continue, and results for its withheld calls."""
        if not answers:
            return Continuation()
        last = answers[-1]
        unanswered = tuple(dumps(answer_to(reply.call, reply.text)) for reply in last.replies)
        return Continuation({}, last.id if last.id != answers[0].id else "", unanswered)

    def repair(self, body: bytes, error: bytes) -> bytes | None:
        """None: no words of the vendor's are known that name what is missing."""
        return None


def _turn_steps(attempt: Attempt, options: AskOptions) -> Iterable[bytes]:
    """The steps of a turn, without thoughts if another model is asked."""
    steps = raw_elements(attempt.turn, ("steps",))
    return steps if attempt.model == options.model else [raw for raw in steps if not is_of(loads(raw), THOUGHT)]


def _results(attempt: Attempt) -> list[bytes]:
    """A result for each call of a turn."""
    return [dumps(answer_to(reply.call, reply.text)) for reply in attempt.replies]


def _user_step(content: bytes) -> bytes:
    return b'{"type":"user_input","content":' + content + b"}"


def _put_last(steps: bytes, spoken: bytes) -> bytes:
    """An input that is no list of steps, as one, with steps appended."""
    return raw_list((_user_step(spoken), steps))


def _put_before(steps: bytes, spoken: bytes) -> bytes:
    """An input that is no list of steps, as one, with steps put first."""
    return raw_list((steps, _user_step(spoken)))


def _put_first(steps: bytes, spoken: bytes) -> bytes:
    """A list of steps with others put first."""
    return b"[" + steps + (b"," + spoken[1:] if spoken[1:-1].strip() else b"]")


def _is_real_user(step: Any) -> bool:
    """Whether a step is a person's: not callfuse's, and not a harness's reminder."""
    return is_of(step, USER) and not is_own_or_reminder(step.get("content"))
