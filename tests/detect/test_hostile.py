"""Whatever a model or a client sends: nothing raises, and the work has a bound, which is counted rather than timed."""

import json
import math
from collections import Counter
from typing import Any

import pytest

from callfuse.detect import Engine, pollers, similar
from callfuse.detect.detector import NAMED
from callfuse.model import PastCall, Result, Round, Timeline, ToolCall
from callfuse.model import calls as model_calls
from callfuse.model.signature import Signature
from callfuse.policy.settings import LoopSettings

pytestmark = pytest.mark.slow

ALL = LoopSettings.model_validate(
    {
        "similarity_threshold": 0.9,
        "max_calls": 5,
        "max_calls_per_answer": 0,
        "max_calls_of_tool": 5,
        "max_weighted_calls": 5,
        "detectors": {"stagnation": 3},
        "state_changing": ["w*"],
        "per_tool": {"b": {"enabled": False}},
    }
)
DEFAULTS = LoopSettings(max_calls_per_answer=0)


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often signatures, outcomes, likenesses and words of waiting are worked out."""
    done: Counter[str] = Counter()

    def counted(name: str, home: Any, what: str) -> None:
        original = getattr(home, what)

        def count(*args: Any, **more: Any) -> Any:
            done[name] += 1
            return original(*args, **more)

        monkeypatch.setattr(home, what, count)

    counted("signatures", model_calls, "signature_of")
    counted("outcomes", model_calls, "outcome_of")
    counted("likenesses", similar, "alike")
    counted("waiting", pollers, "_says_so")
    return done


def called(arguments: Any, result: Any = "x", tool: str = "a") -> PastCall:
    """An executed call."""
    return PastCall(ToolCall("id", tool, arguments), Result(result))


def asked(rounds: list[list[PastCall]], pending: list[PastCall], settings: LoopSettings) -> int:
    """Everything that can be asked of an engine; how many findings it has."""
    past = [Round(tuple(calls), 2 * at) for at, calls in enumerate(rounds)][::-1]
    engine = Engine(Timeline(past, declares={"a", "b"}.__contains__), settings)
    for name in engine.suspects():
        list(engine.possible(name))
    next(engine.hindsights(), None)
    for one in pending:
        engine.judge(one.call)
    return len(engine.judge_round([one.call for one in pending]))


def nested(depth: int) -> Any:
    """A value as deep as the fast reader reads."""
    value: Any = 1
    for _ in range(depth):
        value = {"a": value}
    return value


ODD = [
    nested(250),
    nested(900),
    json.dumps({"a": 1}) * 2,
    "[" * 2000 + "]" * 2000,
    '{"a":' * 2000 + "1" + "}" * 2000,
    {"a": "\ud800"},
    '{"a":"\\ud800"}',
    "\ud800",
    {"a": math.nan},
    '{"a":NaN}',
    '{"a":1e400}',
    {"a": math.inf},
    {"a": 2**70},
    '{"a":' + "9" * 400 + "}",
    None,
    True,
    3.5,
    [],
    "",
    "null",
    "\x00",
]


@pytest.mark.parametrize("settings", [ALL, DEFAULTS], ids=["all", "defaults"])
@pytest.mark.parametrize("arguments", ODD, ids=lambda value: repr(value)[:20])
def test_odd_arguments(arguments: Any, settings: LoopSettings) -> None:
    """Of any type and depth; they repeat like others."""
    loop = [[called(arguments)] for _ in range(4)]
    assert asked(loop, [called(arguments)], settings) == 1
    mixed = [[called(one)] for one in ODD]
    assert asked(mixed, [called(arguments)], DEFAULTS) == 0
    assert asked([*mixed, *mixed], [called(one) for one in ODD], settings) >= 0


@pytest.mark.parametrize("result", [nested(900), "\ud800", math.nan, 2**70, None, [[]] * 2000, b"raw".decode() * 10**5])
def test_odd_results(result: Any) -> None:
    """Of any type and depth; they are equal like others."""
    assert asked([[called("{}", result)] for _ in range(4)], [called("{}")], ALL) == 1


def test_arguments_of_a_megabyte(work: Counter[str]) -> None:
    """Each is read once for its signature; no comparison reads it whole."""
    texts = [json.dumps({"text": f"{at} {'words ' * 170_000} {at}"}) for at in range(12)]
    rounds = [[called(text)] for text in texts]
    assert asked(rounds, [called(texts[0])], ALL) >= 0
    assert work["signatures"] <= len(rounds) + 1
    assert work["likenesses"] <= 2 * len(rounds)
    work.clear()
    assert asked(rounds, [called("{}")], DEFAULTS) == 0
    assert work["signatures"] <= 1  # the pending one's: the pre-check does for the others


@pytest.mark.parametrize("settings", [ALL, DEFAULTS], ids=["all", "defaults"])
def test_ten_thousand_different_calls(settings: LoopSettings, work: Counter[str]) -> None:
    """In as many rounds: each has its signature worked out once, to see which come again. All else is asked of the
    newest only, or of each once where all are to be counted."""
    rounds = [[called(f'{{"n":{at}}}', str(at))] for at in range(10_000)]
    again = [called('{"n":9999}'), called('{"n":9998}')]
    asked(rounds, again, settings)
    assert work["outcomes"] <= (10_000 if settings is ALL else 50)
    assert work["likenesses"] <= 200
    assert work["signatures"] <= len(rounds) + len(again)
    assert work["waiting"] <= 300


@pytest.mark.parametrize("settings", [ALL, DEFAULTS], ids=["all", "defaults"])
@pytest.mark.parametrize("times", [1, 2, 4])
def test_thousands_of_calls_in_one_round(settings: LoopSettings, times: int, work: Counter[str]) -> None:
    """In the past and pending, new or known: the work grows with their number, and not with its square."""
    count = 2_000
    batches = [[called(f'{{"n":{at}}}') for at in range(count)] for _ in range(times)]
    pending = [called(f'{{"n":{at}}}') for at in range(count)]
    found = asked(batches, pending, settings)
    assert found == (count if times > 3 or settings is ALL else 0 if times < 2 else count)
    assert work["signatures"] <= (times + 1) * count
    assert work["outcomes"] <= (times + 1) * count
    assert work["likenesses"] == 0
    assert work["waiting"] <= (4 + 2 * times) * count  # `known_pairs`: does it change something, does it tell anything


def test_ten_thousand_equal_calls_in_one_round() -> None:
    """One piece of evidence for the rounds after them; in their own the first five go."""
    batch = [called("{}", str(at)) for at in range(10_000)]
    assert asked([batch], [called("{}")] * 2, DEFAULTS) == 0
    assert asked([], batch, DEFAULTS) == 10_000 - 5


def test_a_finding_has_a_size() -> None:
    """However much it rests on, it names only the newest calls."""
    rounds = [[called("{}")] for _ in range(1000)]
    past = [Round(tuple(calls), 2 * at) for at, calls in enumerate(rounds)][::-1]
    finding = Engine(Timeline(past), ALL).judge(called("{}").call)
    assert finding is not None
    assert len(finding.calls) == NAMED


def test_a_long_loop_reads_no_outcome_twice(work: Counter[str]) -> None:
    """And no call's signature."""
    rounds = [[called(f'{{"n":{at % 3}}}')] for at in range(300)]
    asked(rounds, [called('{"n":0}')], LoopSettings())
    assert max(work["signatures"], work["outcomes"]) <= 301
    for call in (call for calls in rounds for call in calls):
        assert isinstance(call.signature, Signature)
