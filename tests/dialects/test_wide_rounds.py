"""Rounds of many parallel calls cost in proportion to their calls, which is counted."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from callfuse.conversations.ledger import LaneState
from callfuse.conversations.notes import note_keys, notes_for
from callfuse.conversations.timeline import Conversation, read_conversation
from callfuse.dialects.base import Entry, Frame, Note, OpenCall, Request
from callfuse.dialects.codec import codec_of
from callfuse.dialects.continued import Nudges
from callfuse.dialects.nudges import Messages, find_nudges
from callfuse.policy.settings import LoopSettings
from callfuse.wire import jsontext
from callfuse.wire.jsontext import loads
from tests.conversations.test_nudges import NUDGES, UNKNOWN
from tests.dialects.reading import FORMATS, dialect_of, form_of, read
from tests.support.kits import KITS, DialectKit
from tests.support.model import Answer, Call, History, Round, User
from tests.support.work import lines_run

pytestmark = pytest.mark.slow

WARN = LoopSettings.model_validate({"mode": "warn"})
FEW, MANY = 60, 240
"""Calls of one round; in proportion, MANY cost four times as much as FEW, and sixteen times if the cost is squared."""
MOST = 5.5
WIDE = 123456789012345678901234567890
each_kit = pytest.mark.parametrize("kit", KITS, ids=lambda kit: f"{kit.name}-{type(kit).__name__}")


def wide(calls: int, *, rounds: int = 3, arguments: str = '{"q": %d}') -> History:
    """The same round of parallel calls, several times, answered alike."""
    made = [
        Round(
            tuple(Call(f"c{at}_{place}", "search", (arguments % place,)) for place in range(calls)),
            ("nothing",) * calls,
        )
        for at in range(rounds)
    ]
    return History((User("Go."), *made))


def read_as(name: str, payload: dict[str, Any], target: str = "") -> Request:
    """A request as the dialect of this name reads it."""
    body = json.dumps(payload).encode()
    request = dialect_of(name).read_request(body, loads(body), target)
    assert request is not None
    return request


def conversation(request: Request) -> Conversation:
    """The conversation of a request that no ledger knows."""
    return read_conversation(request, LaneState(), 0.0, WARN)


def warned(request: Request) -> int:
    """Add the warnings of a request; returns their number."""
    return request.with_notes(notes_for(conversation(request))).count(b"[callfuse]")


def assert_linear(work: Callable[[int], object]) -> None:
    """Four times the calls are about four times the work."""
    few, many = lines_run(lambda: work(FEW)), lines_run(lambda: work(MANY))
    assert many < MOST * few, f"{many / few:.1f} times the work for {MANY / FEW:.0f} times the calls"


@each_kit
def test_warnings_in_wide_rounds(kit: DialectKit) -> None:
    """Each call of the third round has a warning in its own result."""
    assert_linear(lambda calls: warned(read(kit, kit.request(wide(calls), stream=True))))
    assert warned(read(kit, kit.request(wide(FEW), stream=True))) == FEW


def typed(at: int) -> str:
    """What a person says, in other words each time: what differs in a number only is a harness's."""
    return f"Go on with {str(at).translate(str.maketrans('0123456789', 'abcdefghij'))}."


def long(rounds: int, *, arguments: str = "{}") -> History:
    """A history of so many rounds; a person says something after every fourth."""
    made: list[User | Round] = []
    for at in range(rounds):
        if at % 4 == 0:
            made.append(User(typed(at)))
        made.append(Round((Call(f"c{at}", "search", (arguments.replace("%d", str(at)),)),), ("nothing",)))
    return History(tuple(made))


@each_kit
@pytest.mark.parametrize("mode", ["warn", "chance_then_block"])
@pytest.mark.parametrize("arguments", ["{}", '{"q": %d}'])
def test_warnings_in_long_histories(kit: DialectKit, arguments: str, mode: str) -> None:
    """Each message of a person begins a timeline of its own, which does not look at all messages again."""
    settings = LoopSettings.model_validate({"mode": mode})

    def noted(rounds: int) -> None:
        request = read(kit, kit.request(long(rounds, arguments=arguments), stream=True))
        request.with_notes(notes_for(read_conversation(request, LaneState(), 0.0, settings)))

    assert_linear(noted)


def nudged(rounds: int, says: Callable[[int], str]) -> History:
    """A history of so many rounds, behind each of which a harness says something."""
    made: list[User | Round] = [User("Go.")]
    for at in range(rounds):
        made += [Round((Call(f"c{at}", "search", (f'{{"q": {at}}}',)),), (f"entry {at}",)), User(says(at))]
    return History(tuple(made))


