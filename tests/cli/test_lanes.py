"""How `callfuse top` draws: beads with what was done, counters, and no more than there is room for."""

import io
import json

import pytest
from rich.console import Console

from callfuse.cli.follow import PageContent, PageState, ShownPage, ShownRates, ShownSession
from callfuse.cli.lanes import ASCII, FINE, Glyphs, Screen
from callfuse.observe.activity import Activity

NOW = 1_767_225_600.0


def told(activity: Activity, name: str, session: str = "one", **fields: object) -> None:
    """An event as a feed tells it."""
    place = {"gen_ai.conversation.id": session, "gen_ai.request.model": "gpt", "callfuse.dialect": "openai-chat"}
    own = {key.replace("__", "."): value for key, value in fields.items()}
    activity.take_fields({"callfuse.event": name, "time": NOW, "callfuse.lane": "l", **place, **own}, is_finished=True)


def call(activity: Activity, signature: str, action: str = "none", session: str = "one") -> None:
    """A call, which was held unless it is innocent."""
    if action != "none":
        told(activity, "hold_began", session)
    told(
        activity,
        "call",
        session,
        gen_ai__tool__name="search",
        callfuse__signature=signature,
        callfuse__action=action,
    )
    if action != "none":
        told(activity, "hold", session, callfuse__seconds=0.25, callfuse__how="withheld")


def screen_of(activity: Activity) -> Screen:
    """A screen that shows what a server answers of its activity."""
    rates = ShownRates.model_validate_json(json.dumps(activity.rates()))
    page = ShownPage.model_validate_json(json.dumps(activity.page(0, 60, lanes=3, beads=40)))
    sessions = [one for one in page.sessions if isinstance(one, ShownSession)]
    screen = Screen("http://here")
    screen.shown = PageContent(
        now=page.now, totals=rates.totals, rates=rates, matching=page.matching, sessions=sessions
    )
    return screen


def drawn(activity: Activity, width: int = 80, height: int | None = None, glyphs: Glyphs = FINE) -> list[str]:
    """The lines of a screen, without colours."""
    return [line.plain for line in screen_of(activity).lines(glyphs, width, height)]


@pytest.fixture
def activity() -> Activity:
    """With one session: two calls, one that was steered, one that was blocked."""
    found = Activity(clock=lambda: NOW + 3)
    for signature, action in (("00", "none"), ("01", "none"), ("00", "steer"), ("00", "block"), ("02", "warn")):
        call(found, signature, action)
    return found


@pytest.mark.parametrize(
    ("glyphs", "lane"), [(FINE, "   A   B  (A)→ (A)▌ (C)▲"), (ASCII, "   A   B  (A)> (A)| (C)!")], ids=["fine", "ascii"]
)
def test_a_lane_of_beads(activity: Activity, glyphs: Glyphs, lane: str) -> None:
    """A letter for each different call, a ring for a hold, a sign for what was done."""
    lines = drawn(activity, glyphs=glyphs)
    assert lane in lines
    about = ("one  5 calls", "3 s ago", "gpt", "openai-chat")
    assert lines[lines.index(lane) - 1] == glyphs.dot.join(about)
    assert glyphs is FINE or all(line.isascii() for line in lines)


def test_what_is_held_now_waits(activity: Activity) -> None:
    """Until the hold ends."""
    told(activity, "hold_began")
    assert "   A   B  (A)→ (A)▌ (C)▲ (…)" in drawn(activity)


def test_what_was_held_for_nothing_looks_harmless(activity: Activity) -> None:
    """Without a ring; and the legend has every sign."""
    told(activity, "hold_began")
    told(activity, "hold", callfuse__seconds=0.25, callfuse__how="released")
    call(activity, "03")
    lines = drawn(activity, width=300)
    assert "   A   B  (A)→ (A)▌ (C)▲  D " in lines
    assert (
        lines[-1] == "(A) held   A→ steered   A▲ warned   A▌ blocked   A• only observed   × fuse blown   (…) held now"
    )


def test_loops_are_counted(activity: Activity) -> None:
    """Beside findings, in all and of a session."""
    for _ in range(2):
        told(activity, "finding", callfuse__finding__id="f1", callfuse__signature="00")
    told(activity, "loop", callfuse__finding__id="f1")
    lines = drawn(activity, width=300)
    assert any("2 findings   1 loops" in line for line in lines)
    assert any("2 findings · 1 loop · " in line for line in lines)


def test_the_newest_beads_are_shown(activity: Activity) -> None:
    """As many as there is room for."""
    [lane] = [line for line in drawn(activity, width=18) if line.endswith("(C)▲")]
    assert lane == "  … (A)▌ (C)▲"


@pytest.mark.parametrize("width", [1, 5, 20, 40, 80, 300])
@pytest.mark.parametrize("height", [1, 4, 10, 24, 60])
def test_it_fits(activity: Activity, width: int, height: int) -> None:
    """Any terminal; what there is no room for is counted."""
    for number in range(40):
        call(activity, "00", session=f"session-{number}-" + "ü" * number)
    for encoding in ("utf-8", "ascii"):
        out = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
        console = Console(file=out, width=width, height=height, force_terminal=True, color_system="truecolor")
        screen = screen_of(activity)
        screen.state = PageState.LIVE
        lines = console.render_lines(screen, console.options.update(height=None), pad=False)
        assert len(lines) <= height
        assert all(sum(part.cell_length for part in line) <= width for line in lines)
    if height == 24 and width == 80:
        assert any(line.startswith("… ") and line.endswith(" more sessions") for line in drawn(activity, 80, 24))


def test_counters(activity: Activity) -> None:
    """Totals, and how many a minute."""
    told(activity, "exchange", callfuse__status=200)
    told(activity, "not_guarded")
    shown = "\n".join(drawn(activity, width=200))
    for wanted in ("1 exchanges", "5 calls", "0 findings", "0.8 s held", "1 not guarded", "5 calls/min"):
        assert wanted in shown


def test_one_session_has_no_rates() -> None:
    """Its own totals stand there, and nothing of the others."""
    screen = Screen("http://here")
    screen.shown = PageContent(totals={"calls": 7})
    shown = "\n".join(line.plain for line in screen.lines(FINE, 200, None))
    assert "7 calls" in shown
    assert "/min" not in shown


@pytest.mark.parametrize("series", [[], [1.0], [1e15] * 90])
def test_rates_of_any_length(series: list[float]) -> None:
    """A server may tell what no server of ours tells."""
    screen = Screen("http://here")
    screen.shown = PageContent(rates=ShownRates(bucket_s=10, totals={}, series={"calls": series}))
    assert any("calls/min" in line.plain for line in screen.lines(FINE, 200, None))


def test_nothing_yet() -> None:
    """Is said."""
    assert any(line.startswith("No session yet") for line in drawn(Activity()))
