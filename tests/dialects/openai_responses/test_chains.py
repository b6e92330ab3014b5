"""Chains: the vendor has the conversation, the request only what is new, and the ledger what callfuse must know."""

import gzip
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from callfuse import CallFuseMiddleware
from tests.dialects.openai_responses.wire import (
    Item,
    built_in,
    function,
    message,
    output,
    reply,
    request,
    result,
    texts,
    whole_reply,
)
from tests.support.asgi import JSON_REQUEST, run
from tests.support.config import settings
from tests.support.meeting import MARK, Meeting, Session, in_session
from tests.support.scripted import Reply, gzipped, play, whole

ways = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


def answer(*items: Item, tag: str, stream: bool = True) -> Reply:
    """An answer that the vendor stores as `resp_<tag>`."""
    return reply(*items, tag=tag) if stream else whole_reply(*items, tag=tag)


def call(at: int) -> Item:
    """The call that comes again and again."""
    return function(f"call_{at}")


async def spun(session: Session, *, stream: bool = True, times: int = 2, **more: Any) -> None:
    """A chain of answers `resp_1`, `resp_2`, ... that each make the call."""
    news: list[Any] = ["Go."]
    place: dict[str, Any] = {}
    for at in range(1, times + 1):
        asked = request(*news, store=True, stream=stream, **place, **more)
        await session.exchange(asked, answer(call(at), tag=str(at), stream=stream))
        news, place = [result(call(at))], {"previous_response_id": f"resp_{at}"}


def going_on(*items: Item | str, after: str, stream: bool = True, **more: Any) -> Any:
    """A request that goes on from an answer."""
    return request(*items, store=True, stream=stream, previous_response_id=after, **more)


def heard(met: Meeting, at: int = 0) -> Item:
    """A request as the vendor got it."""
    body: Item = json.loads(met.app.heard[at].body)
    return body


@ways
def test_a_loop_is_blocked_and_the_chain_goes_on(stream: bool) -> None:
    """The third call is withheld; the next request answers it, since the vendor has it."""

    async def talk(session: Session) -> None:
        await spun(session, stream=stream)
        asked = going_on(result(call(2)), after="resp_2", stream=stream)
        await session.exchange(asked, answer(call(3), tag="3", stream=stream))
        await session.exchange(going_on("And?", after="resp_3", stream=stream), answer(message(), tag="4"))

    *_, blocked, following = in_session(talk).meetings
    assert b"call_3" not in blocked.body
    assert MARK.encode() in blocked.body
    first, user = heard(following)["input"]
    assert (first["type"], first["call_id"]) == ("function_call_output", "call_3")
    assert first["output"].startswith(MARK)
    assert user == {"role": "user", "content": "And?"}
    assert heard(following)["previous_response_id"] == "resp_3"


def undeclared(script: Reply) -> Reply:
    """Without a content type."""
    return replace(script, headers=tuple(pair for pair in script.headers if pair[0] != b"content-type"))


@ways
@pytest.mark.parametrize("change", [gzipped, undeclared, lambda script: undeclared(gzipped(script))])
@pytest.mark.parametrize("size", [1, 50, 9999])
def test_a_chain_is_known_however_its_answers_come(stream: bool, change: Callable[[Reply], Reply], size: int) -> None:
    """Packed though plain bytes were asked for, without a content type, or both: the healthy ones pass as they came,
    and are read all the same, so that the third call is withheld."""

    def script(at: int) -> Reply:
        made = change(answer(call(at), tag=str(at), stream=stream))
        return made.cut(tuple(made.body[place : place + size] for place in range(0, len(made.body), size)))

    async def talk(session: Session) -> None:
        await session.exchange(request("Go.", store=True, stream=stream), script(1))
        for at in (2, 3):
            asked = going_on(result(call(at - 1)), after=f"resp_{at - 1}", stream=stream)
            await session.exchange(asked, script(at))

    *passed, blocked = in_session(talk).meetings
    assert [met.body for met in passed] == [met.app.replies[0].body for met in passed]
    assert b"call_3" not in blocked.body
    assert MARK.encode() in blocked.body


