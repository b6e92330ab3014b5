"""Gemini's answers: calls whole, in pieces, without ids, cut, and those that are none; and the turn that goes back."""

import json
from typing import Any

import pytest

from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.base import What
from callfuse.dialects.gemini.answer import GeminiReader, model_turn, model_turn_of_whole, read_whole
from callfuse.dialects.gemini.parts import UnknownPieceError, join_pieces, remove_thoughts, thoughts
from callfuse.dialects.thought_signatures import STAND_IN
from callfuse.wire.jsontext import apply, dumps, loads


def chunk(*parts: dict[str, Any], finish: Any = None, index: int | None = 0) -> dict[str, Any]:
    """One chunk with one candidate."""
    candidate: dict[str, Any] = {"content": {"role": "model", "parts": list(parts)}}
    candidate |= {"finishReason": finish} if finish is not None else {}
    candidate |= {"index": index} if index is not None else {}
    return {"candidates": [candidate]}


def call(**fields: Any) -> dict[str, Any]:
    """A part with a call, or a piece of one."""
    return {"functionCall": fields}


def piece(path: str, goes_on: bool = False, **value: Any) -> dict[str, Any]:
    """A piece of arguments."""
    return {"jsonPath": path, **value, **({"willContinue": True} if goes_on else {})}


def told(*chunks: dict[str, Any]) -> tuple[list[What], list[tuple[int, str, str, str, bool]]]:
    """What a stream says, and its calls."""
    reader = GeminiReader(trace=True)
    events = [event.what for one in chunks for event in reader.read(one)]
    return events, [(one.choice, one.id, one.name, one.complete().text, one.closed) for one in reader.calls]


OPENED, CLOSED, FINISHED, CUT = What.OPENED, What.CLOSED, What.FINISHED, What.CUT


@pytest.mark.parametrize(
    ("fields", "arguments"),
    [
        ({"args": {"b": 3, "a": [1.5, None, "é"]}}, '{"b":3,"a":[1.5,null,"é"]}'),
        ({"args": {}}, "{}"),
        ({"args": None}, ""),
        ({}, ""),
        ({"partialArgs": [piece("$.q", stringValue="x")]}, '{"q":"x"}'),
    ],
)
def test_a_whole_call(fields: dict[str, Any], arguments: str) -> None:
    """Its arguments as text, in the order of the wire; no arguments are empty text."""
    events, calls = told(chunk(call(name="f", id="a1", **fields), finish="STOP"))
    assert events == [OPENED, CLOSED, FINISHED]
    assert calls == [(0, "a1", "f", arguments, True)]


def test_several_calls_in_one_chunk_without_ids() -> None:
    """Order and name are all there is."""
    events, calls = told(chunk(call(name="f", args={}), {"text": "and"}, call(name="f", args={"x": 1}), finish=1))
    assert events == [OPENED, CLOSED, OPENED, CLOSED, FINISHED]
    assert [one[1:4] for one in calls] == [("", "f", "{}"), ("", "f", '{"x":1}')]


PIECES = [
    chunk(call(name="f", willContinue=True)),
    chunk(call(partialArgs=[piece("$.items[0].name", stringValue="ap", goes_on=True)], willContinue=True)),
    chunk({"text": "meanwhile"}),
    chunk(
        call(partialArgs=[piece("$.items[0].name", stringValue="ple"), piece("$.n", numberValue=2)], willContinue=True)
    ),
]
WHOLE = '{"items":[{"name":"apple"}],"n":2}'


@pytest.mark.parametrize(
    ("ending", "events"),
    [
        ([chunk(call()), chunk(finish="STOP")], [CLOSED, FINISHED]),
        ([chunk(call(), finish="STOP")], [CLOSED, FINISHED]),
        ([chunk(call(partialArgs=[])), chunk(call())], [CLOSED]),
        ([chunk({"text": ""}, finish="STOP")], [CLOSED, FINISHED]),
    ],
    ids=["terminator", "with the finish", "two terminators", "none"],
)
def test_a_call_in_pieces(ending: list[dict[str, Any]], events: list[What]) -> None:
    """It closes with a part that does not continue, or with the finish."""
    assert told(*PIECES, *ending) == ([OPENED, *events], [(0, "", "f", WHOLE, True)])


def test_the_next_call_closes_one_in_pieces() -> None:
    """Where the terminator is missing, a name is enough."""
    events, calls = told(*PIECES, chunk(call(name="f", args={})))
    assert events == [OPENED, CLOSED, OPENED, CLOSED]
    assert [one[3] for one in calls] == [WHOLE, "{}"]


