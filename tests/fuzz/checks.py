"""What must hold for each case, and the running of it.

In: a `Case` and a `VirtualLoop`. Out: a `Result`: its failures, each with a kind that is the same for failures of one
cause, the causes for which callfuse failed open, and the longest time for which the event loop was not free.

    raises      callfuse raises into the host, where the app did not
    fault       callfuse fails open because of an error in its own code
    hangs       the exchange never ends, or a task is left behind
    unfinished  the client's answer has no end, or two
    law 1       where callfuse did not act, the bytes, status and headers are those of the app
    law 2       the same bytes, requests and log lines whatever the cuts
    law 3       of a withheld call the client sees no id; where answers are damaged, no call with that id
"""

import asyncio
import gzip
import logging
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from unittest.mock import patch

from anyio.to_thread import run_sync

from callfuse import CallFuseMiddleware
from callfuse.asgi import off_loop
from callfuse.observe import log
from callfuse.policy.ladder import Verdict
from tests.dialects.reading import calls_in, dialect_of
from tests.fuzz.cases import Callback, Case, Turn, configurations, material_of, replies_of, request_of
from tests.fuzz.material import Material
from tests.fuzz.virtual import Hang, VirtualLoop
from tests.support.asgi import Exchange, Message, Request, Scope
from tests.support.meeting import given_log
from tests.support.scripted import OTHER_STREAMS, Gate, Heard, Reply, ScriptedApp
from tests.support.wire import is_noise, quiet
from tests.support.zstd import zstd

TURNS_TO_SETTLE: Final = 20
"""Of the loop, in which what was begun must come to its end."""
LEAST_ID: Final = 6
"""Characters: a shorter id may stand anywhere."""
UNSURE: Final = frozenset(
    (b"content-length", b"etag", b"digest", b"content-digest", b"repr-digest", b"content-encoding")
)
"""Headers that may leave the start of an answer while it is not known whether its bytes will change."""
MOST_KEPT: Final = 1_000_000
"""A lower limit of the bytes of all exchanges may be reached."""
LIMITS: Final = re.compile(r"max_(held|response)_bytes")
"""Where two are exceeded at once, either is told."""
NUMBERS: Final = re.compile(r"\d+")
FAULT: Final = re.compile(r"\w+(Error|Exception)\b")
"""How the name of an exception begins a cause."""


class ClientGone(OSError):
    """What a server's `send` may raise when its client has left."""


@dataclass(frozen=True, slots=True)
class Failure:
    """What does not hold."""

    kind: str
    detail: str


@dataclass(slots=True)
class Result:
    """What came of a case."""

    failures: list[Failure] = field(default_factory=list)
    fail_open: list[str] = field(default_factory=list)
    longest_s: float = 0.0


@dataclass(slots=True)
class Met:
    """Both sides' records of one exchange through the guard."""

    turn: Turn
    replies: tuple[Reply, ...]
    request: Request
    client: Exchange
    heard: list[Heard]
    log: list[tuple[str, int, str]]
    verdicts: list[Verdict]
    opened: bool
    """Whether calls went unjudged: a cause is logged once only."""
    in_turn: bool
    """Whether nothing that depends on cuts decides: no time passes, and the bytes in memory are not counted."""

    @property
    def may_compare(self) -> bool:
        """Whether nothing but its bytes decides what the client gets."""
        return self.in_turn and self.turn.ending == "end"

    def outcome(self) -> dict[str, object]:
        """What must not depend on cuts."""
        return {
            "body": self.client.body,
            "start": [message for _, message in self.client.sent[:1] if message["type"] == "http.response.start"],
            "raised": repr(self.client.raised),
            "requests": [(heard.body, heard.headers) for heard in self.heard],
            "log": [LIMITS.sub("a limit", text) for _, _, text in self.log],
        }