@pytest.mark.parametrize("body", [gzip.compress(b": " + bytes(9_000_000)), b"no gzip"], ids=["bomb", "broken"])
def test_a_packed_answer_that_is_not_read_to_its_end(body: bytes) -> None:
    """It passes as it came, and that it is not watched is counted."""
    coded = ((b"content-type", b"text/event-stream"), (b"content-encoding", b"gzip"))
    app = play(Reply((body[:50], body[50:]), headers=coded))
    fuse = CallFuseMiddleware(app, settings())
    met = run(fuse, request("Go.", store=True, stream=True))
    assert met.body == body
    assert met.complete
    assert fuse.counts.of("not_watched", "content-encoding") == 1
    assert fuse.counts.of("fail_open") == 0


@pytest.mark.parametrize(("own", "last"), [({}, 3), ({"max_repeats": 2}, 2)])
def test_a_loop_in_a_namespace(own: dict[str, int], last: int) -> None:
    """Calls that only the ledger has are the same tool's, with what is set for it."""
    named = [function(f"call_{at}", namespace="crm") for at in range(4)]

    async def talk(session: Session) -> None:
        await session.exchange(request("Go.", store=True), answer(named[1], tag="1"))
        await session.exchange(going_on(result(named[1]), after="resp_1"), answer(named[2], tag="2"))
        await session.exchange(going_on(result(named[2]), after="resp_2"), answer(named[3], tag="3"))

    met = in_session(talk, per_tool={"crm.*": own}).meetings
    assert b"call_%d" % last not in met[last - 1].body
    assert b"call_%d" % (last - 1) in met[last - 2].body


@ways
def test_a_steer_goes_on_from_the_answer_just_stored(stream: bool) -> None:
    """The model is sent the results alone; the client keeps the first answer's id, the vendor the second's."""

    async def talk(session: Session) -> None:
        await spun(session, stream=stream)
        scripts = [
            answer(call(3), tag="3", stream=stream),
            answer(function("call_4", name="read"), tag="4", stream=stream),
        ]
        await session.exchange(going_on(result(call(2)), after="resp_2", stream=stream), *scripts)
        news = result(function("call_4", name="read"))
        await session.exchange(going_on(news, after="resp_3", stream=stream), answer(message(), tag="5", stream=stream))

    *_, steered, following = in_session(talk, "chance_then_block").meetings
    assert heard(steered, 1)["previous_response_id"] == "resp_3"
    assert [item["call_id"] for item in heard(steered, 1)["input"]] == ["call_3"]
    said = output(steered.body) if stream else json.loads(steered.body)["output"]
    assert [item["call_id"] for item in said] == ["call_4"]
    assert b"resp_4" not in steered.body
    assert heard(following)["previous_response_id"] == "resp_4"
    assert [item["call_id"] for item in heard(following)["input"]] == ["call_4"]


def test_a_steer_in_vain_leaves_the_last_call_to_be_answered() -> None:
    """The vendor stored both answers: the next request goes on from the second and answers its call."""

    async def talk(session: Session) -> None:
        await spun(session)
        scripts = [answer(call(at), tag=str(at)) for at in (3, 4)]
        await session.exchange(going_on(result(call(2)), after="resp_2"), *scripts)
        await session.exchange(going_on("And?", after="resp_3"), answer(message(), tag="5"))

    *_, following = in_session(talk, "chance_then_block").meetings
    assert heard(following)["previous_response_id"] == "resp_4"
    assert [item.get("call_id") for item in heard(following)["input"]] == ["call_4", None]


def test_a_steer_that_fails_leaves_the_first_call_to_be_answered() -> None:
    """Nothing was stored of the second answer."""

    async def talk(session: Session) -> None:
        await spun(session)
        failing = whole(b'{"error":{"message":"overloaded"}}', 500)
        await session.exchange(going_on(result(call(2)), after="resp_2"), answer(call(3), tag="3"), failing)
        await session.exchange(going_on("And?", after="resp_3"), answer(message(), tag="4"))

    *_, following = in_session(talk, "chance_then_block").meetings
    assert heard(following)["previous_response_id"] == "resp_3"
    assert [item.get("call_id") for item in heard(following)["input"]] == ["call_3", None]


def test_a_withheld_search_for_tools_is_answered_with_none() -> None:
    """Its result has no room for a text, but it can be empty."""
    search = built_in("tool_search_call")

    async def talk(session: Session) -> None:
        await session.exchange(request("Go.", store=True), answer(search | {"call_id": "call_1"}, tag="1"))
        for at in (1, 2):
            came = result(search | {"call_id": f"call_{at}"})
            following = answer(search | {"call_id": f"call_{at + 1}"}, tag=str(at + 1))
            await session.exchange(going_on(came, after=f"resp_{at}"), following)
        await session.exchange(going_on("And?", after="resp_3"), answer(message(), tag="4"))

    *_, following = in_session(talk).meetings
    assert heard(following)["input"][0] == result(search | {"call_id": "call_3"})


