"""Measure how many runs and calls per second `callfuse replay` judges on one core, including reading and counting.

    python -m benchmarks.replaying [FILES...] [--rounds 5]

FILES are recorded runs. Without FILES, runs are generated: healthy ones of thirty calls with results of 1 KB, every
tenth of which ends in a loop. The command itself is measured: its CPU time minus that for a single run, which is mostly
the start of Python. The figure is the best of interleaved rounds. For FILES, calls per second are not shown, because
the command does not print their number.
"""

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

RUNS, CALLS, LOOPED = 1000, 30, 6
RESULT = "The quick brown fox jumps over the lazy dog while the build goes on. " * 15


def steps(run: int) -> Iterator[tuple[str, str, str]]:
    """Yield tool, arguments and result of each call of a generated run."""
    for at in range(CALLS):
        looped = run % 10 == 0 and at >= CALLS - LOOPED
        place = CALLS - LOOPED if looped else at
        yield f"tool_{place % 5}", json.dumps({"path": f"src/file_{place}.py", "run": run}), f"{place}: {RESULT}"


def as_calls(run: int) -> dict[str, Any]:
    """Return a run as a list of calls."""
    calls = [{"turn": at, "name": name, "arguments": arguments, "result": result}
             for at, (name, arguments, result) in enumerate(steps(run))]  # fmt: skip
    return {"id": str(run), "source": "calls", "model": "m", "success": run % 3 == 0, "calls": calls}


def as_chat(run: int) -> dict[str, Any]:
    """Return a run as a body of OpenAI chat completions."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"task {run}"}]
    for at, (name, arguments, result) in enumerate(steps(run)):
        function = {"name": name, "arguments": arguments}
        calls = [{"id": f"call_{run}_{at}", "type": "function", "function": function}]
        messages += [{"role": "assistant", "content": None, "tool_calls": calls},
                     {"role": "tool", "tool_call_id": f"call_{run}_{at}", "content": result}]  # fmt: skip
    return {"id": str(run), "source": "chat", "model": "m", "success": run % 3 == 0, "messages": messages}


def timed(names: Sequence[str]) -> tuple[int, float]:
    """Return the number of runs, and the CPU seconds of the command over these files."""
    begin = _cpu_s()
    command = [sys.executable, "-m", "callfuse", "replay", *names, "--json", "-"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    seconds = _cpu_s() - begin
    rows = (row for row in json.loads(done.stdout)["rows"] if row["rule"] == "any rule")
    runs = ("runs_successful", "runs_failed", "runs_unlabelled")
    return sum(row[key] for row in rows for key in runs), seconds


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        inputs = {"FILES": options.files} if options.files else dict(made_up(Path(folder), RUNS))
        (_, single), *_ = made_up(Path(folder), 1, "one")
        best = dict.fromkeys(inputs, float("inf"))
        runs = dict.fromkeys(inputs, 0)
        start_s = float("inf")
        for _ in range(options.rounds):
            start_s = min(start_s, timed(single)[1])
            for name, files in inputs.items():
                runs[name], seconds = timed(files)
                best[name] = min(best[name], seconds)
    print(f"{'input':<12}{'runs':>10}{'CPU s':>9}{'runs/s':>11}{'calls/s':>11}")
    for name, seconds in best.items():
        beyond_s = seconds - start_s
        calls = f"{runs[name] * CALLS / beyond_s:>11,.0f}" if not options.files else f"{'-':>11}"
        print(f"{name:<12}{runs[name]:>10,}{beyond_s:>9.2f}{runs[name] / beyond_s:>11,.0f}{calls}")


def made_up(folder: Path, runs: int, prefix: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield a file of `runs` generated runs for each format."""
    for name, record in (("calls", as_calls), ("chat", as_chat)):
        path = folder / f"{prefix}{name}.jsonl"
        path.write_text("".join(json.dumps(record(run)) + "\n" for run in range(runs)))
        yield name, [str(path)]


if __name__ == "__main__":
    main()
