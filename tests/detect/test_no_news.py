"""`no_news`, rule by rule: nothing new is called and nothing new comes back, in whatever order."""

import json

import pytest

from callfuse.detect.no_news import NoNews
from callfuse.model import PastCall, Result, Round, Timeline, ToolCall
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import Rule, found

RULE = Rule(NoNews())
KNOWN = ("a=x", "b=y", "c=z")


@pytest.mark.parametrize(
    "rounds",
    [
        ("a=x", "b=y", "c=z"),
        ("c=z", "a=x", "b=y"),
        ("b=y", "b=y", "c=z"),
        ("a=x b=y", "c=z", "c=z a=x"),
        ("a=x", "a=x", "a=x"),
    ],
)
def test_known_rounds_in_any_order(rounds: tuple[str, ...]) -> None:
    """Three rounds that only repeat what is known, and a fourth that is about to."""
    for pending in "abc":
        assert RULE.count(*KNOWN, *rounds, pending=pending) == 4
    assert RULE.count(*KNOWN, *rounds, pending="d") == 0


@pytest.mark.parametrize("limit", [2, 4, 5])
def test_soft_and_hard(limit: int) -> None:
    """Rounds count, the pending one included; hard at twice the limit."""
    order = [*KNOWN, *"acbacbacb"]
    past = [KNOWN["abc".index(word[0])] for word in order]
    for more in range(9):
        finding = RULE.found(*past[: 3 + more], detectors={"no_news": limit})
        assert (finding.count if finding else 0) == (more + 1 if more + 1 >= limit else 0)
        assert finding is None or (finding.threshold, finding.hard) == (limit, more + 1 >= 2 * limit)


def test_off() -> None:
    """`false` turns it off, and `max_repeats: 0` does not."""
    assert RULE.count(*KNOWN, *KNOWN, detectors={"no_news": False}) == 0
    assert RULE.count(*KNOWN, *KNOWN, max_repeats=0) == 4


@pytest.mark.parametrize("news", ["d=x", "a1=x", "a=x d=y", "a=other", "a=x b=other"])
def test_news_ends_it(news: str) -> None:
    """A new call, beside a known one or not, and a known call with a new outcome."""
    assert RULE.count(*KNOWN, *KNOWN, news, "a=x", "b=y") == 0
    assert RULE.count(*KNOWN, news, *KNOWN) == 4


def test_a_known_call_with_any_of_its_known_outcomes() -> None:
    """What a call has brought once within the window it may bring again."""
    assert RULE.count("a=x", "a=y", "a=x", "a=y", "a=x") == 4
    assert RULE.count("a=x", "a=y", "a=x", "a=z", "a=x") == 0


def test_unknown_outcomes_may_be_known_ones() -> None:
    """Of either call, whether the client still shows it or not."""
    assert RULE.count("a", "a", "a", "a") == 4
    assert RULE.count("a", "a=x", "a=x", "a=x") == 4
    assert RULE.count("a=x", "a", "a", "a=x") == 4
    assert RULE.count("-a=x", "-a=x", "a=x", "a=x") == 4
    assert RULE.count("-a", "-a", "a=x", "a=x") == 4
    assert RULE.count("a=x", "a=x", "-a", "a=x") == 4


def test_withheld_calls_count_and_bring_nothing() -> None:
    """They fill no window and are no known pair: what first comes of an executed call is news."""
    assert RULE.count("a=x", "b=y", "!a", "!!b", "!a") == 4
    assert RULE.count("a=x", *["!b"] * 12, "a=x") == 13
    assert RULE.count("!a", "a=x", "!a", "!a") == 0


@pytest.mark.parametrize(("apart", "count"), [(9, 4), (10, 0)])
def test_the_window_is_ten_rounds(apart: int, count: int) -> None:
    """What came before that is new again."""
    between = [f"b{at}=y" for at in range(apart)]
    assert RULE.count("a=x", *between, "a=x", "a=x", "a=x") == count
    assert RULE.count("a=x", *between, "a=x", "a=x", "a=x", "a=x") == 4 + bool(count)