def test_a_withheld_sibling_is_answered_with_the_survivors_result() -> None:
    """Its own result tells the model why; the survivor's stays as the client wrote it."""
    other = function("call_o", name="read")

    async def talk(session: Session) -> None:
        await session.exchange(request("Go.", store=True), answer(other, tag="0"))
        first = going_on(result(other), after="resp_0")
        await session.exchange(first, answer(call(1), tag="1"))
        await session.exchange(going_on(result(call(1)), after="resp_1"), answer(call(2), tag="2"))
        both = answer(call(3), other | {"call_id": "call_k", "id": "fc_k"}, tag="3")
        await session.exchange(going_on(result(call(2)), after="resp_2"), both)
        await session.exchange(
            going_on(result({**other, "call_id": "call_k"}), after="resp_3"), answer(message(), tag="4")
        )

    *_, thinned, following = in_session(talk).meetings
    assert [item["call_id"] for item in output(thinned.body)] == ["call_k"]
    withheld, kept = heard(following)["input"]
    assert (withheld["call_id"], kept["call_id"]) == ("call_3", "call_k")
    assert withheld["output"].startswith(MARK)
    assert kept["output"] == "nothing"


def test_other_outcomes_are_no_loop() -> None:
    """The results that come alone are the outcomes of the calls before: where they change, there is progress."""

    async def talk(session: Session) -> None:
        await session.exchange(request("Go.", store=True), answer(call(1), tag="1"))
        for at in (1, 2, 3):
            asked = going_on(result(call(at), f"news {chr(96 + at)}"), after=f"resp_{at}")
            await session.exchange(asked, answer(call(at + 1), tag=str(at + 1)))

    assert all(met.body == met.app.replies[0].body for met in in_session(talk).meetings)


def test_a_user_message_starts_afresh() -> None:
    """The streak is the timeline's, in a chain too, even where the user says the same again."""

    async def talk(session: Session) -> None:
        await spun(session)
        await session.exchange(going_on(result(call(2)), "Go.", after="resp_2"), answer(call(3), tag="3"))
        await session.exchange(going_on(result(call(3)), "Go.", after="resp_3"), answer(call(4), tag="4"))

    assert all(met.body == met.app.replies[0].body for met in in_session(talk).meetings)


def test_what_was_blocked_is_remembered_over_user_messages() -> None:
    """It may run once more, and is blocked at once if it brings the same; from the third block on it does not run."""

    async def talk(session: Session) -> None:
        await spun(session)
        await session.exchange(going_on(result(call(2)), after="resp_2"), answer(call(3), tag="3"))
        await session.exchange(going_on("And?", after="resp_3"), answer(call(4), tag="4"))
        await session.exchange(going_on(result(call(4)), after="resp_4"), answer(call(5), tag="5"))
        await session.exchange(going_on("And?", after="resp_5"), answer(call(6), tag="6"))
        await session.exchange(going_on(result(call(6)), after="resp_6"), answer(call(7), tag="7"))
        await session.exchange(going_on("And?", after="resp_7"), answer(call(8), tag="8"))

    meetings = in_session(talk, blow_after=0).meetings
    assert [b"call_" in met.client.body for met in meetings] == [True, True, False, True, False, True, False, False]


@ways
def test_the_fuse_of_a_chain(stream: bool) -> None:
    """It blows as any other; results still go to the vendor, and what a person types goes on from its last answer."""

    async def talk(session: Session) -> None:
        await spun(session, stream=stream)
        steps: list[tuple[Item | str, str]] = [
            (result(call(2)), "resp_2"),
            ("And?", "resp_3"),
            (result(call(4)), "resp_4"),
        ]
        steps += [("And?", "resp_5"), ("And?", "resp_5"), ("Look elsewhere.", "resp_5")]
        for at, (news, place) in enumerate(steps, 3):
            asked = going_on(news, after=place, stream=stream)
            await session.exchange(asked, answer(call(at), tag=str(at), stream=stream))

    first, free, second, blown, still, typed = in_session(talk, blow_after=2).meetings[2:]
    assert [b"call_" in met.body for met in (first, free, second)] == [False, True, False]
    for met in (blown, still):
        assert (met.app.heard, b"The fuse has blown" in met.body) == ([], True)
    assert heard(typed)["previous_response_id"] == "resp_5"
    assert heard(typed)["input"][-1]["content"] == "Look elsewhere."


