"""What other loop detectors answer to small runs, and what callfuse does.

The rules are facts read from the public source, tests and documentation of each project, in copies of the time up to
`READ`; the runs are written for this project. A run is a list of calls, each the only one of its answer unless it has a
`turn`. `python -m tests.detect.known_answers` prints the tables of docs/detection.md.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from callfuse.config import load_config
from callfuse.offline.formats import trajectories
from callfuse.offline.judging import judge_run

READ: Final = "2026-11-23"
"""When the rules were read."""

Call = dict[str, Any]


def call(name: str, argument: object, result: str, **more: object) -> Call:
    """A recorded call with one argument (or the whole object), and its result."""
    arguments = argument if isinstance(argument, dict) else {"x": argument}
    return {"name": name, "arguments": arguments, "result": result, **more}


def error(name: str, argument: object, result: str, **more: object) -> Call:
    """A recorded call that failed."""
    return call(name, argument, result, is_error=True, **more)


@dataclass(frozen=True, slots=True)
class KnownAnswer:
    """A run, what a project answers to it, what callfuse answers (`call 3: repeat, acts`), and why where they differ.

    `why` is empty where both answer the same. `settings`: what callfuse is told beyond its defaults.
    """

    project: str
    case: str
    calls: list[Call]
    theirs: str
    ours: str
    why: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)

    def found(self) -> str:
        """What callfuse answers: the first finding, and the first that acts where that is another one."""
        [run] = trajectories.read({"calls": self.calls}, b"")
        settings = load_config({"tool_call_loop": dict(self.settings)}).tool_call_loop
        hits = [
            (number, "+".join(one.kinds()), one.verdict is not None and one.verdict.withholds)
            for number, one in enumerate(judge_run(run, settings), 1)
            if one.finding is not None
        ]
        first = [f"call {at}: {kinds}, {'acts' if acts else 'warns'}" for at, kinds, acts in hits[:1]]
        acting = [f"call {at}: {kinds}, acts" for at, kinds, acts in hits if acts][:1]
        return "; ".join(dict.fromkeys(first + acting)) or "nothing"


RULES: Final = {
    "goose": "`RepetitionInspector`: with a limit N set, the call after N equal ones in a row is denied, whatever came "
    "back; off without one",
    "Cline": "3 equal calls in a row: a warning; 5: the user is asked; the argument `task_progress` is not compared",
    "Roo Code": "after 3 equal calls in a row the next is refused and the count starts afresh; scrolling is exempt",
    "gemini-cli": "5 equal calls in a row end the turn; after 30 turns a model is asked now and then",
    "qwen-code": "5 equal calls in a row end the turn; on request also: a call 6 times in a turn, three laps of two "
    "calls, 8 reads among 15 calls, 8 calls of one tool in a row; of `task_list` only equal results count",
    "OpenHands": "of the last 20 events: 4 times the same action and observation, 3 times the same action with any "
    "error, 6 alternating calls",
    "opencode": "3 equal calls in one assistant message: the user is asked",
    "openclaw": "off by default; of the last 30 calls: after 10 equal ones a warning, after 20 with equal results a "
    "block; the same for two calls in turn, and for pollers without progress; 10 calls of an unknown tool block",
    "deer-flow": "an answer with the same calls 3 times among 20 ends in a warning, 5 times in text; lines of a file "
    "are compared by blocks of 200",
    "hermes-agent": "warns: the same failing call twice, a tool failing 3 times whatever the arguments, an equal "
    "result of a reading call twice; stops are opt-in (5, 8, 5); 50 web searches in a turn",
    "CrewAI": "a call equal to the one before it is not run",
    "microloop": "the second equal call is blocked",
    "LangChain": "`ToolCallLimitMiddleware(run_limit=N)`: call N + 1 of a run gets an error; pydantic-ai's "
    "`UsageLimits(tool_calls_limit=N)` ends the run there",
    "LoopBrake": "the length of a run, at a line set from 20 to 100 own good runs (split-conformal)",
}
"""The rule of each project, in one sentence."""

SAME: Final = call("read", "a", "text of a")
LETTERS: Final = "abcdefghijklmnopqrstuvwxyz"


def _numbered(count: int) -> Iterator[str]:
    """Texts that all differ, and not in their digits only."""
    return (f"{LETTERS[at // 26]}{LETTERS[at % 26]}" for at in range(count))


ANSWERS: Final = (
    KnownAnswer("goose", "limit 2: a call three times", [SAME] * 3, "denied at call 3", "call 3: repeat, acts"),
    KnownAnswer(
        "goose",
        "limit 2: twice one call, then three times another",
        [SAME] * 2 + [call("read", "b", "text of b")] * 3,
        "denied at call 5",
        "call 5: repeat, acts",
    ),
    KnownAnswer(
        "goose",
        "limit 2: a call three times, each time with new results",
        [call("fetch", "a", f"news {text}") for text in _numbered(3)],
        "denied at call 3",
        "nothing",
        "what comes back changes: it may be progress, and counts from the 6th call on",
    ),
    KnownAnswer(
        "goose",
        "limit 2: two calls in turn, with equal results",
        [SAME, call("list", "b", "files")] * 2,
        "nothing",
        "call 4: cycle, acts",
        "a lap with the same results adds nothing new",
    ),
    KnownAnswer("Cline", "a call five times", [SAME] * 5, "warning at 3, asks at 5", "call 3: repeat, acts"),
    KnownAnswer(
        "Cline",
        "three calls that are equal except for `task_progress`",
        [call("read", {"path": "a", "task_progress": text}, "text of a") for text in _numbered(3)],
        "warning at call 3",
        "nothing",
        "no argument is left out unasked: `per_tool: {'*': {ignore: [task_progress]}}`",
    ),
    KnownAnswer(
        "Cline",
        "the same, with that setting",
        [call("read", {"path": "a", "task_progress": text}, "text of a") for text in _numbered(3)],
        "warning at call 3",
        "call 3: repeat, acts",
        settings={"per_tool": {"*": {"ignore": ["task_progress"]}}},
    ),
    KnownAnswer(
        "Roo Code",
        "a call four times",
        [SAME] * 4,
        "refused at call 4",
        "call 3: repeat, acts",
        "the pending call counts, and the results were equal",
    ),
    KnownAnswer(
        "Roo Code",
        "three calls whose keys stand in another order",
        [SAME | {"arguments": text} for text in ('{"a": 1, "b": 2}', '{"b": 2, "a": 1}', '{"a": 1, "b": 2}')],
        "equal",
        "call 3: repeat, acts",
    ),
    KnownAnswer(
        "Roo Code",
        "scrolling ten times, a new part of the page each time",
        [call("browser_action", {"action": "scroll_down"}, f"part {text}") for text in _numbered(10)],
        "never counted",
        "call 10: repeat_changing, warns",
        "what acts on a screen has five thirds of the limits; "
        "`per_tool: {browser_action: {enabled: false}}` exempts it",
    ),
    KnownAnswer(
        "gemini-cli",
        "a call five times",
        [SAME] * 5,
        "ends at call 5",
        "call 3: repeat, acts",
        "equal results make the third one evidence enough",
    ),
    KnownAnswer(
        "gemini-cli",
        "two calls in turn, with equal results",
        [SAME, call("list", "b", "files")] * 3,
        "nothing",
        "call 4: cycle, acts",
        "a lap with the same results adds nothing new",
    ),
    KnownAnswer(
        "gemini-cli",
        "a call five times, with other arguments each time",
        [call("read", text, f"text of {text}") for text in _numbered(5)],
        "nothing",
        "nothing",
    ),
    KnownAnswer(
        "qwen-code",
        "on request: three laps of two calls, with equal results",
        [SAME, call("list", "b", "files")] * 3,
        "ends at call 6",
        "call 4: cycle, acts",
        "two laps are enough where every result is equal",
    ),
    KnownAnswer(
        "qwen-code",
        "on request: edit, test, six times, each test with another failure",
        [one for text in _numbered(6) for one in (call("edit", text, "ok"), call("test", "all", f"failed in {text}"))],
        "ends at call 12",
        "nothing",
        "a new edit before each test, and another result after it, is debugging",
    ),
    KnownAnswer(
        "qwen-code",
        "on request: eight calls of one tool with other arguments",
        [call("write", text, f"wrote {text}") for text in _numbered(8)],
        "ends at call 8",
        "nothing",
        "a batch is work; `max_calls_of_tool` limits it where that is wanted",
    ),
    KnownAnswer(
        "qwen-code",
        "on request: after an edit eight files are read",
        [call("edit", "a", "ok"), *(call("read_file", text, f"text of {text}") for text in _numbered(8))],
        "ends at call 9",
        "nothing",
        "each read returns something new",
    ),
    KnownAnswer(
        "qwen-code",
        "`task_list` five times, with other tasks done each time",
        [call("task_list", "", f"{text} is done") for text in _numbered(5)],
        "nothing",
        "nothing",
    ),
    KnownAnswer(
        "OpenHands",
        "the same action and observation four times",
        [SAME] * 4,
        "stuck after call 4",
        "call 3: repeat, acts",
        "judged before the call runs, and one call earlier",
    ),
    KnownAnswer(
        "OpenHands",
        "the same action three times, with another error each time",
        [error("run", "make", f"Error: cannot find {text}") for text in ("module x", "a compiler", "disk space")],
        "stuck after call 3",
        "nothing",
        "another error is news: it is compared as other results are",
    ),
    KnownAnswer(
        "OpenHands",
        "six alternating calls with equal results",
        [SAME, call("list", "b", "files")] * 3,
        "stuck after call 6",
        "call 4: cycle, acts",
        "two laps are enough where every result is equal",
    ),
    KnownAnswer(
        "OpenHands",
        "the same action four times, with another observation each time",
        [call("fetch", "a", f"news {text}") for text in _numbered(4)],
        "nothing",
        "nothing",
    ),
    KnownAnswer(
        "OpenHands",
        "twice, a message of the user, twice",
        [SAME | {"user_turn": turn} for turn in (0, 0, 1, 1)],
        "nothing",
        "nothing",
    ),
    KnownAnswer(
        "opencode",
        "three equal calls in three answers",
        [SAME] * 3,
        "nothing: each answer is a message of its own",
        "call 3: repeat, acts",
        "what counts are the answers since the last message of the user",
    ),
    KnownAnswer(
        "opencode",
        "three equal calls in one answer",
        [SAME | {"turn": 0}] * 3,
        "asks at call 3",
        "nothing",
        "three dice, four equal sub-agents: up to five of a new call may be wanted",
    ),
    KnownAnswer(
        "opencode",
        "six equal calls in one answer",
        [SAME | {"turn": 0}] * 6,
        "asks at call 3",
        "call 6: repeat, acts",
        "a new call counts in its own answer from the hard limit on",
    ),
    KnownAnswer(
        "openclaw",
        "a read eleven times with the same result",
        [SAME] * 11,
        "warning at call 11",
        "call 3: repeat, acts",
        "limits chosen on recorded runs: with equal results the third one is evidence enough",
    ),
    KnownAnswer(
        "openclaw",
        "a poll 25 times, with new lines each time",
        [call("process", {"action": "poll", "id": "s"}, f"line {text}") for text in _numbered(25)],
        "nothing",
        "nothing",
    ),
    KnownAnswer(
        "openclaw",
        "a poll 11 times without news",
        [call("process", {"action": "poll", "id": "s"}, "(no new output)")] * 11,
        "warning at call 11",
        "nothing",
        "a call that waits has five times the limits: 15",
    ),
    KnownAnswer(
        "openclaw",
        "thirty files written with the same text",
        [call("write", text, "write complete") for text in _numbered(30)],
        "nothing",
        "nothing",
    ),
    KnownAnswer(
        "openclaw",
        "two calls in turn, with new results each time",
        [call("read" if at % 2 else "list", at % 2, f"news {text}") for at, text in enumerate(_numbered(11))],
        "warning at call 10",
        "nothing",
        "the results change lap by lap",
    ),
    KnownAnswer(
        "openclaw",
        "two calls in turn, with equal results",
        [SAME, call("list", "b", "files")] * 5,
        "warning at call 10",
        "call 4: cycle, acts",
        "limits chosen on recorded runs",
    ),
    KnownAnswer(
        "openclaw",
        "a tool that does not exist, eleven times with other arguments",
        [error("web", text, "Error: tool web not found") for text in _numbered(11)],
        "blocked at call 11",
        "call 3: unknown_tool, acts",
        "two results that say so and a third call are enough",
    ),
    KnownAnswer(
        "deer-flow",
        "a call three times with other calls in between",
        [SAME, call("list", "b", "files"), SAME, call("grep", "c", "lines"), SAME],
        "warning at call 5, calls stripped",
        "nothing",
        "a new call in between is progress",
    ),
    KnownAnswer(
        "deer-flow",
        "three parts of one file, of 50 lines each",
        [call("read_file", {"path": "a", "start_line": at}, f"part {text}") for at, text in enumerate(_numbered(3))],
        "warning at call 3",
        "nothing",
        "other lines are other calls",
    ),
    KnownAnswer(
        "deer-flow",
        "two calls three times, once in another order",
        [
            one | {"turn": turn}
            for turn in range(3)
            for one in [SAME, call("list", "b", "files")][:: -1 if turn == 1 else 1]
        ],
        "warning at the third answer",
        "call 5: repeat, acts",
    ),
    KnownAnswer(
        "hermes-agent",
        "a read twice",
        [SAME] * 2,
        "warning at call 2",
        "nothing",
        "twice in a row is common in good runs: a warning there is noise",
    ),
    KnownAnswer(
        "hermes-agent",
        "a search fails, succeeds, and fails again",
        [error("search", "a", "Error: boom"), call("search", "a", "a page"), error("search", "a", "Error: boom")],
        "nothing",
        "nothing",
    ),
    KnownAnswer(
        "hermes-agent",
        "three commands that fail, each in another way",
        [error("run", text, f"Error: {text}") for text in ("no such file", "out of memory", "syntax is wrong")],
        "warning at call 3",
        "nothing",
        "other errors are other results; the same error counts from the 4th on",
    ),
    KnownAnswer(
        "hermes-agent",
        "a write three times with the same success",
        [call("write_file", "a", "ok")] * 3,
        "nothing: the call does not read",
        "call 3: repeat, acts",
        "the third equal write adds nothing new either; a tool that is meant to be repeated gets its own limit",
    ),
    KnownAnswer(
        "CrewAI",
        "a call twice",
        [SAME] * 2,
        "refused at call 2",
        "nothing",
        "`max_repeats: 2` does the same, at the price of good runs",
    ),
    KnownAnswer(
        "microloop",
        "a call twice, with `max_repeats: 2`",
        [SAME] * 2,
        "blocked at call 2",
        "call 2: repeat, acts",
        settings={"max_repeats": 2},
    ),
    KnownAnswer(
        "LangChain",
        "run_limit 3: four different calls, with `max_calls: 3`",
        [call("read", text, f"text of {text}") for text in _numbered(4)],
        "an error at call 4",
        "call 4: budget, acts",
        settings={"max_calls": 3},
    ),
)
"""Every known answer, by project in the order of `RULES`."""


def rules_table() -> str:
    """The rules as the table of docs/detection.md."""
    return "\n".join(["| project | rule |", "|---|---|", *(f"| {name} | {rule} |" for name, rule in RULES.items())])


def answers_table() -> str:
    """The answers as the table of docs/detection.md."""
    head = ["| project | run | it answers | callfuse | why |", "|---|---|---|---|---|"]
    rows = [f"| {one.project} | {one.case} | {one.theirs} | {one.ours} | {one.why} |" for one in ANSWERS]
    return "\n".join([*head, *rows])


if __name__ == "__main__":
    print(f"{rules_table()}\n\n{answers_table()}")
