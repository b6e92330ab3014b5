"""Law 2, split-blind: how the upstream bytes are cut changes nothing, neither on the wire nor in the verdicts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.config import LADDERS
from tests.support.hosted import HOSTING, hosting_frames, hosting_whole
from tests.support.kits import KITS, DialectKit, stream_of
from tests.support.meeting import Meeting, ask, every_dialect, framewise, meet, reply
from tests.support.model import Answer, History, Text, User
from tests.support.plain import again, elsewhere, known_call, same_call, spin
from tests.support.scripted import Reply, whole
from tests.support.streams import KNOWN, answers, chunkings, fresh, looping
from tests.support.wire import frames as frames_of

SHAPES = [
    [KNOWN[0]],
    [KNOWN[0], KNOWN[1]],
    [KNOWN[1], KNOWN[0], KNOWN[3]],
    [KNOWN[0], KNOWN[0]],
    [KNOWN[0], fresh(0)],
    [],
]
"""Answers to a conversation that spins on the first known call: alone, beside survivors, twice, beside a new call."""


def outcome(met: Meeting) -> tuple[bytes, *tuple[object, ...]]:
    """All that must not depend on the cuts."""
    asked = [(heard.body, heard.headers) for heard in met.app.heard]
    return met.body, met.client.start, met.client.complete, repr(met.client.raised), asked, met.log


@every_dialect
@given(data=st.data())
def test_any_two_ways_to_cut_are_one(kit: DialectKit, data: st.DataObject) -> None:
    """Whole, byte by byte or cut anywhere, in the first answer and the second: same bytes, same requests, same log."""
    history = data.draw(looping(beside=True))
    first = data.draw(answers(kit, data.draw(st.sampled_from(SHAPES))))
    second = data.draw(answers(kit, data.draw(st.sampled_from(SHAPES)), tag="second", many=False))
    ladder = data.draw(st.sampled_from(list(LADDERS)))
    request = ask(kit, history, stream=True, n=len(first.choices))

    def scripts(*, cuts: bool) -> list[Reply]:
        return [_cut(kit, answer, data, cuts=cuts) for answer in (first, second)]

    assert outcome(meet(request, scripts(cuts=True), ladder)) == outcome(meet(request, scripts(cuts=False), ladder))


@pytest.mark.slow
@every_dialect
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_a_keep_alive_behind_the_end(kit: DialectKit, ladder: str) -> None:
    """It stays behind the verdict, whatever chunk it comes in."""
    frames = [frame.raw for frame in kit.frames(again())]
    beat = b": beat\n\n" if frames[0].startswith((b"data:", b"event:")) else b"\n"
    for at in range(1, len(frames) + 1):
        chunks = (*frames[:at], beat, *frames[at:])
        scripts = [(Reply(one), reply(kit, elsewhere(), stream=True)) for one in (chunks, (b"".join(chunks),))]
        apart, joined = (outcome(meet(ask(kit, spin(), stream=True), script, ladder)) for script in scripts)
        assert apart == joined


def _cut(kit: DialectKit, answer: Answer, data: st.DataObject, *, cuts: bool) -> Reply:
    script = reply(kit, answer, stream=True)
    return script.cut(data.draw(chunkings(script.body))) if cuts else script


@every_dialect
@given(data=st.data())
def test_whole_answers_may_come_in_pieces(kit: DialectKit, data: st.DataObject) -> None:
    """A JSON answer that an app sends in pieces is judged and changed like one sent whole."""
    history = data.draw(looping(beside=True))
    first = data.draw(answers(kit, data.draw(st.sampled_from(SHAPES))))
    second = data.draw(answers(kit, [], tag="second", many=False))
    ladder = data.draw(st.sampled_from(list(LADDERS)))
    request = ask(kit, history, stream=False, n=len(first.choices))
    blanks = data.draw(st.sampled_from([b"", b"\n", b" \r\n\t "]))
    scripts = [whole(blanks + kit.whole(answer)) for answer in (first, second)]
    pieces = [script.cut(data.draw(chunkings(script.body))) for script in scripts]
    assert outcome(meet(request, scripts, ladder)) == outcome(meet(request, pieces, ladder))


def hosting(kit: DialectKit, choices: int, *, after: bool) -> tuple[Answer, int]:
    """An answer with a looping call before or after two texts, and the place of the first of them."""
    texts = (Text(("Let ",)), Text(("me look.",)))
    said = [(Text(("So",)), *((same_call(f"call_{at}"), *texts) if after else (*texts, same_call(f"call_{at}"))))
            for at in range(choices)]  # fmt: skip
    return Answer(tuple(said)), 2 if after else 1


def every(size: int, body: bytes) -> tuple[bytes, ...]:
    """A body in chunks of one size."""
    return tuple(body[at : at + size] for at in range(0, len(body), size))


@pytest.mark.parametrize("kit", HOSTING, ids=lambda kit: type(kit).__name__)
@pytest.mark.parametrize("done", [False, True], ids=["waits", "done"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("ladder", ["block", "chance_then_block"])
def test_tools_that_the_vendor_runs(kit: DialectKit, ladder: str, *, after: bool, done: bool) -> None:
    """However an answer with a vendor's own tool is cut, in one choice or several, streamed or whole."""
    for choices in range(1, kit.most_choices + 1):
        answer, at = hosting(kit, choices, after=after)
        frames = tuple(frame.raw for frame in hosting_frames(kit, answer, at, done=done))
        body = b"".join(frames)
        second = reply(kit, elsewhere(), stream=True)
        request = ask(kit, spin(), stream=True, n=choices)
        ways = [frames, (body,), every(7, body), every(100, body)]
        found = [outcome(meet(request, [Reply(chunks), second], ladder)) for chunks in ways]
        assert [one for one in found if one != found[0]] == []
        one_body = whole(hosting_whole(kit, answer, at, done=done))
        request = ask(kit, spin(), stream=False, n=choices)
        second = reply(kit, elsewhere(), stream=False)
        ways = [one_body.chunks, every(7, one_body.body)]
        apart, joined = (outcome(meet(request, [one_body.cut(way), second], ladder)) for way in ways)
        assert apart == joined


