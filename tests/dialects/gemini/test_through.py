"""Gemini's answers through the guard: calls without ids, several in a chunk, signatures, arrays, the vendor's tools."""

import json
import logging
from typing import Any

import pytest

from tests.dialects.gemini.test_answer import call as opening_of
from tests.dialects.gemini.test_answer import chunk, piece
from tests.dialects.gemini.test_request import call, model, response, user
from tests.support.asgi import Request
from tests.support.kits import STREAMS
from tests.support.kits.gemini import GeminiArrayKit, GeminiKit, payloads
from tests.support.meeting import MARK, Meeting, Session, in_session, meet
from tests.support.model import View
from tests.support.scripted import Reply, whole
from tests.support.wire import bytewise

ARGS, OTHER = {"query": "zebra"}, {"id": 7}
TOOLS = [{"functionDeclarations": [{"name": "search"}, {"name": "lookup"}]}]
STAND_IN = "skip_thought_signature_validator"
HEAD = {"modelVersion": "gemini-3-pro", "responseId": "r1"}
SSE, ARRAY = GeminiKit(), GeminiArrayKit()

either_stream = pytest.mark.parametrize("kit", [SSE, ARRAY], ids=["events", "array"])
any_form = pytest.mark.parametrize("form", ["events", "array", "whole"])


def spinning(**more: Any) -> bytes:
    """A request after a lookup and two equal searches, without ids."""
    contents = [user("go"), model(call("lookup", OTHER)), user(response("lookup", {"result": "seen"}))]
    contents += [model(call("search", ARGS)), user(response("search", {"result": "nothing"}))] * 2
    return json.dumps({"contents": contents, "tools": TOOLS, **more}).encode()


def streamed(kit: GeminiKit, *chunks: dict[str, Any]) -> bytes:
    """Chunks as the vendor sends them."""
    texts = [json.dumps({**one, **HEAD}, indent=2 if kit is ARRAY else None) for one in chunks]
    if kit is ARRAY:
        return ("[" + "\n,\r\n".join(texts) + "\n]\n").encode()
    return "".join(f"data: {text}\r\n\r\n" for text in texts).encode()


def asked(kit: GeminiKit, body: bytes, *answers: bytes, ladder: str = "block", **settings: Any) -> Meeting:
    """One exchange, the answers streamed."""
    path, query = STREAMS[kit.path]
    return meet(Request(path, body, query=query), [Reply((answer,)) for answer in answers], ladder, **settings)


def answered(form: str, *parts: dict[str, Any], body: bytes | None = None, **settings: Any) -> tuple[View, list[Any]]:
    """What the client has of an answer whose parts came in one chunk, and the parts themselves."""
    answer = chunk(*parts, finish="STOP")
    if form == "whole":
        met = meet(Request(SSE.path, body or spinning()), [whole(json.dumps({**answer, **HEAD}).encode())], **settings)
        listed = [json.loads(met.body)]
    else:
        kit = SSE if form == "events" else ARRAY
        met = asked(kit, body or spinning(), streamed(kit, answer), **settings)
        listed = payloads(met.body)
    (view,) = (SSE if form == "whole" else kit).read(met.body, stream=form != "whole")
    return view, [part for one in listed for part in one["candidates"][0]["content"]["parts"]]


@any_form
def test_a_call_without_id_is_blocked(form: str) -> None:
    """Known by its name and arguments; nothing of it arrives."""
    view, parts = answered(form, {"text": "Hm."}, call("search", ARGS))
    assert view.calls == ()
    assert view.text.startswith(f"Hm.\n\n{MARK}")
    assert view.finish == "STOP"
    assert not any("functionCall" in part for part in parts)


@either_stream
def test_a_call_without_id_is_steered(kit: GeminiKit) -> None:
    """The response that carries the guidance has the name, and no id."""
    first = streamed(kit, chunk({"text": "Hm."}), chunk(call("search", ARGS), finish="STOP"))
    second = streamed(kit, chunk({"text": "Then so."}), chunk(call("search", {"query": "okapi"}), finish="STOP"))
    met = asked(kit, spinning(), first, second, ladder="chance_then_block")
    (view,) = kit.sdk(met.body, stream=True)
    assert view.text == "Hm.\n\nThen so."
    assert [(one.id, one.name, one.arguments) for one in view.calls] == [("", "search", '{"query": "okapi"}')]
    turn, reply = json.loads(met.app.heard[1].body)["contents"][-2:]
    assert turn == model("Hm.", call("search", ARGS))
    (part,) = reply["parts"]
    assert part["functionResponse"].keys() == {"name", "response"}


