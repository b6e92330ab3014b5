"""Answers whose headers do not say what they are, or that come packed although plain bytes were asked for: the laws
hold for them as for others."""

import gzip
import logging
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.asgi import Headers
from tests.support.kits import DialectKit
from tests.support.meeting import MARK, ask, bare, every_dialect, meet, reply, streamed_and_whole
from tests.support.plain import again, elsewhere, spin
from tests.support.scripted import Reply
from tests.support.streams import chunkings
from tests.support.zstd import zstd

FIRST = b"call_first"


def undeclared(script: Reply) -> Reply:
    """As the back end of Codex on ChatGPT streams: without a content type."""
    return replace(script, headers=tuple(pair for pair in script.headers if pair[0] != b"content-type"))


def in_members(data: bytes) -> bytes:
    """A gzip member for each hundred bytes."""
    return b"".join(gzip.compress(data[at : at + 100], mtime=0) for at in range(0, len(data), 100))


PACKERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "gzip in members": in_members,
    "deflate": zlib.compress,
    "zstd": zstd.compress,
}


def packed(script: Reply, name: str) -> Reply:
    """The same answer, packed though nobody asked for it."""
    body = PACKERS[name](script.body)
    headers: Headers = tuple(pair for pair in script.headers if pair[0] != b"content-length")
    coding = name.partition(" ")[0].encode()
    return replace(script, chunks=(body,), headers=(*headers, (b"content-encoding", coding), (b"etag", b'"1"')))


@every_dialect
@streamed_and_whole
@given(data=st.data(), ladder=st.sampled_from(["block", "chance_then_block"]))
def test_an_answer_without_a_content_type_is_guarded(
    kit: DialectKit, stream: bool, ladder: str, data: st.DataObject
) -> None:
    """The client gets the bytes that it gets with one, however they are cut."""
    request = ask(kit, spin(), stream=stream)
    scripts = [reply(kit, again(), stream=stream), reply(kit, elsewhere(), stream=stream)]
    known = meet(request, scripts, ladder)
    assert FIRST not in known.body
    cut = [undeclared(script).cut(data.draw(chunkings(script.body))) for script in scripts]
    met = meet(request, cut, ladder)
    assert met.body == known.body
    assert met.client.complete
    assert [heard.body for heard in met.app.heard] == [heard.body for heard in known.app.heard]
    assert met.log == known.log


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_healthy_answer_without_a_content_type_is_untouched(kit: DialectKit, stream: bool, rounds: int) -> None:
    """Same headers, same bytes; and its calls count, as the next request shows nothing of them yet."""
    request = ask(kit, spin(rounds), stream=stream)
    script = undeclared(reply(kit, elsewhere(), stream=stream))
    met, plain = meet(request, [script]), bare(request, [script])
    assert met.body == plain.body
    assert met.log == ()
    dropped = {b"content-length"} if rounds == 2 and stream else set()
    assert met.client.headers == [pair for pair in plain.client.headers if pair[0] not in dropped]


def declared(script: Reply, kind: bytes) -> Reply:
    """As a gateway says that does not look at what it passes on."""
    return replace(script, headers=(*undeclared(script).headers, (b"content-type", kind)))


@every_dialect
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_a_stream_that_is_declared_as_json(kit: DialectKit, step: int) -> None:
    """It is guarded where the request asked for it: SDKs do not look at the type either. Frames are not collected."""
    script = reply(kit, again(), stream=True)
    request = ask(kit, spin(), stream=True)
    known = meet(request, [script])
    body = script.body
    cut = declared(script, b"application/json").cut(tuple(body[at : at + step] for at in range(0, len(body), step)))
    met = meet(request, [cut])
    if kit.name == "gemini" and body.startswith(b"data"):  # its JSON is a stream, too, of another form
        assert met.body == body
        assert len(met.log_at(logging.WARNING)) == 1
        return
    assert FIRST not in known.body
    assert met.body == known.body
    assert met.log == known.log


@every_dialect
def test_json_that_is_declared_as_events(kit: DialectKit) -> None:
    """No event can be found in it: it passes, and is counted."""
    script = declared(reply(kit, again(), stream=False), b"text/event-stream")
    met = meet(ask(kit, spin(), stream=True), [script])
    assert met.body == script.body
    assert len(met.log_at(logging.WARNING)) == 1


@every_dialect
def test_text_is_not_delayed(kit: DialectKit) -> None:
    """Beyond the first frame, which tells, each frame leaves in the turn in which it came."""
    script = undeclared(reply(kit, elsewhere(), stream=True))
    frames = [frame.raw for frame in kit.frames(elsewhere())]
    script = script.cut(tuple(frames))
    request = ask(kit, spin(), stream=True)
    met, known = meet(request, [script]), meet(request, [reply(kit, elsewhere(), stream=True).cut(tuple(frames))])
    assert met.client.lengths(len(frames)) == known.client.lengths(len(frames))