@every_dialect
@pytest.mark.parametrize("ladder", ["warn", "block"])
def test_text_that_is_longer_than_what_is_read(kit: DialectKit, ladder: str) -> None:
    """A frame of text over `max_response_bytes` ends the reading before the call behind it, in one piece and in many,
    whatever came before."""
    for said in (["x" * 3000], ["So.", "x" * 3000], ["x" * 900] * 4):
        body = stream_of(kit, Answer(((Text(tuple(said)), same_call("call_a")),)))
        request = ask(kit, spin(), stream=True)
        ways = [(body,), tuple(frames_of(body)), every(700, body), every(1999, body), every(2001, body)]
        found = [outcome(meet(request, [Reply(chunks)], ladder, max_response_bytes=2000)) for chunks in ways]
        assert [one for one in found if one != found[0]] == []


@every_dialect
@pytest.mark.parametrize("ladder", ["observe", "block"])
def test_text_before_a_call_takes_nothing_of_what_is_read(kit: DialectKit, ladder: str) -> None:
    """Short frames of text may pass unread, also where the vendor stores answers: else the cuts would decide."""
    body = stream_of(kit, Answer(((Text(("x" * 300,) * 4), same_call("call_a")),)))
    request = ask(kit, spin(), stream=True)
    ways = [(body,), tuple(frames_of(body)), every(700, body)]
    for limit in (2000, 2600, 4000):
        found = [outcome(meet(request, [Reply(chunks)], ladder, max_response_bytes=limit)) for chunks in ways]
        assert [one for one in found if one != found[0]] == []


@every_dialect
def test_what_a_writer_knows_of_frames_before_the_call(kit: DialectKit) -> None:
    """However many come in a chunk: here the first one says nothing of the answer, or is none that can be read."""
    calls = [same_call(f"call_{at}") for at in range(6)]
    body = stream_of(kit, Answer(((Text(("So.", " Now,")), *calls),)))
    first = frames_of(body)[0]
    for spoilt in (first.replace(b'":', b'_":'), b": {\n\n" + first, first.replace(b"{", b"")):
        changed = body.replace(first, spoilt, 1)
        request = ask(kit, History((User("Find the zebra."),)), stream=True)
        ways = [(changed,), tuple(frames_of(changed)), every(100, changed), every(500, changed)]
        found = [outcome(meet(request, [Reply(chunks)], "block")) for chunks in ways]
        assert [one for one in found if one != found[0]] == []


def test_only_the_frames_that_are_read_tell_the_writer() -> None:
    """Of several frames of text in one chunk, the first: here only the second one has a time."""
    kit = next(kit for kit in KITS if kit.name == "ollama")
    calls = [same_call(f"call_{at}") for at in range(6)]
    frames = frames_of(stream_of(kit, Answer(((Text(("So.", " Now,")), *calls),))))
    untimed = [one if at == 1 else one.replace(b'"created_at"', b'"made_at"') for at, one in enumerate(frames)]
    body = b"".join(untimed)
    request = ask(kit, History((User("Find the zebra."),)), stream=True)
    ways = [(body,), tuple(untimed), every(100, body), (untimed[0] + untimed[1], *untimed[2:])]
    found = [outcome(meet(request, [Reply(chunks)], "block")) for chunks in ways]
    assert b'"created_at":"1970' in found[0][0]
    assert [one for one in found if one != found[0]] == []


@every_dialect
def test_blank_lines_between_frames(kit: DialectKit) -> None:
    """They may come with the frame before or behind them, before any call and after."""
    frames = frames_of(stream_of(kit, Answer(((Text(("So.", " Now,")), same_call("call_a")),))))
    blanks = b"" if kit.name == "bedrock-converse" else b"\n\n"
    request = ask(kit, History((User("Find the zebra."),)), stream=True)
    for at in range(1, len(frames)):
        first, rest = b"".join(frames[:at]), b"".join(frames[at:])
        for cut in range(len(blanks) + 1):
            chunks = (first + blanks[:cut], blanks[cut:] + rest[:-20], rest[-20:])
            assert meet(request, [Reply(chunks)], "block").body == first + blanks + rest


@every_dialect
def test_a_later_answer_with_text_that_is_longer_than_what_is_read(kit: DialectKit) -> None:
    """A frame over `max_response_bytes` in the answer to the second request, in one piece and in many."""
    first = framewise(kit, again())
    for said in (["x" * 3000], ["So.", "x" * 3000, "Then."], ["x" * 900] * 4):
        body = stream_of(kit, Answer(((Text(tuple(said)), known_call("call_b")),)))
        request = ask(kit, spin(), stream=True)
        ways = [(body,), tuple(frames_of(body)), every(700, body), every(1999, body), every(2001, body)]
        found = [
            outcome(meet(request, [first, Reply(chunks)], "chance_then_block", max_response_bytes=2000))
            for chunks in ways
        ]
        assert [one for one in found if one != found[0]] == []
