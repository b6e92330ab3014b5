"""Bedrock's Converse: whole answers and binary streams are guarded, signed or not."""

import json
from typing import Any

import pytest

from callfuse.dialects.ask_again import CannotReplay
from callfuse.dialects.base import Request
from callfuse.dialects.bedrock import Bedrock
from tests.captures.recordings import FOLDER
from tests.support.asgi import JSON_REQUEST, Headers
from tests.support.asgi import Request as Asked
from tests.support.kits.bedrock import event, events
from tests.support.meeting import MARK, meet
from tests.support.model import canonical
from tests.support.scripted import Reply, whole
from tests.support.wire import bytewise

BEDROCK = Bedrock()
PATH = "/model/arn:aws:bedrock:eu-west-1:123:inference-profile/eu.anthropic.claude-test/converse"
SIGNED = (*JSON_REQUEST, (b"authorization", b"AWS4-HMAC-SHA256 Credential=x/bedrock/aws4_request, Signature=y"))
UNSIGNED = (*JSON_REQUEST, (b"authorization", b"Bearer bedrock-api-key"))
HELLO: dict[str, Any] = {"role": "user", "content": [{"text": "Find the zebra."}]}
QUERY = {"query": "zebra", "id": 123456789012345678901234567890}


def use(name: str = "search", arguments: Any = QUERY, id_: str = "tooluse_1", **more: Any) -> dict[str, Any]:
    """A tool use."""
    return {"toolUse": {"toolUseId": id_, "name": name, "input": arguments, **more}}