def test_going_on_twice_from_one_answer() -> None:
    """A retry, or a branch, has the history that it goes on from, and no other's."""

    async def talk(session: Session) -> None:
        await spun(session)
        for _ in range(3):
            asked = going_on(result(call(1), "nothing"), after="resp_1")
            await session.exchange(asked, answer(call(2), tag="2"))

    assert all(met.body == met.app.replies[0].body for met in in_session(talk).meetings)


def test_a_chain_that_nobody_knows_passes() -> None:
    """Without its beginning nothing is counted, and nothing changed."""

    async def talk(session: Session) -> None:
        await session.exchange(going_on(result(call(7)), after="resp_of_old"), answer(call(8), tag="8"))

    (met,) = in_session(talk).meetings
    assert met.app.heard[0].body == going_on(result(call(7)), after="resp_of_old").body
    assert met.body == met.app.replies[0].body


@pytest.mark.parametrize("missing", ["No tool output found for function call call_3."])
def test_what_the_ledger_has_lost_the_vendor_tells(missing: str) -> None:
    """A refusal that names a withheld call is answered, and the client sees only the answer."""
    refusal = whole(json.dumps({"error": {"message": missing, "type": "invalid_request_error"}}).encode(), 400)

    async def talk(session: Session) -> None:
        await session.exchange(going_on("And?", after="resp_3"), refusal, answer(message(), tag="4"))

    (met,) = in_session(talk).meetings
    assert met.client.status == 200
    assert texts(output(met.body)) == ["Let me see."]
    first, second = heard(met, 1)["input"]
    assert (first["call_id"], second["role"]) == ("call_3", "user")
    assert met.app.heard[1].header(b"content-length") == str(len(met.app.heard[1].body)).encode()


def test_other_refusals_reach_the_client() -> None:
    """Start, headers and body as they came, and nothing is sent again."""
    refusal = whole(b'{"error":{"message":"Invalid input."}}', 400, (b"x-request-id", b"r"))

    async def talk(session: Session) -> None:
        await session.exchange(going_on("And?", after="resp_3"), refusal)

    (met,) = in_session(talk).meetings
    assert (met.client.status, met.body) == (400, refusal.body)
    assert met.client.header(b"x-request-id") == b"r"
    assert len(met.app.heard) == 1


@ways
def test_a_conversation_keeps_its_name(stream: bool) -> None:
    """The vendor's conversation is one lane; what it has and the client has not is answered there."""

    async def talk(session: Session) -> None:
        place: dict[str, Any] = {"conversation": {"id": "conv_1"}, "store": True, "stream": stream}
        news: list[Any] = ["Go."]
        for at in (1, 2, 3):
            await session.exchange(request(*news, **place), answer(call(at), tag=str(at), stream=stream))
            news = [result(call(at))]
        await session.exchange(request("And?", **place), answer(message(), tag="4", stream=stream))

    *_, blocked, following = in_session(talk).meetings
    assert b"call_3" not in blocked.body
    assert [item.get("call_id") for item in heard(following)["input"]] == ["call_3", None]


def test_a_signed_chain_is_only_observed() -> None:
    """What is withheld in it could never be made good for."""
    signed = (*JSON_REQUEST, (b"content-digest", b"sha-256=:x:"))

    async def talk(session: Session) -> None:
        await spun(session, headers=signed)
        for at in (2, 3, 4):
            asked = going_on(result(call(at)), after=f"resp_{at}", headers=signed)
            await session.exchange(asked, answer(call(at + 1), tag=str(at + 1)))

    session = in_session(talk, "chance_then_block")
    assert all(met.body == met.app.replies[0].body for met in session.meetings)
    assert any("action=observe" in line for met in session.meetings for _, _, line in met.log)


@pytest.mark.parametrize(
    ("items", "more", "wanted"),
    [
        (["Go."], {"store": True}, b"identity"),
        (["Go."], {"store": False}, b"gzip"),
        (["Go.", message(), "And?"], {"store": True}, b"gzip"),
        (["Go."], {"store": True, "previous_response_id": "resp_1"}, b"identity"),
    ],
)
def test_answers_that_must_be_read_are_asked_for_in_plain_bytes(
    items: list[Any], more: dict[str, Any], wanted: bytes
) -> None:
    """Only where a next request may come without this answer's calls."""
    headers = (*JSON_REQUEST, (b"accept-encoding", b"gzip"))

    async def talk(session: Session) -> None:
        await session.exchange(request(*items, headers=headers, **more), answer(message(), tag="1"))

    (met,) = in_session(talk).meetings
    assert met.app.heard[0].header(b"accept-encoding") == wanted


