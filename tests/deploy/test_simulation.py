"""The simulation of `benchmarks.simulation` against answers that are known."""

import random
from statistics import mean

import pytest
from benchmarks.predicting import STAMP, STAMPED, Pair, Seen, pieces, report, summary
from benchmarks.proxy import END
from benchmarks.simulation import Cost, Machine, Stream, Work, poisson, simulate

SERVICE_S = 0.01
ONLY_WORKER = Work(Cost(SERVICE_S))


def per_s(streams: list[Stream]) -> float:
    """Streams that end in a second, where all begin at 0."""
    return len(streams) / max(stream.ended_s for stream in streams)


@pytest.mark.parametrize("load", [0.2, 0.5])
def test_random_arrivals_at_one_worker_wait_as_theory_says(load: float) -> None:
    """The mean wait of an M/D/1 queue is load * service / 2 (1 - load)."""
    streams = simulate(poisson(load / SERVICE_S, 60, random.Random(1)), ONLY_WORKER, Machine(1, 2))
    waited_s = mean(stream.ended_s - stream.begun_s for stream in streams) - SERVICE_S
    assert waited_s == pytest.approx(load * SERVICE_S / (2 * (1 - load)), rel=0.1)


@pytest.mark.parametrize(
    ("workers", "cores", "most"),
    [(1, 2, 1), (2, 2, 2), (4, 2, 2), (2, 1, 1), (1, 0.5, 0.5), (4, 1.5, 1.5)],
)
def test_saturated(workers: int, cores: float, most: float) -> None:
    """As many a second as the cores allow, and no worker has more than one: two on one core are no faster than one."""
    streams = simulate([0.0] * 400, ONLY_WORKER, Machine(workers, cores))
    assert per_s(streams) == pytest.approx(most / SERVICE_S, rel=0.01)


def test_all_processes_share_the_cores() -> None:
    """Vendor, client and worker need as much as another: on one core a third each, on three they work side by side."""
    cost = Cost(SERVICE_S)
    work = Work(cost, cost, cost)
    assert per_s(simulate([0.0] * 400, work, Machine(1, 1))) == pytest.approx(1 / 3 / SERVICE_S, rel=0.01)
    assert per_s(simulate([0.0] * 400, work, Machine(1, 3))) == pytest.approx(1 / SERVICE_S, rel=0.02)


def test_events() -> None:
    """Alone, a stream takes its exchange and its pauses; each event is delayed by those who pass it on."""
    work = Work(Cost(0.01, 0.002), Cost(0.0, 0.0005), Cost(0.001, 0.001), events=5, pause_s=0.1)
    [stream] = simulate([3.0], work, Machine(1, 2))
    assert stream.delays_s == pytest.approx([0.003] * 5)
    assert stream.first_s == pytest.approx(3.0 + 0.011 + 0.0035)
    assert stream.ended_s == pytest.approx(stream.first_s + 4 * (0.1 + 0.0005))
    assert work.worker.of(5) == pytest.approx(0.02)


def test_events_of_others_wait_for_an_exchange() -> None:
    """An event that arrives while its worker is busy waits; at another worker it does not."""
    work = Work(Cost(0.05, 0.001), events=2, pause_s=0.1)
    late = 0.12  # its exchange takes until 0.17; the second event of the other comes at 0.15
    (first, _), (apart, _) = (simulate([0.0, late], work, Machine(workers, 2)) for workers in (1, 2))
    assert first.delays_s == pytest.approx([0.001, 0.02 + 0.001])
    assert apart.delays_s == pytest.approx([0.001, 0.001])


def test_open_streams_do_not_wait_for_new_ones() -> None:
    """A worker with far too much to do accepts one stream in each turn: an event waits for that one and for others'
    events, a new stream for all that were there before it."""
    work = Work(Cost(0.01, 0.0001), events=10, pause_s=0.01)
    streams = simulate([0.0] * 100, work, Machine(1, 2))
    assert max(delay_s for stream in streams for delay_s in stream.delays_s) < 0.025
    assert max(stream.first_s for stream in streams) > 1


def test_arrivals() -> None:
    """As many as are asked for, in order, within the time."""
    found = poisson(50, 40, random.Random(3))
    assert found == sorted(found)
    assert found[-1] < 40
    assert len(found) == pytest.approx(2000, rel=0.1)


def test_an_answer_tells_when_each_event_was_sent() -> None:
    """Each event is a piece, a chunk of its own, with a place for the time."""
    answer = pieces(4)
    assert len(answer) == 4
    assert [len(STAMPED.findall(piece)) for piece in answer] == [1] * 4
    assert all(piece.count(STAMP) == 1 for piece in answer)
    assert b"".join(answer).endswith(END)
    [found] = STAMPED.findall(answer[1].replace(STAMP, b"%014.6f" % 12345.678))
    assert float(found) == 12345.678


def test_the_report() -> None:
    """Medians of what was predicted and measured, and the median of the ratios of each round."""
    streams = [Stream(1.0, first_s=1.5, ended_s=2.0, delays_s=[0.1, 0.3]), Stream(2.0, first_s=2.1, ended_s=3.0)]
    assert [*summary(streams)] == pytest.approx([1.0, 0.3, 0.2])
    rounds = [{(2, 0.75): Pair(Seen(100, 0.010, 0.001), Seen(100 * ratio, 0.020, 0.003))} for ratio in (0.8, 0.9, 2)]
    line = report(rounds)[-1]
    assert [float(text.strip(",")) for text in line.split()] == [2, 0.75, 100, 90, 0.9, 10, 20, 2, 1, 3, 3]