def result(id_: str, *parts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """A tool result."""
    return {"toolResult": {"toolUseId": id_, "content": list(parts or ({"text": "nothing"},)), **more}}


STREAM = f"{PATH}-stream"
BINARY = ((b"content-type", b"application/vnd.amazon.eventstream"),)


def called(at: int, id_: str = "tooluse_9") -> list[dict[str, Any]]:
    """The looping call as the block at this index."""
    place = {"contentBlockIndex": at}
    pieces = (json.dumps(QUERY)[:9], json.dumps(QUERY)[9:])
    return [
        {"contentBlockStart": {**place, "start": {"toolUse": {"toolUseId": id_, "name": "search"}}}},
        *({"contentBlockDelta": {**place, "delta": {"toolUse": {"input": piece}}}} for piece in pieces),
        {"contentBlockStop": place},
    ]


END: list[dict[str, Any]] = [
    {"messageStop": {"stopReason": "tool_use"}},
    {"metadata": {"usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}, "metrics": {"latencyMs": 1}}},
]
LOOPING: list[dict[str, Any]] = [{"messageStart": {"role": "assistant"}}, *called(0), *END]


def stream(*said: dict[str, Any]) -> Reply:
    """A streamed answer, an event a chunk."""
    return Reply(tuple(map(event, said)), headers=BINARY)


def spun(times: int = 2, **more: Any) -> list[dict[str, Any]]:
    """The same call so many times."""
    turns = [HELLO]
    for at in range(times):
        turns.append({"role": "assistant", "content": [{"text": "Let me look."}, use(id_=f"tooluse_h{at}")]})
        turns.append({"role": "user", "content": [result(f"tooluse_h{at}", **more)]})
    return turns


def body(turns: list[dict[str, Any]], **more: Any) -> bytes:
    """A request."""
    tools: list[Any] = [{"toolSpec": {"name": name, "inputSchema": {"json": {}}}} for name in ("search", "read")]
    asked = {"system": [{"text": "Be brief."}], "messages": turns, "toolConfig": {"tools": tools, **more}}
    return json.dumps(asked).encode()


def ask(turns: list[dict[str, Any]], headers: Headers = UNSIGNED, path: str = PATH, **more: Any) -> Asked:
    """A request to the guard."""
    return Asked(path, body(turns, **more), headers)


def answer(*blocks: dict[str, Any], reason: str = "tool_use", tokens: int = 7) -> Reply:
    """A whole answer."""
    usage = {"inputTokens": 11, "outputTokens": tokens, "totalTokens": 11 + tokens}
    said = {"message": {"role": "assistant", "content": list(blocks)}}
    return whole(json.dumps({"output": said, "stopReason": reason, "usage": usage}).encode())


def content(raw: bytes) -> list[Any]:
    """The blocks that the client has."""
    found: list[Any] = json.loads(raw)["output"]["message"]["content"]
    return found


@pytest.mark.parametrize("headers", [SIGNED, UNSIGNED], ids=["signed", "unsigned"])
def test_the_third_call_is_blocked(headers: Headers) -> None:
    """Signed or not: the answer is not part of what a signature covers."""
    met = meet(ask(spun(), headers), [answer({"text": "Again."}, use())])
    text, block = content(met.body)
    assert text == {"text": "Again."}
    assert block["text"].startswith(MARK)
    assert json.loads(met.body)["stopReason"] == "end_turn"
    assert met.client.header(b"x-callfuse-action") == b"block; kind=repeat; count=3"


def test_a_second_call_passes() -> None:
    """Below the threshold nothing changes."""
    reply = answer(use())
    assert meet(ask(spun(1)), [reply]).body == reply.body


def test_a_steer_is_one_answer() -> None:
    """The message goes back as it came, digits and all; the answer has the words of both, and their tokens."""
    first = answer(
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}, {"text": "One."}, use()
    )
    second = answer(
        {"reasoningContent": {"reasoningText": {"text": "ah"}}}, {"text": "Two."}, use("read", {"a": 1}, "b")
    )
    met = meet(ask(spun(), toolChoice={"tool": {"name": "search"}}), [first, second], "chance_then_block")
    _, again = (json.loads(heard.body) for heard in met.app.heard)
    said, told = again["messages"][-2:]
    assert said == json.loads(first.body)["output"]["message"]
    assert met.app.heard[1].body.count(b"123456789012345678901234567890") == 3
    assert told["content"][0]["toolResult"]["toolUseId"] == "tooluse_1"
    assert told["content"][0]["toolResult"]["content"][0]["text"].startswith(MARK)
    assert again["toolConfig"]["toolChoice"] == {"auto": {}}
    blocks = content(met.body)
    assert [next(iter(block)) for block in blocks] == ["reasoningContent", "text", "text", "toolUse"]
    assert json.loads(met.body)["usage"] == {"inputTokens": 11, "outputTokens": 14, "totalTokens": 25}
    assert json.loads(met.body)["stopReason"] == "tool_use"


@pytest.mark.parametrize("odd", [{}, "words", {"text": "x"}, 1, None])
def test_a_second_answer_without_a_list_of_blocks(odd: Any, caplog: pytest.LogCaptureFixture) -> None:
    """It is no answer, and no fault of callfuse's: the block stands in its place."""
    second = whole(json.dumps({"output": {"message": {"role": "assistant", "content": odd}}}).encode())
    met = meet(ask(spun()), [answer(use()), second], "chance_then_block")
    assert content(met.body)[-1]["text"].startswith(MARK)
    assert "ValueError" not in caplog.text


def test_a_signed_request_is_not_asked_again() -> None:
    """The signature covers the body, so that the next rung is taken, and no warning is put in."""
    met = meet(ask(spun(), SIGNED), [answer(use())], "chance_then_block")
    assert len(met.app.heard) == 1
    assert content(met.body)[0]["text"].startswith(MARK)
    asked = ask(spun(3), SIGNED)
    assert meet(asked, [answer({"text": "Ok."}, reason="end_turn")], "warn").app.heard[0].body == asked.body


@pytest.mark.parametrize(
    ("parts", "place"),
    [(({"text": "nothing"},), 0), (({"json": {"a": 1}},), 1), (({"text": "nothing"}, {"image": {"format": "png"}}), 0)],
    ids=["text", "json", "image"],
)
def test_a_warning_stands_in_the_result(parts: tuple[dict[str, Any], ...], place: int) -> None:
    """In its last text, or as a part of its own."""
    turns = spun(3)
    for turn in turns[2::2]:
        turn["content"][0]["toolResult"]["content"] = list(parts)
    met = meet(ask(turns), [answer({"text": "Ok."}, reason="end_turn")], "warn")
    found = [
        turn["content"][0]["toolResult"]["content"] for turn in json.loads(met.app.heard[0].body)["messages"][2::2]
    ]
    assert found[:2] == [list(parts), list(parts)]
    assert MARK in found[2][place]["text"]


def test_an_innocent_sibling_stays() -> None:
    """The looping call goes, the other keeps its bytes."""
    turns = spun()
    read = [
        {"role": "assistant", "content": [use("read", {"a": 1}, "r0")]},
        {"role": "user", "content": [result("r0")]},
    ]
    met = meet(ask([HELLO, *read, *turns[1:]]), [answer(use(), use("read", {"a": 1}, "r1"))])
    assert content(met.body) == [use("read", {"a": 1}, "r1")]
    assert json.loads(met.body)["stopReason"] == "tool_use"


def test_a_server_tool_has_run_already() -> None:
    """It is no call of the client's, however often it comes."""
    reply = answer(use(type="server_tool_use"), {"text": "Found."}, reason="end_turn")
    assert meet(ask(spun()), [reply]).body == reply.body


@pytest.mark.parametrize("headers", [SIGNED, UNSIGNED], ids=["signed", "unsigned"])
def test_the_third_call_of_a_stream_is_blocked(headers: Headers) -> None:
    """Signed or not; a signed request is asked no second time, so that the next rung is taken."""
    met = meet(ask(spun(), headers, path=STREAM), [stream(*LOOPING), stream(*LOOPING)], "chance_then_block")
    assert len(met.app.heard) == (1 if headers is SIGNED else 2)
    assert b"tooluse_9" not in met.body
    seen = events(met.body)
    assert {"messageStop": {"stopReason": "end_turn"}} in seen
    assert any(MARK in json.dumps(one) for one in seen)


def test_a_stream_without_metadata() -> None:
    """It ends with its body; callfuse adds none."""
    met = meet(ask(spun(), path=STREAM), [stream(*LOOPING[:-1])])
    assert b"tooluse_9" not in met.body
    assert [kind for one in events(met.body) for kind in one][-2:] == ["contentBlockStop", "messageStop"]


def test_a_second_start_breaks_the_stream() -> None:
    """What cannot be one answer is not judged as one."""
    reply = stream(*LOOPING[:-2], *LOOPING)
    met = meet(ask(spun(), path=STREAM), [reply])
    assert met.body == reply.body
    assert met.log


def test_a_tool_that_bedrock_runs() -> None:
    """It is no call of the client's. While it waits for its result, a call beside it is not blocked."""
    start = {"toolUse": {"toolUseId": "s1", "name": "search", "type": "server_tool_use"}}
    used: list[Any] = [{"contentBlockStart": {"contentBlockIndex": 0, "start": start}},
            {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"toolUse": {"input": json.dumps(QUERY)}}}},
            {"contentBlockStop": {"contentBlockIndex": 0}}]  # fmt: skip
    reply = stream(LOOPING[0], *used, *END)
    assert meet(ask(spun(), path=STREAM), [reply]).body == reply.body
    reply = stream(LOOPING[0], *used, *called(1), *END)
    assert meet(ask(spun(), path=STREAM), [reply]).body == reply.body
    found = {"toolResult": {"toolUseId": "s1", "type": "nova_grounding"}}
    back: list[Any] = [
        {"contentBlockStart": {"contentBlockIndex": 1, "start": found}},
        {"contentBlockStop": {"contentBlockIndex": 1}},
    ]
    met = meet(ask(spun(), path=STREAM), [stream(LOOPING[0], *used, *back, *called(2), *END)])
    assert b"tooluse_9" not in met.body


