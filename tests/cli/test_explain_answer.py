"""`callfuse doctor --explain` of a recorded answer: its format, its calls, and what they would meet."""

import json
from pathlib import Path

import pytest

from callfuse.cli.diagnosis import Check, CheckState
from tests.cli.test_explain import explained
from tests.support.kits import KITS, DialectKit, stream_of
from tests.support.kits.gemini import GeminiArrayKit
from tests.support.model import Call
from tests.support.plain import new_call, same_call, saying

ONLY_STREAMED = {GeminiArrayKit.path}
"""A whole answer of Gemini is the same in both of its kits."""
ANSWERS = [(kit, stream) for kit in KITS for stream in (True, False) if stream or kit.path not in ONLY_STREAMED]


def met(checks: list[Check]) -> list[str]:
    """What callfuse does about each call of the answer; empty where it passes."""
    return [one.found.partition(": callfuse uses ")[2] for one in checks[2:-1]]


@pytest.mark.parametrize(("kit", "stream"), ANSWERS, ids=lambda one: getattr(one, "name", one))
def test_an_answer_is_read(tmp_path: Path, kit: DialectKit, *, stream: bool) -> None:
    """Of every format, streamed and whole: the format and the calls; all is well, whatever they would meet."""
    said = saying(same_call("call_1"), new_call("call_2"))
    checks = explained(tmp_path, stream_of(kit, said) if stream else kit.whole(said))
    assert f" bytes: an answer of {kit.name}, {'streamed as ' if stream else 'whole'}" in checks[0].found
    assert checks[1].found == "2 complete calls"
    assert [one.found.replace('": ', '":').replace(', "', ',"') for one in checks[2:-1]] == [
        f"{call.name} {json.dumps(json.loads(call.arguments), separators=(',', ':'))} passes without being held"
        for call in said.calls()
    ]
    assert ({one.state for one in checks}, {one.area for one in checks}) == ({CheckState.OK}, {"answer"})


def test_an_answer_is_judged_by_the_settings(tmp_path: Path) -> None:
    """By what stands in it alone; a call without an end is no evidence, and a path says whose it is."""
    kit = KITS[0]
    equal = stream_of(kit, saying(*(new_call(f"call_{n}") for n in range(6))))
    assert met(explained(tmp_path, equal)) == ["", "", "", "", "", "block (repeat, 6 with a limit of 3)"]
    stream = stream_of(kit, saying(*(Call(f"call_{n}", "search", (f'{{"query": {n}}}',)) for n in range(3))))
    assert met(explained(tmp_path, stream)) == ["", "", ""]
    assert met(explained(tmp_path, stream, max_calls=2)) == ["", "", "steer (budget, 3 with a limit of 3)"]
    assert "no complete call; 1 incomplete, so not evidence" in explained(tmp_path, stream[:900])[1].found
    assert explained(tmp_path, stream, "/v1/messages")[0].area == "request"
