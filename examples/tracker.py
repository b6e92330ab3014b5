"""A yes or a no for each call, in an agent loop of your own: `python examples/tracker.py`.

The model is scripted: it asks for the same search until it is told that the search is not run any more.
"""

import json

from callfuse import ToolCallTracker


def model(messages: list[str]) -> tuple[str, str] | None:
    """The next call, as tool name and arguments, or None where the answer would come."""
    if messages and messages[-1].startswith("[callfuse]"):
        return None
    return "search_web", '{"query": "population of France 2023"}'


def search_web(query: str) -> str:
    """A tool that finds nothing."""
    return f"no results for {query}"


def main() -> None:
    """Run the agent."""
    tracker = ToolCallTracker({"tool_call_loop": {"mode": "chance_then_block", "max_repeats": 3}})
    messages: list[str] = []
    while (call := model(messages)) is not None:
        name, arguments = call
        blocked, reason, count = tracker.track_tool_call(name, arguments)
        if blocked:
            result = reason or ""
        else:
            result = search_web(**json.loads(arguments))
            if late := tracker.record_result(result):
                reason = late
            result = f"{result}\n\n{reason}" if reason else result
        print(f"call {count} of {name}: {'not run' if blocked else 'run'}: {result.splitlines()[0]}")
        messages.append(result)
    print(f"answer after {tracker.detector.stats.calls} calls, {tracker.detector.stats.steers} of them not run")


if __name__ == "__main__":
    main()
