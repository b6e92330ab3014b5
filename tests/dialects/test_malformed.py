"""Bodies that are JSON and nothing like what they should be: readers find what can be read, and raise nothing."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest

from callfuse.conversations.ledger import LaneState
from callfuse.conversations.notes import notes_for
from callfuse.conversations.timeline import read_conversation
from callfuse.dialects import Dialect
from callfuse.dialects.ask_again import AskOptions, Attempt, CannotReplay, Reply
from callfuse.dialects.base import Block, Frame, Note, OpenCall, Request
from callfuse.dialects.codec import Codec, codec_of
from callfuse.policy.settings import LoopSettings
from callfuse.wire import WHOLE, Format
from callfuse.wire.jsontext import NotJSON, loads
from tests.dialects.reading import FORMATS, dialect_of, form_of
from tests.support.examples import THOROUGH
from tests.support.kits import KITS, DialectKit, target_of
from tests.support.plain import new_call, same_call, saying, spin, thinking

WRONG = ("-1", "null", "[]", "{}", '"x"', "1e400", "[-1]", "true", "[[{}]]", '{"type": {}}')
"""JSON texts that take the place of a node."""
pytestmark = pytest.mark.slow
WARN = LoopSettings.model_validate({"mode": "warn"})


@dataclass(frozen=True)
class Sample:
    """Valid bodies of one dialect: a request, a streamed answer, a whole one."""

    dialect: Dialect
    target: str
    form: Format
    request: bytes
    streamed: tuple[bytes, ...]
    whole: bytes

    def codec(self, form: Format) -> Codec:
        """The codec for answers in a form."""
        return codec_of(self.dialect, form)

    def read(self, body: bytes) -> Request | None:
        """A request of the dialect."""
        return self.dialect.read_request(body, loads(body), self.target)


def sample_of(kit: DialectKit) -> Sample:
    """The bodies that a kit renders: a loop, and an answer with thinking, text, and two calls."""
    path, query = target_of(kit, stream=True)
    answer = saying(thinking(), "Let me look.", same_call("call_first"), new_call("call_new"))
    return Sample(
        dialect_of(kit.name),
        f"{path}?{query.decode()}",
        FORMATS[form_of(kit)],
        kit.request(spin(beside=True), stream=True),
        tuple(frame.raw for frame in kit.frames(answer)),
        kit.whole(answer),
    )


SAMPLES = [*map(sample_of, KITS)]
each = pytest.mark.parametrize("sample", SAMPLES, ids=[type(kit).__name__ for kit in KITS])


def damaged(value: Any) -> Iterator[bytes]:
    """A JSON value with each of its nodes, in turn, replaced by each of the wrong ones."""
    text = json.dumps(value)
    for path in paths(value):
        for wrong in WRONG:
            changed = json.loads(text)
            if not path:
                yield wrong.encode()
                continue
            holder = changed
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = MARKED
            yield json.dumps(changed).replace(f'"{MARKED}"', wrong).encode()


MARKED = "the wrong node"


def paths(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The paths of all nodes."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths(item, (*path, key))
    if isinstance(value, list):
        for at, item in enumerate(value):
            yield from paths(item, (*path, at))


@each
def test_requests(sample: Sample) -> None:
    """All that is read of a request, and the warnings that are written into it."""
    for body in damaged(json.loads(sample.request)):
        request = sample.read(body)
        if request is None:
            continue
        conversation = read_conversation(request, LaneState(), 0.0, WARN)
        changed = request.with_notes(notes_for(conversation))
        assert loads(changed)
        notes = [Note(one.position, past.call, "A note.") for one in request.rounds() if one for past in one.calls]
        assert loads(request.with_notes(notes))
        assert list(request.opening()) == list(request.opening())
        for at in range(request.length):
            request.typed_message(at)
            request.own_text(at)
        request.declares("search")
        assert loads(request.own_answer("[callfuse] Own."))
        request.synthetic_reply("[callfuse] Own.")


@each
@pytest.mark.parametrize("options", [AskOptions(), AskOptions(text_only=True), AskOptions(model="other")])
def test_requests_are_asked_again_or_refuse_to(sample: Sample, options: AskOptions) -> None:
    """CannotReplay is the one error that the guard knows what to do with."""
    turn = sample.dialect.model_turn_of_whole(sample.whole, loads(sample.whole))
    calls = sample.dialect.read_whole(loads(sample.whole))[0].calls
    attempt = Attempt(turn, [Reply(call, "[callfuse] Again?") for call in calls])
    for body in damaged(json.loads(sample.request)):
        request = sample.read(body)
        if request is not None:
            with suppress(CannotReplay):
                assert loads(request.ask_again([attempt], options))


def payloads_of(sample: Sample) -> list[Any]:
    """The payloads of the streamed answer."""
    return [loads(sample.form.text(raw)) for raw in sample.streamed if sample.form.payload(raw) is not None]


@each
@pytest.mark.parametrize("trace", [True, False])
def test_streamed_answers(sample: Sample, trace: bool) -> None:
    """Any event may be damaged: what comes behind it is read, and the other calls are found."""
    payloads = payloads_of(sample)
    for at, payload in enumerate(payloads):
        for text in damaged(payload):
            wrong = loads(text)
            if not isinstance(wrong, dict):
                continue
            reader = sample.dialect.reader(trace=trace)
            for one in (*payloads[:at], wrong, *payloads[at + 1 :]):
                for event in reader.read(one):
                    assert event.call is None or event.call.complete().signature
                sample.dialect.choices_of(one)
            reader.end()
            for call in reader.calls:
                assert call.complete().signature


@each
def test_whole_answers(sample: Sample) -> None:
    """What is read of a whole answer."""
    codec = sample.codec(WHOLE)
    for text in damaged(json.loads(sample.whole)):
        wrong = loads(text)
        if isinstance(wrong, dict):
            for choice in sample.dialect.read_whole(wrong):
                assert all(call.signature for call in choice.calls)
            codec.reader(trace=True).read(wrong)
            sample.dialect.is_unfinished([wrong])
            codec.choices_of(wrong)
            codec.answer_id(wrong)


@each
def test_turns_are_rebuilt_or_refused(sample: Sample) -> None:
    """The model's turn out of a damaged answer, streamed or whole."""
    codec = sample.codec(WHOLE)
    for text in damaged(json.loads(sample.whole)):
        if isinstance(loads(text), dict):
            with suppress(CannotReplay):
                assert isinstance(loads(codec.model_turn([text])), dict)
    streamed = sample.codec(sample.form)
    for at, raw in enumerate(sample.streamed):
        for text in damaged(loads(sample.form.text(raw))) if sample.form.payload(raw) is not None else ():
            chunks = [*sample.streamed[:at], sample.form.with_text(raw, text), *sample.streamed[at + 1 :]]
            with suppress(CannotReplay):
                streamed.is_unfinished(chunks)
                assert isinstance(loads(streamed.model_turn(chunks)), dict)