def test_equal_calls_of_a_round_are_one() -> None:
    """In whatever order their outcomes come."""
    assert RULE.count("a=x a=y", "a=y a=x", "a=x a=y", "a=y a=x") == 4
    assert RULE.count("a=x a=y", "a=x a=z", "a=x a=z", "a=x a=z") == 0


def test_a_pause_ends_it() -> None:
    """As every streak."""
    times = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]
    assert RULE.count(*KNOWN, *KNOWN, times=times, now=6) == 4
    assert RULE.count(*KNOWN, *KNOWN, times=times, now=306) == 0
    assert RULE.count(*KNOWN, *KNOWN, times=[0, 1, 2, 3, 304, 305], now=306) == 0


def test_a_finding_names_the_rounds_and_what_the_call_brought() -> None:
    """The streak's calls, oldest first; what came back last is what this very call had brought, not its neighbour."""
    finding = RULE.found("a=x", "b=y", "b=y", "a=x", "b=y")
    assert finding is not None
    assert (finding.kind, finding.calls, finding.previous) == ("no_news", ("id2", "id3", "id4"), "came back x")
    assert finding.ends_on_news


def silent(command: str, result: str = "", *, key: str = "command") -> PastCall:
    """A call of a shell with its result."""
    return PastCall(ToolCall("", "bash", json.dumps({key: command})), Result(result))


def shell(*rounds: PastCall, pending: str = "cat a.txt") -> int:
    """The count after these rounds, oldest first, of one call each."""
    made = [Round((call,), 1 + 2 * at) for at, call in enumerate(rounds)]
    finding = found(NoNews(), Timeline(made[::-1]), LoopSettings(), silent(pending).call)
    return finding.count if finding else 0


@pytest.mark.parametrize(
    "command",
    [
        "echo x > a.txt", "echo x >> a.txt", "echo x>a.txt", "make &> log", "sed -i s/a/b/ a.txt",
        "sed -n -i.bak p a.txt", "rm a.txt", "cd src && rm -rf build", "mv a b", "cp a b", "mkdir -p x",
        "echo x | tee a.txt", "git checkout a.txt",
        "bash -c 'echo x > a.txt'", "find . -name x -exec rm {} +", "cat > a.txt <<'EOF'\nx\nEOF",
    ],
)  # fmt: skip
def test_a_silent_write_of_a_shell_is_not_known(command: str) -> None:
    """Its empty result does not say what it has changed: a file that is read after it may be another."""
    read, write = silent("cat a.txt", "x"), silent(command)
    assert shell(write, read, write, read, write, read) == 0
    assert shell(write, read, write, read, read, read) == 3 + 1
    assert shell(*[silent(command, "42 files")] * 2, read, *[silent(command, "42 files"), read] * 2) == 5
    assert shell(*[write, read] * 3, read, read, pending=command) == 4


@pytest.mark.parametrize(
    "command",
    [
        "grep x a.txt",
        "grep '=>' a.js",
        "grep -E 'a > b' x",
        "make 2>/dev/null",
        "make > /dev/null 2>&1",
        "ls -l rm",
        "confirm x",
    ],
)
def test_a_silent_read_of_a_shell_is_known(command: str) -> None:
    """An empty result of it is a result."""
    read, other = silent("cat a.txt", "x"), silent(command)
    assert shell(other, read, other, read, other, read) == 5


def test_a_write_is_told_by_a_shells_arguments() -> None:
    """In lists of words, too; not of a tool that has no command, nor of a withheld call."""
    read = silent("cat a.txt", "x")
    listed = PastCall(ToolCall("", "exec", '{"cmd": ["bash", "-lc", "rm a.txt"]}'), Result(""))
    assert shell(read, listed, read, listed, read, listed, read) == 0
    assert shell(read, silent("rm a.txt", key="query"), *[read, silent("rm a.txt", key="query")] * 2) == 5
