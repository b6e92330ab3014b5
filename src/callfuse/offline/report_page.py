"""Write the report of a replay as a self-contained HTML page: the table, and a picture of each run with a finding.

Texts from records pass `excerpts.short`, which replaces control and bidirectional marks, and are escaped. The page's
own policy forbids scripts and requests.
"""

from collections.abc import Iterator
from html import escape
from importlib.resources import files
from string import Template

from callfuse import __version__
from callfuse.detect.registry import KINDS
from callfuse.observe.pages import page_of
from callfuse.offline.answers import answer_of
from callfuse.offline.excerpts import Cell, Picture, describe_success, short
from callfuse.offline.replay import ANY, Replay
from callfuse.offline.report_data import NOTES, TextTable, table


def as_html(replay: Replay) -> bytes:
    """Return the page as UTF-8."""
    template = Template(files(__package__).joinpath("page.html").read_text(encoding="utf-8"))
    figures = table(replay)
    page = template.substitute(
        answer=escape(answer_of(replay)),
        summary=escape(_summary(replay)),
        head="".join(f"<th>{escape(heading)}</th>" for heading in figures.headings),
        rows="\n".join(_rows(figures)),
        notes="\n".join(f'<p class="note">{escape(note)}</p>' for note in NOTES),
        faults="\n".join(_faults(replay)),
        runs="\n".join(_runs(replay)) or "<p>None.</p>",
    )
    return page.encode("utf-8", "replace")


def _summary(replay: Replay) -> str:
    runs = sum(figures.runs.total() for figures in replay.figures.values())
    calls = sum(figures.calls.total() for figures in replay.figures.values())
    settings = replay.settings.model_dump(mode="json", exclude_defaults=True)
    changed = ", ".join(f"{key}: {short(str(value))}" for key, value in settings.items()) or "the defaults"
    return f"callfuse {__version__} on {runs:,} recorded runs with {calls:,} calls. Settings: {changed}."


def _rows(figures: TextTable) -> Iterator[str]:
    for at, cells in enumerate(figures.rows):
        kind = ' class="any"' if at in figures.marked else ""
        source, rule, *others = cells
        texts = [escape(source), _linked(rule), *map(escape, others)]
        yield f"<tr{kind}>{''.join(f'<td>{text}</td>' for text in texts)}</tr>"


def _linked(rule: str) -> str:
    """Return a kind as a link to its page; the row of all kinds has no page."""
    name = escape(rule)
    return f'<a href="{escape(page_of(rule))}">{name}</a>' if rule in KINDS else name


def _faults(replay: Replay) -> Iterator[str]:
    if not replay.fault_count:
        return
    yield f"<h2>What could not be read: {replay.fault_count:,}</h2><ul>"
    yield from (f"<li><code>{escape(short(str(fault)))}</code></li>" for fault in replay.faults)
    yield "</ul>"


def _runs(replay: Replay) -> Iterator[str]:
    for source, pictures in replay.pictures.items():
        of_all = replay.figures[source].fired[ANY].runs.total()
        drawn = f"the first {len(pictures):,} of {of_all:,}" if len(pictures) < of_all else f"{of_all:,}"
        yield f"<h2>{escape(short(source))} <small>{drawn}</small></h2>"
        for picture in pictures:
            yield from _run(picture)


def _run(picture: Picture) -> Iterator[str]:
    facts = picture.model, describe_success(picture.success), f"{picture.calls:,} calls"
    about = ", ".join(fact for fact in facts if fact)
    yield f"<article><h3>{escape(picture.run)} <small>{escape(about)}</small></h3><ul class=findings>"
    for one in picture.findings:
        at = next(call.number for call in one.calls if call.found)
        yield f"<li>{_linked(one.rule)}{escape(one.summary.removeprefix(one.rule))}, at call {at}</li>"
    label = f"{picture.calls} calls in {len(picture.turns)} turns"
    yield f'</ul><div class="strip" role="img" aria-label="{escape(label)}">'
    for rounds in picture.turns:
        inner = "".join(f'<div class="round">{"".join(map(_cell, round_))}</div>' for round_ in rounds)
        yield f'<div class="turn">{inner}</div>'
    yield f"</div>{f'<p class=note>and {picture.more:,} more</p>' if picture.more else ''}</article>"


def _cell(cell: Cell) -> str:
    call, finding = cell.call, cell.finding
    names = ["again"] if cell.hue is not None else []
    text = ""
    found = ""
    differs = f"\ndiffers: {call.differs}" if call.differs else ""
    if differs:
        names.append("other")
    if finding is not None:
        names.append("hard" if finding.hard else "soft")
        text = str(finding.count)
        found = f"\n{finding.kind}, count {finding.count}"
    title = f"{call.number}  {call.tool}\n{call.arguments}\n-> {call.result}{differs}{found}"
    style = f' style="--hue:{cell.hue}"' if cell.hue is not None else ""
    kind = f' class="{" ".join(names)}"' if names else ""
    return f'<b{kind}{style} title="{escape(title)}">{text}</b>'
