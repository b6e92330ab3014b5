"""Laws 3 and 4: of a withheld call nothing arrives as a call, and what does arrive is a valid stream of its dialect."""

import json
import logging

from hypothesis import given
from hypothesis import strategies as st

from tests.support.asgi import Watch, drive
from tests.support.config import ACTING, ONLY_REPEATS, guard
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, ask, every_dialect, ids_of, meet, reply, streamed_and_whole
from tests.support.model import Call, seen
from tests.support.oracle import loops
from tests.support.plain import again, saying, spin
from tests.support.scripted import Reply, play
from tests.support.streams import KNOWN, answers, chunkings, fresh, looping, tangled
from tests.support.wire import cut, quiet

LATER = ("second", "third", "fourth")
ROUNDS = [
    [KNOWN[0]],
    [KNOWN[0], KNOWN[0]],
    [KNOWN[0], KNOWN[1]],
    [KNOWN[1], KNOWN[0]],
    [KNOWN[3], KNOWN[0], KNOWN[1]],
]


@every_dialect
@streamed_and_whole
@given(data=st.data())
def test_withheld_calls_are_gone_and_the_rest_is_valid(kit: DialectKit, stream: bool, data: st.DataObject) -> None:
    """Under every acting ladder the client has exactly the calls that are no loops, in an answer that its SDK takes."""
    history = data.draw(looping(beside=True))
    answer = data.draw(answers(kit, data.draw(st.sampled_from(ROUNDS))))
    script = reply(kit, answer, stream=stream)
    script = script.cut(data.draw(chunkings(script.body)))
    # Later answers that go on looping: every ladder ends in a block.
    later = [data.draw(answers(kit, [KNOWN[0]], tag=tag, many=False)) for tag in LATER]
    ladder = data.draw(st.sampled_from(ACTING))
    scripts = [script, *(reply(kit, one, stream=stream) for one in later)]
    met = meet(ask(kit, history, stream=stream, n=len(answer.choices)), scripts, ladder, **ONLY_REPEATS)
    assert met.client.status == 200
    assert met.client.complete
    if stream:
        assert kit.faults(met.body) == []
    views, untouched = (kit.read(body, stream=stream) for body in (met.body, script.body))
    if answer.quirks.sdk_reads:
        assert kit.sdk(met.body, stream=stream) == views
    for at, view in enumerate(views):
        gone = loops(history, answer.calls(at))
        assert gone, "the conversation spins on the first known call"
        assert view.calls == tuple(seen(call) for call in answer.calls(at) if call not in gone)
        assert view.finish == (untouched[at].finish if view.calls else kit.stopped)
        assert view.text.startswith(answer.text(at))
        assert (MARK in view.text) is not bool(view.calls)
        assert not any(call_id in met.body for call_id in ids_of(gone))
    assert not any(b"call_" + tag.encode() in met.body for tag in LATER)


@every_dialect
@streamed_and_whole
@given(data=st.data())
def test_the_verdict_is_the_oracles(kit: DialectKit, stream: bool, data: st.DataObject) -> None:
    """Over any history, exactly the calls that repeat are withheld, and each finding is logged once."""
    history = data.draw(tangled())
    which = data.draw(st.lists(st.sampled_from([KNOWN[0], KNOWN[0], *KNOWN, fresh(0), fresh(20)]), max_size=3))
    answer = data.draw(answers(kit, which, many=False))
    gone = loops(history, answer.calls())
    met = meet(ask(kit, history, stream=stream), [reply(kit, answer, stream=stream)], **ONLY_REPEATS)
    (view,) = kit.read(met.body, stream=stream)
    assert view.calls == tuple(seen(call) for call in answer.calls() if call not in gone)
    assert bool(met.log_at(logging.INFO)) is bool(gone)
    if not gone:
        assert quiet(met.body) == quiet(met.app.replies[0].body) if stream else met.body == met.app.replies[0].body


@every_dialect
@given(n=st.integers(2, 6), before=st.integers(1, 5))
def test_the_threshold_counts_calls(kit: DialectKit, n: int, before: int) -> None:
    """`max_repeats` counts calls with the pending one: the n-th is the first that the client does not see."""
    met = meet(ask(kit, spin(before), stream=True), [reply(kit, again(), stream=True)], max_repeats=n, **ONLY_REPEATS)
    assert (b"call_first" in met.body) is (before + 1 < n)


@every_dialect
async def test_a_withheld_call_is_never_seen_on_the_way(kit: DialectKit) -> None:
    """Not one send of the whole exchange carries a part of the call, not only the bytes at the end."""
    watch, app = Watch(), play(reply(kit, again(), stream=True))
    exchange = await drive(guard(app), ask(kit, spin(), stream=True), on_bytes=watch.feed)
    assert exchange.raised is None
    assert not watch.has(b"call_first")
    assert not watch.has(b"zeb")
    assert watch.has(MARK.encode())


@given(data=st.data())
def test_a_call_is_whole_or_gone_where_its_pieces_are_not(data: st.DataObject) -> None:
    """Responses repeat a call's arguments at its end, so pieces may be missing before: the call may differ from a loop
    as it grows, leave, and be one after all. Whatever a callback answers then, the client has all of it or nothing."""
    kit = next(kit for kit in KITS if kit.name == "openai-responses")
    text = json.dumps(KNOWN[0][1]).encode()
    edges = data.draw(st.lists(st.integers(1, len(text) - 1), min_size=1, max_size=3))
    parts = tuple(piece.decode() for piece in cut(text, edges))
    answer = saying(*[Call(f"call_{number}", KNOWN[0][0], parts) for number in range(data.draw(st.integers(2, 3)))])
    framed = kit.frames(answer)
    pieces = [at for at, frame in enumerate(framed) if b"function_call_arguments.delta" in frame.raw]
    lost = data.draw(st.sets(st.sampled_from(pieces)) if pieces else st.just(set[int]()))
    body = b"".join(frame.raw for at, frame in enumerate(framed) if at not in lost)
    decided, ladder = data.draw(st.sampled_from(["block", "steer"])), data.draw(st.sampled_from(["observe", "block"]))
    script = Reply((body,)).cut(data.draw(chunkings(body)))
    later = [reply(kit, saying("I am done.", tag=tag), stream=True) for tag in LATER]
    request = ask(kit, data.draw(looping()), stream=True)
    met = meet(request, [script, *later], ladder, on_loop=lambda _: decided)
    for call in answer.calls():
        shown = f'"{call.id}"'.encode()
        assert met.body.count(shown) in (0, body.count(shown))
    faults = {fault for fault in kit.faults(met.body) if not fault.startswith("sequence numbers")}  # of what was lost
    assert faults <= set(kit.faults(body))
