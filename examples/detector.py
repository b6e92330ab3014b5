"""Check before, record after: a detector in an agent whose model asks for several calls at once.

`python examples/detector.py`. The model is scripted: it reads two files and runs the tests, over and over, until a
block ends the run. Warnings come first: the mode is `graduated`.
"""

from callfuse import LoopDetection, LoopDetector, ToolCall

SOURCES = {"main.py": "import broken", "broken.py": "raise SystemExit"}
MAX_ROUNDS = 20


def model(turn: int) -> list[ToolCall]:
    """The calls of the model's next answer."""
    if turn % 2:
        return [ToolCall(f"call-{turn}", "run_tests", {})]
    return [ToolCall(f"call-{turn}-{path}", "read_file", {"path": path}) for path in SOURCES]


def run(call: ToolCall) -> str:
    """Run a tool."""
    return SOURCES[call.arguments["path"]] if call.name == "read_file" else "FAILED test_main"


def on_loop(found: LoopDetection) -> str | None:
    """Told of every detection before anything is done about it. The name of a rung would change what is done."""
    print(f"  {found.action}: {found.description}. {found.suggestion}")
    return None


def main() -> None:
    """Run the agent."""
    detector = LoopDetector({"tool_call_loop": {"mode": "graduated"}}, on_loop=on_loop)
    for turn in range(MAX_ROUNDS):
        calls = model(turn)
        print(f"round {turn + 1}: {', '.join(f'{call.name}({call.arguments})' for call in calls)}")
        found = detector.check_round(calls)
        if any(one is not None and one.action == "block" for one in found):
            break
        for call, one in zip(calls, found, strict=True):
            if one is not None and one.withholds:
                continue  # its result for the model would be one.message
            result = run(call)
            detector.record(result, call)
            if one is not None:
                result = f"{result}\n\n{one.message}"  # what the model would read
    stats = detector.stats
    print(f"{stats.calls} calls, {stats.detections} found: {stats.warnings} warnings, {stats.blocks} blocks")


if __name__ == "__main__":
    main()