def test_the_log_names_one_session() -> None:
    """However often the id to go on from changes, findings are logged under the name that the chain began with."""

    async def talk(session: Session) -> None:
        await spun(session, times=5)

    lines = [line for met in in_session(talk, "observe").meetings for _, _, line in met.log]
    assert len(lines) == 3
    assert len({line.split("session")[1].split(",")[0].split(":")[0] for line in lines}) == 1


def ids_of(met: Meeting, at: int = 0) -> list[Any]:
    """The call ids of the items that the vendor got, None for messages."""
    return [item.get("call_id") for item in heard(met, at)["input"]]


OTHER, SURVIVOR = function("call_o", name="read"), function("call_k", name="read")


def in_conversation(*items: Any, stream: bool = True, **more: Any) -> Any:
    """A request in the vendor's conversation `conv_1`."""
    return request(*items, conversation="conv_1", store=True, stream=stream, **more)


async def blocked_in_conversation(session: Session, *, stream: bool = True, survivor: bool = False) -> None:
    """A conversation whose third call is withheld, perhaps beside one that is not and is no news either."""
    news: list[Any] = ["Go."]
    if survivor:
        await session.exchange(in_conversation(*news, stream=stream), answer(OTHER, tag="0", stream=stream))
        news = [result(OTHER)]
    for at in (1, 2, 3):
        beside = (SURVIVOR,) if survivor and at == 3 else ()
        brought = answer(call(at), *beside, tag=str(at), stream=stream)
        await session.exchange(in_conversation(*news, stream=stream), brought)
        news = [result(call(at))]


@ways
@pytest.mark.parametrize("survivor", [False, True], ids=["alone", "beside"])
def test_what_is_unanswered_is_answered_once(stream: bool, survivor: bool) -> None:
    """In a conversation, whose lane keeps its name: the vendor refuses an output for a call that has one already."""

    async def talk(session: Session) -> None:
        await blocked_in_conversation(session, stream=stream, survivor=survivor)
        news: list[Any] = [result(SURVIVOR)] if survivor else ["And?"]
        for at in range(4):
            said = answer(message(), tag=f"t{at}", stream=stream)
            await session.exchange(in_conversation(*news, stream=stream), said)
            news = [f"Go on {at}."]

    first, *later = in_session(talk).meetings[-4:]
    assert ids_of(first) == ["call_3", "call_k" if survivor else None]
    assert [ids_of(met) for met in later] == [[None]] * 3
    assert all(b"call_3" not in met.app.heard[0].body for met in later)


@ways
def test_what_is_unanswered_waits_for_an_answer(stream: bool) -> None:
    """A vendor that fails has stored nothing, so the next try brings the output again."""

    async def talk(session: Session) -> None:
        await blocked_in_conversation(session, stream=stream)
        for status in (500, 429, 200, 200):
            said = answer(message(), tag="t", stream=stream) if status == 200 else whole(b'{"error":{}}', status)
            await session.exchange(in_conversation("And?", stream=stream), said)

    assert [ids_of(met) for met in in_session(talk).meetings[-4:]] == [["call_3", None]] * 3 + [[None]]


@ways
def test_a_chain_in_text_stays_as_it_is(stream: bool) -> None:
    """Each answer has an id of its own: only a request that goes on from the one with the withheld call answers it."""

    async def talk(session: Session) -> None:
        await spun(session, stream=stream, times=3)
        for after, tag in (("3", "4"), ("4", "5"), ("5", "6"), ("3", "7")):
            asked = going_on("And?", after=f"resp_{after}", stream=stream)
            await session.exchange(asked, answer(message(), tag=tag, stream=stream))

    *_, first, second, third, branch = in_session(talk).meetings
    assert [ids_of(met) for met in (first, second, third, branch)] == [
        ["call_3", None], [None], [None], ["call_3", None],
    ]  # fmt: skip


