"""Chat completions through the middleware: custom tools, and signatures of calls that stand in reasoning details."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from openai.types.chat import ChatCompletion
from openai.types.chat.chat_completion_message_custom_tool_call import ChatCompletionMessageCustomToolCall

from tests.dialects.quirks import OKAPI, ZEBRA
from tests.dialects.quirks.openai_chat import DONE, END, calls, delta, part, signature, whole
from tests.dialects.reading import ways
from tests.support.asgi import Request
from tests.support.kits.openai_chat import payloads, sdk_chunks
from tests.support.meeting import MARK, Meeting, meet
from tests.support.rules import violations
from tests.support.scripted import Reply
from tests.support.scripted import whole as whole_reply

PATH = "/v1/chat/completions"
STAND_IN = "skip_thought_signature_validator"
SEARCH = {"type": "function", "function": {"name": "search"}}
SUM = {"type": "custom", "custom": {"name": "sum"}}


def function(id_: str, arguments: str = ZEBRA, **more: Any) -> dict[str, Any]:
    """A call of a function."""
    return part("search", arguments, id=id_, type="function", **more)


def custom(id_: str, text: str = "1 + 2", **more: Any) -> dict[str, Any]:
    """A call of a custom tool."""
    return {"id": id_, "type": "custom", "custom": {"name": "sum", "input": text}, **more}


def request(*made: dict[str, Any], stream: bool, before: Sequence[dict[str, Any]] = (), **more: Any) -> Request:
    """A conversation in which these calls came together twice, and those of `before` once, each with one result."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": "Go."}]
    for at, round_ in enumerate((before, made, made)):
        listed = [call | {"id": f"h{at}_{place}"} for place, call in enumerate(round_)]
        if listed:
            messages.append({"role": "assistant", "content": None, "tool_calls": listed})
        messages += [{"role": "tool", "tool_call_id": call["id"], "content": "nothing"} for call in listed]
    asked = {"model": "m", "messages": messages, "tools": [SEARCH, SUM], "stream": stream, **more}
    return Request(PATH, json.dumps(asked).encode())


def through(asked: Request, *bodies: bytes, stream: bool, ladder: str = "block") -> Meeting:
    """What the client gets of an exchange; however the first answer is cut, it is the same."""
    found: dict[bytes, Meeting] = {}
    for chunks in ways(bodies[0]):
        later = [Reply((body,)) if stream else whole_reply(body) for body in bodies[1:]]
        first = Reply(chunks) if stream else whole_reply(bodies[0]).cut(chunks)
        met = meet(asked, [first, *later], ladder)
        assert met.client.complete
        found[met.body] = met
    (met,) = found.values()
    return met


def details(met: Meeting, *, stream: bool) -> list[dict[str, Any]]:
    """The reasoning details that the client has."""
    choices = [
        choice for one in (payloads(met.body) if stream else [json.loads(met.body)]) for choice in one["choices"]
    ]
    said = [choice["delta" if stream else "message"] for choice in choices]
    return [detail for one in said for detail in one.get("reasoning_details") or ()]


def answer(*made: dict[str, Any], stream: bool, finish: str = "tool_calls", **more: Any) -> bytes:
    """An answer of Gemini's with these calls, and what else its message has, in front of them."""
    if not stream:
        return whole(*made, finish=finish, **more).replace(b'"id": "c1"', b'"id": "c1", "model": "google/gemini-3"')
    pieces = [calls(call | {"index": at}) for at, call in enumerate(made)]
    body = delta(role="assistant", content="", **more) + b"".join(pieces) + delta(finish) + DONE
    return body.replace(b'"model": "m"', b'"model": "google/gemini-3"')


either = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@either
def test_a_custom_call_is_withheld(stream: bool) -> None:
    """Its text is what makes it the same call; a sibling stays, and counts from 0."""
    asked = request(custom("x"), stream=stream, before=[custom("y", "2 + 3")])
    met = through(asked, answer(custom("call_one"), custom("call_two", "2 + 3"), stream=stream), stream=stream)
    assert b"call_one" not in met.body
    assert b"1 + 2" not in met.body
    assert b"call_two" in met.body
    if stream:
        listed = [one for chunk in payloads(met.body) for one in chunk["choices"][0]["delta"].get("tool_calls", ())]
        assert [one["index"] for one in listed] == [0]