def test_the_turn_of_a_stream() -> None:
    """Texts, reasoning with its signature or redacted, and calls with every digit go back; citations do not, nor what
    says nothing."""
    thought: tuple[Any, ...] = (
        {"reasoningContent": {"text": "hm"}},
        {"reasoningContent": {"text": "m"}},
        {"reasoningContent": {"signature": "c2"}},
    )
    said: list[Any] = [(0, one) for one in thought]
    said += [(1, {"reasoningContent": {"redactedContent": "cmVk"}}), (2, {"text": "One"}), (2, {"text": "."})]
    said += [(2, {"citation": {"title": "x"}}), (3, {"text": " "})]
    deltas = [{"contentBlockDelta": {"contentBlockIndex": at, "delta": delta}} for at, delta in said]
    nameless = {"contentBlockStart": {"contentBlockIndex": 5, "start": {"toolUse": {"toolUseId": "x"}}}}
    turn = BEDROCK.model_turn([LOOPING[0], *deltas, *called(4), nameless, *END])
    assert json.loads(turn) == {
        "role": "assistant",
        "content": [
            {"reasoningContent": {"reasoningText": {"text": "hmm", "signature": "c2"}}},
            {"reasoningContent": {"redactedContent": "cmVk"}},
            {"text": "One."},
            use(id_="tooluse_9"),
        ],
    }
    assert b"123456789012345678901234567890" in turn