def check(case: Case, loop: VirtualLoop) -> Result:
    """Run a case, whole and cut, and look at what came of it."""
    result = Result()
    runs: list[list[Met]] = []
    for whole in (True, False):
        met: list[Met] = []
        spoken = [(turn, *_said_in(case, turn, whole=whole)) for turn in case.turns]  # here, as it takes its time, too
        with _recorded() as verdicts, _threads_known_to(loop):
            left = loop.run(_talk(case, spoken, met, verdicts))
        result.longest_s = max(result.longest_s, loop.longest_s)
        runs.append(met)
        if left:
            result.failures.append(Failure(f"hangs: left {left[0]}", repr(left)))
        for one in met:
            result.failures += _of_one(case, one)
            causes = _fail_open(one)
            result.fail_open += causes
            result.failures += [Failure(f"fault: {cause}", repr(one.log)) for cause in causes if FAULT.match(cause)]
    for apart, together in zip(*runs, strict=False):  # one that left something behind has ended there
        if not (apart.may_compare and together.may_compare) or apart.client.raised or together.client.raised:
            break
        result.failures += _law_2(apart, together, waits=case.callback == "slow")
    return result


def _said_in(case: Case, turn: Turn, *, whole: bool) -> tuple[Request, tuple[Reply, ...]]:
    """What client and app say in an exchange."""
    replies = zip(replies_of(case, turn, whole=whole), turn.replies, strict=True)
    return request_of(case, turn, whole=whole), tuple(_paused(reply, part.pause_s) for reply, part in replies)


async def _talk(
    case: Case, spoken: list[tuple[Turn, Request, tuple[Reply, ...]]], met: list[Met], verdicts: list[Verdict]
) -> list[str]:
    """The exchanges of a case; the tasks that they have left behind."""
    script = ScriptedApp((Reply((b"",)),))

    async def app(scope: Scope, receive: Any, send: Any) -> None:
        await script(scope, receive, send)

    guarded = CallFuseMiddleware(app, configurations()[case.configuration], on_loop=_callback(case.callback))
    is_unlimited = guarded.settings.max_total_bytes > MOST_KEPT
    for turn, request, replies in spoken:
        script = ScriptedApp(replies)
        before = guarded.counts.of("fail_open")
        with given_log() as lines:
            client = await _exchange(guarded, request, turn)
        opened = guarded.counts.of("fail_open") > before
        in_turn = is_unlimited and not any(part.pause_s for part in (turn.request, *turn.replies))
        met.append(Met(turn, replies, request, client, script.heard, lines, verdicts[:], opened, in_turn))
        verdicts.clear()
        left = await _left_behind()
        if not left and guarded._host.budget.used:
            left = [f"{guarded._host.budget.used} bytes counted"]
        if left:
            return left
    return []


def _paused(reply: Reply, pause_s: float) -> Reply:
    async def gate(at: int) -> None:
        if at == 1:
            await asyncio.sleep(pause_s)

    waits: Gate | None = gate if pause_s else None
    return Reply(reply.chunks, reply.status, reply.headers, waits, reply.raises, reply.ends)


async def _exchange(app: CallFuseMiddleware, request: Request, turn: Turn) -> Exchange:
    """One exchange, which ends as the turn has it."""
    exchange = Exchange()
    incoming = request.messages()
    pauses_at = len(incoming) - 1 if turn.request.pause_s else -1
    gone = asyncio.Event()
    if turn.ending == "upload aborted":
        incoming = [{**message, "more_body": True} for message in incoming[: turn.after]]
        gone.set()

    async def receive() -> Message:
        if incoming:
            if len(incoming) == pauses_at:
                await asyncio.sleep(turn.request.pause_s)
            return incoming.pop(0)
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        exchange.sent.append((0, dict(message)))
        if len(exchange.sent) > turn.after:
            if turn.ending == "leave":
                gone.set()
            elif turn.ending == "cancel":
                task.cancel()
            elif turn.ending == "send fails":
                raise ClientGone
        if message["type"] == "http.response.body" and not message.get("more_body", False):
            gone.set()

    task = asyncio.ensure_future(app(request.scope(), receive, send))
    try:
        await task
    except asyncio.CancelledError as error:
        exchange.raised = error.with_traceback(None)
    except Exception as error:  # noqa: BLE001 - whatever the host would have seen is the observation
        exchange.raised = error
    return exchange


async def _left_behind() -> list[str]:
    """The tasks that do not end by themselves."""
    for _ in range(TURNS_TO_SETTLE):
        left = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        if not left:
            return []
        await asyncio.sleep(0)
    return sorted(getattr(task.get_coro(), "__qualname__", "?") for task in left)


