"""What the detectors cost and bring on recorded runs: the shipped settings together, and each rule alone.

    python -m benchmarks.quality [FOLDER] [--config FILE]

FOLDER holds recorded runs as `callfuse replay` reads them (default ../shared/trajectories). Columns: successful and
failed runs; the share of each in which something fired; failed runs' calls from the first finding on, and from the
first that would be withheld on (and their tokens); successful runs with a hard finding; calls of successful runs that
would be held, in all of them and in those without a finding. A row needs both outcomes to say much; the 2023 runs of
intercode stop at success, and stay by themselves.
"""

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from callfuse.config import load_config
from callfuse.detect import registry
from callfuse.detect.detector import Detector
from callfuse.detect.registry import KINDS
from callfuse.offline.files import Reading
from callfuse.offline.replay import ANY, Figures, Replay, costs_of, total
from callfuse.offline.runs import Fault
from callfuse.policy.settings import LoopSettings

DEFAULT_FOLDER = Path("../shared/trajectories")
MODERN = ("tau_bench", "tau2", "tau2_retail_cc", "mcpmark", "bfcl_vllm", "openclaw_glm5", "tb_miniswe")

_HEAD = (
    f"{'':<34}{'ok':>6}{'failed':>8}{'fired ok':>10}{'failed':>8}{'later':>8}{'saved':>8}{'tokens':>8}"
    f"{'hard ok':>14}{'held ok':>9}{'quiet':>8}"
)


@contextmanager
def only(detectors: Sequence[Detector]) -> Iterator[None]:
    """Let the engine run these detectors and no others."""
    shipped = registry.DETECTORS
    registry.DETECTORS = tuple(detectors)
    try:
        yield
    finally:
        registry.DETECTORS = shipped


def measured(folder: Path, settings: LoopSettings) -> dict[str, dict[str, Figures]]:
    """For the shipped detectors, and for each kind that fires alone, the figures of each source."""
    names = sorted(str(path) for path in folder.iterdir() if ".json" in path.name)
    rows = {"shipped": (registry.DETECTORS, Replay(settings, [*KINDS]))}
    for kind in KINDS:  # what is judged in hindsight has no detector, and runs whichever do
        alone = Replay(settings.model_copy(), [kind])  # with settings go the limits of the detectors that run
        rows[kind] = (tuple(one for one in registry.DETECTORS if one.kind.name == kind), alone)
    for one in Reading(names):
        if isinstance(one, Fault):
            print(one, file=sys.stderr)
            continue
        costs = costs_of(one)
        for detectors, replay in rows.values():
            with only(detectors):
                replay.take(one, costs)
    fired = {name for name, (_, one) in rows.items() if total(one.figures.values()).fired[ANY].runs} | {"shipped"}
    return {name: replay.figures for name, (_, replay) in rows.items() if name in fired}


def groups_of(sources: Sequence[str]) -> dict[str, list[str]]:
    """The modern sources together, each other one by itself."""
    modern = [source for source in sources if source in MODERN]
    return ({"modern": modern} if modern else {}) | {one: [one] for one in sources if one not in MODERN}


def line(name: str, figures: Figures) -> str:
    """A row of the table."""
    fired = figures.fired[ANY]
    ok, failed = figures.runs[True], figures.runs[False]
    hard = f"{fired.hard_runs[True]} ({_share(fired.hard_runs[True], ok)})"
    return (
        f"{name:<34}{ok:>6}{failed:>8}{_share(fired.runs[True], ok):>10}{_share(fired.runs[False], failed):>8}"
        f"{_share(fired.later_calls, figures.calls[False]):>8}"
        f"{_share(fired.saved_calls, figures.calls[False]):>8}{_share(fired.saved_tokens, figures.failed_tokens):>8}"
        f"{hard:>14}{_share(figures.held[True], figures.calls[True], 3):>9}"
        f"{_share(figures.quiet_held, figures.quiet, 3):>8}"
    )


def _share(part: int, whole: int, digits: int = 2) -> str:
    return f"{100 * part / whole:.{digits}f}" if whole else "-"


def main(arguments: list[str] | None = None) -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--config", type=Path)
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        print(f"no recorded runs in {options.folder}: name a folder that has some")
        return
    found = measured(options.folder, load_config(options.config).tool_call_loop)
    shipped = found["shipped"]
    print(f"shares in per cent, of {sum(one.calls.total() for one in shipped.values()):,} calls\n\n{_HEAD}")
    for group, sources in groups_of(list(shipped)).items():
        for rule, of_rule in found.items():
            print(line(f"{group}, {rule}", total(of_rule[source] for source in sources)))
        print()
    print(f"each source, shipped\n{_HEAD}")
    for source, figures in shipped.items():
        if figures.runs[True] or figures.runs[False]:
            print(line(source, figures))


if __name__ == "__main__":
    main()
