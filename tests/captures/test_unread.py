"""Recordings of formats that callfuse does not read: at their own paths they pass, and leave no trace behind.

That makes all: each recording in the folder is read by a dialect, or is of a kind that is named here with its reason.
"""

import pytest

from callfuse import CallFuseMiddleware
from callfuse.dialects import dialect_of
from tests.captures.recordings import FOLDER, UNREAD, companions, each_unread, entries, recordings, unread
from tests.dialects.reading import ways
from tests.support.asgi import Request, run
from tests.support.config import settings
from tests.support.meeting import given_log
from tests.support.scripted import Reply, play

JSON, SSE = b"application/json", b"text/event-stream"
there_are_captures = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no captures in {FOLDER}; set CALLFUSE_CAPTURES")


@there_are_captures
def test_no_recording_is_left_out() -> None:
    """Streams, whole answers and requests of the dialects, what passes unread, and requests that only stand beside
    their answers are every file that there is."""
    files = [str(path.relative_to(FOLDER)) for path in FOLDER.glob("*/*") if not path.name.endswith(".meta.json")]
    beside = companions()
    assert sorted(files) == sorted([*entries(), *beside])
    assert all(key.endswith(".request.json") for key in beside), "of an answer more would be known"
    streamed = [one for one in recordings() if one.stream]
    others = [one for one in recordings() if one.form in ("json", "request.json")]
    passing = [[key for key in entries() if unread(key) is kind] for kind in UNREAD]
    assert len(streamed) + len(others) + sum(map(len, passing)) == len(entries())
    assert all(passing), "each kind that is left out is there, so that its reason is tested"
    assert all(kind.reason for kind in UNREAD)


def guarded(reply: Reply) -> CallFuseMiddleware:
    """The middleware over an app that gives this answer, ready to block."""
    return CallFuseMiddleware(play(reply), settings("block"))


def passes(request: Request, body: bytes, content_type: bytes, *, told: str = "") -> None:
    """In any chunks, every byte arrives, and neither a round nor a finding is kept; `told` is what is counted."""
    assert dialect_of(request.path) is None
    for chunks in ways(body):
        app = guarded(Reply(chunks, headers=((b"content-type", content_type),)))
        with given_log() as log:
            met = run(app, request)
        assert met.body == body
        assert met.complete
        assert len(app.ledger) == 0  # type: ignore[arg-type]  # the default ledger has a length
        assert app.counts.of("findings") == 0
        assert app.counts.of("not_guarded") == app.counts.of("not_guarded", told) == len(log) == bool(told)


@each_unread("mcp", ".response.sse")
def test_mcp(key: str) -> None:
    """A tool's call and its result, event stream and keep-alives included."""
    kind = unread(key)
    assert kind is not None
    request = (FOLDER / key.replace(".response.sse", ".request.json")).read_bytes()
    passes(Request(kind.path, request), (FOLDER / key).read_bytes(), SSE)
