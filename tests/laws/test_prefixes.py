"""Law 5, refined: a held call leaves with the characters that show that it is none of the calls that it could be.

What that changes is when bytes leave, and nothing else: the same exchange, with calls held to their ends, gives the
same bytes, requests and log (laws 2, 3 and 5).
"""

from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callfuse.guard.judge import Judge
from tests.support.config import LADDERS
from tests.support.kits import DialectKit
from tests.support.meeting import Meeting, ask, every_dialect, framewise, meet, reply
from tests.support.model import Answer, Call, Choice, History, canonical
from tests.support.plain import saying, spin
from tests.support.streams import KNOWN, calls_of, chunkings, fresh, looping, quirks, split, tangled
from tests.support.wire import bytewise, quiet

NEAR: list[tuple[str, dict[str, Any]]] = [
    ("search", {"query": "zebra crossing", "limit": 50}),
    ("search", {"query": "zebra crossings", "limit": 5}),
    ("search", {"query": "zebra crossing"}),
    ("search", {"query": "zebra crossing", "limit": 5, "page": [1, "2"]}),
    ("search", {"query": ["zebra crossing"], "limit": 5}),
    ("search", {"limit": "5", "query": "zebra crossing"}),
    ("search", {}),
]
"""Calls that are nearly those that histories repeat."""
ODD = [
    '{"query": "zebra", "query": "zebra crossing", "limit": 5}',
    '{"query": "zebra crossing", "limit": 5, "query": "zebra"}',
    '{"limit": 5.0, "query": "zebra crossing", "limit": 5}',
    '{"qu\\u0065ry": "\\u007aebra\\u0020crossing", "limit": 5e0}',
    '{"query": "zebra crossing\\ud83e\\udd93", "limit": 5}',
]
"""The repeated call, or one that is nearly the same, in an odd hand."""


def outcome(met: Meeting) -> tuple[Any, ...]:
    """All that must not depend on when a call leaves."""
    asked = [(heard.body, heard.headers) for heard in met.app.heard]
    return met.body, met.client.start, met.client.complete, repr(met.client.raised), asked, met.log


@st.composite
def spoken(draw: st.DrawFn, kit: DialectKit, tag: str) -> Answer:
    """An answer with a call or two, known, nearly known or new, in any hand."""
    which = draw(st.lists(st.sampled_from([*KNOWN, *NEAR, fresh(0)]), min_size=1, max_size=2))
    calls = draw(calls_of(which, f"call_{tag}N"))
    if draw(st.integers(0, 2)) == 0:
        calls = (*calls, Call(f"call_{tag}Odd", "search", draw(split(draw(st.sampled_from(ODD))))))
    said: Choice = (*saying("So.").choices[0], *calls)
    return Answer((said,), draw(quirks(kit)), draw(st.booleans()), tag)


@pytest.mark.slow
@every_dialect
@given(data=st.data())
def test_when_a_call_leaves_changes_nothing_else(kit: DialectKit, data: st.DataObject) -> None:
    """Byte by byte, whole or cut anywhere, with each call held to its end or not: the same exchange."""
    history = data.draw(looping(beside=True) | tangled())
    answers = [data.draw(spoken(kit, tag)) for tag in ("first", "second")]
    ladder = data.draw(st.sampled_from(list(LADDERS)))
    request = ask(kit, history, stream=True)

    def met(*, way: str) -> tuple[Any, ...]:
        scripts = [reply(kit, answer, stream=True) for answer in answers]
        if way == "bytes":
            scripts = [script.cut(bytewise(script.body)) for script in scripts]
        elif way == "cut":
            scripts = [script.cut(data.draw(chunkings(script.body))) for script in scripts]
        return outcome(meet(request, scripts, ladder))

    with patch.object(Judge, "comparison", lambda *_: None):
        held, *rest_of_held = met(way="whole")
    left, *rest = met(way="whole")
    assert quiet(left) == quiet(held), "only keep-alives overtake a call that waits"
    assert rest == rest_of_held
    assert met(way="bytes") == (left, *rest)
    assert met(way="cut") == (left, *rest)


STREAMS_PIECES = (
    *("openai-chat", "openai-responses", "anthropic", "cohere-v2"),
    *("bedrock-converse", "gemini-interactions"),
)


def in_pieces(kit: DialectKit) -> bool:
    """Whether the arguments come in pieces of text; the others bring each call at once."""
    return kit.name in STREAMS_PIECES


def bytes_by_frame(kit: DialectKit, history: History, *pieces: str, **settings: Any) -> tuple[list[bytes], list[bytes]]:
    """What the app has sent by each frame, and what the client has by then, where a call comes in these pieces."""
    sent = framewise(kit, saying("So.", Call("call_new", "search", pieces)))
    met = meet(ask(kit, history, stream=True), [sent], **settings)
    raw = [b"".join(sent.chunks[: at + 1]) for at in range(len(sent.chunks))]
    return raw, [met.client.body_by(at) for at in range(len(raw))]


@every_dialect
def test_it_leaves_with_the_piece_that_differs(kit: DialectKit) -> None:
    """Nothing of it before, and each later piece as it comes."""
    pieces = ('{"limit"', ': 5, "query": "zebra cro', "codile", ' in the river", ', '"more": [1]}')
    raw, had = bytes_by_frame(kit, spin(), *pieces)
    if not in_pieces(kit):
        assert had[-1] == raw[-1]
        return
    told = next(at for at, sent in enumerate(raw) if b"codile" in sent)
    assert had[told:] == raw[told:]
    for sent, got in zip(raw[:told], had[:told], strict=True):
        assert b"call_new" not in got
        assert b"zebra" not in got
        assert sent.startswith(got)


