"""`callfuse doctor --explain`: say whether a given request would be guarded, why not, and what would happen to a
repeated call; or what a recorded answer contains.

The request runs through the middleware itself, with a scripted vendor behind it and these settings. Nothing leaves the
process: store, webhook and OpenTelemetry are not used.
"""

import asyncio
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from callfuse import CallFuseMiddleware
from callfuse.asgi.codings import UnreadableBodyError, unpack
from callfuse.asgi.headers import VIA, is_signed
from callfuse.asgi.prepare import NO_TOOLS
from callfuse.asgi.tally import DISABLED, OWN_ERROR
from callfuse.asgi.types import Message, Receive, Scope, Send
from callfuse.cli.diagnosis import Check, CheckState, counted, failed, note, ok, warning
from callfuse.cli.explain_answer import explain_answer, read_answer
from callfuse.config import Resolved
from callfuse.conversations.identity import FINGERPRINT, OWN_HEADER
from callfuse.dialects import DIALECTS, Dialect, dialect_of, recognise_request, unread_api
from callfuse.dialects.base import Request
from callfuse.model import ToolCall
from callfuse.model.secrets import star_secrets
from callfuse.observe.events import Event, ExchangeEnded, FailedOpen, FindingSeen, NotGuarded
from callfuse.observe.fields import text
from callfuse.observe.printable import plain
from callfuse.observe.settings import EventsSettings
from callfuse.observe.telemetry import OtelSettings
from callfuse.offline.differences import difference
from callfuse.stores.address import MEMORY
from callfuse.testing import Answer, Call, ScriptedVendor
from callfuse.wire.jsontext import NotJSON, as_utf8, dumps, loads

AREA: Final = "request"
LONGEST: Final = 120
"""The most characters of a call that are shown."""
OTHER_BODY: Final = "other body"
ADVICE: Final = {
    NO_TOOLS: "its answer cannot contain calls: it declares no tools, or asks for one token. Nothing to do",
    OTHER_BODY: "the body does not have the format of its path: is the path right, and the body complete?",
    DISABLED: "set tool_call_loop.enabled: true; a model's entry under `models`, or a command in the chat, may turn it "
    "off",
    OWN_ERROR: "this is a fault of callfuse; please report it with the request",
    "request not JSON": "does the file contain only the body of a request or an answer, without headers?",
    "request encoding": "gzip, deflate and zstd are read (br with the package brotli): is content-encoding right?",
    "request values": "it has more than 100,000 JSON values; parsing them would make other requests wait",
    "max_request_bytes": "raise tool_call_loop.max_request_bytes",
    "max_total_bytes": "raise tool_call_loop.max_total_bytes",
    "signed chain": "the body is signed, and the vendor stores the history, so callfuse cannot change anything",
}
"""Advice for each cause of an unguarded request."""
NO_PATH: Final = "docs/dialects.md lists the paths; a POST to any other path passes unread"


@dataclass(frozen=True, slots=True)
class Given:
    """A request from the file. `path`: empty if it is unknown."""

    body: bytes
    path: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class ExchangeSink:
    """A sink that keeps the events of one exchange."""

    ended: ExchangeEnded | None = None
    found: list[FindingSeen] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)

    def take(self, event: Event) -> None:
        """Keep an event that the explanation needs."""
        match event:
            case ExchangeEnded():
                self.ended = event
            case FindingSeen():
                self.found.append(event)
            case NotGuarded() | FailedOpen():
                self.causes.append(event.cause)
            case _:
                pass


def explain(file: str, path: str, resolved: Resolved) -> list[Check]:
    """Explain the request in a file (`-`: standard input). `path`: the request's path; empty: from the file, or
    detected from the body."""
    try:
        raw = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        return [failed(AREA, f"{file} cannot be read: {error.strerror}", "use a file with a request's body, or -")]
    given = _given(raw)
    given = replace(given, path=path or given.path)
    return [*_explain(given, _inert(resolved))]


