"""Exchanges with a finding are kept within their limits, by age, and as references to the chunks that pass."""

import sys
from dataclasses import dataclass

import pytest

from callfuse.config.serve import AdminSettings
from callfuse.observe.exchanges import CHUNK_COST, EXCHANGE_COST, KeptExchange, KeptExchanges

LEAST = 16_384


@dataclass
class Clock:
    """A clock that moves where a test says so."""

    now: float = 1000.0

    def __call__(self) -> float:
        """The time."""
        return self.now


def exchanges(clock: Clock | None = None, **settings: object) -> KeptExchanges:
    """Kept exchanges that somebody reads."""
    found = KeptExchanges(clock or Clock())
    found.attach_reader()
    found.bound(AdminSettings.model_validate({"keep_exchanges": True, **settings}))
    return found


def opened(kept: KeptExchanges) -> KeptExchange:
    """A new exchange."""
    exchange = kept.open()
    assert exchange is not None
    return exchange


def test_it_is_off_by_default() -> None:
    """Nothing is opened; nor where no admin page reads it."""
    kept = KeptExchanges(Clock())
    kept.bound(AdminSettings(keep_exchanges=True))
    assert not kept.is_on
    assert kept.open() is None
    kept.attach_reader()
    assert kept.is_on
    kept.bound(AdminSettings())
    assert not kept.is_on
    assert kept.open() is None


def test_only_an_exchange_with_a_finding_is_kept() -> None:
    """Under each of its findings, once; another one is dropped at its end."""
    kept = exchanges()
    quiet, loud = opened(kept), opened(kept)
    for one in (quiet, loud):
        one.vendor.begin().add(b"text")
    loud.note("first")
    loud.note("first")
    loud.note("second")
    assert kept.find("first") is kept.find("second") is loud
    quiet.close()
    loud.close()
    assert loud.findings == ["first", "second"]
    assert loud.is_over
    assert kept.size == loud.size == EXCHANGE_COST + CHUNK_COST + 4
    assert quiet.vendor.answers == []


def test_chunks_are_kept_not_copied() -> None:
    """On both sides the same object; an empty one is not kept."""
    exchange = opened(exchanges())
    chunk = b"x" * 1000
    came, gone = exchange.vendor.begin(), exchange.client.begin()
    references = sys.getrefcount(chunk)
    came.add(chunk)
    gone.add(chunk)
    assert sys.getrefcount(chunk) == references + 2
    assert came.first[0] is gone.first[0] is chunk


@pytest.mark.parametrize("size", [1, 7, 100, 1000, LEAST, 10 * LEAST])
def test_both_ends_are_kept(size: int) -> None:
    """However a long body is cut: its first and its last bytes, and the number of those between; within the limit."""
    kept = exchanges(max_exchange_bytes=LEAST)
    exchange = opened(kept)
    body = bytes(i % 251 for i in range(20 * LEAST))
    answer = exchange.vendor.begin()
    for at in range(0, len(body), size):
        answer.add(body[at : at + size])
        assert kept.size <= LEAST
    first, last = b"".join(answer.first), b"".join(answer.last)
    assert answer.size == len(body)
    assert len(first) + answer.left_out + len(last) == len(body)
    assert body.startswith(first)
    assert body.endswith(last)
    assert first
    assert last


def test_a_body_that_fits_is_kept_whole() -> None:
    """Also one that goes on with the last bytes."""
    exchange = opened(exchanges(max_exchange_bytes=LEAST))
    answer = exchange.vendor.begin()
    chunks = [b"%3d" % at * 100 for at in range(12)]
    for chunk in chunks:
        answer.add(chunk)
    assert answer.left_out == 0
    assert [*answer.first, *answer.last] == chunks
    assert answer.last


def test_several_answers_share_a_side() -> None:
    """The bytes that are left out are counted with the answer that they are of."""
    kept = exchanges(max_exchange_bytes=LEAST)
    exchange = opened(kept)
    one, two = exchange.vendor.begin(), exchange.vendor.begin()
    for _ in range(100):
        one.add(b"1" * 100)
    for _ in range(100):
        two.add(b"2" * 100)
    for answer, letter in ((one, b"1"), (two, b"2")):
        parts = [*answer.first, *answer.last]
        assert set(b"".join(parts)) <= set(letter)
        assert sum(map(len, parts)) + answer.left_out == 100 * 100
    assert two.last
    assert kept.size <= LEAST


def test_all_together_are_bounded() -> None:
    """The oldest go; many that run leave room for those that are kept, and each keeps its newest bytes."""
    kept = exchanges(max_exchange_bytes=LEAST, max_exchanges_bytes=4 * LEAST)
    for number in range(100):
        exchange = opened(kept)
        exchange.note(f"finding-{number}")
        exchange.vendor.begin().add(b"x" * 3000)
        exchange.close()
        assert kept.size <= 4 * LEAST
    assert kept.find("finding-0") is None
    assert kept.find("finding-99") is exchange
    running = [opened(kept) for _ in range(100)]
    answers = [one.vendor.begin() for one in running]
    for letter in b"abcdefghijklmnop":
        for answer in answers:
            answer.add(bytes([letter]) * 400)
        assert kept.size <= 4 * LEAST
    assert kept.find("finding-99") is exchange
    for answer in answers:
        assert sum(map(len, [*answer.first, *answer.last])) + answer.left_out == answer.size
    for one in running:
        one.close()
    assert kept.find("finding-99") is exchange


def test_nothing_of_a_dropped_one_is_kept() -> None:
    """It may go on: its bytes are left out, and count no more."""
    kept = exchanges(max_exchange_bytes=LEAST, max_exchanges_bytes=4 * LEAST)
    first = opened(kept)
    first.note("first")
    answer = first.vendor.begin()
    answer.add(b"x" * 1000)
    kept.bound(AdminSettings())
    assert kept.size == 0
    answer.add(b"x" * 1000)
    first.note("again")
    first.close()
    assert (kept.size, answer.size, answer.left_out) == (0, 2000, 1000)
    assert first.vendor.answers == []
    assert kept.find("first") is None


def test_old_ones_are_dropped() -> None:
    """By the time of their first finding, when the next exchange begins or somebody asks."""
    clock = Clock()
    kept = exchanges(clock, keep_exchanges_s=60)
    exchange = opened(kept)
    exchange.note("first")
    clock.now += 60
    assert kept.find("first") is exchange
    clock.now += 1
    assert kept.open() is not None
    assert kept.size == 0
    assert kept.find("first") is None