def frames_of(sample: Sample, codec: Codec, chunks: list[bytes]) -> tuple[list[Frame], set[OpenCall]]:
    """Frames with the parts of calls in them, and the calls that are withheld: all that the reader has found."""
    reader = codec.reader(trace=True)
    frames = []
    for raw in chunks:
        payload = sample.form.payload(raw)
        if payload is not None:
            reader.read(payload)
        frames.append(Frame(raw, payload, tuple(reader.entries) if payload is not None else ()))
    return frames, set(reader.calls)


@pytest.mark.search
@pytest.mark.slow
@each
def test_streams_are_written_on(sample: Sample) -> None:
    """A damaged event among those that have left, are held, or are of the next answer."""
    form, codec, chunks = sample.form, sample.codec(sample.form), [*sample.streamed]
    request = sample.read(sample.request)
    assert request is not None
    frames, calls = frames_of(sample, codec, chunks)
    block = {0: Block("[callfuse] Enough.")}
    for at, raw in enumerate(chunks):
        for text in damaged(loads(form.text(raw))) if form.payload(raw) is not None else ():
            wrong = form.with_text(raw, text)
            if (payload := loads(text)).__class__ is not dict:
                continue
            held, withheld = frames_of(sample, codec, [*chunks[:at], wrong, *chunks[at + 1 :]])
            for ends in (True, False) if THOROUGH else (at % 2 == 0,):
                writer = codec.writer(request, usage="sum")
                writer.note_sent(payload)
                if ends:
                    writer.thin(held, withheld, block)
                else:
                    writer.before_asking(held, withheld)
                writer.next_answer(foreign=ends)
                writer.splice(wrong, payload)
                assert writer.close(block)
    assert calls
    assert frames


@each
@pytest.mark.parametrize("foreign", [False, True])
def test_whole_answers_are_continued(sample: Sample, foreign: bool) -> None:
    """A damaged second answer: NotJSON if it is none, else one answer comes of both."""
    codec, request = sample.codec(WHOLE), sample.read(sample.request)
    assert request is not None
    first = loads(sample.whole)
    for text in damaged(first):
        if not isinstance(loads(text), dict):
            continue
        reader = codec.reader(trace=True)
        reader.read(first)
        writer = codec.writer(request, usage="sum")
        writer.before_asking([Frame(sample.whole, first, tuple(reader.entries))], set(reader.calls))
        writer.next_answer(foreign=foreign)
        with suppress(NotJSON):
            assert sample.dialect.read_whole(loads(writer.splice(text, loads(text))))


@each
def test_whole_answers_are_thinned(sample: Sample) -> None:
    """A damaged answer loses its calls, and says why in each choice; KeyError where it has no room for that: what is
    written is always JSON."""
    codec, request = sample.codec(WHOLE), sample.read(sample.request)
    assert request is not None
    for text in damaged(loads(sample.whole)):
        payload = loads(text)
        choices = sample.dialect.read_whole(payload) if isinstance(payload, dict) else []
        if not choices:
            continue
        reader = codec.reader(trace=True)
        reader.read(payload)
        blocks = {at: Block("[callfuse] Enough.") for at in range(len(choices))}
        frame = Frame(text, payload, tuple(reader.entries))
        with suppress(KeyError):
            thinned = loads(codec.writer(request, usage="sum").thin([frame], set(reader.calls), blocks))
            assert not any(choice.calls for choice in sample.dialect.read_whole(thinned))
