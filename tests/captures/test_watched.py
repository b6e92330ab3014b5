"""What the watcher of a healthy stream keeps of recorded calls, frame by frame, as most proxies pass them on."""

from collections.abc import Sequence

from callfuse.guard.assembly import Assembly
from callfuse.model.signature import signature_of
from callfuse.policy.settings import LoopSettings
from callfuse.wire.jsontext import loads
from tests.captures.recordings import Recording, some_recordings
from tests.dialects.reading import FORMATS, dialect_of
from tests.guard.driving import record_of
from tests.support.asgi import Request
from tests.support.model import History, User
from tests.support.wire import cut, frames

FRESH = History((User("Hello."),))


def kept(recording: Recording, chunks: Sequence[bytes]) -> list[list[tuple[str, str, str]]]:
    """Id, name and arguments of the calls of each choice."""
    asked: Request = recording.ask(FRESH)
    dialect = dialect_of(recording.kit.name)
    request = dialect.read_request(asked.body, loads(asked.body), asked.path)
    assert request is not None
    assembly = Assembly(dialect, request.choices, LoopSettings(), None, FORMATS[recording.form])
    for chunk in chunks:
        assembly.feed(chunk)
    return [[(call.id, call.name, call.call.text) for call in calls] for calls in record_of(assembly).rounds]


@some_recordings(lambda one: one.stream)
def test_frames_are_kept_as_halves_of_frames_are(recording: Recording) -> None:
    """Of which none is read as the one before it; all of it is what an independent reading has found."""
    chunks = frames(recording.body)
    found = kept(recording, chunks)
    assert found == kept(recording, [half for one in chunks for half in cut(one, [len(one) // 2])])
    known = {signature_of(call["name"], call["arguments"] or "") for call in recording.own_calls}
    assert {signature_of(name, text) for calls in found for _, name, text in calls} <= known
