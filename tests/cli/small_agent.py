"""An agent as a program of its own: it asks the model of a variable's base URL until that makes no more calls.

    python small_agent.py VARIABLE TURNS [CODE]

It prints the model's last text, and exits with CODE. After TURNS answers it stops with the calls of the last one open.
"""

import json
import os
import sys
import urllib.request
from typing import Any

TOOL = {"type": "function", "function": {"name": "search", "parameters": {"type": "object"}}}


def ask(messages: list[Any]) -> Any:
    """The model's next message."""
    body = json.dumps({"model": "m", "messages": messages, "tools": [TOOL]}).encode()
    url = os.environ[sys.argv[1]] + "/chat/completions"
    request = urllib.request.Request(url, body, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["choices"][0]["message"]


def main() -> None:
    """One run."""
    messages: list[Any] = [{"role": "user", "content": "Find it."}]
    for _ in range(int(sys.argv[2])):
        said = ask(messages)
        messages.append(said)
        if not said.get("tool_calls"):
            print(said["content"])
            break
        messages += [{"role": "tool", "tool_call_id": one["id"], "content": "none"} for one in said["tool_calls"]]
    sys.exit(int(sys.argv[3]) if len(sys.argv) > 3 else 0)


if __name__ == "__main__":
    main()