@pytest.mark.parametrize("reason", ["MAX_TOKENS", 2, "SAFETY", "MALFORMED_FUNCTION_CALL", "SOMETHING_NEW"])
def test_a_call_that_is_cut(reason: Any) -> None:
    """Any reason but STOP cuts what is still growing, and leaves alone what is whole."""
    events, calls = told(*PIECES, chunk(finish=reason))
    assert events == [OPENED, CUT]
    assert calls[0][4] is False
    reader = GeminiReader(trace=True)
    (*_, cut) = reader.read(chunk(call(name="f"), finish=reason))
    assert (cut.what, cut.call) == (CUT, None)


def test_no_reason_is_no_finish() -> None:
    """The unspecified reason is what a chunk before the end may carry."""
    assert told(chunk({"text": "x"}, finish="FINISH_REASON_UNSPECIFIED"), chunk({"text": "x"}, finish=0))[0] == []


def test_candidates_are_kept_apart() -> None:
    """Pieces belong to the call of their own candidate; a candidate without index is the first."""
    events, calls = told(
        chunk(call(name="f", willContinue=True), index=None),
        chunk(call(name="g", willContinue=True), index=1),
        chunk(call(partialArgs=[piece("$.x", boolValue=True)]), index=None),
        chunk(call(partialArgs=[piece("$.x", nullValue="NULL_VALUE")]), index=1),
    )
    assert events == [OPENED, OPENED, CLOSED, CLOSED]
    assert calls == [(0, "", "f", '{"x":true}', True), (1, "", "g", '{"x":null}', True)]


def test_where_the_parts_stand() -> None:
    """Each part of a call has its entry, the terminator too."""
    reader = GeminiReader(trace=True)
    for one in PIECES[:2]:
        reader.read(one)
    reader.read(chunk({"text": "x"}, call()))
    (entry,) = reader.entries
    assert entry.path == ("candidates", 0, "content", "parts", 1)
    assert entry.call is reader.calls[0]


@pytest.mark.parametrize(
    "part",
    [
        {"executableCode": {"language": "PYTHON", "code": "1"}},
        {"toolCall": {"toolType": "FILE_SEARCH", "id": "x", "args": {}}},
        {"toolResponse": {"toolType": "FILE_SEARCH", "id": "x", "response": {}}},
        call(),
        call(partialArgs=[piece("$.x", stringValue="y")]),
    ],
    ids=lambda part: next(iter(part)),
)
def test_what_is_no_call(part: dict[str, Any]) -> None:
    """The vendor's own tools have run already, and a piece of no call is none."""
    assert told(chunk(part)) == ([], [])
    assert read_whole(chunk(part))[0].calls == ()


def test_an_error_breaks_the_stream() -> None:
    """An error object, and nothing else without candidates."""
    assert told({"error": {"code": 503}})[0] == [What.BROKE]
    assert told({"promptFeedback": {"blockReason": "SAFETY"}}, {"usageMetadata": {}}, {})[0] == []


def test_whole_answers() -> None:
    """Arguments stay values; where there are none, empty text; a limit cuts no call of a whole answer."""
    (choice,) = read_whole(chunk(call(name="f", args={"x": 1}), call(name="g", id="b"), finish="MAX_TOKENS"))
    assert [(one.id, one.name, one.arguments) for one in choice.complete()] == [("", "f", {"x": 1}), ("b", "g", "")]


@pytest.mark.parametrize(
    ("pieces", "value"),
    [
        ([piece("$.a", stringValue="x", goes_on=True), piece("$.a", stringValue="")], {"a": "x"}),
        ([piece("$.a", stringValue="x"), piece("$.a", stringValue="y")], {"a": "y"}),
        ([piece("$.a.b-c[1][0]", numberValue=1)], {"a": {"b-c": [None, [1]]}}),
        ([piece("$['a.b']['it\\'s'][\"q\"]", numberValue=1)], {"a.b": {"it's": {"q": 1}}}),
        ([piece("$.größe", boolValue=False)], {"größe": False}),
        ([piece("$.a[1]", numberValue=2), piece("$.a[0]", numberValue=1)], {"a": [1, 2]}),
    ],
)
def test_paths(pieces: list[dict[str, Any]], value: dict[str, Any]) -> None:
    """Names, quoted names and indexes; objects and arrays are made as they are needed."""
    assert join_pieces(None, pieces) == value


def test_pieces_go_into_what_the_call_opened_with() -> None:
    """Arguments may stand in the first part already."""
    assert join_pieces({"a": 1}, [piece("$.b", numberValue=2)]) == {"a": 1, "b": 2}