@each_kit
@pytest.mark.parametrize("nudge", [*NUDGES, *UNKNOWN, "a person's words"])
def test_nudges_in_long_histories(kit: DialectKit, nudge: str) -> None:
    """Each is looked at once, whatever is asked of the history."""
    says = {**NUDGES, **UNKNOWN, "a person's words": typed}[nudge]

    def noted(rounds: int) -> None:
        request = read(kit, kit.request(nudged(rounds, says), stream=True))
        request.with_notes(notes_for(conversation(request)))

    assert_linear(noted)


@each_kit
def test_nudges_are_looked_for_once(kit: DialectKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often a request is asked for its rounds and for what was said last."""
    found: list[Nudges] = []

    def note(messages: Messages, known: Nudges) -> Nudges:
        found.append(find_nudges(messages, known))
        return found[-1]

    monkeypatch.setattr("callfuse.dialects.history.find_nudges", note)
    request = read(kit, kit.request(nudged(9, UNKNOWN["a sentence"]), stream=True))
    for _ in range(3):
        assert len([one for one in request.rounds() if one]) == 9
        request.last_user_message()
    assert len(found) == 1


def test_tools_are_read_once() -> None:
    """However many lists of tools there are, and however many calls of tools that are in none of them."""

    def noted(rounds: int) -> None:
        items: list[Any] = []
        for at in range(rounds):
            tools = [{"type": "function", "name": f"other{at}"}]
            call = {"type": "function_call", "call_id": f"c{at}", "name": f"missing{at}", "arguments": "{}"}
            items += [{"role": "user", "content": typed(at)}, {"type": "additional_tools", "tools": tools}]
            items += [call, {"type": "function_call_output", "call_id": f"c{at}", "output": ""}]
        warned(read_as("openai-responses", {"model": "m", "input": items}))

    assert_linear(noted)


def neighbours(calls: int, *, ids: bool = True) -> Request:
    """Rounds of Anthropic in which each call is a message of its own: the vendor joins neighbours of one role."""
    messages: list[Any] = [{"role": "user", "content": "Go."}]
    for at in range(3):
        made = [f"c{at}_{one}" if ids else "" for one in range(calls)]
        messages += [
            {"role": "assistant", "content": [{"type": "tool_use", "id": id_, "name": "search", "input": {"q": one}}]}
            for one, id_ in enumerate(made)
        ]
        results = [{"type": "tool_result", "tool_use_id": id_, "content": f"came {id_}"} for id_ in made]
        messages.append({"role": "user", "content": results})
    return read_as("anthropic", {"model": "m", "max_tokens": 9, "tools": [{"name": "search"}], "messages": messages})


def test_neighbours_share_their_results() -> None:
    """Each of n neighbouring messages finds its result among n, without looking at all of them."""
    rounds = [one for one in neighbours(FEW).rounds() if one]
    assert [past.result for round_ in rounds for past in round_.calls if past.result] == [
        (f"came {past.id}", None) for round_ in rounds for past in round_.calls
    ]
    assert_linear(lambda calls: list(neighbours(calls).rounds()))


def test_notes_on_neighbours() -> None:
    """A note on each of n neighbouring messages stands in its own result."""

    def noted(calls: int) -> bytes:
        request = neighbours(calls)
        notes = [
            Note(round_.position, past.call, f"Note on {past.id}.")
            for round_ in request.rounds()
            if round_
            for past in round_.calls
        ]
        return request.with_notes(notes)

    messages = json.loads(noted(FEW))["messages"]
    for block in (one for message in messages if message["role"] == "user" for one in message["content"]):
        if isinstance(block, dict):
            assert block["content"] == f"came {block['tool_use_id']}\n\nNote on {block['tool_use_id']}."
    assert_linear(noted)


def test_gemini_joins_contents() -> None:
    """A content of its own for each call of an answer, as google-genai's chats keep them."""

    def asked(calls: int) -> Request:
        made = [{"functionCall": {"id": f"c{one}", "name": "search", "args": {"q": one}}} for one in range(calls)]
        came = [{"functionResponse": {"id": f"c{one}", "name": "search", "response": {}}} for one in range(calls)]
        contents = [{"role": "model", "parts": [part]} for part in made] + [{"role": "user", "parts": came}]
        return read_as("gemini", {"contents": contents, "tools": [{}]}, "/models/m:generateContent")

    (round_,) = (one for one in asked(FEW).rounds() if one)
    assert [past.id for past in round_.calls] == [f"c{one}" for one in range(FEW)]
    assert all(past.result for past in round_.calls)
    assert_linear(lambda calls: list(asked(calls).rounds()))


def test_results_of_a_chain() -> None:
    """Results of calls that only the ledger has, among other answers in the same input."""

    def asked(answers: int) -> list[Any]:
        items: list[Any] = []
        for at in range(answers):
            call = {"type": "function_call", "call_id": f"c{at}", "name": "search", "arguments": "{}"}
            items += [call, {"type": "function_call_output", "call_id": f"c{at}", "output": ""}]
            items += [{"type": "function_call_output", "call_id": f"known{at}", "output": ""}]
        request = read_as("openai-responses", {"model": "m", "input": items, "previous_response_id": "resp_1"})
        chain = request.chain
        assert chain is not None
        call_of = {round_.calls[0].id: round_.calls[0].call for round_ in request.rounds() if round_}
        chain.recall({f"known{at}": call_of[f"c{at}"] for at in range(answers)}.get, b"")
        return [round_ for round_ in request.rounds() if round_]

    assert [len(round_.calls) for round_ in asked(FEW)] == [2] * FEW
    assert_linear(asked)


@each_kit
def test_wide_integers_in_wide_rounds(kit: DialectKit) -> None:
    """Arguments whose integers the fast parser rounds are read again one by one, not the body for each."""

    def signatures(calls: int) -> set[bytes]:
        arguments = f'{{"{type(kit).__name__} {calls}": {WIDE}%d}}'  # of its own, as signatures are cached
        request = read(kit, kit.request(wide(calls, rounds=1, arguments=arguments), stream=True))
        return {past.signature for round_ in request.rounds() if round_ for past in round_.calls}

    assert_linear(signatures)
    assert len(signatures(FEW)) == FEW


def test_a_body_is_parsed_once_for_all_wide_integers(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many calls have them: together the parser reads no more than the arguments."""
    read_exactly: list[int] = []
    whole = jsontext.loads_exact

    def counted(text: bytes | str) -> Any:
        read_exactly.append(len(text))
        return whole(text)

    monkeypatch.setattr(jsontext, "loads_exact", counted)
    for kit in KITS:
        read_exactly.clear()
        body = kit.request(wide(FEW, rounds=1, arguments=f'{{"q": {WIDE}%d}}'), stream=True)
        found = [past.signature for round_ in read(kit, body).rounds() if round_ for past in round_.calls]
        assert len(found) == FEW
        assert sum(read_exactly) < len(body)


def calls_of(count: int) -> Answer:
    """An answer with so many parallel calls, whole ones."""
    return Answer((tuple(Call(f"n{at}", "search", (f'{{"q": {at}}}',)) for at in range(count)),))


@each_kit
def test_thinning_a_wide_answer(kit: DialectKit) -> None:
    """Every second of many parallel calls is taken out of a stream."""

    def thinned(calls: int) -> bytes:
        frames, withheld, writer = opened(kit, calls)
        out: bytes = writer.thin(frames, set(withheld), {})
        return out

    out = thinned(FEW)
    assert [call.id for call in kit.read(out, stream=True)[0].calls] == [f"n{at}" for at in range(1, FEW, 2)]
    assert_linear(thinned)


def opened(kit: DialectKit, calls: int) -> tuple[list[Frame], Sequence[OpenCall], Any]:
    """The frames of an answer with so many calls, every second call, and a writer."""
    request = read(kit, kit.request(wide(1), stream=True))
    dialect = dialect_of(kit.name)
    form = FORMATS[form_of(kit)]
    codec = codec_of(dialect, form)
    reader = codec.reader(trace=True)
    frames = []
    for one in kit.frames(calls_of(calls)):
        payload = form.payload(one.raw)
        entries: tuple[Entry, ...] = ()
        if payload is not None:
            reader.read(payload)
            entries = tuple(reader.entries)
        frames.append(Frame(one.raw, payload, entries))
    return frames, reader.calls[::2], codec.writer(request, usage="last")


def test_notes_that_the_ledger_has() -> None:
    """The keys of n notes on n equal calls, and their places in the history."""

    def keyed(calls: int) -> list[Any]:
        kit = KITS[0]
        equal = [Call(f"c{at}", "search", ('{"q": 1}',)) for at in range(calls)]
        request = read(kit, kit.request(History((User("Go."), Round(tuple(equal), ("",) * calls))), stream=True))
        told = conversation(request)
        found = [past.call for round_ in told.timelines[0] for past in round_.calls]
        return note_keys(told, [(call, "A note.") for call in found])

    assert [before for (_, _, before), _ in keyed(FEW)] == [1] * FEW
    assert_linear(keyed)