def _explain(given: Given, resolved: Resolved) -> Iterator[Check]:
    encoding = given.headers.get("content-encoding", "")
    settings, body = resolved.config.tool_call_loop, given.body
    try:
        body = unpack(given.body, encoding, settings.max_request_bytes) if encoding else given.body
        value = loads(as_utf8(body))
    except (NotJSON, UnreadableBodyError):
        value = None
    recognised = recognise_request(value) if value is not None else None
    of_path = dialect_of(given.path.partition("?")[0])
    if recognised is None and (answer := read_answer(body, value, [of_path] if of_path else DIALECTS)):
        yield from explain_answer(answer, len(body), settings)
        return
    if isinstance(value, list) and recognised is not None:
        given = replace(given, body=dumps(recognised[1]))
    looks_like = recognised[0] if recognised else _by_shape(value)
    path = given.path or looks_like.usual_path
    shown = path.partition("?")[0]  # a query may contain a key
    dialect = dialect_of(shown)
    if dialect is None:
        api = unread_api(shown)
        advice = f"{api} is not read yet; {NO_PATH}" if api else NO_PATH
        yield failed(AREA, f"no format is known for the path {plain(shown)}", advice)
        return
    guessed = "" if given.path else ", by default; --path sets another path"
    yield ok(AREA, f"{len(given.body):,} bytes of {dialect.name}, sent to {plain(shown)}{guessed}")
    request = None if value is None else dialect.read_request(dumps(value), value, path)
    call = _last_call(request)
    told = asyncio.run(_run(replace(given, path=path), resolved, call))
    yield from _verdict(told, looks_like)
    if told.ended is not None and told.ended.guarded and request is not None:
        yield from _circumstances(given, told.ended)
        yield from _history(request)
        yield from _next_call(call, told)


def _given(raw: bytes) -> Given:
    """Return the request in a file: only its body, or an object with `body`, `path` (or `url`) and `headers`."""
    try:
        value = loads(raw)
    except NotJSON:
        return Given(raw)
    if not isinstance(value, dict) or "body" not in value or not {"path", "url", "headers"} & {*value}:
        return Given(raw)
    body, headers = value["body"], value.get("headers")
    path = str(value.get("path") or value.get("url") or "")
    if "://" in path:
        path = "/" + path.partition("://")[2].partition("/")[2]
    known = {str(name).lower(): str(one) for name, one in headers.items()} if isinstance(headers, dict) else {}
    if isinstance(body, str):
        return Given(body.encode("utf-8", "surrogatepass"), path, known)
    return Given(dumps(body), path, {name: one for name, one in known.items() if name != "content-encoding"})


def _inert(resolved: Resolved) -> Resolved:
    """Return the settings without everything that would send data out of the process."""
    inert = {"store": MEMORY, "events": EventsSettings(), "otel": OtelSettings()}
    return replace(resolved, config=resolved.config.model_copy(update=inert))


def _by_shape(value: Any) -> Dialect:
    """Return the dialect for a body without marks of one: the last one that can read it, or OpenAI chat, which is tried
    last here, if none can. A text as `input` counts as Responses, which comes after Interactions."""
    if not isinstance(value, dict) or "messages" in value:  # `messages` occurs in several dialects
        return DIALECTS[0]
    body = dumps(value)
    reading = (one for one in reversed(DIALECTS) if one.read_request(body, value, one.usual_path) is not None)
    return next(reading, DIALECTS[0])


def _last_call(request: Request | None) -> ToolCall | None:
    """Return the last call of the newest round; None if there is none since the last message of a person."""
    newest = None if request is None else next(iter(request.rounds()), None)
    return newest.calls[-1].call if newest and newest.calls else None


async def _run(given: Given, resolved: Resolved, call: ToolCall | None) -> ExchangeSink:
    """Send the request through the middleware, to a model that repeats this call."""
    told = ExchangeSink()
    answer = Answer(calls=[Call(call.name, call.text)]) if call else Answer("Done.")
    fuse = CallFuseMiddleware(ScriptedVendor(lambda _: answer), resolved)
    fuse.bus.add(told)
    path, _, query = given.path.partition("?")
    headers = {"host": "callfuse", "content-type": "application/json"} | dict(given.headers)
    headers["content-length"] = str(len(given.body))
    scope: Scope = {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [
            (name.lower().encode("latin-1", "replace"), one.encode("latin-1", "replace"))
            for name, one in headers.items()
        ],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 1),
    }
    await fuse(scope, *_ends(given.body))
    return told


