"""Gemini's requests: both spellings, results without ids, answers in several contents, and what is changed in them."""

import json
from typing import Any

import pytest

from callfuse.conversations.identity import NO_SESSION_HEADERS, credential_of, lane_of
from callfuse.dialects.ask_again import AskOptions, Attempt, Reply
from callfuse.dialects.base import Note
from callfuse.dialects.gemini import Gemini
from callfuse.dialects.gemini.request import GeminiRequest
from callfuse.model import Round
from callfuse.wire.jsontext import loads

GEMINI = Gemini()
TARGET = "/v1beta/models/gemini-x:generateContent"
TOOLS = [{"functionDeclarations": [{"name": "f"}, {"name": "g"}]}]


def request(contents: list[Any], target: str = TARGET, **more: Any) -> GeminiRequest:
    """A request with these contents."""
    body = json.dumps({"contents": contents, "tools": TOOLS, **more}).encode()
    read = GEMINI.read_request(body, loads(body), target)
    assert read is not None
    return read


def user(*parts: Any) -> dict[str, Any]:
    """A content of the user; a string is a text."""
    return {"role": "user", "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def model(*parts: Any) -> dict[str, Any]:
    """A content of the model."""
    return {"role": "model", "parts": [{"text": part} if isinstance(part, str) else part for part in parts]}


def call(name: str, args: Any = None, **more: Any) -> dict[str, Any]:
    """A call."""
    return {"functionCall": {"name": name, "args": args or {}, **more}}


def response(name: str, result: Any, **more: Any) -> dict[str, Any]:
    """A response."""
    return {"functionResponse": {"name": name, "response": result, **more}}


def outcomes(request: GeminiRequest) -> list[list[tuple[str, str | None]]]:
    """The rounds, newest first: names and what came back."""
    rounds = [round_ for round_ in request.rounds() if round_ is not None]
    return [[(one.name, one.outcome.text if one.outcome else None) for one in round_.calls] for round_ in rounds]


@pytest.mark.parametrize(
    ("target", "model_name", "stream"),
    [
        ("/v1beta/models/gemini-2.5-pro:generateContent", "gemini-2.5-pro", False),
        ("/v1beta/models/gemini-2.5-pro:streamGenerateContent?alt=sse", "gemini-2.5-pro", True),
        (
            "/google/v1/projects/p/locations/global/publishers/google/models/gemini-3-pro:streamGenerateContent",
            "gemini-3-pro",
            True,
        ),
        ("/v1/projects/p/locations/l/endpoints/123:generateContent?key=a:b/c", "123", False),
    ],
)
def test_the_path_says_what_and_how(target: str, model_name: str, *, stream: bool) -> None:
    """The model's name and whether to stream; the query says nothing of either."""
    read = request([user("hi")], target)
    assert (read.model, read.stream) == (model_name, stream)
    assert GEMINI.serves(target.partition("?")[0])


@pytest.mark.parametrize(
    "path",
    [
        "/v1beta/models/gemini-x:countTokens",
        "/v1beta/models/gemini-x:batchGenerateContent",
        "/v1beta/models/gemini-x:batchEmbedContents",
        "/v1beta/models/gemini-x",
        "/v1/projects/p/locations/l/publishers/anthropic/models/claude:rawPredict",
    ],
)
def test_other_paths(path: str) -> None:
    """Counting, batches and other vendors' models are none of its."""
    assert not GEMINI.serves(path)


@pytest.mark.parametrize("body", [[], "x", {}, {"contents": "hello"}, {"messages": []}])
def test_other_bodies(body: Any) -> None:
    """A body without contents is not of the dialect."""
    assert GEMINI.read_request(b"", body, TARGET) is None


def test_odd_contents() -> None:
    """Contents of no known shape are read over."""
    read = request([1, {"role": 7}, {"parts": 3}, {"parts": [1, {"text": 2}]}, model(call("f"), {"functionCall": 1})])
    assert outcomes(read) == [[("f", None)]]
    assert list(read.opening()) is not None
    assert read.last_user_message()[0] in (-1, 3)


@pytest.mark.parametrize(
    ("more", "probe"),
    [
        ({}, False),
        ({"tools": []}, True),
        ({"tools": [], "cachedContent": "cachedContents/x"}, False),
        ({"generationConfig": {"maxOutputTokens": 1}}, True),
        ({"generation_config": {"max_output_tokens": 1}}, True),
    ],
)
def test_probes(more: dict[str, Any], *, probe: bool) -> None:
    """No tools, unless cached content may hold them, or an answer of one token."""
    assert request([user("hi")], **more).probe is probe


@pytest.mark.parametrize(
    ("config", "structured", "choices"),
    [
        ({}, False, 1),
        ({"responseMimeType": "application/json"}, True, 1),
        ({"response_json_schema": {"type": "object"}}, True, 1),
        ({"responseSchema": {}, "candidateCount": 3}, False, 3),
        ({"candidate_count": 2, "responseMimeType": "text/plain"}, False, 2),
    ],
)
def test_settings_of_the_answer(config: dict[str, Any], *, structured: bool, choices: int) -> None:
    """Whether it must fit a schema, and how many candidates there are."""
    read = request([user("hi")], generationConfig=config)
    assert (read.structured, read.choices) == (structured, choices)


def test_results_by_name_and_order_where_ids_lack() -> None:
    """Responses in another order find their calls by name, equal names by order."""
    read = request(
        [
            user("go"),
            model(call("f", {"x": 1}), call("g"), call("f", {"x": 2})),
            user(
                response("f", {"result": "one"}), response("f", {"result": "two"}), response("g", {"result": "three"})
            ),
        ]
    )
    assert outcomes(read) == [[("f", "one"), ("g", "three"), ("f", "two")]]


def test_results_by_id() -> None:
    """Ids go before names and order."""
    read = request(
        [
            model(call("f", id="a"), call("f", id="b")),
            user(response("f", {"result": "of b"}, id="b"), response("f", {"result": "of a"}, id="a")),
        ]
    )
    assert outcomes(read) == [[("f", "of a"), ("f", "of b")]]


def test_both_spellings() -> None:
    """A history in snake_case reads the same."""
    read = request(
        [
            user("go"),
            model({"function_call": {"name": "f", "args": {"x": 1}}}),
            user({"function_response": {"name": "f", "response": {"output": "found"}}}),
        ]
    )
    assert outcomes(read) == [[("f", "found")]]


def test_one_answer_in_several_contents() -> None:
    """What google-genai's chats keep of a streamed answer, a content for each chunk, is one round."""
    read = request(
        [
            user("go"),
            model("Let me"),
            model(call("f", {"x": 1})),
            model(call("g")),
            model(""),
            user(response("f", {"result": "one"}), response("g", {"result": "two"})),
            model(call("f")),
            user(response("f", {"result": "three"})),
        ]
    )
    assert outcomes(read) == [[("f", "three")], [("f", "one"), ("g", "two")]]
    assert [round_.position for round_ in read.rounds() if round_] == [6, 1]


def test_a_real_user_message_parts_rounds() -> None:
    """Text by itself is the user's; beside responses it is a harness's, as are reminders and callfuse's own words."""
    read = request(
        [
            user("first"),
            model(call("f")),
            user(response("f", {"result": "one"}), "a reminder"),
            user("[callfuse] a text"),
            user("<system-reminder>x</system-reminder>"),
            model(call("f")),
            user(response("f", {"result": "two"})),
            user("second"),
        ]
    )
    assert [round_ and round_.position for round_ in read.rounds()] == [None, 5, 1, None]
    assert read.last_user_message()[0] == 7


@pytest.mark.parametrize(
    ("result", "text", "kind"),
    [
        ({"result": "found"}, "found", "ok"),
        ({"output": "found"}, "found", "ok"),
        ({"error": "no such file"}, "no such file", "error"),
        ({"result": ""}, "", "no_data"),
        ({"result": "found", "callfuse": "[callfuse] a warning"}, "found", "ok"),
        ({"rows": [], "count": 0}, '{"rows":[],"count":0}', "no_data"),
    ],
)
def test_outcomes(result: dict[str, Any], text: str, kind: str) -> None:
    """What clients wrap into an object is unwrapped; callfuse's own key is left out."""
    read = request([model(call("f")), user(response("f", result))])
    (round_,) = [round_ for round_ in read.rounds() if round_]
    outcome = round_.calls[0].outcome
    assert outcome is not None
    assert (outcome.text, outcome.kind) == (text, kind)


def test_pictures_beside_a_response_count() -> None:
    """Two results that differ in a picture only are two outcomes."""

    def digest(data: str) -> bytes:
        parts = [{"inlineData": {"mimeType": "image/png", "data": data}}]
        read = request([model(call("f")), user(response("f", {"result": "see"}, parts=parts))])
        (round_,) = [round_ for round_ in read.rounds() if round_]
        outcome = round_.calls[0].outcome
        assert outcome is not None
        return outcome.digest

    assert digest("AAAA") == digest("AAAA") != digest("BBBB")


def test_wide_integers_keep_their_digits() -> None:
    """Two calls that differ in the last of 25 digits are two."""
    read = request(
        [model(call("f", {"n": 1234567890123456789012345})), model(call("f", {"n": 1234567890123456789012346}))]
    )
    (round_,) = [round_ for round_ in read.rounds() if round_]
    one, other = round_.calls
    assert one.signature != other.signature


NOTED = [
    user("go"),
    model(call("f")),
    user(response("f", {"result": "one"})),
    model(call("f"), call("g")),
    user(response("g", {"result": "two"}), {"function_response": {"name": "f", "response": {"a": 1, "b": 2}}}),
]


def rounds_of(read: GeminiRequest) -> list[Round]:
    """The rounds, oldest first."""
    return [round_ for round_ in read.rounds() if round_][::-1]


def test_notes_stand_under_a_key_of_their_own() -> None:
    """In the response object of the named call, whatever its spelling; several notes stand together."""
    read = request(NOTED)
    first, second = rounds_of(read)
    f, g = (one.call for one in second.calls)
    notes = [Note(3, f, "[callfuse] F"), Note(3, f, "[callfuse] F2"), Note(3, g, "[callfuse] G")]
    changed = json.loads(read.with_notes([*notes, Note(1, first.calls[0].call, "[callfuse] one")]))
    in_g, in_f = (next(iter(part.values())) for part in changed["contents"][4]["parts"])
    assert in_g["response"] == {"result": "two", "callfuse": "[callfuse] G"}
    assert in_f["response"] == {"a": 1, "b": 2, "callfuse": "[callfuse] F\n\n[callfuse] F2"}
    assert changed["contents"][2]["parts"][0]["functionResponse"]["response"]["callfuse"] == "[callfuse] one"


def test_a_result_that_is_no_object_gets_no_note() -> None:
    """Nothing else could hold it."""
    read = request([model(call("f")), user(response("f", ["x"]))])
    (round_,) = rounds_of(read)
    assert read.with_notes([Note(0, round_.calls[0].call, "[callfuse] x")]) == read.body


def test_asking_again() -> None:
    """The model's turn, then a response for each call, with its id where it has one."""
    read = request([user("go")])
    calls = rounds_of(request([model(call("f", id="a"), call("g"))]))[0].calls
    body = json.loads(
        read.ask_again(
            [Attempt(b'{"role":"model","parts":[]}', [Reply(one.call, "[callfuse] no") for one in calls])], AskOptions()
        )
    )
    error = {"error": "[callfuse] no"}
    assert body["contents"][1:] == [
        {"role": "model", "parts": []},
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "a", "name": "f", "response": error}},
                {"functionResponse": {"name": "g", "response": error}},
            ],
        },
    ]


