"""Draw the live page of a server (`cli/follow.py`) for a terminal: counters, and sessions with lanes of beads.

    order-desk  5 calls · 1 finding · 3 s ago · gpt-5     a letter and a colour for each different call
       A   B   A  (B)→  C                                 (B): it was held; then what was done, see `Glyphs`

Foreign texts are made printable, and never read as markup. Needs rich.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from callfuse.cli.follow import PageContent, PageState, ShownBead, ShownLane, ShownRates, ShownSession
from callfuse.observe.beads import LETTERS
from callfuse.observe.printable import printable
from callfuse.observe.rates import BUCKETS

LONGEST_NAME: Final = 200
"""The most characters of a foreign text."""
LATELY_S: Final = 60
"""The seconds for which rates are shown."""

COLOURS: Final = ("#56b4e9", "#e69f00", "#3cc79f", "#f0e442", "#0072b2", "#e8743b", "#d79bbd", "#b3b3b3")
"""The colours of the live page, which people with any colour vision can distinguish."""
_WHITE_ON: Final = 4
"""The index of the dark colour, which needs white text."""
COUNTERS: Final = (
    ("exchanges", "exchanges", ""),
    ("calls", "calls", ""),
    ("findings", "findings", "yellow"),
    ("loops", "loops", "yellow"),
    ("warned", "warned", "yellow"),
    ("steered", "steered", "cyan"),
    ("blocked", "blocked", "red"),
    ("held_s", "s held", ""),
    ("saved_calls", "calls saved (estimate)", "green"),
    ("saved_tokens", "tokens saved (estimate)", "green"),
    ("saved_cost", "cost saved (estimate)", "green"),
    ("tokens", "tokens spent", ""),
    ("estimated_tokens", "of them estimated", ""),
    ("cost", "cost", ""),
    ("not_guarded", "not guarded", "red"),
    ("fail_open", "failed open", "red"),
)
"""Names of totals, their words, and their style if they are not 0."""
DECIMALS: Final = {"held_s": 1, "cost": 4, "saved_cost": 4}
RATES: Final = (("exchanges", "exchanges/min"), ("calls", "calls/min"), ("findings", "findings/min"))


@dataclass(frozen=True, slots=True)
class Glyphs:
    """The signs: one for each action; bars of growing height; a blown fuse, waiting bytes, omitted parts, and a
    separator."""

    actions: Mapping[str, str]
    bars: str
    blown: str
    waits: str
    more: str
    dot: str


_STEERS: Final = ("steer", "force_text", "escalate")
FINE: Final = Glyphs(
    {**dict.fromkeys(_STEERS, "→"), "warn": "▲", "block": "▌", "observe": "•"}, "▁▂▃▄▅▆▇█", "×", "…", "…", " · "
)
ASCII: Final = Glyphs(
    {**dict.fromkeys(_STEERS, ">"), "warn": "!", "block": "|", "observe": "*"}, "_.-=#", "x", "...", "...", ", "
)
_ACTION_STYLES: Final = {
    **dict.fromkeys(_STEERS, "bold cyan"),
    "block": "bold red",
    "warn": "bold yellow",
    "observe": "yellow",
}
_STATE_STYLES: Final = {PageState.LIVE: "green", PageState.LOST: "bold red", PageState.CONNECTING: "yellow"}


class Screen:
    """Everything that is drawn, cut to the terminal's size; `whole`: at full length. `url`: that of the server.
    `shown`, `state`: those of its `PageFollower`."""

    def __init__(self, url: str, *, whole: bool = False) -> None:
        self.state = PageState.CONNECTING
        self.shown = PageContent()
        self._url = url
        self._whole = whole

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        glyphs = ASCII if options.ascii_only else FINE
        height = None if self._whole else options.max_height
        yield from fitting(self.lines(glyphs, options.max_width, height), height)

    def lines(self, glyphs: Glyphs, width: int, height: int | None) -> list[Text]:
        """Return the lines, each at most `width` columns wide. `height`: the most lines, None for any number."""
        shown = self.shown
        head = [Text.assemble(("callfuse top", "bold"), "  ", _foreign(self._url), "  ", _state(self.state))]
        head += _wrapped(list(_counters(shown.totals)), width)
        if shown.rates is not None:
            head += _wrapped([_rate(shown.rates, name, word, glyphs) for name, word in RATES], width)
        head += [Text()]
        foot = _wrapped(_legend(glyphs), width)
        room = None if height is None else max(height - len(head) - len(foot) - 1, 0)
        return [_cut(line, width, glyphs) for line in (*head, *self._sessions(glyphs, width, room), *foot)]

    def _sessions(self, glyphs: Glyphs, width: int, room: int | None) -> Iterator[Text]:
        """Yield as many sessions as there is room for, the newest first, and the number of further ones."""
        found = self.shown
        most = len(found.sessions) if room is None else room // 2
        blocks = [list(_session(session, found.now, glyphs, width)) for session in found.sessions[:most]]
        if room is None or (len(blocks) == found.matching and sum(len(block) + 1 for block in blocks) <= room):
            blocks = [[*block, Text()] for block in blocks]
        shown = used = 0
        for block in blocks:
            if room is not None and used + len(block) > room:
                break
            shown, used = shown + 1, used + len(block)
            yield from block
        if not found.matching:
            yield Text("No session yet. Each one appears here with its first request.", "dim")
        elif rest := found.matching - shown:
            yield Text(f"{glyphs.more} {_many(rest, 'more session' if shown else 'session')}", "dim")


def fitting(lines: Sequence[Text], height: int | None) -> Sequence[Text]:
    """Return the lines that fit, without the last ones if there are too many."""
    return lines if height is None else lines[:height]


def _counters(totals: Mapping[str, float]) -> Iterator[Text]:
    for name, word, style in COUNTERS:
        value = totals.get(name, 0)
        if value or name in ("exchanges", "calls", "findings", "loops"):
            number = f"{value:,.{DECIMALS.get(name, 0)}f}"
            yield Text.assemble((number, f"bold {style}" if value else ""), f" {word}")


def _rate(rates: ShownRates, name: str, word: str, glyphs: Glyphs) -> Text:
    """Return the current rate per minute, and a bar for each of the last minutes."""
    series = rates.series.get(name) or [0.0] * BUCKETS
    step = max(1, LATELY_S // rates.bucket_s)
    minutes = [sum(series[at : at + step]) for at in range(len(series) % step, len(series), step)] or [0.0]
    most = max(1.0, *minutes)
    bars = "".join(glyphs.bars[min(int(one / most * len(glyphs.bars)), len(glyphs.bars) - 1)] for one in minutes)
    return Text.assemble((bars, "blue"), f" {minutes[-1]:,.0f} {word}")


def _session(session: ShownSession, now: float, glyphs: Glyphs, width: int) -> Iterator[Text]:
    counts = session.counts
    about = [_many(counts.get("calls", 0), "call")]
    about += [_many(counts["findings"], "finding")] if counts.get("findings") else []
    about += [_many(counts["loops"], "loop")] if counts.get("loops") else []
    about += [f"{counts['blocked']:.0f} blocked"] if counts.get("blocked") else []
    about += ["settings changed"] if session.changes else []
    about += [_age(now - session.used), _foreign(session.model), _foreign(session.dialect)]
    is_blown = any(lane.blown for lane in session.lanes)
    yield Text.assemble(
        (_foreign(session.session), "bold"),
        ("  fuse blown" if is_blown else "", "bold red"),
        ("  " + glyphs.dot.join(part for part in about if part), "dim"),
    )
    for lane in session.lanes:
        yield _lane(lane, glyphs, width)
    if session.more_lanes:
        yield Text(f"  {glyphs.more} {_many(session.more_lanes, 'more lane')}", "dim")


def _lane(lane: ShownLane, glyphs: Glyphs, width: int) -> Text:
    """Draw the newest beads of a lane, as many as there is room for."""
    beads = [_bead(bead, glyphs) for bead in lane.beads]
    if lane.holding:
        beads.append(Text(f"({glyphs.waits})", "bold blink"))
    room, kept = width - 4 - len(glyphs.more), list[Text]()
    for bead in reversed(beads):
        room -= bead.cell_len + 1
        if room < 0:
            break
        kept.insert(0, bead)
    earlier = lane.calls > sum(bool(bead.tool) for bead in lane.beads[-len(kept) :]) if kept else False
    return Text("  ").append_text(Text(f"{glyphs.more} " if earlier else "", "dim")).append_text(Text(" ").join(kept))


def _bead(bead: ShownBead, glyphs: Glyphs) -> Text:
    """Return a call: its letter and colour, in a ring if it was held and had a finding, and the action."""
    if not bead.tool:
        return Text(f" {glyphs.blown} ", "bold reverse")
    sign = bead.sign
    colour = sign % len(COLOURS)
    ring = ("(", ")") if bead.held is not None and bead.action != "none" else (" ", " ")
    ink = "white" if colour == _WHITE_ON else "black"
    return Text.assemble(
        (ring[0] + chr(ord("A") + sign % LETTERS) + ring[1], f"bold {ink} on {COLOURS[colour]}"),
        (glyphs.actions.get(bead.action, ""), _ACTION_STYLES.get(bead.action, "bold")),
    )


def _legend(glyphs: Glyphs) -> list[Text]:
    """Draw the meaning of the signs."""
    signs = [("(A)", "held")]
    signs += [(f"A{glyphs.actions[name]}", word) for name, word in (("steer", "steered"), ("warn", "warned"))]
    signs += [(f"A{glyphs.actions['block']}", "blocked"), (f"A{glyphs.actions['observe']}", "only observed")]
    signs += [(glyphs.blown, "fuse blown"), (f"({glyphs.waits})", "held now")]
    return [Text.assemble((sign, "bold"), (f" {word}", "dim")) for sign, word in signs]


def _wrapped(parts: Sequence[Text], width: int) -> list[Text]:
    """Wrap parts into lines, as many per line as fit."""
    lines = [Text()]
    for part in parts:
        if lines[-1].cell_len and lines[-1].cell_len + 3 + part.cell_len > width:
            lines.append(Text())
        lines[-1].append_text(Text("   " if lines[-1].cell_len else "")).append_text(part)
    return lines


def _cut(line: Text, width: int, glyphs: Glyphs) -> Text:
    """Cut a line to the width."""
    if line.cell_len > width:
        line.truncate(max(width - len(glyphs.more), 0))
        line.append(glyphs.more[:width])
    line.no_wrap = True
    return line


def _state(state: PageState) -> Text:
    return Text(state.value, _STATE_STYLES[state])


def _foreign(value: object) -> str:
    """Return a foreign text without characters that could control a terminal."""
    return printable(str(value)[:LONGEST_NAME])


def _many(count: float, word: str) -> str:
    return f"{count:,.0f} {word}{'' if count == 1 else 's'}"


def _age(seconds: float) -> str:
    passed = max(0.0, seconds)
    if passed < 60:
        return f"{passed:.0f} s ago"
    return f"{passed / 60:.0f} min ago" if passed < 3600 else f"{passed / 3600:.0f} h ago"
