"""The habits of vendors through the middleware: their calls are read, withheld where they repeat, and else pass."""

from collections.abc import Callable

import pytest

from tests.dialects.quirks import Quirk, anthropic, cohere, gemini, ollama, openai_chat, openai_responses
from tests.dialects.reading import FORMATS, calls_in, dialect_of, spinning, ways
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, Meeting, ask, meet
from tests.support.scripted import Reply, whole

DONE = b"data: [DONE]\n\n"
QUIRKS = {
    "openai-chat": openai_chat.QUIRKS,
    "openai-responses": openai_responses.QUIRKS,
    "anthropic": anthropic.QUIRKS,
    "gemini": gemini.QUIRKS,
    "ollama": ollama.QUIRKS,
    "cohere-v2": cohere.QUIRKS,
}
"""By dialect."""


def each(wanted: Callable[[Quirk], bool] = lambda _: True) -> pytest.MarkDecorator:
    """Run a test for each that is wanted."""
    chosen = [
        pytest.param(next(kit for kit in KITS if kit.name == dialect), one, id=f"{dialect}: {one.name}")
        for dialect, quirks in QUIRKS.items()
        for one in quirks
        if wanted(one)
    ]
    return pytest.mark.parametrize(("kit", "quirk"), chosen)


def answered(kit: DialectKit, quirk: Quirk, chunks: tuple[bytes, ...], times: int) -> Meeting:
    """The body as the answer to a conversation in which its calls came so often."""
    calls = quirk.history or [(name, arguments or "{}") for _, _, name, arguments in quirk.calls]
    script = Reply(chunks) if quirk.form in FORMATS else whole(quirk.body).cut(chunks)
    return meet(ask(kit, spinning(*calls, times=times), stream=quirk.form in FORMATS), [script])


def passes(kit: DialectKit, quirk: Quirk, *, times: int) -> None:
    """After so many rounds of its calls the body reaches the client as it is, in any chunks."""
    for chunks in ways(quirk.body):
        met = answered(kit, quirk, chunks, times)
        assert met.body == quirk.body
        assert met.client.complete


@each()
def test_the_calls_are_read(kit: DialectKit, quirk: Quirk) -> None:
    """As the vendor meant them, in any chunks."""
    for chunks in ways(quirk.body):
        assert calls_in(dialect_of(kit.name), quirk.form, chunks) == list(quirk.calls)


@each()
def test_in_a_fresh_session_every_byte_passes(kit: DialectKit, quirk: Quirk) -> None:
    """And where the calls have come once."""
    passes(kit, quirk, times=0)
    passes(kit, quirk, times=1)


@each(lambda quirk: quirk.withheld)
def test_calls_that_repeat_are_withheld(kit: DialectKit, quirk: Quirk) -> None:
    """The client has callfuse's text, no call, a proper end, and all else that was there; the cuts decide nothing."""
    bodies = set()
    for chunks in ways(quirk.body):
        met = answered(kit, quirk, chunks, 2)
        assert met.client.complete
        bodies.add(met.body)
    (body,) = bodies
    assert calls_in(dialect_of(kit.name), quirk.form, [body]) == []
    (view,) = kit.read(body, stream=quirk.form in FORMATS)
    assert (view.calls, view.finish) == ((), quirk.finish or kit.stopped)
    assert MARK in view.text
    assert quirk.kept in body
    assert body.endswith(DONE) is quirk.body.endswith(DONE)


@each(lambda quirk: not quirk.withheld)
def test_what_is_no_evidence_passes(kit: DialectKit, quirk: Quirk) -> None:
    """Though a call of that name and those arguments came twice before."""
    passes(kit, quirk, times=2)
