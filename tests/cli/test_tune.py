"""`callfuse tune` as it is typed: what stands on which stream, exit codes, files, in a pipe."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from callfuse.config import load_config
from tests.cli.processes import CLEAN, PLAIN, callfuse, on_terminal
from tests.offline.reading import written
from tests.offline.tuning import record_of


def good(source: str = "lab", runs: int = 40) -> list[object]:
    """Successful runs of one call, two calls, ..., each with something new."""
    return [record_of(*[f"a{at}" for at in range(calls)], source=source) for calls in range(1, runs + 1)]


LOOP = record_of("a", *["b"] * 9, success=False)


@pytest.fixture
def log(tmp_path: Path) -> str:
    """A file with forty good runs and one that loops."""
    return written(tmp_path / "log.jsonl", *good(), LOOP)


def test_help_names_the_options() -> None:
    """Asking for help reads nothing."""
    text = callfuse("tune", "--help").stdout
    for word in ("FILE", "--max-false-positive", "--write", "--config", "--source", "0.05"):
        assert word in text


def test_the_report_in_a_pipe(log: str) -> None:
    """Plain lines on stdout, nothing on stderr, exit code 0: figures, the promise and what it rests on, the limits."""
    ended = callfuse("tune", log)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "\x1b" not in ended.stdout
    answer, _, head, row, *rest = ended.stdout.splitlines()
    assert answer.startswith("lab: Set ")
    assert head.split()[:3] == ["source", "good", "runs"]
    assert row.split() == ["lab", "40", "1", "4.8%", "80.0%", "4.8%", "0.0%"]
    promise = "are acted on (2 of 41), on average over sets of 40 runs like this one."
    assert any(promise in line for line in rest)
    assert [line.strip() for line in rest[-3:]] == [
        "The scale: max_repeats: 2, max_repeats_changing: 6, max_weighted_calls: 39, no_news: 2, cycle: 2, "
        "same_error: 4, failing_tool: 5, known_pairs: 4, no_difference: 8, "
        "repeat_with_notes: 10",
        "By length: max_calls: 39",
        "Recommended: the scale, which saves more than a line on the number of calls.",
    ]


@pytest.mark.parametrize("setting", ["budget: {calls: 1}", "detectors: {monologue: true}"])
def test_settings_that_it_does_not_move_are_named(setting: str, tmp_path: Path) -> None:
    """If they act on every good run, nothing can be tuned: a budget, and equal answers in words."""
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    second = {"id": "b", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    results = [{"role": "tool", "tool_call_id": one["id"], "content": "x"} for one in (call, second)]
    calls = [{"role": "assistant", "content": None, "tool_calls": [one]} for one in (call, second)]
    words = [{"role": "assistant", "content": "I can only transfer you."}, {"role": "user", "content": "Hello?"}] * 3
    history = [{"role": "user", "content": "Look."}, calls[0], results[0], calls[1], results[1], *words]
    log = written(tmp_path / "log.jsonl", *[{"id": f"r{n}", "messages": history, "success": True} for n in range(40)])
    config = tmp_path / "callfuse.yaml"
    config.write_text(f"tool_call_loop: {{{setting}}}")
    ended = callfuse("tune", log, "--config", str(config))
    assert ended.returncode == 2
    assert "40 of 40 successful runs are acted on whatever the limits" in ended.stderr
    assert callfuse("tune", log).returncode == 0


def test_the_file_is_ready(log: str, tmp_path: Path) -> None:
    """It loads; the report says where it is."""
    file = tmp_path / "callfuse.yaml"
    ended = callfuse("tune", log, "--max-false-positive", "0.1", "--write", str(file))
    assert ended.stdout.endswith(f"written: {file}\n")
    assert load_config(file, env={}).tool_call_loop.max_weighted_calls == 37
    assert callfuse("replay", log, "--config", str(file)).returncode == 0


def test_the_settings_may_go_to_stdout(log: str, tmp_path: Path) -> None:
    """Then nothing else does: they can be piped into a file."""
    file = tmp_path / "callfuse.yaml"
    file.write_text(callfuse("tune", log, "--write", "-").stdout)
    assert load_config(file, env={}).tool_call_loop.max_weighted_calls == 39


def test_each_source_by_itself(tmp_path: Path) -> None:
    """A line for each, but where there are too few; the one to be written is named; one name for all makes them one."""
    log = written(tmp_path / "log.jsonl", *good("x/y"), *good("x y", 50), *good("few", 5), LOOP)
    report = callfuse("tune", log)
    assert report.returncode == 0
    assert "Not tuned: 38 successful runs are needed for 5%: half to set a line, half to test it" in report.stdout
    file = tmp_path / "tuned.yaml"
    for where in ("-", str(file)):
        refused = callfuse("tune", log, "--write", where)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert "--write needs one source: choose it with --only; there are x/y, x y" in refused.stderr
    assert not file.exists()
    assert callfuse("tune", log, "--write", str(file), "--only", "few").returncode == 2
    for name, limit in (("x/y", 39), ("x y", 49)):
        written_ = callfuse("tune", log, "--write", str(tmp_path / f"{limit}.yaml"), "--only", name)
        assert written_.returncode == 0
        assert load_config(tmp_path / f"{limit}.yaml", env={}).tool_call_loop.max_weighted_calls == limit
    pooled = callfuse("tune", log, "--source", "all")
    assert pooled.stdout.splitlines()[3].split()[:3] == ["all", "95", "1"]


@pytest.mark.parametrize("name", ["callfuse.yaml", "callfuse.toml"])
def test_limits_go_into_a_file_that_is_there(name: str, log: str, tmp_path: Path) -> None:
    """Whose settings are tuned; comments and all else stay, what it held is kept beside it."""
    file = tmp_path / name
    if name.endswith("toml"):
        before = "# ours\n[tool_call_loop]\nmode = 'observe'  # for now\n[tool_call_loop.detectors]\ncycle = 5\n"
    else:
        before = "# ours\ntool_call_loop:\n  mode: observe  # for now\n  detectors: {cycle: {laps: 5}}\n"
    file.write_text(before)
    ended = callfuse("tune", log, "--write", str(file))
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.endswith(f"written: {file} (before: {file}.bak)\n")
    assert Path(f"{file}.bak").read_text() == before
    text = file.read_text()
    assert text.startswith("# ours\n")
    assert "  # for now\n" in text
    settings = load_config(file, env={}).tool_call_loop
    assert (settings.mode, settings.max_repeats, settings.max_weighted_calls) == (("observe",), 2, 39)
    assert (settings.limit_of("cycle"), settings.limit_of("unknown_tool")) == (2, 0)
    assert callfuse("config", "check", str(file)).returncode == 0
    again = callfuse("tune", log, "--write", str(file))
    assert again.returncode == 0
    assert file.read_text() == text


def test_a_new_toml_file(log: str, tmp_path: Path) -> None:
    """By its suffix, with the settings that were tuned."""
    base, file = tmp_path / "base.yaml", tmp_path / "tuned.toml"
    base.write_text("tool_call_loop: {mode: [warn, block], per_tool: {'a_*': {max_repeats: 9}}}\n")
    assert callfuse("tune", log, "--config", str(base), "--write", str(file)).returncode == 0
    settings = load_config(file, env={}).tool_call_loop
    assert (settings.mode, settings.max_repeats, settings.for_tool("a_b").settings.max_repeats) == (
        ("warn", "block"),
        2,
        9,
    )


def test_a_file_that_cannot_take_them_stays(log: str, tmp_path: Path) -> None:
    """As it was, where it cannot be edited, or other settings were tuned; the message says what to do."""
    file, other = tmp_path / "callfuse.yaml", tmp_path / "other.yaml"
    file.write_text("base: &b {max_repeats: 2}\n")
    other.write_text("tool_call_loop: {mode: warn}\n")
    refused = callfuse("tune", log, "--write", str(other), "--config", str(tmp_path / "callfuse.yaml"))
    assert refused.returncode == 2
    assert "exists, and --config names other settings" in refused.stderr
    toml = tmp_path / "callfuse.toml"
    toml.write_text("tool_call_loop = {mode = 'warn', max_repeats = 4}\n")
    refused = callfuse("tune", log, "--write", str(toml))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "cannot be edited safely" in refused.stderr
    assert toml.read_text() == "tool_call_loop = {mode = 'warn', max_repeats = 4}\n"
    assert {one.name for one in tmp_path.iterdir()} == {"callfuse.yaml", "other.yaml", "callfuse.toml", "log.jsonl"}


def test_standard_input() -> None:
    """A dash reads a pipe."""
    content = "\n".join(json.dumps(one) for one in good())
    command = [sys.executable, "-m", "callfuse", "tune", "-"]
    ended = subprocess.run(
        command, input=content, capture_output=True, text=True, env=CLEAN | PLAIN, timeout=60, check=True
    )
    assert ended.stdout.splitlines()[3].startswith("lab ")


def test_what_is_set_stays(log: str, tmp_path: Path) -> None:
    """The settings of a file, with other limits."""
    base, file = tmp_path / "base.yaml", tmp_path / "tuned.yaml"
    base.write_text("tool_call_loop: {mode: observe, window: 6, max_repeats: 9}\n")
    callfuse("tune", log, "--config", str(base), "--write", str(file))
    settings = load_config(file, env={}).tool_call_loop
    assert (settings.mode, settings.window, settings.max_repeats) == (("observe",), 6, 2)


def test_what_cannot_be_read_is_told_and_changes_nothing(log: str) -> None:
    """On stderr, by file and line."""
    with Path(log).open("a") as file:
        file.write("nonsense\n")
    ended = callfuse("tune", log)
    assert ended.returncode == 0
    first, second = ended.stderr.splitlines()
    assert first == "callfuse tune: 1 fault in the input:"
    assert second.startswith(f"  {log}, line 42: is not JSON: ")


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([record_of("a", success=None)], "lab: no run says whether it succeeded"),
        (good(runs=37), "lab: 38 successful runs are needed for 5%: half to set a line, half to test it"),
        ([LOOP], "number of calls; there are 0"),
        ([record_of()], "no recorded run with a call in "),
    ],
)
def test_too_little_to_tune_exits_with_2(runs: list[object], expected: str, tmp_path: Path) -> None:
    """It says what is missing, and how many there must be; nothing is written."""
    file = tmp_path / "callfuse.yaml"
    ended = callfuse("tune", written(tmp_path / "log.jsonl", *runs), "--write", str(file))
    assert (ended.returncode, ended.stdout) == (2, "")
    assert expected in ended.stderr
    assert not file.exists()


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], "FILE"),
        (["gone.jsonl"], "no recorded run with a call in gone.jsonl"),
        (["x", "--max-false-positive", "0"], "--max-false-positive 0: use a share between 0 and 1, as in 0.05"),
        (["x", "--max-false-positive", "nan"], "--max-false-positive nan: use a share between 0 and 1"),
        (["x", "--max-false-positive", "5%"], "--max-false-positive"),
        (["x", "--config", "gone.yaml"], "gone.yaml: cannot read this file: No such file or directory"),
    ],
)
def test_wrong_use_exits_with_2(arguments: list[str], expected: str) -> None:
    """It says what is wrong, without a traceback and with nothing on stdout."""
    ended = callfuse("tune", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert expected in ended.stderr
    assert "Traceback" not in ended.stderr


def test_limits_of_models_are_refused(log: str, tmp_path: Path) -> None:
    """A recorded run does not always tell its model, so nothing could be promised."""
    base = tmp_path / "base.yaml"
    base.write_text("tool_call_loop: {models: {'openai:*': {max_repeats: 4}}}\n")
    ended = callfuse("tune", log, "--config", str(base))
    assert ended.returncode == 2
    assert ended.stderr.startswith("callfuse tune: tool_call_loop.models: ")


def test_a_file_that_cannot_be_written(log: str, tmp_path: Path) -> None:
    """It is named."""
    ended = callfuse("tune", log, "--write", str(tmp_path / "gone" / "callfuse.yaml"))
    assert ended.returncode == 2
    assert ended.stderr.endswith("callfuse.yaml: No such file or directory\n")


def test_a_reader_that_goes_away(log: str) -> None:
    """`callfuse tune ... | head -1` ends without a traceback."""
    command = f"{sys.executable} -m callfuse tune {log} --write - | head -c 3"
    ended = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env=CLEAN | PLAIN, timeout=60, check=True
    )
    assert (ended.stdout, ended.stderr) == ("# c", "")


def test_a_bar_on_a_terminal_only(log: str) -> None:
    """Its progress is on stderr where that is a terminal, and leaves the report alone."""
    out, seen = on_terminal("tune", log)
    assert "scoring" in seen
    assert "41 runs" in seen
    assert out.startswith("lab: ")
    assert callfuse("tune", log).stderr == ""
