"""Envoy's messages, read and written."""

from typing import Any

import pytest
from envoy.config.core.v3 import base_pb2
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc

from callfuse.envoy import messages
from callfuse.envoy.messages import BUFFERED, FULL_DUPLEX
from tests.envoy.playing import http_headers

NONE = 0
STREAMED = 1

CAME = [(b":method", b"POST"), (b":path", b"/a%20b?x=1&y"), (b":authority", b"vendor.test"), (b"a", b"1"), (b"a", b"2")]


def set_in(mutation: Any) -> list[tuple[str, bytes, int]]:
    """The headers that a mutation sets, and how."""
    return [(one.header.key, one.header.raw_value, one.append_action) for one in mutation.set_headers]


def test_a_request_becomes_a_scope() -> None:
    """The target is split, the authority is the host, and no pseudo header stays."""
    scope = messages.scope_of(CAME)
    assert (scope["method"], scope["path"], scope["raw_path"]) == ("POST", "/a b", b"/a%20b")
    assert scope["query_string"] == b"x=1&y"
    assert scope["headers"] == [(b"host", b"vendor.test"), (b"a", b"1"), (b"a", b"2")]


def test_headers_may_be_bytes_or_text() -> None:
    """Newer releases send `raw_value`, older ones `value`."""
    both = [base_pb2.HeaderValue(key="a", raw_value=b"\xff"), base_pb2.HeaderValue(key="b", value="x")]
    message = ext_proc.HttpHeaders(headers=base_pb2.HeaderMap(headers=both))
    assert messages.headers_of(message) == [(b"a", b"\xff"), (b"b", b"x")]


def test_only_headers_that_differ_are_changed() -> None:
    """One is replaced, a further value of it added; one that is gone is removed, and the rest stays."""
    before = [(b":status", b"200"), (b"a", b"1"), (b"b", b"1"), (b"same", b"x")]
    mutation = messages.mutation(before, [(b"same", b"x"), (b"A", b"2"), (b"a", b"3")])
    replace, add = base_pb2.HeaderValueOption.OVERWRITE_IF_EXISTS_OR_ADD, 0
    assert set_in(mutation) == [("a", b"2", replace), ("a", b"3", add)]
    assert list(mutation.remove_headers) == ["b"]


def test_unchanged_headers_need_no_change() -> None:
    """Not even where a header has several values."""
    mutation = messages.mutation(CAME, messages.scope_of(CAME)["headers"][1:])
    assert set_in(mutation) == []
    assert list(mutation.remove_headers) == []


def test_another_status_is_told() -> None:
    """The start of another answer may have one."""
    reply = messages.start_reply([(b":status", b"200")], {"status": 203, "headers": []})
    assert set_in(reply.response_headers.response.header_mutation)[0][:2] == (":status", b"203")


@pytest.mark.parametrize("size", [0, 1, 65536, 65537, 200_000])
@pytest.mark.parametrize("final", [True, False])
def test_long_parts_go_in_chunks(size: int, final: bool) -> None:
    """None is longer than Envoy's documentation advises, and only the last one ends the body."""
    body = bytes(size)
    sent = [
        reply.response_body.response.body_mutation.streamed_response
        for reply in messages.chunk_replies("response", body, final=final)
    ]
    assert b"".join(one.body for one in sent) == body
    assert all(len(one.body) <= messages.MOST_CHUNK_BYTES for one in sent)
    assert [one.end_of_stream for one in sent] == [False] * (len(sent) - 1) + [final] * bool(sent)
    assert len(sent) == max(1, -(-size // 65536)) if final or size else not sent


def first(request: int, response: int, *, last: bool = False) -> Any:
    """The first message of a stream."""
    config = ext_proc.ProtocolConfiguration(request_body_mode=request, response_body_mode=response)
    return ext_proc.ProcessingRequest(request_headers=http_headers([], last=last), protocol_config=config)


@pytest.mark.parametrize(
    ("message", "named"),
    [
        (first(BUFFERED, FULL_DUPLEX), ""),
        (first(FULL_DUPLEX, FULL_DUPLEX), ""),
        (first(NONE, FULL_DUPLEX, last=True), ""),
        (ext_proc.ProcessingRequest(request_headers=http_headers([])), ""),
        (first(NONE, FULL_DUPLEX), "request_body_mode"),
        (first(STREAMED, FULL_DUPLEX), "request_body_mode"),
        (first(BUFFERED, STREAMED), "response_body_mode"),
        (first(BUFFERED, NONE), "response_body_mode"),
        (ext_proc.ProcessingRequest(response_headers=http_headers([])), "request_header_mode"),
    ],
)
def test_what_a_guard_needs_is_known_from_the_first_message(message: Any, named: str) -> None:
    """Otherwise the setting that is wrong is named."""
    why = messages.why_unguardable(message)
    assert (named in why) if named else not why
