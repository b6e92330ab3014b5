"""Every detector on the wire: what the engine finds in a round is what the client does not get."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from callfuse.conversations.ledger import LaneState
from callfuse.conversations.timeline import read_conversation
from callfuse.detect import Engine
from callfuse.dialects import dialect_of
from callfuse.model import ToolCall
from callfuse.policy.settings import LoopSettings
from callfuse.wire.jsontext import loads
from tests.support.asgi import Request
from tests.support.config import settings
from tests.support.kits import DialectKit
from tests.support.meeting import ask, every_dialect, framewise, ids_of, meet, reply, streamed_and_whole
from tests.support.model import Answer, History, seen
from tests.support.streams import KNOWN, answers, chunkings, fresh, tangled

EVERYTHING_ON: dict[str, Any] = {
    "similarity_threshold": 0.8,
    "max_calls": 9,
    "max_calls_of_tool": 7,
    "detectors": {"no_news": 3, "cycle": 2, "unknown_tool": 2, "stagnation": 3},
}
"""Settings under which every kind is found often."""


def engine_of(request: Request, chosen: LoopSettings) -> Engine:
    """The detectors over the timeline of a request as it came."""
    dialect = dialect_of(request.path)
    assert dialect is not None
    target = f"{request.path}?{request.query.decode()}" if request.query else request.path
    read = dialect.read_request(request.body, loads(request.body), target)
    assert read is not None
    return Engine(read_conversation(read, LaneState(), 0.0, chosen).timeline, chosen)


def found(engine: Engine, answer: Answer) -> frozenset[str]:
    """The ids of the calls in which something is found that may act; `repeat_changing` only warns below its hard
    limit."""
    calls = [ToolCall(call.id, call.name, call.arguments) for call in answer.calls()]
    judged = engine.judge_round(calls)
    return frozenset(call.id for call, finding in judged if finding.hard or finding.kind != "repeat_changing")


@every_dialect
@streamed_and_whole
@given(data=st.data())
def test_what_the_engine_finds_is_withheld(kit: DialectKit, stream: bool, data: st.DataObject) -> None:
    """Over any history and with every detector on: no less, no more, however the bytes are cut."""
    history: History = data.draw(tangled())
    which = data.draw(st.lists(st.sampled_from([*KNOWN, fresh(0), fresh(20)]), min_size=1, max_size=3))
    answer = data.draw(answers(kit, which, plain=True, many=False))
    more: dict[str, Any] = data.draw(st.sampled_from([{}, EVERYTHING_ON]))
    request = ask(kit, history, stream=stream)
    gone = found(engine_of(request, LoopSettings.model_validate(settings("block", **more)["tool_call_loop"])), answer)
    script = reply(kit, answer, stream=stream)
    met = meet(request, [script.cut(data.draw(chunkings(script.body)))], **more)
    (view,) = kit.read(met.body, stream=stream)
    assert view.calls == tuple(seen(call) for call in answer.calls() if call.id not in gone)
    assert not any(id_ in met.body for id_ in ids_of([call for call in answer.calls() if call.id in gone]))


@every_dialect
@given(data=st.data())
def test_what_cannot_be_found_is_not_held(kit: DialectKit, data: st.DataObject) -> None:
    """An answer none of whose tools could be found looping leaves frame by frame, in the turn in which it came."""
    history: History = data.draw(tangled())
    which = data.draw(st.lists(st.sampled_from([*KNOWN, fresh(0)]), min_size=1, max_size=2))
    answer = data.draw(answers(kit, which, plain=True, many=False))
    request = ask(kit, history, stream=True)
    engine = engine_of(request, LoopSettings())
    if any(engine.could_fire(call.name) for call in answer.calls()):
        return
    met = meet(request, [framewise(kit, answer)])
    out = 0
    for turn, frame in enumerate(kit.frames(answer)):
        out += len(frame.raw)
        assert len(met.client.body_by(turn)) == out