@pytest.mark.parametrize(
    ("choice", "after"),
    [
        ({"mode": "ANY", "allowedFunctionNames": ["f"]}, {"mode": "AUTO"}),
        ({"mode": "ANY", "allowed_function_names": ["f"]}, {"mode": "AUTO"}),
        ({"mode": 2, "allowedFunctionNames": ["f", "f"]}, {"mode": "AUTO"}),
        ({"mode": "ANY", "allowedFunctionNames": ["f", "g"]}, None),
        ({"mode": "ANY"}, None),
        ({"mode": "VALIDATED", "allowedFunctionNames": ["f"]}, None),
        ({"mode": "AUTO"}, None),
        ({"mode": "NONE"}, None),
    ],
)
def test_a_forced_choice_is_loosened(choice: dict[str, Any], after: dict[str, Any] | None) -> None:
    """A mode that leaves only the looping tool becomes AUTO; one that leaves another stays."""
    for config in ({"functionCallingConfig": choice}, {"function_calling_config": choice}):
        read = request([user("go")], toolConfig=config)
        body = json.loads(read.ask_again([Attempt(b"{}", [])], AskOptions()))
        assert next(iter(body["toolConfig"].values())) == (choice if after is None else after)


def test_any_with_one_declared_tool_is_loosened() -> None:
    """Where the request declares one function only, ANY means that one."""
    read = request([user("go")], tools=[{"function_declarations": [{"name": "f"}]}],
                   tool_config={"function_calling_config": {"mode": "ANY"}})  # fmt: skip
    body = json.loads(read.ask_again([Attempt(b"{}", [])], AskOptions()))
    assert body["tool_config"] == {"function_calling_config": {"mode": "AUTO"}}


def test_a_key_in_the_query_is_a_credential() -> None:
    """Two of AI Studio's keys never share a lane, wherever in the query they stand; other parameters say nothing."""
    read = request([user("go")])
    queries = (b"key=a", b"key=b", b"alt=sse&key=a", b"", b"alt=sse&monkey=a")
    lanes = [lane_of(credential_of({}, query), NO_SESSION_HEADERS, read) for query in queries]
    assert lanes[0] == lanes[2] != lanes[1]
    assert lanes[3] == lanes[4] != lanes[0]
