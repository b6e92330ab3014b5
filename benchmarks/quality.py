"""Measure errors and benefits of the detectors on recorded runs: the default settings together, and each kind alone.

    python -m benchmarks.quality [FOLDER] [--config FILE] [--markdown | --write PAGE]

FOLDER holds recorded runs as `callfuse replay` reads them (default ../shared/trajectories). A run counts as `found` if
it has a finding, and as `acts` if one of its calls would be withheld; all others of the found runs are only warned.
Shares are per cent, with their 95 % interval (Wilson) in brackets. `hard`: runs with a hard finding, good/failed. Of
failed runs, `later` are the calls from the first finding on, `saved` those from the first withheld one on, `tokens` the
same in estimated tokens. `held`: calls of good runs that would be held to their end (calls that differ from every
suspect in their first characters do not count); `quiet`: the same for good runs without a finding. A kind that is off
by default is measured alone, at its limit for `true`.

--markdown prints the tables of docs/detection.md, --write puts them between the markers of that page.
"""

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import Final

from callfuse.config import load_config
from callfuse.detect import registry
from callfuse.detect.detector import Detector
from callfuse.detect.registry import KINDS
from callfuse.offline.files import Reading
from callfuse.offline.replay import ANY, Figures, Fired, Replay, costs_of, total
from callfuse.offline.runs import Unreadable
from callfuse.policy.settings import LoopSettings

DEFAULT_FOLDER = Path("../shared/trajectories")
SHIPPED: Final = "shipped"
"""The row of all kinds that are on by default, together."""
BEGIN: Final = "<!-- figures: python -m benchmarks.quality FOLDER --write docs/detection.md -->"
END: Final = "<!-- end of figures -->"


@dataclass(frozen=True, slots=True)
class Source:
    """Recorded runs of one origin: their group, the age of their models, and the models."""

    group: str
    year: str
    models: str


SOURCES: Final = {
    "tau_bench": Source("modern", "2024", "gpt-4o"),
    "tau2": Source("modern", "2025", "gemini-2.5-flash, gpt-5 with toolorchestra-8b"),
    "tau2_retail_cc": Source("modern", "2025-26", "claude haiku 4.5, sonnet 4.6"),
    "mcpmark": Source("modern", "2025", "claude sonnet 4, 4.5"),
    "bfcl_vllm": Source("modern", "2025", "gpt-oss 120b, 20b on vLLM"),
    "openclaw_glm5": Source("modern", "2026", "glm-5"),
    "tb_miniswe": Source("modern", "2025", "claude sonnet 4"),
    "gemini3_miniswe": Source("newest", "2025", "gemini 3 pro preview"),
    "medagent": Source("newest", "2025-26", "claude opus 5, sonnet 5, haiku; gemini 3.x"),
    "livemcp": Source("newest", "2025", "claude sonnet 4"),
    "tau_retail41": Source("tau", "2024-25", "gpt-4.1, gpt-4o"),
    "tau2_bogoliubon": Source("tau", "2024", "gpt-4o"),
    "super_gpt4o": Source("2024", "2024", "gpt-4o"),
    "multi_swe_java": Source("multi_swe_java", "2024", "gpt-4o, deepseek v2, doubao pro"),
    "intercode": Source("intercode", "2023", "gpt-3.5, gpt-4, bison, vicuna, starchat"),
    "activegraph_tau2": Source("second", "2025", "gpt-4.1-mini"),
    "isobench": Source("second", "2025", "sonnet 4.5, gpt-5, gpt-4o"),
    "mlgym": Source("second", "2024-25", "13 models"),
}
"""The known sources. Any other source is a group by itself."""

FRESH: Final = ("newest", "tau", "2024")
"""The groups of sources that were not used to design rules; `all fresh` are the three together."""


@dataclass(frozen=True, slots=True)
class Share:
    """A part of a whole, with the 95 % interval of the true share."""

    part: int
    whole: int

    def interval(self) -> tuple[float, float]:
        """Return the ends of the Wilson score interval, from 0 to 1; the whole range if nothing was counted."""
        if not self.whole:
            return 0.0, 1.0
        z, n = 1.959964, self.whole
        share = self.part / n
        middle = share + z * z / (2 * n)
        reach = z * sqrt(share * (1 - share) / n + z * z / (4 * n * n))
        low, high = (middle - reach) / (1 + z * z / n), (middle + reach) / (1 + z * z / n)
        return low if self.part else 0.0, high if self.part < n else 1.0

    def text(self) -> str:
        """Per cent and interval: `1.23 (0.80-1.89)`."""
        low, high = self.interval()
        return f"{per_cent(self.part, self.whole)} ({100 * low:.2f}-{100 * high:.2f})" if self.whole else "-"

    def markdown(self) -> str:
        """Return the text with the number of runs: `20: 1.23 (0.80-1.89)`."""
        return f"{self.part}: {self.text()}" if self.whole else "-"