@either_stream
def test_nothing_but_the_call(kit: GeminiKit) -> None:
    """An answer that is one call in one chunk: of the second answer not a separator is wrong."""
    first = streamed(kit, chunk(call("search", ARGS), finish="STOP"))
    second = streamed(kit, chunk({"text": "Then"}), chunk({"text": " so."}, finish="STOP"))
    met = asked(kit, spinning(), first, second, ladder="chance_then_block")
    assert kit.sdk(met.body, stream=True)[0].text == "Then so."
    looping = asked(kit, spinning(), first, first, ladder="chance_then_block")
    (view,) = kit.sdk(looping.body, stream=True)
    assert view.text.startswith(MARK)
    failing = meet(
        Request(STREAMS[kit.path][0], spinning(), query=STREAMS[kit.path][1]),
        [Reply((first,)), whole(b'{"error":{}}', 500)],
        "chance_then_block",
    )
    assert kit.sdk(failing.body, stream=True)[0].text.startswith(MARK)


@any_form
@pytest.mark.parametrize(
    ("parts", "left"),
    [
        ([call("search", ARGS), call("lookup", OTHER)], ["lookup"]),
        ([call("lookup", OTHER), call("search", ARGS)], ["lookup"]),
        ([call("search", ARGS), call("lookup", OTHER), call("search", ARGS)], ["lookup"]),
    ],
)
def test_survivors_in_one_chunk(form: str, parts: list[Any], left: list[str]) -> None:
    """Of several calls in one chunk the looping ones go, and the finish reason that came with them stays."""
    view, kept = answered(form, *parts)
    assert [one.name for one in view.calls] == left
    assert view.finish == "STOP"
    assert kept == [call("lookup", OTHER)]


def signed(part: dict[str, Any], signature: str = "c2ln") -> dict[str, Any]:
    """A part with its signature."""
    return {**part, "thoughtSignature": signature}


@any_form
def test_the_stand_in_for_a_signature(form: str) -> None:
    """The first survivor gets it where the withheld first call carried the step's signature, and only there."""
    _, parts = answered(form, signed(call("search", ARGS)), call("lookup", OTHER), call("lookup", OTHER))
    assert parts == [signed(call("lookup", OTHER), STAND_IN), call("lookup", OTHER)]
    _, parts = answered(form, signed(call("lookup", OTHER)), call("search", ARGS))
    assert parts == [signed(call("lookup", OTHER))]
    _, parts = answered(form, signed(call("search", ARGS)), signed(call("lookup", OTHER), "b3du"))
    assert parts == [signed(call("lookup", OTHER), "b3du")]
    _, parts = answered(form, call("search", ARGS), call("lookup", OTHER))
    assert parts == [call("lookup", OTHER)]


