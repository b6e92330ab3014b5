"""Cases that libFuzzer makes: every input is one, a search begins with every kit, and it finds what is broken."""

import os
import random
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fuzz.__main__ import main
from tests.fuzz.cases import pool, simpler
from tests.fuzz.corpus import Damaged, case_of, text_of
from tests.fuzz.inputs import HEAD, Head, case_of_input, input_of, mutated, seeds
from tests.fuzz.libfuzzer import keep_needed, write_inputs
from tests.fuzz.material import own
from tests.project.sources import PROJECT

with_atheris = pytest.mark.skipif(find_spec("atheris") is None, reason="atheris is not installed")
LEADS = """
import sys
from tests.fuzz import __main__ as program
from tests.fuzz.checks import Failure, Result

found = []

def planted(case, _loop):
    if found:
        raise KeyboardInterrupt
    body = case.turns[0].replies[0].body or b""
    if b"~" in body:
        if b"~%" in body:
            if b"~%~" in body:
                found.append(Failure("planted", ""))
    return Result([*found])

program.check = planted
program.PACKAGE = __file__
sys.exit(program.main(["--atheris", "--own", "--count", "60000", "--corpus", sys.argv[1]]))
"""
"""A check with a fault behind three branches, in a search that has its counters there only."""


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Python in a process of its own: libFuzzer ends it, and counters stay in what they are put into."""
    paths = os.pathsep.join((str(PROJECT), os.environ.get("PYTHONPATH", "")))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=PROJECT,
        env=os.environ | {"PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
    )


@with_atheris
@pytest.mark.slow
def test_a_small_search(tmp_path: Path) -> None:
    """Nothing is found; what it has run and kept is told, and kept where the next search begins."""
    folder = tmp_path / "inputs"
    done = run("-m", "tests.fuzz", "--atheris", "--own", "--count", "80", "--corpus", str(folder))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "80 cases in " in done.stdout
    assert f"{len([*folder.iterdir()])} inputs are in the folder" in done.stdout
    assert not [*tmp_path.glob("inputs-*")]


@with_atheris
@pytest.mark.slow
def test_branches_lead_to_a_fault(tmp_path: Path) -> None:
    """Three bytes come one after another, each behind a branch of its own; and the report shows the case."""
    (tmp_path / "leads.py").write_text(LEADS, encoding="utf-8")
    done = run(str(tmp_path / "leads.py"), str(tmp_path / "inputs"))
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED" in done.stdout
    again = done.stdout.partition(": planted\n")[2].partition("--case '")[2].partition("'")[0]
    found = case_of(again)
    assert found is not None
    assert b"~%~" in (found.turns[0].replies[0].body or b"")


def test_without_atheris(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told how to install it, and nothing is begun."""
    monkeypatch.setitem(sys.modules, "atheris", None)
    assert main(["--atheris", "--count", "1"]) == 2
    told = capsys.readouterr()
    assert "atheris is not installed" in told.err
    assert "pip install" in told.err
    assert told.out == ""


def test_any_bytes_are_a_case() -> None:
    """Few of them or many, and the case can be written and read."""
    dice = random.Random(1)
    for length in (0, 1, HEAD.size - 1, *[HEAD.size + dice.randrange(300) for _ in range(200)]):
        data = dice.randbytes(length)
        case = case_of_input(data, own_only=True)
        turn = case.turns[0]
        assert data[HEAD.size :] in (turn.request.body, turn.replies[0].body)
        assert case_of(text_of(case)) == case


def test_zeros_are_what_is_usual() -> None:
    """The first answer of the first kit, whole, under the default settings, once."""
    [first] = case_of_input(input_of(Head(), b"body"), own_only=True).turns
    assert (first.ending, first.request.body, len(first.replies)) == ("end", None, 1)
    [reply] = first.replies
    assert (reply.body, reply.cuts, reply.coding, reply.kind, reply.status, reply.dies) == (
        b"body",
        (),
        "",
        None,
        200,
        False,
    )


def test_a_search_begins_with_every_kit() -> None:
    """With answers, streamed and whole, and with requests; nothing in them is damaged."""
    cases = [case_of_input(data, own_only=True) for data in seeds()]
    met = {(own()[turn.replies[0].material].kit.name, own()[turn.replies[0].material].stream, turn.request.body is None)
           for case in cases for turn in case.turns}  # fmt: skip
    assert met == {(one.kit.name, one.stream, of_answer) for one in pool(own_only=True) for of_answer in (True, False)}
    answers = [turn.replies[0] for case in cases for turn in case.turns if turn.request.body is None]
    assert all(reply.body == own()[reply.material].body for reply in answers)


def test_what_is_made_from_an_input() -> None:
    """The head alone, the body alone, or what libFuzzer makes of all of it; never more bytes than asked for."""
    data, dice = next(seeds()), random.Random(2)
    ways = set()
    for _ in range(300):
        made = mutated(data, len(data) + 10, dice, lambda one, most: one[::-1][:most])
        assert len(made) <= len(data) + 10
        ways.add((made[: HEAD.size] == data[: HEAD.size], made[HEAD.size :] == data[HEAD.size :], made == data[::-1]))
    assert {(False, True, False), (True, False, False), (False, False, True)} <= ways


def test_a_body_gets_shorter() -> None:
    """Where a case fails, the report leaves out what it does not need."""
    case = case_of_input(input_of(Head(), b"x" * 50 + b"needed" + b"y" * 50), own_only=True)
    while less := [one for one in simpler(case) if b"needed" in (one.turns[0].replies[0].body or b"")]:
        case = less[0]
    assert case.turns[0].replies[0].body == b"needed"


def test_inputs_that_reach_nothing_new_are_removed(tmp_path: Path) -> None:
    """A smaller one comes before a larger one."""
    write_inputs(tmp_path, [b"a", b"aaa", b"bb", b"bbbb"])
    seen: set[int] = set()

    def reaches_new(data: bytes) -> bool:
        new = {*data} - seen
        seen.update(new)
        return bool(new)

    assert keep_needed(tmp_path, reaches_new) == 2
    assert sorted(path.read_bytes() for path in tmp_path.iterdir()) == [b"a", b"bb"]


def test_a_folder_with_anything_else_is_left_alone(tmp_path: Path) -> None:
    """Such as that of the search without Atheris: its cases are no inputs."""
    (tmp_path / "0123.json").write_text("{}", encoding="utf-8")
    with pytest.raises(Damaged, match=r"0123\.json is no input of libFuzzer"):
        write_inputs(tmp_path, [b"a", b"aaa"])
    assert len([*tmp_path.iterdir()]) == 1


def test_an_input_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file that libFuzzer leaves, as a case."""
    write_inputs(tmp_path, [input_of(Head(), b"data: {}\n\n")])
    [path] = tmp_path.iterdir()
    assert main(["--own", "--input", str(path)]) == 0
    assert "data: {}" in capsys.readouterr().out