def _callback(kind: Callback) -> Callable[[Any], Any] | None:
    async def slow(_event: Any) -> None:
        await asyncio.sleep(100)

    async def raises_late(_event: Any) -> None:
        await asyncio.sleep(0)
        raise asyncio.CancelledError

    def raises(_event: Any) -> None:
        raise ValueError("the callback's own")

    def cancelled(_event: Any) -> None:
        raise asyncio.CancelledError

    known: dict[str, Callable[[Any], Any]] = {
        "keep": lambda _event: None,
        "slow": slow,
        "raise": raises,
        "cancelled": cancelled,
        "async raise": raises_late,
        "junk": lambda _event: 7,
        "allow": lambda _event: "allow",
        "block": lambda _event: "block",
        "steer": lambda _event: "steer",
    }
    return known.get(kind)


@contextmanager
def _recorded() -> Iterator[list[Verdict]]:
    """The verdicts as they are reported."""
    found: list[Verdict] = []
    finding = log.finding

    def record(verdict: Verdict, **where: Any) -> None:
        found.append(verdict)
        finding(verdict, **where)

    with patch.object(log, "finding", record):
        yield found


@contextmanager
def _threads_known_to(loop: VirtualLoop) -> Iterator[None]:
    """Have the loop wait for the threads of long bodies."""

    async def waited_for(*args: Any, **more: Any) -> Any:
        with loop.waiting_for_thread():
            return await run_sync(*args, **more)

    with patch.object(off_loop, "run_sync", waited_for):
        yield


def _fail_open(met: Met) -> list[str]:
    lines = [text for _, level, text in met.log if level >= logging.ERROR]
    return [NUMBERS.sub("N", text.partition(": ")[2])[:120] for text in lines]


def _of_one(case: Case, met: Met) -> list[Failure]:
    """What does not hold of one exchange by itself."""
    failures = []
    client, ending = met.client, met.turn.ending
    raised = client.raised
    own = (
        raised is not None and not isinstance(raised, ClientGone) and raised not in [one.raises for one in met.replies]
    )
    if own and not (ending == "cancel" and isinstance(raised, asyncio.CancelledError)):
        failures.append(Failure(f"raises: {type(raised).__name__} in {_place(raised)}", repr(raised)))
    if ending == "end" and raised is None and not client.complete:
        kinds = [(message["type"], message.get("more_body")) for _, message in client.sent]
        failures.append(Failure("unfinished", repr(kinds[-4:])))
    if not failures and met.may_compare and client.sent:
        failures += _law_1(case, met) if _stays_out(case, met) else []
        failures += _law_3(case, met)
    return failures


def _place(error: BaseException | None) -> str:
    traceback = error.__traceback__ if error else None
    place = "?"
    while traceback is not None:
        code = traceback.tb_frame.f_code
        place = f"{code.co_filename.rpartition('/')[2]}:{code.co_name}"
        traceback = traceback.tb_next
    return place


def _stays_out(case: Case, met: Met) -> bool:
    """Whether callfuse, by its own account, leaves the answer alone."""
    closed = configurations()[case.configuration].config.tool_call_loop.fail_closed and met.opened
    return len(met.heard) == 1 and not closed and not any(one.withholds for one in met.verdicts)


def _law_1(case: Case, met: Met) -> list[Failure]:
    reply, client = met.replies[0], met.client
    failures = []
    if client.status != reply.status:
        failures.append(Failure("law 1: status", f"{client.status} for {reply.status}"))
    stream = OTHER_STREAMS.get(met.heard[0].path)
    sent = [(name, stream if stream and value.startswith(b"text/event-stream; charset=utf-8") else value)
            for name, value in reply.headers]  # fmt: skip
    lost = [pair for pair in sent if pair not in client.headers and pair[0] not in UNSURE]
    more = [pair for pair in client.headers if pair not in sent and not pair[0].startswith(b"x-callfuse")]
    if lost or more:
        failures.append(Failure("law 1: headers", f"lost {lost}, more {more}"))
    if not _same(reply.body, client.body) and not _same(_plain(reply.headers, reply.body), client.body):
        failures.append(Failure("law 1: bytes", _difference(reply.body, client.body)))
    return failures