@either
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
@pytest.mark.parametrize("beside", [True, False], ids=["beside another", "alone"])
def test_the_sdk_reads_what_is_left_of_custom_calls(ladder: str, *, stream: bool, beside: bool) -> None:
    """Its own types take the answer: the survivor with its text, or callfuse's words and the second answer's call."""
    other = [custom("call_two", "2 + 3")] if beside else []
    asked = request(custom("x"), stream=stream, before=[custom("y", "2 + 3")])
    bodies = [answer(custom("call_one"), *other, stream=stream), answer(custom("call_new", "3 + 3"), stream=stream)]
    met = through(asked, *bodies, stream=stream, ladder=ladder)
    wanted = ["2 + 3"] if beside else ["3 + 3"] if ladder != "block" else []
    found: list[str] = []
    if stream:
        deltas = [choice.delta.model_dump() for chunk in sdk_chunks(met.body) for choice in chunk.choices]
        found = [part["custom"]["input"] for delta_ in deltas for part in delta_["tool_calls"] or ()]
    else:
        completion = ChatCompletion.model_validate({"created": 1} | json.loads(met.body))
        for call in completion.choices[0].message.tool_calls or ():
            assert isinstance(call, ChatCompletionMessageCustomToolCall)
            found.append(call.custom.input)
    assert found == wanted
    assert (MARK.encode() in met.body) is not bool(wanted)


@either
def test_another_text_is_another_call(stream: bool) -> None:
    """It passes."""
    body = answer(custom("call_one", "1 + 3"), stream=stream)
    assert through(request(custom("x"), stream=stream), body, stream=stream).body == body


@either
def test_asking_again_after_a_custom_call(stream: bool) -> None:
    """The call goes back in its own form, with a result."""
    bodies = [answer(custom("call_one"), stream=stream), answer(custom("call_two", "3 + 3"), stream=stream)]
    met = through(request(custom("x"), stream=stream), *bodies, stream=stream, ladder="chance_then_block")
    assert b"call_two" in met.body
    assert b"call_one" not in met.body
    sent = json.loads(met.app.heard[1].body)
    assert violations("openai-chat", sent) == []
    *_, said, told = sent["messages"]
    assert said["tool_calls"] == [custom("call_one")]
    assert told["tool_call_id"] == "call_one"
    assert told["content"].startswith(MARK)


@either
def test_the_detail_goes_with_its_call(stream: bool) -> None:
    """No byte of the call's id arrives, though the detail came before the call; other details stay."""
    thought = {"type": "reasoning.text", "text": "Hm.", "format": "google-gemini-v1", "index": 0}
    given = [thought, signature("tool_search_x1")]
    body = answer(function("tool_search_x1"), stream=stream, reasoning_details=given)
    met = through(request(function("x"), stream=stream), body, stream=stream)
    assert b"tool_search_x1" not in met.body
    assert b"c2ln" not in met.body
    assert MARK.encode() in met.body
    assert details(met, stream=stream) == [thought]


@either
def test_a_survivor_gets_the_stand_in(stream: bool) -> None:
    """Gemini 3 refuses a history whose first call has no signature."""
    made = [function("tool_search_x1"), function("tool_search_x2", OKAPI)]
    asked = request(function("x"), stream=stream, before=[function("y", OKAPI)])
    body = answer(*made, stream=stream, reasoning_details=[signature("tool_search_x1")])
    met = through(asked, body, stream=stream)
    assert b"tool_search_x1" not in met.body
    assert b"c2ln" not in met.body
    assert details(met, stream=stream) == [signature("tool_search_x2", STAND_IN)]
    older = through(asked, body.replace(b"gemini-3", b"gemini-2.5"), stream=stream)
    assert details(older, stream=stream) == []
    assert b"tool_search_x2" in older.body


@either
def test_the_survivors_own_detail_stays(stream: bool) -> None:
    """Where each call has one, and where the first call is the survivor."""
    made = [function("tool_search_x1"), function("tool_search_x2", OKAPI)]
    asked = request(function("x"), stream=stream, before=[function("y", OKAPI)])
    both = [signature("tool_search_x1"), signature("tool_search_x2", "Yg==")]
    met = through(asked, answer(*made, stream=stream, reasoning_details=both), stream=stream)
    assert details(met, stream=stream) == both[1:]
    turned = answer(*made[::-1], stream=stream, reasoning_details=both[1:])
    met = through(asked, turned, stream=stream)
    assert details(met, stream=stream) == both[1:]
    assert b"tool_search_x1" not in met.body


