"""How many calls a second `callfuse replay` judges on one core, reading and counting included.

    python -m benchmarks.replaying [FILES...] [--rounds 5]

FILES are recorded runs; where none are named, runs are made up: healthy ones of thirty calls with results of 1 KB,
every tenth ends in a loop. CPU time, the best of the rounds, which are interleaved.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from callfuse.model import Kind
from callfuse.offline.files import Reading
from callfuse.offline.replay import Replay
from callfuse.policy.settings import LoopSettings

RUNS, CALLS, LOOPED = 1000, 30, 6
RESULT = "The quick brown fox jumps over the lazy dog while the build goes on. " * 15


def steps(run: int) -> Iterator[tuple[str, str, str]]:
    """Tool, arguments and result of each call of a made-up run."""
    for at in range(CALLS):
        looped = run % 10 == 0 and at >= CALLS - LOOPED
        place = CALLS - LOOPED if looped else at
        yield f"tool_{place % 5}", json.dumps({"path": f"src/file_{place}.py", "run": run}), f"{place}: {RESULT}"


def as_calls(run: int) -> dict[str, Any]:
    """A run as a list of calls."""
    calls = [{"turn": at, "name": name, "arguments": arguments, "result": result}
             for at, (name, arguments, result) in enumerate(steps(run))]  # fmt: skip
    return {"id": str(run), "source": "calls", "model": "m", "success": run % 3 == 0, "calls": calls}


def as_chat(run: int) -> dict[str, Any]:
    """A run as a body of OpenAI chat completions."""
    messages: list[dict[str, Any]] = [{"role": "user", "content": f"task {run}"}]
    for at, (name, arguments, result) in enumerate(steps(run)):
        function = {"name": name, "arguments": arguments}
        calls = [{"id": f"call_{run}_{at}", "type": "function", "function": function}]
        messages += [{"role": "assistant", "content": None, "tool_calls": calls},
                     {"role": "tool", "tool_call_id": f"call_{run}_{at}", "content": result}]  # fmt: skip
    return {"id": str(run), "source": "chat", "model": "m", "success": run % 3 == 0, "messages": messages}


def timed(names: Sequence[str]) -> tuple[int, float]:
    """Calls, and CPU seconds for all of it."""
    begin = time.process_time()
    replay = Replay(LoopSettings(), [str(kind) for kind in Kind])
    for one in Reading(names):
        replay.take(one)
    seconds = time.process_time() - begin
    return sum(figures.calls.total() for figures in replay.figures.values()), seconds


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("files", nargs="*")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        inputs = {"FILES": options.files} if options.files else dict(made_up(Path(folder)))
        best = dict.fromkeys(inputs, float("inf"))
        counts = dict.fromkeys(inputs, 0)
        for _ in range(options.rounds):
            for name, files in inputs.items():
                counts[name], seconds = timed(files)
                best[name] = min(best[name], seconds)
    print(f"{'input':<12}{'calls':>10}{'CPU s':>9}{'calls/s':>11}")
    for name, seconds in best.items():
        print(f"{name:<12}{counts[name]:>10,}{seconds:>9.2f}{counts[name] / seconds:>11,.0f}")


def made_up(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """A file of made-up runs for each format."""
    for name, record in (("calls", as_calls), ("chat", as_chat)):
        path = folder / f"{name}.jsonl"
        path.write_text("".join(json.dumps(record(run)) + "\n" for run in range(RUNS)))
        yield name, [str(path)]


if __name__ == "__main__":
    main()