@pytest.mark.parametrize(
    "bad",
    [
        piece("", numberValue=1),
        piece("$", numberValue=1),
        piece("a", numberValue=1),
        piece("$[0]", numberValue=1),
        piece("$..a", numberValue=1),
        piece("$.a[*]", numberValue=1),
        piece("$.a[9999999]", numberValue=1),
        piece("$.a[200000]", numberValue=1),
        piece("$.a", structValue={}),
        {"stringValue": "x"},
    ],
)
def test_unknown_pieces(bad: dict[str, Any]) -> None:
    """What cannot be put together is told, and the call's text is then the pieces as they are."""
    with pytest.raises(UnknownPieceError):
        join_pieces(None, [bad])
    _, calls = told(chunk(call(name="f", partialArgs=[bad])))
    assert calls[0][4]
    assert "jsonPath" in calls[0][3] or "stringValue" in calls[0][3]


def parts_of(*chunks: dict[str, Any]) -> list[dict[str, Any]]:
    """The parts of the turn that a stream comes to."""
    content = json.loads(model_turn(chunks))
    assert content["role"] == "model"
    parts: list[dict[str, Any]] = content["parts"]
    return parts


def test_texts_are_joined_and_thoughts_kept_apart() -> None:
    """Pieces of one kind are one part; a part with a signature stays by itself; empty texts go."""
    assert parts_of(
        chunk({"text": "I ", "thought": True}),
        chunk({"text": "think.", "thought": True}),
        chunk({"text": "So "}, {"text": "it "}),
        chunk({"text": "is."}),
        chunk({"text": "", "thoughtSignature": "c2ln"}),
        chunk({"text": "More."}),
        chunk({"text": ""}, finish="STOP"),
    ) == [
        {"text": "I think.", "thought": True},
        {"text": "So it is."},
        {"text": "", "thoughtSignature": "c2ln"},
        {"text": "More."},
    ]


def test_calls_keep_their_signatures_and_order() -> None:
    """Whole calls as they came, those in pieces without the marks of a stream."""
    assert parts_of(
        chunk({"functionCall": {"name": "f", "willContinue": True, "id": "a"}, "thoughtSignature": "c2ln"}),
        chunk(call(partialArgs=[piece("$.q", stringValue="x", goes_on=True)], willContinue=True)),
        chunk(call(partialArgs=[piece("$.q", stringValue="y")], willContinue=True)),
        chunk(call()),
        chunk({"text": "and"}),
        chunk(call(name="g", args={"n": 1.0})),
    ) == [
        {"functionCall": {"name": "f", "id": "a", "args": {"q": "xy"}}, "thoughtSignature": "c2ln"},
        {"text": "and"},
        {"functionCall": {"name": "g", "args": {"n": 1.0}}},
    ]


@pytest.mark.parametrize(
    "part",
    [
        {"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "c2ln"},
        {"codeExecutionResult": {"outcome": "OUTCOME_OK", "output": "1"}},
        {"toolCall": {"toolType": "X", "id": "1"}},
        {"inlineData": {"mimeType": "image/png", "data": "AAAA"}},
        {"somethingNew": {"a": [1]}},
    ],
    ids=lambda part: next(iter(part)),
)
def test_other_parts_go_back_as_they_came(part: dict[str, Any]) -> None:
    """Nothing of them comes in pieces."""
    assert parts_of(chunk(part), chunk(call(name="f"))) == [part, call(name="f")]


def test_pieces_that_cannot_be_put_together() -> None:
    """Then the model is not asked again."""
    with pytest.raises(CannotReplay):
        model_turn([chunk(call(name="f", partialArgs=[piece("$.a[*]", numberValue=1)]))])


def test_a_whole_answer_keeps_its_bytes() -> None:
    """White space, escapes and numbers; a role is added where it lacks."""
    parts = b'[ {"functionCall":{"name":"f","args":{"n": 1e2}}} ]'
    body = b'{"candidates": [{"content" : { "parts":%b, "role": "model" }}]}' % parts
    assert model_turn_of_whole(body, json.loads(body)) == body[body.index(b"{ ") : body.rindex(b"}]}")]
    bare = body.replace(b', "role": "model"', b"")
    assert json.loads(model_turn_of_whole(bare, json.loads(bare)))["role"] == "model"
    with pytest.raises(CannotReplay):
        model_turn_of_whole(b'{"candidates":[]}', {"candidates": []})


def test_a_call_that_is_marked_as_a_thought_is_a_call() -> None:
    """It stays in the turn that another model gets, with the stand-in for its signature."""
    call = {"functionCall": {"name": "f", "args": {}}, "thought": True, "thoughtSignature": "c2ln"}
    turn = dumps({"role": "model", "parts": [{"text": "Hm.", "thought": True}, call]})
    parts = loads(turn)["parts"]
    assert thoughts(parts) == [0]
    (left,) = loads(apply(turn, remove_thoughts(parts, (), "gemini-3-pro")))["parts"]
    assert left == call | {"thoughtSignature": STAND_IN}