@every_dialect
@pytest.mark.parametrize("body", [b"<html>", b"", b"\x00\x00\x01binary", b"da", b"  "])
def test_what_is_no_answer_passes_as_it_came(kit: DialectKit, body: bytes) -> None:
    """Pages, binary streams and nothing at all, without a content type: the same messages, and counted."""
    request, script = (
        ask(kit, spin(), stream=True),
        undeclared(Reply(tuple(body[at : at + 1] for at in range(len(body))))),
    )
    met, plain = meet(request, [script]), bare(request, [script])
    assert [message for _, message in met.client.sent] == [message for _, message in plain.client.sent]
    assert [text for _, _, text in met.log if "content-type" in text]


@every_dialect
@pytest.mark.parametrize("chunks", [(), (b"d",)])
def test_an_answer_that_breaks_off_before_it_tells(kit: DialectKit, chunks: tuple[bytes, ...]) -> None:
    """What came leaves, and then what the app raised."""
    script = undeclared(Reply(chunks, raises=ConnectionError("upstream")))
    met = meet(ask(kit, spin(), stream=True), [script])
    assert met.body == b"".join(chunks)
    assert met.client.status == 200
    assert isinstance(met.client.raised, ConnectionError)


@every_dialect
@streamed_and_whole
@given(data=st.data(), name=st.sampled_from(list(PACKERS)))
def test_a_packed_answer_is_guarded(kit: DialectKit, stream: bool, name: str, data: st.DataObject) -> None:
    """It leaves plain, with the bytes of an answer that comes plain, however it is cut."""
    request = ask(kit, spin(), stream=stream)
    scripts = [reply(kit, again(), stream=stream), reply(kit, elsewhere(), stream=stream)]
    known = meet(request, scripts, "chance_then_block")
    cut = [packed(script, name) for script in scripts]
    cut = [script.cut(data.draw(chunkings(script.body))) for script in cut]
    met = meet(request, cut, "chance_then_block")
    assert met.body == known.body
    assert met.client.complete
    assert met.log == known.log
    names = {header for header, _ in met.client.headers}
    assert not names & {b"content-encoding", b"etag"}
    assert met.client.header(b"content-length") in (None, str(len(met.body)).encode())


@every_dialect
def test_each_of_repeated_codings_comes_off(kit: DialectKit) -> None:
    """Two headers are as good as one with two names."""
    script = packed(packed(reply(kit, again(), stream=True), "deflate"), "gzip")
    assert [value for name, value in script.headers if name == b"content-encoding"] == [b"deflate", b"gzip"]
    request = ask(kit, spin(), stream=True)
    met = meet(request, [script])
    assert met.body == meet(request, [reply(kit, again(), stream=True)]).body
    assert met.client.header(b"content-encoding") is None


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_packed_answer_is_left_packed_where_it_need_not_be_read(kit: DialectKit, stream: bool, rounds: int) -> None:
    """Healthy answers pass as they came; of suspected ones the plain bytes are those of the answer."""
    script = packed(reply(kit, elsewhere(), stream=stream), "gzip")
    met = meet(ask(kit, spin(rounds), stream=stream), [script])
    if rounds == 1:
        assert met.body == script.body
        assert met.client.header(b"content-encoding") == b"gzip"
    else:
        assert met.body == gzip.decompress(script.body)
        assert met.client.header(b"content-encoding") is None


@every_dialect
@streamed_and_whole
@pytest.mark.parametrize("spoil", ["cut", "broken"])
def test_a_spoiled_coding_breaks_off(kit: DialectKit, stream: bool, spoil: str) -> None:
    """The client sees an answer without an end, and never a call that was held to be judged as if it were whole."""
    script = packed(reply(kit, again(), stream=stream), "gzip")
    body = script.body[: len(script.body) // 2] + (b"" if spoil == "cut" else b"\xff" * 9)
    met = meet(ask(kit, spin(), stream=stream), [script.cut((body,))])
    assert not met.client.complete
    assert met.client.raised is None
    assert MARK.encode() not in met.body


@every_dialect
def test_an_undeclared_answer_in_a_coding_is_told_by_its_plain_bytes(kit: DialectKit) -> None:
    """Both at once."""
    script = undeclared(packed(reply(kit, again(), stream=True), "gzip"))
    request = ask(kit, spin(), stream=True)
    met = meet(request, [script])
    assert met.body == meet(request, [reply(kit, again(), stream=True)]).body
