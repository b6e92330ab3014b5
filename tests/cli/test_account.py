"""What `callfuse run` tells at its end, and when it says that a block has ended the run."""

import pytest

from callfuse.cli.account import MOST_KEPT, MOST_SHOWN, Account
from callfuse.model import Finding, ToolCall
from callfuse.observe.events import ExchangeEnded, FailedOpen, FindingSeen, LoopBegan, NotGuarded, TokensSpent, Where
from callfuse.policy.ladder import Verdict
from callfuse.policy.rungs import Rung


def where(session: str) -> Where:
    """A place in this session."""
    return Where(session, "", "lane", "m", "b", "d")


def ended(session: str = "s", action: str = "", cause: str = "", calls: int = 1) -> ExchangeEnded:
    """The end of an exchange."""
    return ExchangeEnded(where(session), "guarded", "complete", cause, 200, calls, action, 1.0, 0.0)


def begun(session: str = "s") -> LoopBegan:
    """The beginning of a loop."""
    return LoopBegan(where(session), "f1", "repeat", "search")


def seen(
    session: str = "s", rung: Rung = Rung.STEER, count: int = 3, tool: str = "search", price: float = 0.0
) -> FindingSeen:
    """A finding."""
    call = ToolCall("call_1", tool, "{}")
    found = Finding("repeat", tool, call.signature, count, 3, 300.0, False)
    return FindingSeen(where(session), Verdict(call, found, rung, 1), tokens=100, price=price)


@pytest.mark.parametrize(
    ("actions", "is_end"),
    [
        (["", "steer", "block"], True),
        (["blown"], True),
        (["block", ""], False),
        (["block", "steer"], False),
        (["block", "", "block"], True),
        ([""], False),
        ([], False),
    ],
)
def test_the_last_exchange_decides(actions: list[str], is_end: bool) -> None:
    """What comes after a block shows that the run went on."""
    account = Account()
    for action in actions:
        account.take(ended(action=action))
    assert account.ended == (["s"] if is_end else [])


def test_each_session_ends_by_itself() -> None:
    """One of several that a command has led."""
    account = Account()
    for session, action in [("a", "block"), ("b", "block"), ("a", "")]:
        account.take(ended(session, action))
    assert account.ended == ["b"]


def test_an_exchange_without_tools_is_no_going_on() -> None:
    """A title is asked for beside the run, and needs no line."""
    account = Account()
    account.take(ended(action="block"))
    account.take(ended(cause="no tools"))
    assert account.ended == ["s"]
    assert not any("not guarded" in line for line in account.lines())


def test_the_lines() -> None:
    """Counts, each loop once with its rungs, what was not guarded, and which sessions a block has ended."""
    account = Account()
    account.take(seen(rung=Rung.STEER, count=3))
    account.take(begun())
    account.take(seen(rung=Rung.BLOCK, count=4))
    account.take(ended(action="block", calls=4))
    account.take(ended("t", cause="request values"))
    account.take(FailedOpen("error: particular", "s"))
    account.take(NotGuarded("gemini-interactions"))
    account.take(NotGuarded("request values", where("t")))  # that of the exchange above
    assert [*account.lines()] == [
        "1 exchange of 1 session guarded, 4 calls: 1 loop found (2 findings), 2 calls withheld, "
        "about 6 calls and 580 tokens saved (estimate)",
        "  repeat of search, 4 with a limit of 3: steer, then block (session s)",
        "  not guarded: 1 time, request values",
        "  not guarded: 1 time, error",
        "  not guarded: 1 time, gemini-interactions",
        "a block ended the run of 1 session: s",
    ]


def test_nothing_found() -> None:
    """One line; none of it where no exchange has come."""
    account = Account()
    assert account.is_empty
    account.take(ended(calls=0))
    assert [*account.lines()] == ["1 exchange of 1 session guarded, 0 calls: no loop found"]
    assert not account.is_empty


def test_texts_are_shown_as_in_logs() -> None:
    """Names come from the model: no line breaks, and no end."""
    account = Account()
    account.take(seen(tool="a\nb" + "x" * 1000))
    (_, line) = account.lines()
    assert "\n" not in line
    assert len(line) < 400


def test_memory_and_lines_are_bounded() -> None:
    """A command may run for ever, and name any session."""
    account = Account()
    for number in range(MOST_KEPT + 10):
        account.take(seen(f"s{number}"))
        account.take(ended(f"s{number}", "block"))
    assert len(account.found) == len(account.ended) == MOST_KEPT
    assert len([*account.lines()]) <= MOST_SHOWN + 3
    assert account.guarded == MOST_KEPT + 10


def test_tokens_that_were_spent() -> None:
    """Where they are counted: how many of them are estimated, and what they cost."""
    account = Account()
    account.take(ended(calls=0))
    account.take(TokensSpent(where("s"), 1000, 0, 200, 0, 0.0125))
    assert [*account.lines()][1:] == ["1,200 tokens spent, cost 0.0125"]
    account.take(TokensSpent(where("s"), 30, 0, 4, 34, 0.0))
    assert [*account.lines()][1:] == ["1,234 tokens spent, 34 of them estimated, cost 0.0125"]


def test_money_that_was_saved() -> None:
    """Where the model has a price: an estimate, as the calls and the tokens are."""
    account = Account()
    account.take(begun())
    account.take(seen(price=0.01))
    account.take(ended())
    (line, *_) = account.lines()
    assert line.endswith("1 call withheld, about 6 calls, 580 tokens and a cost of 0.0580 saved (estimate)")
