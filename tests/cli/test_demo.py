"""`callfuse demo`: the story in a pipe and in a terminal, what it says when things go wrong, what it leaves."""

import io
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console

from callfuse.cli import demo
from callfuse.cli.demo import run_demo
from callfuse.demo import agent
from callfuse.demo import play as play_module
from callfuse.demo.play import Play
from callfuse.demo.servers import DemoError, Log
from callfuse.demo.stages import LiveStage, PlainStage
from callfuse.demo.story import EntryKind, RunSummary, Side, StoryEntry, Summary, saving
from callfuse.errors import install_hint

PROGRAM = "from callfuse.cli.demo import run_demo; raise SystemExit(run_demo(stubborn={stubborn}, chunk_delay_s=0))"
FINDING = (
    "2026-01-01 00:00:00,000 WARNING callfuse: Tool call loop detected in session 0badc0de: tool=search_web, "
    "repeats=3/3, window=300s, model=scripted-model, backend=openai, action=steer, signature=search_web...\n"
)
STORY = [
    StoryEntry(Side.WITHOUT, EntryKind.CALL, 'search_web("llamas") -> no results', 1),
    StoryEntry(Side.WITHOUT, EntryKind.LIMIT, "the agent's own limit of 12 calls stops it, without an answer", 1),
    StoryEntry(Side.WITH, EntryKind.CALL, 'search_web("llamas") -> no results', 1),
    StoryEntry(Side.WITH, EntryKind.HELD, "the same call again waits in the stream", 1),
    StoryEntry(Side.WITH, EntryKind.FINDING, "tool=search_web, repeats=3/3", 1),
    StoryEntry(
        Side.WITH, EntryKind.GUIDANCE, "[callfuse] This call was not run.\nThink \x1b[31magain: größer " + "and " * 40
    ),
    StoryEntry(Side.WITH, EntryKind.ANSWER, "Llamas live in the Andes.", 1),
]
SUMMARY = Summary(
    without=RunSummary(Side.WITHOUT, EntryKind.LIMIT, calls=12, requests=12, tokens=6403),
    with_callfuse=RunSummary(Side.WITH, EntryKind.ANSWER, calls=3, requests=5, tokens=1470),
)