def _same(sent: bytes, got: bytes) -> bool:
    """Whether the bytes are the same but for keep-alives, which overtake what is held and come with a long hold, and
    for the order of choices."""
    if sent == got or (sorted(sent) == sorted(got) and _lines(sent) == _lines(got)):
        return True
    if sent.lstrip().startswith(b"[") and b"".join(_lines(sent)) == b"".join(_lines(got)):
        return len(got) >= len(sent)  # keep-alives of a JSON array are blank lines, even where it has no lines
    one, other = quiet(sent), quiet(got)
    return len(got) >= len(sent) and (one == other or sorted(_lines(sent)) == sorted(_lines(got)))


def _lines(body: bytes) -> list[bytes]:
    """The lines of a body that say something, whatever kinds of line ends stand between them."""
    return [line for line in body.splitlines() if not is_noise(line)]


def _plain(headers: Any, body: bytes) -> bytes:
    """A body without its content coding; the body itself where it cannot be read."""
    coding = dict(headers).get(b"content-encoding", b"")
    try:
        if coding == b"gzip":
            return gzip.decompress(body)
        if coding == b"deflate":
            return zlib.decompress(body)
        if coding == b"zstd":
            return zstd.decompress(body)
    except (OSError, EOFError, zlib.error, zstd.ZstdError):
        return body
    return body


def _difference(left: bytes, right: bytes) -> str:
    shorter = min(len(left), len(right))
    at = next((at for at in range(shorter) if left[at] != right[at]), shorter)
    one, other = (text[max(at - 60, 0) : at + 200] for text in (left, right))
    return f"from byte {at} of {len(left)} and {len(right)}: {one!r} / {other!r}"


def _law_2(apart: Met, together: Met, *, waits: bool) -> list[Failure]:
    """`waits`: a callback takes its time, so that keep-alives come where the clock has them."""
    one, other = apart.outcome(), together.outcome()
    bodies = sorted((apart.client.body, together.client.body), key=len)
    for name, value in one.items():
        if value != other[name] and not (name == "body" and waits and _same(*bodies)):
            detail = _difference(repr(value).encode(), repr(other[name]).encode())
            return [Failure(f"law 2: {name}", detail)]
    return []


def _law_3(case: Case, met: Met) -> list[Failure]:
    closed = configurations()[case.configuration].config.tool_call_loop.fail_closed
    if (met.opened and not closed) or met.client.raised:
        return []
    body = met.client.body
    given = [one.call.id for one in met.verdicts if not one.withholds]
    leaked = [
        one.call
        for one in met.verdicts
        if one.withholds
        and "runaway" not in (one.finding.kinds or (one.finding.kind,))  # what has left of it stays
        and _tells(one.call.id)
        and one.call.id not in given
        and one.call.id.encode() in body
    ]
    sent = [met.replies[min(at, len(met.replies) - 1)].body for at in range(len(met.heard))]
    leaked = [
        call for call in leaked if sum(call.id.encode() in body for body in sent) == 1
    ]  # else it may be another's
    if leaked and any(part.mutations for part in met.turn.replies):  # a damaged twin of the call is no call
        material = material_of(case, met.turn)
        seen = _calls_in(material, met.client.body)
        twins = Counter(pair for body in sent for pair in _calls_in(material, body))
        leaked = [call for call in leaked if (call.id, call.name) in seen and twins[call.id, call.name] < 2]
    return [Failure("law 3: id", f"{leaked[0].id} of {leaked[0].name} in {body!r}")] if leaked else []


def _calls_in(material: Material, body: bytes) -> list[tuple[str, str]]:
    """Ids and names of the calls in a body, as the dialect reads them."""
    try:
        return [(id_, name) for _, id_, name, _ in calls_in(dialect_of(material.kit.name), material.form, [body])]
    except Exception:  # noqa: BLE001 - what is damaged so much has no calls
        return []


def _tells(call_id: object) -> bool:
    """Whether an id can be looked for; damaged ones may be anything."""
    return isinstance(call_id, str) and len(call_id) >= LEAST_ID and call_id.isascii()


__all__ = ["Failure", "Hang", "Result", "check"]
