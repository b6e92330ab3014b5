"""The soak, small: every kind of stream goes through `callfuse serve`, and nothing is left behind."""

import subprocess
import sys

import pytest
from benchmarks.soak import FAULTY, Plan, Seen, body_of, fault, frames, is_error, plan

from tests.project.sources import PROJECT


def healthy(dialect: str) -> Plan:
    """A healthy stream."""
    return Plan("healthy", 7, dialect, 2)


@pytest.mark.timeout(240)
def test_a_small_soak() -> None:
    """A dozen streams for two seconds, twice, two thirds of which go wrong in some way."""
    options = ["--streams", "12", "--seconds", "2", "--waves", "2", "--share", "0.1", "--pause", "0.01", "--seed", "10"]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", *options], cwd=PROJECT, capture_output=True, text=True, timeout=200
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all is well\n")
    assert all(kind in done.stdout for kind in FAULTY)
    assert done.stdout.count("after load") == 2


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic"])
def test_a_fault_is_told(dialect: str) -> None:
    """A byte that is gone, an answer without its end, a loop that came through, an end too many."""
    one = healthy(dialect)
    whole = b"".join(frames(body_of(one), dialect))
    assert fault(one, Seen(200, whole, complete=True)) == ""
    assert fault(one, Seen(200, whole[:-1], complete=True))
    assert fault(one, Seen(200, whole, complete=False))
    assert fault(one, Seen(502, whole, complete=True))
    for kind in ("loops", "dies", "dies in hold", "leaves"):
        assert fault(one._replace(kind=kind), Seen(200, whole, complete=True))


def test_the_shares() -> None:
    """Each kind has the share that is asked for, and the rest is healthy."""
    kinds = [plan(1, number, 0.05).kind for number in range(4000)]
    for kind in FAULTY:
        assert 0.03 < kinds.count(kind) / len(kinds) < 0.07
    assert {*kinds} == {"healthy", *FAULTY}


def test_only_errors_are_errors() -> None:
    """A cut answer is told by uvicorn, as it should be."""
    assert is_error("2026 ERROR   callfuse: callfuse failed open in session x: KeyError")
    assert not is_error("2026 ERROR   uvicorn.error: ASGI callable returned without completing response.")
    assert not is_error("2026 WARNING callfuse: x")