def per_cent(part: int, whole: int, digits: int = 2) -> str:
    """Return a share in per cent; `-` if the whole is 0."""
    return f"{100 * part / whole:.{digits}f}" if whole else "-"


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its headings in the terminal and on the page (empty: not there), its width, and a function of
    figures."""

    head: str
    on_page: str
    width: int
    of: Callable[[Figures, Fired], Share | str]


COLUMNS: Final = (
    Column("good", "good runs", 6, lambda figures, fired: str(figures.runs[True])),
    Column("failed", "failed runs", 7, lambda figures, fired: str(figures.runs[False])),
    Column("found good", "found in good, %", 19, lambda figures, fired: Share(fired.runs[True], figures.runs[True])),
    Column(
        "found failed", "found in failed, %", 21, lambda figures, fired: Share(fired.runs[False], figures.runs[False])
    ),
    Column(
        "acts good", "acts in good, %", 19, lambda figures, fired: Share(fired.acting_runs[True], figures.runs[True])
    ),
    Column(
        "acts failed",
        "acts in failed, %",
        21,
        lambda figures, fired: Share(fired.acting_runs[False], figures.runs[False]),
    ),
    Column(
        "hard",
        "hard, good/failed",
        9,
        lambda figures, fired: f"{fired.hard_runs[True]}/{fired.hard_runs[False]}",
    ),
    Column("later", "", 7, lambda figures, fired: per_cent(fired.later_calls, figures.calls[False])),
    Column("saved", "calls saved, %", 7, lambda figures, fired: per_cent(fired.saved_calls, figures.calls[False])),
    Column("tokens", "", 8, lambda figures, fired: per_cent(fired.saved_tokens, figures.failed_tokens)),
    Column("held", "", 8, lambda figures, fired: per_cent(figures.held[True], figures.calls[True], 3)),
    Column("quiet", "quiet calls held, %", 8, lambda figures, fired: per_cent(figures.quiet_held, figures.quiet, 3)),
)
"""The columns of every table, in order."""

Found = Mapping[str, Mapping[str, Figures]]
"""For `SHIPPED` and each kind that fires alone, the figures of each source."""


@contextmanager
def only(detectors: Sequence[Detector]) -> Iterator[None]:
    """Make the engine run only these detectors."""
    shipped = registry.DETECTORS
    registry.DETECTORS = tuple(detectors)
    try:
        yield
    finally:
        registry.DETECTORS = shipped


def switched_on(settings: LoopSettings, kind: str) -> LoopSettings:
    """Return the settings for a kind that runs alone: a kind that is off by default gets its default limit."""
    limit = KINDS[kind].limit
    if limit is None or limit.on:
        return settings.model_copy()  # a copy, because limits depend on the running detectors
    detectors = settings.detectors
    on = type(detectors).model_validate(detectors.model_dump() | {kind: True})
    return settings.model_copy(update={"detectors": on})


def measured(folder: Path, settings: LoopSettings) -> Found:
    """Judge every run of a folder by the shipped detectors, and by each kind alone, in one pass."""
    names = sorted(str(path) for path in folder.iterdir() if ".json" in path.name)
    rows = {SHIPPED: (registry.DETECTORS, Replay(settings, [*KINDS]))}
    of_calls = [kind for kind in KINDS if kind not in registry.OF_REQUESTS]
    for kind in of_calls:  # kinds judged in hindsight have no detector, and always run
        alone = Replay(switched_on(settings, kind), [kind])
        rows[kind] = (tuple(one for one in registry.DETECTORS if one.kind.name == kind), alone)
    for one in Reading(names):
        if isinstance(one, Unreadable):
            print(one, file=sys.stderr)
            continue
        costs = costs_of(one)
        for detectors, replay in rows.values():
            with only(detectors):
                replay.take(one, costs)
    fired = {name for name, (_, one) in rows.items() if total(one.figures.values()).fired[ANY].runs} | {SHIPPED}
    return {name: replay.figures for name, (_, replay) in rows.items() if name in fired}


def groups_of(figures: Mapping[str, Figures]) -> dict[str, list[str]]:
    """Return the sources of each group, in the order of `SOURCES`, without sources of unknown outcome."""
    order = [*SOURCES, *(source for source in figures if source not in SOURCES)]
    groups: dict[str, list[str]] = {}
    for source in order:
        if source in figures and (figures[source].runs[True] or figures[source].runs[False]):
            groups.setdefault(SOURCES[source].group if source in SOURCES else source, []).append(source)
    fresh = [source for group in FRESH for source in groups.get(group, ())]
    listed = {}
    for group, sources in groups.items():
        listed[group] = sources
        if fresh and group == [one for one in groups if one in FRESH][-1]:
            listed["all fresh"] = fresh
    return listed


def cells(figures: Figures) -> list[Share | str]:
    """Return the cells for these figures, one for each of `COLUMNS`."""
    return [column.of(figures, figures.fired[ANY]) for column in COLUMNS]


def line(name: str, figures: Figures) -> str:
    """Return a row of the table in the terminal."""
    texts = [cell.text() if isinstance(cell, Share) else cell for cell in cells(figures)]
    return f"{name:<32}" + "".join(f"{text:>{column.width}}" for text, column in zip(texts, COLUMNS, strict=True))


def print_tables(found: Found) -> None:
    """Print every group by kind, then every source, for a terminal."""
    head = f"{'':<32}" + "".join(f"{column.head:>{column.width}}" for column in COLUMNS)
    shipped = found[SHIPPED]
    print(f"shares in per cent, of {sum(one.calls.total() for one in shipped.values()):,} calls\n\n{head}")
    for group, sources in groups_of(shipped).items():
        for kind, of_kind in found.items():
            print(line(f"{group}, {kind}", total(of_kind[source] for source in sources)))
        print()
    print(f"each source, shipped\n{head}")
    for source, figures in shipped.items():
        if figures.runs[True] or figures.runs[False]:
            print(line(source, figures))


def markdown(found: Found) -> str:
    """Return the tables of docs/detection.md: groups, kinds by group, sources. Only kinds that fired have a row."""
    shipped = found[SHIPPED]
    groups = groups_of(shipped)
    by_group = [[group, *_texts(total(shipped[one] for one in sources))] for group, sources in groups.items()]
    by_kind = []
    for kind in (one for one in found if one != SHIPPED):
        for group, sources in groups.items():
            figures = total(found[kind][one] for one in sources)
            if figures.fired[ANY].runs:
                by_kind.append([f"`{kind}`", group, *_texts(figures)])
    by_source = []
    for group, sources in groups.items():
        for one in sources if group != "all fresh" else ():
            known = SOURCES.get(one, Source(one, "", ""))
            by_source.append([f"`{one}`", known.group, known.year, known.models, *_texts(shipped[one])])
    heads = [column.on_page for column in COLUMNS if column.on_page]
    tables = (
        ("Together", [["group", *heads], *by_group]),
        ("Each kind alone", [["kind", "group", *heads], *by_kind]),
        ("Each source", [["source", "group", "models of", "models", *heads], *by_source]),
    )
    return "\n\n".join(f"### {title}\n\n{_table(rows)}" for title, rows in tables)


def _texts(figures: Figures) -> list[str]:
    shown = [cell for cell, column in zip(cells(figures), COLUMNS, strict=True) if column.on_page]
    return [cell.markdown() if isinstance(cell, Share) else cell for cell in shown]


def _table(rows: Sequence[Sequence[str]]) -> str:
    head, *body = [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join([head, "|" + "---|" * len(rows[0]), *body])


def put(page: str, tables: str) -> str:
    """Return a page with these tables between its markers. Raises ValueError if it has no markers."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page needs two lines to put the tables between: {BEGIN} and {END}")
    return f"{before}{begin}\n\n{tables}\n\n{end}{after}"


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print or write."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER)
    parser.add_argument("--config", type=Path)
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--markdown", action="store_true", help="print the tables of docs/detection.md")
    output.add_argument("--write", type=Path, metavar="PAGE", help="put them between the markers of this page")
    options = parser.parse_args(arguments)
    if not options.folder.is_dir():
        print(f"no recorded runs in {options.folder}: name a folder that has some")
        return
    found = measured(options.folder, load_config(options.config).tool_call_loop)
    if options.write:
        options.write.write_text(put(options.write.read_text(), markdown(found)))
    elif options.markdown:
        print(markdown(found))
    else:
        print_tables(found)


if __name__ == "__main__":
    main()
