"""Law 6, in order: while a call is held everything behind it waits, and only keep-alives overtake."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.asgi import Exchange, Watch, drive
from tests.support.config import guard
from tests.support.kits import DialectKit
from tests.support.meeting import ask, every_dialect, meet, reply
from tests.support.model import Answer, Call, Quirks
from tests.support.plain import again, elsewhere, new_call, same_call, saying, spin
from tests.support.scripted import Reply, ScriptedApp, play
from tests.support.wire import is_noise, quiet

NOISY = Quirks(noise=tuple(range(1, 40)))
"""A keep-alive before every frame."""
TO_THE_END: dict[str, Any] = {"similarity_threshold": 0.99}
"""Settings under which a call is held to its end: it could be nearly equal to another one."""


def held_part(kit: DialectKit, answer: Answer) -> tuple[list[bytes], int, int]:
    """The frames, and the first and last place of the calls."""
    listed = kit.frames(answer)
    inside = [at for at, frame in enumerate(listed) if frame.item is not None]
    return [frame.raw for frame in listed], inside[0], inside[-1]


@every_dialect
def test_keep_alives_overtake_a_held_call_and_nothing_else_does(kit: DialectKit) -> None:
    """During the hold, turn by turn: a keep-alive leaves at once, every other frame waits."""
    raw, first, last = held_part(kit, saying(new_call(), quirks=NOISY))
    met = meet(ask(kit, spin(), stream=True), [Reply(tuple(raw))], **TO_THE_END)
    for turn in range(first, last):
        before, now = met.client.body_by(turn - 1), met.client.body_by(turn)
        if is_noise(raw[turn]):
            assert now == before + raw[turn]
        else:
            assert is_noise(now[len(before) :])
    assert quiet(met.body) == quiet(b"".join(raw))
    assert sorted(met.body) == sorted(b"".join(raw)), "keep-alives may move, but none is lost"


@every_dialect
@given(second_first=st.booleans())
def test_a_call_behind_a_held_one_waits_for_it(kit: DialectKit, second_first: bool) -> None:
    """A call of an unsuspected tool overtakes nothing: the client gets the calls in the model's order."""
    other = Answer(((new_call("call_a"), new_call("call_b")),))
    calls = other.calls()[::-1] if second_first else other.calls()
    answer = saying("One moment.", *calls)
    met = meet(ask(kit, spin(), stream=True), [reply(kit, answer, stream=True)])
    assert met.body == met.app.replies[0].body


async def drive_waiting(kit: DialectKit, app: ScriptedApp, watch: Watch, **settings: Any) -> Exchange:
    """One exchange with a short heartbeat."""
    guarded = guard(app, "chance_then_block", heartbeat_s=0.02, **settings)
    return await drive(guarded, ask(kit, spin(), stream=True), on_bytes=watch.feed)


def beat(kit: DialectKit) -> bytes:
    """What a keep-alive of callfuse's own begins with."""
    alive = {"anthropic": b"event: ping", "ollama": b'{"model":""', "gemini": b"\r\n\r\n"}
    return alive.get(kit.name, b":")


@every_dialect
@pytest.mark.parametrize(
    ("calls", "settings"),
    [((new_call(),), TO_THE_END), ((same_call(), new_call()), {})],
    ids=["growing", "condemned"],
)
async def test_a_long_hold_has_a_heartbeat(kit: DialectKit, calls: tuple[Call, ...], settings: dict[str, Any]) -> None:
    """A client that waits for a held call gets keep-alives that its SDK ignores."""
    watch = Watch()
    raw, first, last = held_part(kit, saying(*calls))
    if first == last:
        pytest.skip(f"{kit.name} brings its calls whole")

    async def gate(at: int) -> None:
        if at == last:
            await watch.until(beat(kit), times=3 + b"".join(raw[:first]).count(beat(kit)))

    exchange = await drive_waiting(kit, play(Reply(tuple(raw), gate=gate)), watch, **settings)
    assert exchange.raised is None
    assert quiet(exchange.body) == b"".join(raw)
    assert [view.calls for view in kit.sdk(exchange.body, stream=True)] == [
        view.calls for view in kit.sdk(b"".join(raw), stream=True)
    ]


@pytest.mark.slow
@every_dialect
async def test_the_heartbeat_goes_on_while_the_model_is_asked_again(kit: DialectKit) -> None:
    """Also between the verdict and the second answer's first byte the client hears something."""
    watch = Watch()
    first, second = kit.frames(again()), kit.frames(elsewhere())
    heard_before = b"".join(frame.raw for frame in first).count(beat(kit))

    async def gate(at: int) -> None:
        if at == 0:
            await watch.until(beat(kit), times=heard_before + 3)

    replies = Reply(tuple(frame.raw for frame in first)), Reply(tuple(frame.raw for frame in second), gate=gate)
    app = play(*replies)
    exchange = await drive_waiting(kit, app, watch)
    assert exchange.raised is None
    assert len(app.heard) == 2
    assert kit.faults(exchange.body) == []
    assert [call.id for call in kit.sdk(exchange.body, stream=True)[0].calls] == ["call_second"]


@every_dialect
async def test_a_callback_keeps_nobody_waiting(kit: DialectKit) -> None:
    """An answer that comes in one chunk: what stands before the call leaves before the callback returns, and while that
    takes its time there are heartbeats."""
    watch = Watch()
    answer = saying("Let me look.", same_call("call_first"))
    raw, first, _ = held_part(kit, answer)
    seen: list[bytes] = []

    async def takes_its_time(_event: object) -> None:
        await watch.until(beat(kit), times=2 + b"".join(raw[:first]).count(beat(kit)))
        seen.append(b"")

    app = play(Reply((b"".join(raw),)))
    guarded = guard(app, "block", on_loop=takes_its_time, heartbeat_s=0.02)
    exchange = await drive(guarded, ask(kit, spin(), stream=True), on_bytes=watch.feed)
    assert len(seen) == 1
    assert exchange.raised is None
    assert exchange.body.startswith(b"".join(raw[:first]))
    assert kit.faults(quiet(exchange.body)) == []


@every_dialect
async def test_outside_a_hold_there_is_no_heartbeat(kit: DialectKit) -> None:
    """A slow model that is not held gets no keep-alives put into its words."""
    watch = Watch()
    answer = saying("slow", "words")
    raw = [frame.raw for frame in kit.frames(answer)]
    app = play(Reply(tuple(raw)))
    exchange = await drive_waiting(kit, app, watch)
    assert exchange.body == b"".join(raw)


@every_dialect
def test_a_looping_call_waits_for_the_end_of_the_answer(kit: DialectKit) -> None:
    """A repeat in front of a new call is only judged when the new call is known, and then both go through in order."""
    answer = saying(same_call(), new_call())
    listed = kit.frames(answer)
    new_opens = next(at for at, frame in enumerate(listed) if frame.kind == "open" and frame.item == 1)
    met = meet(ask(kit, spin(), stream=True), [Reply(tuple(frame.raw for frame in listed))])
    assert b"call_again" not in met.client.body_by(new_opens - 1)
    assert met.body == b"".join(frame.raw for frame in listed)