@pytest.mark.parametrize(
    "odd",
    [
        {"contentBlockStart": {"contentBlockIndex": 0, "start": {"image": {"format": "png"}}}},
        {"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"image": {"source": {}}}}},
        *(
            {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolUse": {"input": text}}}}
            for text in ("[1]", "{", "5")
        ),
    ],
)
def test_a_turn_that_cannot_be_rebuilt(odd: dict[str, Any]) -> None:
    """A block or a delta that nobody knows, arguments that are no object."""
    begun = {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "x", "name": "a"}}}}
    with pytest.raises(CannotReplay):
        BEDROCK.model_turn([LOOPING[0], begun, odd, *END])


@pytest.mark.parametrize("spoil", ["checksum", "prelude", "length"])
@pytest.mark.parametrize("at", [0, 1, 2, 3])
def test_what_breaks_the_framing_lets_go_and_is_told(spoil: str, at: int) -> None:
    """A wrong CRC or length: all that is held leaves as it came, the rest passes unread, and the log says so."""
    frames = [event(one) for one in LOOPING]
    bad = bytearray(frames[at])
    bad[{"checksum": -1, "prelude": 9, "length": 2}[spoil]] ^= 1
    frames[at] = bytes(bad)
    for chunks in (tuple(frames), (b"".join(frames),), bytewise(b"".join(frames))):
        met = meet(ask(spun(), path=STREAM), [Reply(chunks, headers=BINARY)])
        assert met.body == b"".join(frames)
        assert [text for _, _, text in met.log if "malformed stream" in text]


def request(turns: list[Any], **more: Any) -> Request:
    """A request as the dialect reads it."""
    raw = json.dumps({"messages": turns, **more}).encode()
    found = BEDROCK.read_request(raw, json.loads(raw), f"{PATH}?x=1")
    assert found is not None
    return found


def test_a_request() -> None:
    """The model is that of the path; a request without tools, or for one token, is a probe."""
    tools: dict[str, Any] = {"toolConfig": {"tools": [{}]}}
    assert request([HELLO], **tools).model.endswith("inference-profile/eu.anthropic.claude-test")
    assert not request([HELLO], **tools).probe
    assert request([HELLO]).probe
    assert request([HELLO], **tools, inferenceConfig={"maxTokens": 1}).probe
    assert BEDROCK.read_request(b"{}", {"prompt": "x"}, PATH) is None


def test_results_and_people() -> None:
    """Errors are errors, results beside a person's words belong to the round before them."""
    turns = [
        HELLO,
        {"role": "assistant", "content": [use(id_="a"), use("read", {}, "b")]},
        {"role": "user", "content": [result("b", {"text": "2"}, status="error"), result("a", {"text": "1"})]},
        {"role": "assistant", "content": [use(id_="c")]},
        {"role": "user", "content": [result("c"), {"text": "And hurry."}]},
    ]
    user, newest, older, first = request(turns).rounds()
    assert (user, first) == (None, None)
    assert newest is not None
    assert older is not None
    assert newest.calls[0].outcome is not None
    assert [one.outcome.text for one in older.calls if one.outcome] == ["1", "2"]
    assert request(turns).last_user_message()[0] == 4


@pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no captures in {FOLDER}; set CALLFUSE_CAPTURES")
def test_recorded_answers() -> None:
    """Ids, names and arguments of each recorded whole answer; in a new conversation every byte passes."""
    expected = json.loads((FOLDER / "expected.json").read_bytes())
    listed = sorted((FOLDER / "bedrock-converse").glob("*.json"))
    recorded = [path for path in listed if not path.name.endswith(".meta.json")]
    assert recorded
    for path in recorded:
        raw = path.read_bytes()
        read = [one for choice in BEDROCK.read_whole(json.loads(raw)) for one in choice.calls]
        known = expected[f"bedrock-converse/{path.name}"]["calls"]
        assert [(one.id, one.name, canonical(json.dumps(one.arguments))) for one in read] == [
            (one["id"], one["name"], canonical(one["arguments"])) for one in known
        ]
        assert meet(ask([HELLO]), [whole(raw)], "chance_then_block").body == raw
