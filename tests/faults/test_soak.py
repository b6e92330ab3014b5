"""The soak, small: every kind of stream goes through `callfuse serve`, and nothing is left behind."""

import os
import socket
import subprocess
import sys

import pytest
from benchmarks.children import Figures, ports_of
from benchmarks.soak import is_error, left, main
from benchmarks.streams import CALL_MARK, FAULTY, Plan, Seen, body_of, fault, fault_of_cut, frames, plan

from tests.project.sources import PROJECT
from tests.support.redis import program


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


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_small_soak_with_kills() -> None:
    """A worker, the vendor's connections and the store are killed once each; what is not cut is as it must be."""
    options = [
        "--streams",
        "8",
        "--count",
        "60",
        "--workers",
        "2",
        "--kills",
        "3",
        "--share",
        "0.05",
        "--pause",
        "0.01",
    ]
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.soak", *options], cwd=PROJECT, capture_output=True, text=True, timeout=380
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith("all is well\n")
    killed = [line for line in done.stdout.splitlines() if line.startswith("killed")]
    for line, what in zip(
        killed, ("worker with", "connections of the vendor", "store;" if program() else "worker with"), strict=True
    ):
        assert what in line


def test_kills_need_several_workers() -> None:
    """With one, nothing would serve meanwhile."""
    with pytest.raises(SystemExit):
        main(["--kills", "1"])


@pytest.mark.parametrize("dialect", ["openai-chat", "anthropic"])
def test_what_a_kill_may_leave(dialect: str) -> None:
    """The vendor's bytes without an end, nothing, or a 502; but no other byte, no end too early, no looping call."""
    one, loop = healthy(dialect), healthy(dialect)._replace(kind="loops")
    sent = frames(body_of(one), dialect)
    for seen in (
        Seen(0, b"", complete=False),
        Seen(200, b"".join(sent[:4]), complete=False),
        Seen(502, b"x", complete=True),
    ):
        assert fault_of_cut(one, seen) == fault_of_cut(loop, seen) == ""
    assert fault_of_cut(one, Seen(200, b"".join(sent), complete=True)) == ""
    assert fault_of_cut(one, Seen(200, b"".join(sent[:4]), complete=True))
    assert fault_of_cut(one, Seen(200, sent[0] + sent[2], complete=False))
    assert fault_of_cut(one, Seen(503, b"", complete=True))
    held = frames(body_of(loop), dialect)
    assert CALL_MARK in b"".join(held[:-1])
    assert fault_of_cut(loop, Seen(200, b"".join(held[:-1]), complete=False)) == ""
    assert fault_of_cut(loop, Seen(200, b"".join(held), complete=False))


@pytest.mark.skipif(sys.platform != "linux", reason="the system lists no connections of a process")
def test_the_connections_of_a_process() -> None:
    """Those that are open, by their ports; a socket that listens is none."""
    with socket.create_server(("127.0.0.1", 0)) as listener, socket.create_connection(listener.getsockname()) as client:
        accepted, (_, there) = listener.accept()
        with accepted:
            here = listener.getsockname()[1]
            assert {(here, there), (there, here)} <= set(ports_of(os.getpid()))
            assert (here, 0) not in ports_of(os.getpid())
        assert (here, there) not in ports_of(os.getpid())
        assert client.fileno() >= 0


def test_what_is_left() -> None:
    """Memory since the warm-up, everything else since the start."""
    begun, warm = Figures(100, 20, 5, 3), Figures(110, 20, 5, 3)
    assert left(begun, [warm, Figures(129, 19, 5, 3)], 20) == []
    assert left(begun, [warm, Figures(131, 22, 6, 4)], 20) == [
        "21.0 MB more than after the warm-up",
        "2 descriptors left",
        "1 sockets left",
        "1 tasks left",
    ]


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