@ways
def test_a_steered_conversation_goes_on(stream: bool) -> None:
    """Both answers of a steer are in the conversation, and what the second left open is answered once."""

    async def talk(session: Session) -> None:
        for at in (1, 2):
            news: list[Any] = [result(call(at - 1))] if at > 1 else ["Go."]
            await session.exchange(in_conversation(*news, stream=stream), answer(call(at), tag=str(at), stream=stream))
        tries = [answer(call(at), tag=str(at), stream=stream) for at in (3, 4)]
        await session.exchange(in_conversation(result(call(2)), stream=stream), *tries)
        for at in range(3):
            await session.exchange(in_conversation("And?", stream=stream), answer(message(), tag=f"t{at}"))

    *_, steered, first, second, third = in_session(talk, "chance_then_block").meetings
    assert [ids_of(steered), ids_of(steered, 1)] == [["call_2"], ["call_3"]]
    assert [ids_of(met) for met in (first, second, third)] == [["call_4", None], [None], [None]]


def test_an_output_that_the_vendor_does_not_want_is_taken_back() -> None:
    """A ledger that is behind, e.g. that of another worker: the vendor names the call, and callfuse's output goes."""
    said = "No tool call found for function call output with call_id call_3."
    refusal = whole(json.dumps({"error": {"message": said, "type": "invalid_request_error"}}).encode(), 400)

    async def talk(session: Session) -> None:
        await blocked_in_conversation(session)
        await session.exchange(in_conversation("And?"), refusal, answer(message(), tag="4"))

    *_, met = in_session(talk).meetings
    assert met.client.status == 200
    assert [ids_of(met), ids_of(met, 1)] == [["call_3", None], [None]]


def test_an_output_of_the_client_is_not_taken_back() -> None:
    """What the vendor says of it is the client's to read."""
    said = "No tool call found for function call output with call_id call_9."
    refusal = whole(json.dumps({"error": {"message": said}}).encode(), 400)

    async def talk(session: Session) -> None:
        await session.exchange(in_conversation(result(call(9))), refusal)

    (met,) = in_session(talk).meetings
    assert (met.client.status, met.body, len(met.app.heard)) == (400, refusal.body, 1)


@pytest.mark.parametrize("ends", [True, False])
@pytest.mark.parametrize("framewise", [True, False])
def test_an_answer_in_text_is_read_however_it_comes(framewise: bool, ends: bool) -> None:
    """Event by event or at once, of a vendor whose responses hold no word like a call's."""
    plain = answer(message(), tag="t").body.replace(b'"parallel_tool_calls": true, ', b"")
    assert b"_call" not in plain
    chunks = tuple(one + b"\n\n" for one in plain.split(b"\n\n")[:-1]) if framewise else (plain,)

    async def talk(session: Session) -> None:
        await blocked_in_conversation(session)
        for _ in range(2):
            await session.exchange(
                in_conversation("And?"), replace(answer(message(), tag="t"), chunks=chunks, ends=ends)
            )

    *_, first, second = in_session(talk).meetings
    assert [ids_of(first), ids_of(second)] == [["call_3", None], [None]]
    assert first.body == plain


@ways
def test_reminders_answered_in_text_do_not_end_a_chain(stream: bool) -> None:
    """A harness that writes into the conversation by itself starts nothing afresh, with or without calls in between."""
    nudge = {"role": "user", "content": "<system-reminder>Go on.</system-reminder>"}

    async def talk(session: Session) -> None:
        await spun(session, stream=stream)
        for at, news in enumerate((result(call(2)), nudge, nudge)):
            asked = going_on(news, after=f"resp_{at + 2}", stream=stream)
            await session.exchange(asked, answer(message(), tag=str(at + 3), stream=stream))
        await session.exchange(going_on(nudge, after="resp_5", stream=stream), answer(call(6), tag="6", stream=stream))

    *_, last = in_session(talk).meetings
    assert b"call_6" not in last.body
    assert MARK.encode() in last.body


def test_a_chain_of_streams_in_the_background() -> None:
    """Guarded as any: the third call is withheld, its request goes on from the steer's, and each call has a result."""

    async def talk(session: Session) -> None:
        await spun(session, background=True)
        await session.exchange(
            going_on(result(call(2)), after="resp_2", background=True),
            answer(call(3), tag="3"),
            answer(message("Another way."), tag="4"),
        )
        await session.exchange(going_on("And?", after="resp_3", background=True), answer(message("Ok."), tag="5"))

    *_, steered, last = in_session(talk, "chance_then_block").meetings
    assert "call_3" not in json.dumps(output(steered.body))
    assert heard(steered, 1)["previous_response_id"] == "resp_3"
    assert heard(steered, 1)["background"] is True
    assert heard(last)["previous_response_id"] == "resp_4"
