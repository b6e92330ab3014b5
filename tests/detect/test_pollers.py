"""Pollers: a stretch with one in it has five times the limits, for the kinds that spare them."""

import pytest

from callfuse.detect.cycle import Cycle
from callfuse.detect.no_news import NoNews
from callfuse.detect.pollers import polls
from callfuse.detect.repeat import Repeat, RepeatChanging
from callfuse.model import ToolCall
from callfuse.policy.settings import LoopSettings
from tests.detect.timelines import Rule

REPEAT = Rule(Repeat())


@pytest.mark.parametrize(
    ("tool", "waits"),
    [
        ("wait", True), ("wait_for_job", True), ("browser_wait", True), ("await_result", True), ("poll_queue", True),
        ("Sleep", True), ("get_job_status", True), ("get_task_status", True), ("write_stdin", True),
        ("BashOutput", True), ("TaskOutput", True), ("Monitor", True), ("ns.BashOutput", True), ("mcp__x__wait", True),
        ("git_status", False), ("status", False), ("get_status", False), ("get_order_status", False), ("bash", False),
        ("monitoring", False), ("output", False),
    ],
)  # fmt: skip
def test_by_name(tool: str, waits: bool) -> None:
    """Globs in any case, with a namespace or without; not what merely reads a status."""
    namespace, _, name = tool.rpartition(".")
    assert polls(ToolCall("1", name, "{}", namespace=namespace), LoopSettings()) is waits


@pytest.mark.parametrize(
    ("arguments", "waits"),
    [
        ('{"action": "poll"}', True),
        ({"action": "poll"}, True),
        ('{"action": "WAIT", "id": 3}', True),
        ('{"operation": "check_status"}', True),
        ('{"command": "sleep"}', True),
        ('{"command": "sleep 5"}', True),
        ('{"command": "sleep 300 && squeue"}', True),
        ('{"cmd": "squeue; sleep 10"}', True),
        ('{"script": "while true; do sleep 2; done"}', True),
        ('{"code": "!sleep 60\\n!cat log"}', True),
        ('{"code": "import time\\ntime.sleep(30)"}', True),
        ('{"command": ["bash", "-lc", "sleep 60; squeue"]}', True),
        ('{"command": ["sleep", "60"]}', True),
        ({"command": "bash -c 'sleep 60; squeue'"}, True),
        ('{"command": "Start-Sleep -Seconds 5"}', True),
        ('{"command": "sleep 60; grep ' + "x" * 1000 + '"}', True),
        ('{"command": "sleep 60; grep ' + "x" * 5000 + '"}', False),
        ('{"command": "grep sleep 5.log"}', False),
        ('{"command": "./sleep.sh 5"}', False),
        ('{"command": "cat > a.sh <<EOF\\nsleep 5\\nEOF"}', False),
        ('{"command": "sleep 0.2"}', False),
        ('{"command": "sleep .9; cat log"}', False),
        ('{"command": "sleep 1"}', True),
        ('{"command": "sleep 0.1m"}', True),
        ('{"command": "sleep $DELAY"}', True),
        ('{"command": "sleep \\"5\\""}', True),
        ('{"command": "sleep \\"0.5\\""}', False),
        ('{"command": "sleep infinity"}', True),
        ('{"command": "sleep 0.1; make; sleep 30"}', True),
        ('{"command": "while sleep 5; do squeue; done"}', True),
        ('{"command": "echo \'sleep 5\'"}', False),
        ('{"command": "git commit -m \'sleep 5\'"}', False),
        ('{"command": "git commit -m \\"sleep 5\\""}', False),
        ('{"command": "grep -rn \\"time.sleep(\\" src"}', False),
        ('{"command": "echo sleep 5"}', False),
        ('{"command": "echo a # sleep 5"}', False),
        ('{"command": "bash -c \'echo \\"sleep 5\\"\'"}', False),
        ("{\"command\": \"echo 'a' && bash -lc 'sleep 5'\"}", True),
        ("{\"command\": \"bash -lc 'make' && echo 'sleep 5'\"}", False),
        ('{"command": "ssh host \'sleep 5; squeue\'"}', True),
        ('{"command": "python3 -c \'import time; time.sleep(5)\'"}', True),
        ('{"command": "python3 -c \'import time; time.sleep(0.1)\'"}', False),
        ('{"command": ["git", "commit", "-m", "sleep 5"]}', False),
        ('{"command": ["echo", "sleep 5"]}', False),
        ('{"command": ["sleep", "0.5"]}', False),
        ('{"commands": ["make", "sleep 5"]}', True),
        ('{"code": "import time\\ntime.sleep(0.3)"}', False),
        ('{"code": "import time\\ntime.sleep(delay)"}', True),
        ('{"command": "Start-Sleep 0.5"}', False),
        ('{"command": "Start-Sleep -Milliseconds 200"}', False),
        ('{"command": "Start-Sleep -Milliseconds 2000"}', True),
        ('{"command": "Start-Sleep -s 5"}', True),
        ('{"query": "sleep 5"}', False),
        ('{"query": "poll"}', False),
        ('{"action": "list"}', False),
        ('{"action": ["poll"]}', False),
        ('{"inner": {"action": "poll"}}', False),
        ('["poll"]', False),
        ('{"action": "poll"', False),
        ('{"action": "poll", "text": "' + "x" * 500 + '"}', False),
        ('"{\\"action\\": \\"poll\\"}"', False),
        ("", False),
        (None, False),
    ],
)
def test_by_an_argument(arguments: object, waits: bool) -> None:
    """That says what to do, of arguments that are short."""
    assert polls(ToolCall("1", "process", arguments), LoopSettings()) is waits