@any_form
@pytest.mark.parametrize("version", ["gemini-2.5-flash", "gemini-1.5-pro-002"])
def test_older_models_get_no_stand_in(form: str, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They take a history without signatures."""
    monkeypatch.setitem(HEAD, "modelVersion", version)
    _, parts = answered(form, signed(call("search", ARGS)), call("lookup", OTHER))
    assert parts == [call("lookup", OTHER)]


@either_stream
def test_the_stand_in_stands_where_a_call_in_pieces_opens(kit: GeminiKit) -> None:
    """A survivor that comes in pieces is signed in its first one."""
    opening = opening_of(name="lookup", willContinue=True)
    rest = opening_of(partialArgs=[piece("$.id", numberValue=7)])
    answer = streamed(
        kit, chunk(signed(call("search", ARGS))), chunk(opening), chunk(rest), chunk({"text": ""}, finish="STOP")
    )
    met = asked(kit, spinning(), answer)
    parts = [part for one in payloads(met.body) for part in one["candidates"][0]["content"]["parts"]]
    assert parts == [signed(opening, STAND_IN), rest, {"text": ""}]


@any_form
def test_a_finish_message_about_calls_goes_with_them(form: str) -> None:
    """`finishMessage` speaks of calls; under `finish_reason: error` the reason is the nearest that the vendor has."""
    answer = chunk(call("search", ARGS), finish="STOP")
    answer["candidates"][0]["finishMessage"] = "Model generated function call(s)."
    if form == "whole":
        script = whole(json.dumps({**answer, **HEAD}).encode())
        met = meet(Request(SSE.path, spinning()), [script], finish_reason="error")
        listed = [json.loads(met.body)]
    else:
        kit = SSE if form == "events" else ARRAY
        met = asked(kit, spinning(), streamed(kit, answer), finish_reason="error")
        listed = payloads(met.body)
    (candidate,) = listed[-1]["candidates"]
    assert candidate["finishReason"] == "OTHER"
    assert "finishMessage" not in candidate


@any_form
def test_other_finish_reasons_stay(form: str) -> None:
    """A whole call is a finding whatever the reason; a limit stays the reason that the client sees."""
    answer = chunk(call("search", ARGS), finish=2)
    if form == "whole":
        met = meet(Request(SSE.path, spinning()), [whole(json.dumps(answer).encode())])
        listed = [json.loads(met.body)]
    else:
        kit = SSE if form == "events" else ARRAY
        met = asked(kit, spinning(), streamed(kit, answer))
        listed = payloads(met.body)
    (candidate,) = listed[-1]["candidates"]
    assert candidate["finishReason"] == 2
    assert candidate["content"]["parts"][0]["text"].startswith(MARK)


def test_a_chunk_that_must_stay_keeps_a_part() -> None:
    """Grounding beside a withheld call goes out with an empty text: google-genai drops answers without parts."""
    grounded = chunk(call("search", ARGS))
    grounded["candidates"][0]["groundingMetadata"] = {"webSearchQueries": ["zebra"]}
    met = asked(SSE, spinning(), streamed(SSE, grounded, chunk(call("lookup", OTHER), finish="STOP")))
    first, second = payloads(met.body)
    assert first["candidates"][0]["content"]["parts"] == [{"text": ""}]
    assert first["candidates"][0]["groundingMetadata"] == {"webSearchQueries": ["zebra"]}
    assert second["candidates"][0]["content"]["parts"] == [call("lookup", OTHER)]


@pytest.mark.parametrize("odd", ["\u2028", "\u2029", "\x85", "\udc00"])
def test_nothing_that_is_written_splits_a_line(odd: str) -> None:
    """google-genai cuts lines at U+2028 and the like: callfuse's own words hold none."""
    contents = [user("go")]
    contents += [model(call("search", ARGS)), user(response("search", {"result": f"a{odd}b"}))] * 2
    body = json.dumps({"contents": contents, "tools": TOOLS}).encode()
    met = asked(SSE, body, streamed(SSE, chunk(call("search", ARGS), finish="STOP")))
    assert MARK in SSE.sdk(met.body, stream=True)[0].text


def test_candidates_of_an_array_keep_their_order() -> None:
    """While one candidate is held the other waits too: elements cannot overtake each other."""
    config = {"generationConfig": {"candidateCount": 2}}
    innocent = {"query": "okapi"}
    chunks = [
        chunk(opening_of(name="search", willContinue=True), index=0),
        chunk({"text": "One."}, index=1),
        chunk(opening_of(partialArgs=[piece("$.query", stringValue="okapi")]), index=0),
        chunk({"text": ""}, index=1, finish="STOP"),
        chunk({"text": ""}, index=0, finish="STOP"),
    ]
    body = streamed(ARRAY, *chunks)
    met = asked(ARRAY, spinning(**config), body)
    assert met.body == body
    assert json.loads(ARRAY.read(body, stream=True)[0].calls[0].arguments) == innocent
    chunks[2] = chunk(opening_of(partialArgs=[piece("$.query", stringValue="zebra")]), index=0)
    one, other = ARRAY.read(asked(ARRAY, spinning(**config), streamed(ARRAY, *chunks)).body, stream=True)
    assert one.text.startswith(MARK)
    assert other.text == "One."


@pytest.mark.parametrize("content_type", [b"application/json", b"application/json; charset=UTF-8"])
def test_a_stream_that_comes_as_one_object(content_type: bytes) -> None:
    """Some gateways answer a streaming path with one object: it stays one."""
    answer = Reply(
        (json.dumps(chunk(call("search", ARGS), finish="STOP")).encode(),), headers=((b"content-type", content_type),)
    )
    met = meet(Request(STREAMS[SSE.path][0], spinning()), [answer])
    (candidate,) = json.loads(met.body)["candidates"]
    assert candidate["content"]["parts"][0]["text"].startswith(MARK)


@pytest.mark.parametrize("first", ["x", None, {}])
def test_a_call_behind_a_first_candidate_that_says_nothing(first: Any) -> None:
    """The model's turn cannot be rebuilt, so that nobody is asked again: the block takes the place of the call."""
    answer = chunk(call("search", ARGS), finish="STOP")
    answer["candidates"].insert(0, first)
    reply = whole(json.dumps(answer).encode())
    met = meet(Request(SSE.path, spinning()), [reply, reply], "chance_then_block")
    kept, blocked = json.loads(met.body)["candidates"]
    assert kept == first
    (part,) = blocked["content"]["parts"]
    assert part["text"].startswith(MARK)
    assert met.log_at(logging.ERROR) == []


def test_blanks_of_an_array_keep_their_place() -> None:
    """A held element that is let go leaves with every blank as it came, byte by byte too."""
    body = streamed(ARRAY, chunk(call("search", {"query": "okapi"})), chunk({"text": ""}, finish="STOP"))
    body = body.replace(b"\n,\r\n", b"\r\n\r\n , \r\n")
    path, query = STREAMS[ARRAY.path]
    for chunks in ((body,), bytewise(body)):
        assert meet(Request(path, spinning(), query=query), [Reply(chunks)]).body == body


OPEN_TOOL = {"toolCall": {"toolType": "FILE_SEARCH", "id": "t1", "args": {}}}
DONE_TOOL = {"toolResponse": {"toolType": "FILE_SEARCH", "id": "t1", "response": {}}}


@either_stream
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_an_open_tool_of_the_vendors(kit: GeminiKit, ladder: str) -> None:
    """While its result is not there a call beside it goes through; with the result it is withheld."""
    answer = streamed(kit, chunk(OPEN_TOOL), chunk(call("search", ARGS), finish="STOP"))
    assert asked(kit, spinning(), answer, ladder=ladder).body == answer
    answer = streamed(kit, chunk(OPEN_TOOL, DONE_TOOL), chunk(call("search", ARGS), finish="STOP"))
    met = asked(kit, spinning(), answer, answer, ladder=ladder)
    assert not any("functionCall" in part for one in payloads(met.body)
                   for part in one["candidates"][0]["content"]["parts"])  # fmt: skip


@either_stream
def test_under_a_schema_a_text_is_not_gone_on_with(kit: GeminiKit) -> None:
    """A stream that has sent text is blocked, one that has sent none is asked again."""
    body = spinning(generationConfig={"responseMimeType": "application/json"})
    end = chunk(call("search", ARGS), finish="STOP")
    second = streamed(kit, chunk({"text": "{}"}, finish="STOP"))
    spoke = asked(kit, body, streamed(kit, chunk({"text": "{"}), end), second, ladder="chance_then_block")
    assert len(spoke.app.heard) == 1
    silent = asked(kit, body, streamed(kit, end), second, ladder="chance_then_block")
    assert kit.sdk(silent.body, stream=True)[0].text == "{}"


def test_a_note_without_ids_stands_once() -> None:
    """The survivor's own result carries it, and no equal call before or after."""
    answer = streamed(SSE, chunk(call("search", ARGS), call("lookup", OTHER), finish="STOP"))
    path, query = STREAMS[SSE.path]
    before = json.loads(spinning())
    following = {**before, "contents": [*before["contents"], model(call("lookup", OTHER)),
                                        user(response("lookup", {"result": "seen"}))]}  # fmt: skip
    ended = Reply((streamed(SSE, chunk({"text": "Ok."}, finish="STOP")),))

    async def talk(session: Session) -> None:
        await session.exchange(Request(path, spinning(), query=query), Reply((answer,)))
        await session.exchange(Request(path, json.dumps(following).encode(), query=query), ended)

    _, met = in_session(talk).meetings
    told = [MARK in text for _, text in SSE.results(met.app.heard[0].body)]
    assert told == [False, False, False, True]


@any_form
@pytest.mark.parametrize(
    ("before", "behind", "left"),
    [
        ((), ({"text": ""},), [{"text": MARK}]),
        (({"text": ""},), (), [{"text": MARK}]),
        (({"text": ""}, {"text": "So."}), ({"text": ""},), [{"text": "So."}, {"text": MARK}]),
        ((), ({"text": "", "thoughtSignature": "c2ln"},), [{"text": MARK, "thoughtSignature": "c2ln"}]),
        (({"text": "", "thought": True},), (), [{"text": "", "thought": True}, {"text": MARK}]),
    ],
)
def test_a_block_takes_the_place_of_an_empty_text(form: str, before: Any, behind: Any, left: list[Any]) -> None:
    """Gemini CLI keeps no content in its history that has an empty text in it."""
    _, parts = answered(form, *before, call("search", ARGS), *behind)
    shown = [part | {"text": MARK} if MARK in part.get("text", "") else part for part in parts]
    assert shown == left