def demo_in_a_pipe(*, stubborn: bool = False) -> subprocess.CompletedProcess[str]:
    """The demo as a process, its output in a pipe, in an environment full of what should not reach it."""
    environment = os.environ | {
        "HTTP_PROXY": "http://127.0.0.1:9",
        "CALLFUSE_CONFIG": "/nowhere/callfuse.yaml",
        "TOOL_LOOP_MODE": "observe",
        "COLUMNS": "72",
    }
    return subprocess.run(
        [sys.executable, "-c", PROGRAM.format(stubborn=stubborn)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def assert_readable(output: str, width: int) -> None:
    """No control codes, and no line too long for the width."""
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]", output)
    assert max(map(len, output.splitlines())) <= width


def told_in_order(story: str, *words: str) -> None:
    """Each of these words is told, one after the other, however the lines are wrapped."""
    flat = re.sub(r"\s+", " ", story)
    places = [flat.find(re.sub(r"\s+", " ", part)) for part in words]
    assert -1 not in places, f"{words[places.index(-1)]!r} is missing in:\n{story}"
    assert places == sorted(places), f"{words} are not in this order in:\n{story}"


def test_loop_is_caught() -> None:
    """In a pipe the demo tells the whole story in order, and exits with 0."""
    done = demo_in_a_pipe()
    assert done.returncode == 0, done.stderr
    assert_readable(done.stdout, 72)
    without, _, with_callfuse = done.stdout.partition("\nWith callfuse\n")
    assert without.count(f'{agent.TOOL}("{agent.LOOPING_QUERY}")') == agent.MAX_CALLS
    assert "STOPPED" in without
    changed = f'  3  search_web("{agent.OTHER_QUERY}")'
    told_in_order(
        with_callfuse, "  2  search_web", "HELD", "sent to the model instead of a result: [callfuse]", changed
    )
    told_in_order(with_callfuse, "HELD", "finding: tool=search_web, repeats=3/3", "action=steer", changed)
    told_in_order(with_callfuse, changed, "answer: On Sundays", "tool calls run", "changed course")
    assert with_callfuse.count(f'{agent.TOOL}("{agent.LOOPING_QUERY}")') == 2, "the third one never reached the agent"
    assert done.stderr == ""


def test_stubborn_model_is_blocked() -> None:
    """A model that does not listen is blocked, and the agent reads why."""
    done = demo_in_a_pipe(stubborn=True)
    assert done.returncode == 0, done.stderr
    assert_readable(done.stdout, 72)
    with_callfuse = done.stdout.partition("\nWith callfuse\n")[2]
    end = ("action=block", "BLOCKED; the agent reads: [callfuse]", "did not listen")
    told_in_order(with_callfuse, "HELD", "action=steer", *end)
    told_in_order(with_callfuse, "HELD", "sent to the model", *end)
    assert with_callfuse.count(f'{agent.TOOL}("{agent.LOOPING_QUERY}")') == 2


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="child processes are read from /proc")
def test_ended_from_outside() -> None:
    """SIGTERM ends the demo and the server that it started."""
    program = "from callfuse.cli.demo import run_demo; raise SystemExit(run_demo(chunk_delay_s=0.1))"
    with subprocess.Popen(
        [sys.executable, "-u", "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        assert process.stdout is not None
        assert any(line == b"Without callfuse\n" for line in process.stdout)
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert children
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 128 + signal.SIGTERM
    assert not any(Path(f"/proc/{child}").exists() for child in children)


@pytest.mark.parametrize("width", [48, 72, 100])
def test_plain(width: int) -> None:
    """Lines are wrapped, and what a model wrote cannot steer the terminal."""
    out = io.StringIO()
    stage = PlainStage(out, width)
    stage.open()
    for entry in STORY:
        stage.show(entry)
    stage.close(SUMMARY, "The end.")
    assert_readable(out.getvalue(), width)
    assert "Without callfuse\n----------------\n  1  search_web" in out.getvalue()
    assert re.search(r"tokens billed +6,403 +1,470 +4,933 \(77 %\)", out.getvalue())
    assert out.getvalue().endswith("\nThe end.\n")


def test_plain_in_another_encoding() -> None:
    """An output that cannot hold a character gets a question mark, not a traceback."""
    raw = io.BytesIO()
    stage = PlainStage(io.TextIOWrapper(raw, encoding="ascii"), 100)
    stage.show(StoryEntry(Side.WITH, EntryKind.GUIDANCE, "größer"))
    assert b"gr??er" in raw.getvalue()


def test_live() -> None:
    """In a terminal both runs stand side by side, with the figures below."""
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=100, height=50, color_system=None, legacy_windows=False)
    stage = LiveStage(console)
    stage.open()
    with stage:
        for entry in STORY:
            stage.show(entry)
    stage.close(SUMMARY, "The end.")
    assert "\x1b[31m" not in out.getvalue()
    final = out.getvalue().rpartition("Without callfuse")[2]
    assert re.search(r'1  search_web\("llamas"\) .* 1  search_web\("llamas"\)', final)
    assert re.search(r"STOPPED .* HELD", final)
    assert "[callfuse] This call was not run." in final
    assert re.search(r"tokens billed +6,403 +1,470 +4,933 \(77 %\)", final)


def test_nothing_installed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Without the OpenAI SDK there is one line that says what to install, and exit code 2."""
    monkeypatch.setattr(demo, "find_spec", lambda name: None if name == "openai" else object())
    assert run_demo() == 2
    told = f"callfuse demo needs the extra demo (openai is missing): {install_hint('demo')}\n"
    assert capsys.readouterr().err == told


def test_server_that_does_not_start(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where `callfuse serve` ends at once, the demo says so and exits with 1."""
    nothing = shutil.which("false")
    assert nothing
    monkeypatch.setattr(sys, "executable", nothing)
    assert run_demo(plain=True) == 1
    assert "callfuse demo: callfuse serve did not start" in capsys.readouterr().err


@contextmanager
def transparent_guard(upstream: str, on_finding: object, token: str) -> Iterator[tuple[str, Log]]:
    """A guard that guards nothing: the vendor itself."""
    yield upstream, Log(lambda _: None)


@contextmanager
def dead_guard(upstream: str, on_finding: object, token: str) -> Iterator[tuple[str, Log]]:
    """A guard that is not there."""
    yield "http://127.0.0.1:9", Log(lambda _: None)


def test_loop_that_is_not_caught(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Where the loop goes on with callfuse too, the demo says so and exits with 1."""
    monkeypatch.setattr(play_module, "callfuse_serve", transparent_guard)
    assert run_demo(plain=True, chunk_delay_s=0) == 1
    shown = capsys.readouterr()
    assert "should have ended with: answer, but ended with: limit" in shown.err
    assert shown.out.count(agent.LOOPING_QUERY) == 2 * agent.MAX_CALLS


def test_agent_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """An error of the agent is told as what it is."""
    monkeypatch.setattr(play_module, "callfuse_serve", dead_guard)
    with (
        pytest.raises(DemoError, match="the agent failed: APIConnectionError"),
        Play(stubborn=False, chunk_delay_s=0) as play,
    ):
        play.act(PlainStage(io.StringIO(), 80))


def test_log() -> None:
    """The log tells where the server listens and what it finds, and keeps its last lines."""
    found: queue.Queue[str] = queue.Queue()
    log = Log(found.put)
    log.read(io.StringIO("callfuse 0.1.0 on http://127.0.0.1:49152 guards http://x (mode=block)\nnoise\n" + FINDING))
    assert log.wait_until_it_listens() == "http://127.0.0.1:49152"
    assert found.get_nowait().startswith("tool=search_web, repeats=3/3")
    log.wait_for_findings(2, timeout_s=60)  # returns at once: the log has ended
    assert len(log.last_lines) == 3


def test_log_of_a_server_that_fails() -> None:
    """A server that ended before it listened is an error that shows its last words."""
    log = Log(lambda _: None)
    log.read(io.StringIO("serve.upstream: no scheme\n"))
    with pytest.raises(DemoError, match=r"did not start:\nserve\.upstream: no scheme"):
        log.wait_until_it_listens()


def test_log_of_a_server_that_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that neither listens nor ends is an error, too, which says how long the demo has waited."""
    monkeypatch.setattr("callfuse.demo.servers.START_TIMEOUT_S", 0.0)
    with pytest.raises(DemoError, match=r"did not start within 0 s:\nit printed nothing"):
        Log(lambda _: None).wait_until_it_listens()


@pytest.mark.parametrize(
    ("without", "with_callfuse", "expected"), [(12, 3, "9 (75 %)"), (6403, 1470, "4,933 (77 %)"), (0, 0, "0 (0 %)")]
)
def test_saving(without: int, with_callfuse: int, expected: str) -> None:
    """What was saved is a number and its share."""
    assert saving(without, with_callfuse) == expected
