"""Laws 1 and 5: text is never delayed, and a call is held only while it could be a loop.

"In the same turn" is exact: while the app's `send` of a chunk has not returned, the client has the bytes.
"""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.asgi import Watch, drive
from tests.support.config import ACTING, LADDERS, ONLY_REPEATS, guard
from tests.support.kits import DialectKit
from tests.support.meeting import ask, every_dialect, framewise, ids_of, meet, reply
from tests.support.model import Answer, Call, Frame
from tests.support.oracle import loops, may_be_too_many, may_loop
from tests.support.plain import PIECES, new_call, same_call, saying, spin
from tests.support.scripted import Reply, play
from tests.support.streams import KNOWN, answers, chunkings, fresh, healthy, looping, tangled
from tests.support.wire import frames


def prompt(kit: DialectKit, answer: Answer, held: frozenset[int]) -> list[int]:
    """For each frame of an answer, how many bytes the client must have when that frame has been sent.

    A held call keeps back its own frames and nothing before them, until it ends: with its closing frame, or with the
    next call or the finish.
    """
    needed, waits, out, kept = [], False, 0, 0
    for frame in kit.frames(answer):
        waits = _waits(frame, held, waits=waits)
        kept = kept + len(frame.raw) if waits else 0
        out += len(frame.raw)
        needed.append(out - kept)
    return needed


def _waits(frame: Frame, held: frozenset[int], *, waits: bool) -> bool:
    if frame.kind == "noise" or (waits and frame.kind == "piece"):
        return waits  # text between the pieces of a call does not end it
    return frame.item in held and frame.kind != "close"


@every_dialect
@given(data=st.data())
def test_every_frame_leaves_in_the_turn_of_its_last_byte(kit: DialectKit, data: st.DataObject) -> None:
    """In a healthy conversation, whatever the chunks, no finished frame is ever waiting."""
    answer = data.draw(answers(kit, data.draw(st.sampled_from([[], [fresh(0)], [fresh(0), KNOWN[0]]]))))
    script = reply(kit, answer, stream=True)
    chunks = data.draw(chunkings(script.body))
    request = ask(kit, data.draw(healthy()), stream=True, n=len(answer.choices))
    met = meet(request, [script.cut(chunks)], data.draw(st.sampled_from(list(LADDERS))))
    ends = [0]
    for frame in frames(script.body):
        ends.append(ends[-1] + len(frame))
    if answer.quirks.unterminated:
        ends.pop()
    arrived = 0
    for chunk, had in zip(chunks, met.client.lengths(len(chunks)), strict=True):
        arrived += len(chunk)
        finished = max(end for end in ends if end <= arrived)
        # A lone CR may yet become CRLF, so a frame that ends in one may wait for the next byte.
        slack = 1 if answer.quirks.newline == "\r" and finished == arrived else 0
        assert slack or had >= finished


@every_dialect
@given(data=st.data())
def test_only_the_call_that_could_loop_waits(kit: DialectKit, data: st.DataObject) -> None:
    """Under suspicion text and calls of other tools leave at once; an innocent suspect leaves at its own end."""
    answer = data.draw(answers(kit, [KNOWN[2], fresh(0), fresh(1)], plain=True, many=False))
    history = data.draw(looping())
    held = frozenset(
        at for at, item in enumerate(answer.choices[0]) if isinstance(item, Call) and may_loop(history, item.name)
    )
    assert held, "the calls of the looping tool are suspects"
    met = meet(
        ask(kit, history, stream=True), [framewise(kit, answer)], data.draw(st.sampled_from(ACTING)), **ONLY_REPEATS
    )
    for turn, needed in enumerate(prompt(kit, answer, held)):
        assert len(met.client.body_by(turn)) >= needed


@every_dialect
@given(data=st.data())
def test_what_cannot_fire_is_not_held_and_what_acts_was(kit: DialectKit, data: st.DataObject) -> None:
    """Over any history: calls that no arguments could make a loop stream through; of what is withheld nothing left. The
    first call that could be one too many of its answer is held at most to its own end."""
    history = data.draw(tangled())
    which = data.draw(st.lists(st.sampled_from([*KNOWN, fresh(0), fresh(20)]), min_size=1, max_size=3))
    answer = data.draw(answers(kit, which, plain=True, many=False))
    met = meet(ask(kit, history, stream=True), [framewise(kit, answer)], **ONLY_REPEATS)
    gone = loops(history, answer.calls())
    assert not any(call_id in met.body for call_id in ids_of(gone))
    if any(may_loop(history, call.name) for call in answer.calls()):
        return
    if not all("".join(call.pieces) for call in answer.calls()):  # its name may go on, so it may be any tool's
        return
    suspects = may_be_too_many(history, answer.calls())
    held = frozenset(at for at, item in enumerate(answer.choices[0]) if item in suspects)
    assert bool(held) >= bool(gone)
    at_least, at_most = prompt(kit, answer, held), prompt(kit, answer, frozenset())
    for turn, frame in enumerate(kit.frames(answer)):
        if frame.item is not None and answer.choices[0][frame.item] in gone:
            break
        assert at_least[turn] <= len(met.client.body_by(turn)) <= at_most[turn]


@every_dialect
async def test_the_app_may_wait_for_its_reader(kit: DialectKit) -> None:
    """An app that sends a piece only after the client has seen the one before runs to its end."""
    watch = Watch()
    answer = saying("first piece", "second piece", new_call())
    raw = [frame.raw for frame in kit.frames(answer)]

    async def gate(at: int) -> None:
        if at:
            await watch.until(raw[at - 1])

    app = play(Reply(tuple(raw), gate=gate))
    exchange = await drive(guard(app), ask(kit, spin(1), stream=True), on_bytes=watch.feed)
    assert exchange.raised is None
    assert exchange.body == b"".join(raw)


@every_dialect
async def test_text_before_a_held_call_is_seen_before_the_verdict(kit: DialectKit) -> None:
    """The client reads the text while the call behind it is still being held, and nothing of the call."""
    watch = Watch()
    answer = saying("Let me look.", same_call())
    listed = kit.frames(answer)
    last_piece = max(at for at, frame in enumerate(listed) if frame.item == 1)

    async def gate(at: int) -> None:
        if at == last_piece:
            await watch.until(b"Let me look.")
            assert not watch.has(b"call_again")
            assert not watch.has(PIECES[0][-4:].encode())

    app = play(Reply(tuple(frame.raw for frame in listed), gate=gate))
    exchange = await drive(guard(app), ask(kit, spin(), stream=True), on_bytes=watch.feed)
    assert exchange.raised is None
    assert b"call_again" not in exchange.body