def _ends(body: bytes) -> tuple[Receive, Send]:
    """Return a `receive` that gives the body once, and a `send` that drops the answer."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()  # the client stays connected until it has its answer
        raise AssertionError

    async def send(_: Message) -> None:
        """Drop the message."""

    return receive, send


def _verdict(told: ExchangeSink, looks_like: Dialect) -> Iterator[Check]:
    """Yield whether the request is guarded, or why not. `looks_like`: the dialect that its body suggests."""
    ended = told.ended
    cause = ended.cause if ended is not None else OWN_ERROR
    if cause:
        advice = ADVICE.get(cause.partition(":")[0], "docs/dialects.md lists what callfuse reads")
        if cause == OTHER_BODY and ended is not None and looks_like.name != ended.where.dialect:
            advice = f"it looks like {looks_like.name}, which has paths such as {looks_like.usual_path}"
        make = note if cause == NO_TOOLS else failed
        yield make(AREA, f"it is not guarded: {plain(cause)}", advice)
        return
    yield ok(AREA, "it is guarded: calls in its answer are judged before they reach the client")
    for other in told.causes:
        yield failed(AREA, f"calls passed unjudged: {plain(other)}", ADVICE[OWN_ERROR])


def _circumstances(given: Given, ended: ExchangeEnded) -> Iterator[Check]:
    """Yield the request's session, and what limits callfuse's actions."""
    source = ended.where.source
    if source == FINGERPRINT:
        name = OWN_HEADER.decode()
        yield ok(AREA, f"its session is identified only by its first messages; the header {name} would name it")
    else:
        yield ok(AREA, f"its session is {text(ended.where.session)}, named by {plain(source)}")
    headers = {
        name.encode("latin-1", "replace"): one.encode("latin-1", "replace") for name, one in given.headers.items()
    }
    if VIA in headers:
        yield warning(AREA, "another callfuse has guarded it, so this one only observes", "one of them is enough")
    elif is_signed(headers):
        advice = "put callfuse before the requests are signed, or use a token instead of a signature"
        yield warning(AREA, "it is signed, so nothing can be changed, and findings are only reported", advice)


def _history(request: Request) -> Iterator[Check]:
    """Yield the relevant parts of its history."""
    rounds = []
    for one in request.rounds():
        if one is None:
            break
        rounds.append(one)
    if not rounds:
        yield ok(AREA, "no call counts yet: there is no call since the last user message")
        return
    calls = [call for one in rounds for call in one.calls]
    newest = rounds[0].calls[-1]
    equal = [call for call in calls if call.signature == newest.signature]
    others = sum(call.name == newest.name for call in calls) - len(equal)
    outcomes = [call.outcome for call in equal if call.outcome is not None]
    results = {outcome.digest for outcome in outcomes}
    found = f"{counted(len(calls), 'call')} in {counted(len(rounds), 'round')} since the last user message"
    found += f"; the last one occurs {counted(len(equal), 'time')}"
    advice = ""
    if len(results) > 1:
        newer, older = next((newer, older) for newer, older in pairwise(outcomes) if newer.digest != older.digest)
        found += f", with {len(results)} different results (last: {plain(difference(older, newer))})"
        advice = "a different result is progress; `max_repeats_changing` limits equal calls whatever they return"
    elif others > 0:
        found += f", and its tool {counted(others, 'time')} with other arguments"
        advice = (
            "a call with other arguments is another call; `per_tool: {NAME: {ignore: [...]}}` ignores "
            "arguments that always change"
        )
    elif len(equal) > 1 and results:
        found += ", with the same result"
    yield Check(AREA, CheckState.OK, found, advice)


def _next_call(call: ToolCall | None, told: ExchangeSink) -> Iterator[Check]:
    """Yield what would happen to the newest call if the model repeated it."""
    if call is None:
        return
    shown = plain(star_secrets(f"{call.full_name} {call.text}", LONGEST))
    if not told.found:
        yield ok(AREA, f"if the model calls {shown} again now, the call passes: no limit is reached")
        return
    first = told.found[0]
    found = first.verdict.finding
    rungs = ", then ".join(dict.fromkeys(one.action for one in told.found))
    why = f"{found.kind}, {found.count} with a limit of {found.threshold}"
    yield ok(AREA, f"if the model calls {shown} again now, callfuse uses: {rungs} ({why})")
