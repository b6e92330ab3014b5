"""A small search, the same in every run, and that the search finds what it is for."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from callfuse.asgi.stream import ClientStream
from callfuse.guard.frames import AnswerFrames
from callfuse.guard.guard import Guard
from tests.fuzz.__main__ import Search
from tests.fuzz.cases import Case, draw_case, replies_of, simpler
from tests.fuzz.checks import check
from tests.fuzz.virtual import Hang, VirtualLoop

SEED = 1
CASES = 400


@pytest.fixture
def search() -> Iterator[Search]:
    """A search over the kits' own bodies, which are the same everywhere."""
    found = Search(SEED, own_only=True)
    yield found
    found.loop.drop()


@pytest.mark.slow
def test_nothing_is_found(search: Search) -> None:
    """Damaged answers and requests of all dialects, cut and compressed, under all settings: every law holds."""
    for index in range(CASES):
        search.look_at(index)
    assert {kind: failure for kind, (_, failure) in search.first.items()} == {}


def test_a_case_is_the_same_every_time() -> None:
    """Seed and index say all of it."""
    one, other = (draw_case(5, 77, own_only=True) for _ in range(2))
    assert one == other != draw_case(6, 77, own_only=True)
    (first, second) = ([replies_of(case, turn, whole=False) for turn in case.turns] for case in (one, other))
    assert [[reply.body for reply in row] for row in first] == [[reply.body for reply in row] for row in second]


def found_with(search: Search, kind: str) -> Case:
    """The first case that fails in this way."""
    for index in range(CASES):
        case = draw_case(SEED, index, own_only=True)
        if any(failure.kind.startswith(kind) for failure in search.check(case).failures):
            return case
    raise AssertionError(f"no case in {CASES} shows {kind}")


def lost_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard that loses the last byte of a chunk."""
    feed = Guard.feed
    monkeypatch.setattr(Guard, "feed", lambda guard, chunk: feed(guard, chunk)[:-1])


def raising(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream to the client that raises."""

    async def write(*_: Any, **__: Any) -> None:
        raise KeyError("ours")

    monkeypatch.setattr(ClientStream, "write", write)


def failing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A guard with an error that it catches itself."""

    def feed(*_: Any) -> bytes:
        raise KeyError("ours")

    monkeypatch.setattr(AnswerFrames, "feed", feed)


def waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream to the client that waits for ever."""

    async def write(*_: Any, **__: Any) -> None:
        await asyncio.Event().wait()

    monkeypatch.setattr(ClientStream, "write", write)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("break_it", "kind"),
    [
        (lost_byte, "law 1: bytes"),
        (lost_byte, "law 2"),
        (raising, "raises: KeyError"),
        (failing, "fault: KeyError"),
        (waiting, "hangs"),
    ],
)
def test_what_is_broken_is_found(search: Search, break_it: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lost byte, an error in the host or inside, an exchange without an end; and the case gets smaller."""
    break_it(monkeypatch)
    case = found_with(search, kind)
    exact = next(one.kind for one in search.check(case).failures if one.kind.startswith(kind))
    small = search.shrink(case, exact)
    assert any(failure.kind == exact for failure in search.check(small).failures)
    assert len(repr(small)) <= len(repr(case))
    assert small == case or small not in simpler(small)


def test_the_clock_goes_on_by_itself() -> None:
    """Two minutes of sleep take no time; what waits for nothing is a hang."""
    loop = VirtualLoop()
    begun = loop.time()
    loop.run(asyncio.sleep(120))
    assert loop.time() >= begun + 120
    with pytest.raises(Hang):
        loop.run(asyncio.Event().wait())
    loop.drop()


def test_a_thread_is_waited_for() -> None:
    """Work beside the loop takes the time that it takes, and no timer fires meanwhile."""
    loop = VirtualLoop()

    async def work() -> float:
        async with asyncio.timeout(60):
            return await asyncio.to_thread(sum, range(100_000))

    assert loop.run(work()) == sum(range(100_000))
    loop.drop()


def test_a_check_without_anything_wrong_is_empty(search: Search) -> None:
    """A case of whole bodies, nothing damaged."""
    case = next(case for case in (draw_case(1, at, own_only=True) for at in range(CASES)) if not damaged(case))
    assert check(case, search.loop).failures == []


def damaged(case: Case) -> bool:
    """Whether anything in a case is unusual."""
    parts = [part for turn in case.turns for part in (turn.request, *turn.replies)]
    return bool(case.callback) or any(part.mutations or part.coding or part.dies for part in parts)