@pytest.mark.parametrize(
    ("word", "calls"),
    [("wait=x", 15), ("a@=x", 15), ("a=~x", 15), ("a=^x", 15), ("a=x", 3), ("a=!x", 3)],
)
def test_five_times_the_limits(word: str, calls: int) -> None:
    """By its name, by its argument, by what came back: still running, or a cause outside. Hard at twice that."""
    pending = word.partition("=")[0]
    for before in (calls - 2, calls - 1, 2 * calls - 2, 2 * calls - 1):
        finding = REPEAT.found(*[word] * before, pending=pending)
        assert (finding.count if finding else 0) == (before + 1 if before + 1 >= calls else 0)
        assert finding is None or (finding.threshold, finding.hard) == (calls, before + 1 >= 2 * calls)


def test_one_in_the_stretch_is_enough() -> None:
    """Wherever it stands; one before the stretch is none of it."""
    assert Rule(NoNews()).count("a=x", "wait=x", "a=x", "wait=x", "a=x", "a=x") == 0
    assert Rule(NoNews()).count("wait=x", "a=x", "b=x", "a=x", "b=x", "a=x") == 4
    assert Rule(Cycle()).count("a=x", "wait=x", "a=x", pending="wait") == 0
    assert Rule(Cycle()).count(*["a=x", "wait=x"] * 9, "a=x", pending="wait") == 10
    assert Rule(Cycle()).count("-a@=x", "b=x", "a@=x", pending="b") == 0  # only the later one tells
    assert Rule(Cycle()).count("-a@=x", "b=x", "-a@=x", pending="b") == 2
    assert Rule(RepeatChanging()).count("a=~x", *[f"a={letter}" for letter in "uvwxyz"]) == 0


def test_the_factor_and_the_names_are_settings() -> None:
    """One tool may be said to be one, or not to be."""
    assert REPEAT.count("wait=x", "wait=x", pending="wait", poll_factor=1) == 3
    assert REPEAT.count("wait=x", "wait=x", pending="wait", per_tool={"wait": {"poller": False}}) == 3
    assert REPEAT.count("wait=x", "wait=x", pending="wait", pollers=[]) == 3
    assert REPEAT.count("a=x", "a=x", per_tool={"a": {"poller": True}}) == 0
    assert REPEAT.count("a=x", "a=x", pollers=["A"]) == 0


def test_what_came_of_a_pending_call_is_not_known_yet() -> None:
    """A recording may hold it; it changes nothing."""
    assert REPEAT.count("a=x", "a=x", pending="a=~x") == 3
