"""Long bodies are read beside the event loop, with the same outcome; what would stop everybody is not parsed."""

import gc
import gzip
import threading
import weakref
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import anyio
import pytest

from callfuse import CallFuseMiddleware
from callfuse.asgi import exchange, off_loop, prepare
from callfuse.asgi.off_loop import HUGE_BYTES, LONG_BYTES, MANY_VALUES, run, weight_of
from callfuse.asgi.safe_guard import SafeGuard
from callfuse.conversations.notes import MANY_REPEATS
from callfuse.guard.assembly import Assembly
from callfuse.guard.guard import Guard
from callfuse.wire import whole
from callfuse.wire.values import MOST_VALUES
from tests.guard.driving import each_kit
from tests.support.asgi import JSON_REQUEST, Request, drive
from tests.support.config import settings
from tests.support.kits import KITS, DialectKit
from tests.support.meeting import MARK, ask, given_log, meet, reply, streamed_and_whole
from tests.support.model import Call
from tests.support.plain import again, elsewhere, saying, spin
from tests.support.scripted import play
from tests.support.scripted import whole as whole_reply


def test_what_a_body_weighs() -> None:
    """Its length; more than `LONG_BYTES` if it has many values, or is packed."""
    assert weight_of(b"x" * 10) == 10
    assert weight_of(b"[" + b"1," * MANY_VALUES + b"1]") > LONG_BYTES
    assert weight_of(b"[" + b"1," * (MANY_VALUES // 2) + b"1]") < LONG_BYTES
    assert weight_of(b"x", packed=True) > LONG_BYTES
    assert weight_of(b"x" * HUGE_BYTES * 2, packed=True) == HUGE_BYTES * 2


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_huge_bodies_wait_for_each_other_only(backend: str) -> None:
    """Short work is done at once, long work in a thread, huge work in one thread after another."""
    here = threading.get_ident()
    running: list[int] = []
    most: list[int] = []
    begun = threading.Event()

    def work() -> int:
        running.append(1)
        most.append(len(running))
        begun.wait(0.05)
        running.pop()
        return threading.get_ident()

    async def main() -> None:
        assert await run(threading.get_ident, LONG_BYTES) == here
        assert await run(threading.get_ident, LONG_BYTES + 1) != here
        async with anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(run, work, HUGE_BYTES + 1)
        assert max(most) == 1

    anyio.run(main, backend=backend)


class Held:
    """Something that work holds."""

    def __call__(self) -> "Held":
        """Work that fails where it is told to."""
        if self.fails:
            raise ValueError("what is wrong")
        return self

    fails = False


@pytest.mark.parametrize("fails", [False, True])
async def test_what_work_holds_is_let_go_at_once(fails: bool) -> None:
    """Not when the garbage collector comes: it may be a body of 60 MB that is no JSON."""
    work = Held()
    work.fails = fails
    gone = weakref.ref(work)
    gc.disable()
    try:
        with pytest.raises(ValueError, match="what is wrong") if fails else nullcontext():
            assert await run(work, LONG_BYTES + 1) is work
        del work
        await anyio.sleep(0.05)
        assert gone() is None
    finally:
        gc.enable()


class Threads:
    """Notes in which thread a function runs."""

    def __init__(self) -> None:
        self.beside: dict[str, list[bool]] = {}

    def watch(self, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str) -> None:
        """Watch a function of a module, or a method."""
        inner: Callable[..., Any] = getattr(owner, name)

        def watched(*args: Any, **options: Any) -> Any:
            is_beside = threading.current_thread() is not threading.main_thread()
            self.beside.setdefault(name, []).append(is_beside)
            return inner(*args, **options)

        monkeypatch.setattr(owner, name, watched)


@pytest.mark.parametrize("rounds", [MANY_REPEATS, MANY_REPEATS + 2])
def test_notes_on_many_equal_rounds_are_written_in_a_thread(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However short the body is. The vendor gets the same body."""
    kit = KITS[0]
    request = ask(kit, spin(rounds), stream=True)
    assert off_loop.weight_of(request.body) < LONG_BYTES
    known = meet(request, [reply(kit, elsewhere(), stream=True)], "warn").app.heard[0].body
    threads = Threads()
    threads.watch(monkeypatch, exchange, "notes_for")
    met = meet(request, [reply(kit, elsewhere(), stream=True)], "warn")
    assert threads.beside["notes_for"] == [rounds > MANY_REPEATS]
    assert met.app.heard[0].body == known != request.body


@pytest.mark.parametrize("rounds", [1, 2])
def test_answers_with_many_calls_are_judged_in_a_thread(rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """However short they are: read whole, or settled at their end."""
    kit = KITS[0]
    many = saying(*[Call(f"call_{at}", "search", (f'{{"query": "okapi {at}"}}',)) for at in range(200)])
    threads = Threads()
    threads.watch(monkeypatch, Guard, "feed")
    threads.watch(monkeypatch, Assembly, "finish")
    threads.watch(monkeypatch, Assembly, "settle")
    answer = reply(kit, many, stream=False)
    assert LONG_BYTES // 4 < len(answer.body) < LONG_BYTES
    met = meet(ask(kit, spin(rounds), stream=False), [answer], "warn")
    assert met.body == answer.body
    assert all(threads.beside[name][-1] for name in threads.beside)
    assert threads.beside


@each_kit
@streamed_and_whole
@pytest.mark.parametrize("ladder", ["warn", "block", "chance_then_block"])
@pytest.mark.parametrize("rounds", [1, 2])
def test_long_bodies_are_read_in_threads(
    kit: DialectKit, stream: bool, ladder: str, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parsing, finding commands, the conversation, acting on a verdict, a whole answer: none of it in the event loop's
    thread; and what comes of it is the same."""
    request = ask(kit, spin(rounds), stream=stream)
    replies = [reply(kit, again(), stream=stream), reply(kit, elsewhere(), stream=stream)]
    known = meet(request, replies, ladder)
    threads = Threads()
    for owner, name in (
        (prepare, "parse_whole"),
        (prepare, "lane_of"),
        (Guard, "apply"),
        (Guard, "escalate"),
        (whole, "loads"),
    ):
        threads.watch(monkeypatch, owner, name)
    threads.watch(monkeypatch, exchange, "ExchangeEvidence")
    monkeypatch.setattr(off_loop, "LONG_BYTES", 0)
    monkeypatch.setattr(prepare, "LEAST_BYTES", 0)
    met = meet(request, replies, ladder)
    assert met.body == known.body
    assert met.log == known.log
    assert [heard.body for heard in met.app.heard] == [heard.body for heard in known.app.heard]
    assert all(all(beside) for beside in threads.beside.values()), threads.beside
    assert threads.beside.keys() >= {"parse_whole", "lane_of", "ExchangeEvidence"}
    assert ("apply" in threads.beside) is (MARK.encode() in known.body or len(known.app.heard) > 1)


@each_kit
def test_a_thread_leaves_what_the_timer_reads(kit: DialectKit, monkeypatch: pytest.MonkeyPatch) -> None:
    """The state of a stream's guard is copied in the event loop's thread only, where the timer of a hold reads it."""
    threads = Threads()
    threads.watch(monkeypatch, Guard, "escalate")
    threads.watch(monkeypatch, SafeGuard, "_copy_state")
    monkeypatch.setattr(off_loop, "LONG_BYTES", 0)
    replies = [reply(kit, again(), stream=True), whole_reply(b"{}", 503)]
    met = meet(ask(kit, spin(), stream=True), replies, "chance_then_block")
    assert met.client.complete
    assert threads.beside["escalate"]
    assert all(threads.beside["escalate"])
    assert not any(threads.beside["_copy_state"])


@each_kit
@pytest.mark.parametrize("packed", [False, True])
async def test_a_body_of_too_many_values_is_not_parsed(
    kit: DialectKit, packed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not even begun: it passes, counted and logged once as not guarded."""

    def never(*_: object) -> Any:
        raise AssertionError("it is parsed")

    monkeypatch.setattr(prepare, "parse_whole", never)
    plain = ask(kit, spin(), stream=True).body
    body = plain[:-1] + b',"x":[' + b",".join([b"{}"] * MOST_VALUES) + b"]}"
    sent = gzip.compress(body) if packed else body
    coding = ((b"content-encoding", b"gzip"),) if packed else ()
    app = play(reply(kit, again(), stream=True))
    fuse = CallFuseMiddleware(app, settings())
    with given_log() as log:
        for _ in range(2):
            exchanged = await drive(fuse, Request(kit.path, sent, (*JSON_REQUEST, *coding)))
    assert app.heard[0].body == sent
    assert exchanged.body == app.replies[0].body
    assert fuse.counts.of("not_guarded", "request values") == 2
    assert len(log) == 1


@each_kit
@pytest.mark.parametrize("rounds", [1, 2])
def test_a_whole_answer_of_too_many_values_passes(kit: DialectKit, rounds: int) -> None:
    """Unread, watched or guarded."""
    body = kit.whole(again())[:-1] + b',"x":[' + b",".join([b"{}"] * MOST_VALUES) + b"]}"
    met = meet(ask(kit, spin(rounds), stream=False), [whole_reply(body)])
    assert met.body == body
    assert met.client.complete