@every_dialect
@pytest.mark.parametrize(
    "settings",
    [{"similarity_threshold": 0.9}, {"max_calls_of_tool": 2}, {"max_calls": 2}],
    ids=lambda one: next(iter(one)),
)
def test_it_waits_for_its_end_where_any_call_could_be_a_loop(kit: DialectKit, settings: dict[str, Any]) -> None:
    """Nearly equal calls, or any call of the tool, may be withheld: then no prefix tells."""
    if not in_pieces(kit):
        return
    raw, had = bytes_by_frame(kit, spin(), '{"query": "', "nothing of the kind", ", really not", '"}', **settings)
    told = next(at for at, sent in enumerate(raw) if b"nothing" in sent)
    assert b"call_new" not in had[told]


@every_dialect
def test_what_is_ignored_tells_nothing(kit: DialectKit) -> None:
    """An argument that does not tell calls apart does not let one go."""
    ignoring: dict[str, Any] = {"per_tool": {"search": {"ignore": ["request_id"]}}}
    pieces = ('{"request_id": "number nine", ', '"query": "zebra crossing"', ', "limit": 5', "}")
    raw, had = bytes_by_frame(kit, spin(), *pieces, **ignoring)
    assert b"call_new" not in had[-1]
    raw, had = bytes_by_frame(kit, spin(), *pieces)
    assert had[-1] == raw[-1]
    if in_pieces(kit):
        told = next(at for at, sent in enumerate(raw) if b"number nine" in sent)
        assert had[told:] == raw[told:]


@every_dialect
def test_a_call_that_has_left_is_no_survivor_too_many(kit: DialectKit) -> None:
    """The looping call behind it is withheld all the same, and the rest stays."""
    other = Call("call_kept", "lookup", ('{"id"', ": 90071992", "54740993}"))
    loop = Call("call_loop", "search", ('{"query": "zebra', ' crossing", "limit"', ": 5}"))
    near = Call("call_near", "search", ('{"query": "zebra crossing", ', '"limit": 7}'))
    history = History((*spin(2, beside=True).turns,))
    for calls in ((other, loop), (near, loop), (loop, near)):
        answer = saying("So.", *calls)
        met = meet(ask(kit, history, stream=True), [framewise(kit, answer)])
        (view,) = kit.sdk(met.body, stream=True)
        kept = [call.id for call in view.calls]
        if near in calls:  # new in this round: progress, which frees the other
            assert kept == [call.id for call in calls]
        else:
            assert kept == ["call_kept"]


@every_dialect
def test_two_values_of_one_argument_are_no_loop(kit: DialectKit) -> None:
    """Streamed and whole: it is told from others by the first of them. Where arguments come parsed the last counts."""
    odd = Call("call_odd", "search", ('{"query": "okapi", ', '"limit": 5, ', '"query": "zebra crossing"}'))
    text = kit.name in ("openai-chat", "openai-responses", "cohere-v2")
    for stream in (True, False) if text else (True,) if in_pieces(kit) else ():
        met = meet(ask(kit, spin(), stream=stream), [reply(kit, saying("So.", odd), stream=stream)])
        assert met.body == reply(kit, saying("So.", odd), stream=stream).body


@every_dialect
def test_a_callback_may_withhold_any_finding(kit: DialectKit) -> None:
    """Even where the ladder only warns: what has no finding leaves, what has one waits for its answer."""
    request, pieces = ask(kit, spin(), stream=True), ('{"query": "zebra', ' crossing", ', '"limit": 5}')
    looping_ = saying("So.", Call("call_same", "search", pieces))
    assert b"call_same" not in meet(request, [framewise(kit, looping_)], "warn", on_loop=lambda _: "block").body
    raw, had = bytes_by_frame(
        kit, spin(), '{"query": "okapi', "s", ' all over"}', ladder="warn", on_loop=lambda _: "block"
    )
    assert had[-1] == raw[-1]
    if in_pieces(kit):
        told = next(at for at, sent in enumerate(raw) if b"okapi" in sent)
        assert had[told:] == raw[told:]


@every_dialect
def test_a_steered_answer_leaves_as_early(kit: DialectKit) -> None:
    """The model is asked again, and what it calls then is told from what was withheld by its first pieces."""
    first = saying("So.", Call("call_same", "search", ('{"query": "zebra crossing", ', '"limit": 5}')))
    pieces = ('{"query": "zebra', " in the zoo", ' of Basel", ', '"limit": 5}')
    second = framewise(kit, saying("Then.", Call("call_new", "search", pieces), tag="second"))
    scripts = [reply(kit, first, stream=True), second]
    met = meet(ask(kit, spin(), stream=True), scripts, "chance_then_block")
    (view,) = kit.sdk(met.body, stream=True)
    assert [call.arguments for call in view.calls] == [canonical("".join(pieces))]
    assert len(met.app.heard) == 2
    if in_pieces(kit):
        told = next(at for at, chunk in enumerate(second.chunks) if b"in the zoo" in chunk)
        assert b"in the zoo" in met.client.body_by(1 + told)
        assert b"call_new" not in met.client.body_by(told)