@either
def test_an_innocent_call_and_its_detail_pass(stream: bool) -> None:
    """Held because the tool has been looping, and let go byte for byte; so is a detail whose call never comes."""
    asked = request(function("x"), stream=stream)
    given = [signature("tool_search_x1")]
    for made, finish in (([function("tool_search_x1", '{"query":"new"}')], "tool_calls"), ([], "stop")):
        body = answer(*made, stream=stream, finish=finish, reasoning_details=given)
        assert through(asked, body, stream=stream).body == body


@either
def test_asking_again_sends_the_detail_back(stream: bool) -> None:
    """The model's turn has the signature; the client gets the second answer's, whatever other reasoning came first."""
    thought = {"type": "reasoning.text", "text": "Hm.", "format": "google-gemini-v1", "index": 0}
    first = answer(function("tool_search_x1"), stream=stream, reasoning_details=[thought, signature("tool_search_x1")])
    second = answer(
        function("tool_search_x2", '{"query":"new"}'),
        stream=stream,
        reasoning_details=[thought | {"text": "So."}, signature("tool_search_x2", "Yg==")],
    )
    met = through(request(function("x"), stream=stream), first, second, stream=stream, ladder="chance_then_block")
    said = json.loads(met.app.heard[1].body)["messages"][-2]
    assert said["reasoning_details"] == [thought, signature("tool_search_x1")]
    assert b"tool_search_x1" not in met.body
    assert signature("tool_search_x2", "Yg==") in details(met, stream=stream)
    assert not stream or details(met, stream=stream) == [thought, signature("tool_search_x2", "Yg==")]


def test_unknown_keys_do_not_forbid_asking_again() -> None:
    """Groq's `channel` is left out of the turn; LiteLLM's fields go back."""
    fields: dict[str, Any] = {"provider_specific_fields": {"citations": [1]}}
    first = delta(role="assistant", content="", channel="final", **fields) + calls(function("call_one", index=0)) + END
    second = delta(role="assistant", content="Done.") + delta("stop") + DONE
    met = through(request(function("x"), stream=True), first, second, stream=True, ladder="chance_then_block")
    said = json.loads(met.app.heard[1].body)["messages"][-2]
    assert said == {"role": "assistant", "content": None, **fields, "tool_calls": [function("call_one")]}
    assert b"Done." in met.body


def test_reasoning_of_the_first_whole_answer_stays() -> None:
    """In front of the second one's, as its text does; of lists the second adds what belongs to its own calls."""
    thought = {"type": "reasoning.text", "text": "Hm.", "format": "google-gemini-v1", "index": 0}
    block = {"type": "thinking", "thinking": "Hm.", "signature": "YQ=="}
    first = answer(
        function("tool_search_x1"), stream=False, content="Let me look.", reasoning="Hm.", reasoning_content="Hm.",
        reasoning_details=[thought, signature("tool_search_x1")], thinking_blocks=[block],
    )  # fmt: skip
    second = answer(
        function("tool_search_x2", '{"query":"new"}'), stream=False, content="So.", reasoning_content="So.",
        reasoning_details=[thought | {"text": "So."}, signature("tool_search_x2", "Yg==")],
        thinking_blocks=[block | {"thinking": "So."}],
    )  # fmt: skip
    met = through(request(function("x"), stream=False), first, second, stream=False, ladder="chance_then_block")
    said = json.loads(met.body)["choices"][0]["message"]
    assert said["content"] == "Let me look.\n\nSo."
    assert (said["reasoning"], said["reasoning_content"]) == ("Hm.", "Hm.\n\nSo.")
    assert said["reasoning_details"] == [thought, signature("tool_search_x2", "Yg==")]
    assert said["thinking_blocks"] == [block]
    plain = answer(function("tool_search_x1"), stream=False)
    met = through(request(function("x"), stream=False), plain, second, stream=False, ladder="chance_then_block")
    assert json.loads(met.body)["choices"] == json.loads(second)["choices"]


@either
def test_what_is_no_call_in_the_list_of_calls_hides_none(stream: bool) -> None:
    """Null, or what else no vendor documents: the call beside it is withheld, and a survivor stays."""
    odd: Any = [None, 7]
    asked = request(function("x"), stream=stream, before=[function("y", OKAPI)])

    def body(*made: Any) -> bytes:
        if not stream:
            return answer(*made, stream=False)
        return delta(role="assistant", content="") + calls(*made) + END

    met = through(asked, body(*odd, function("call_one", index=0)), stream=stream)
    assert b"call_one" not in met.body
    assert MARK.encode() in met.body
    both = body(None, function("call_one", index=0), 7, function("call_two", OKAPI, index=1))
    met = through(asked, both, stream=stream)
    assert b"call_one" not in met.body
    assert b"call_two" in met.body
