"""A coding agent as pages start one: it runs `Bash` as often as its model asks for it, which never listens.

python agent.py VARIABLE [ARGUMENTS]
"""

import json
import os
import sys
import urllib.request
from typing import Any

TOOL = {"type": "function", "function": {"name": "Bash", "parameters": {"type": "object"}}}
SESSION = "ab95559b-2599-4f4e-be44-91a0e1c53b6d"


def ask(messages: list[Any]) -> Any:
    """The model's next message."""
    body = json.dumps({"model": "stubborn", "messages": messages, "tools": [TOOL]}).encode()
    headers = {"content-type": "application/json", "x-session-id": SESSION}
    request = urllib.request.Request(f"{os.environ[sys.argv[1]]}/chat/completions", body, headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)["choices"][0]["message"]


def main() -> None:
    """One run."""
    messages: list[Any] = [{"role": "user", "content": " ".join(sys.argv[2:])}]
    for _ in range(20):
        messages.append(ask(messages))
        calls = messages[-1].get("tool_calls") or ()
        if not calls:
            print(messages[-1]["content"])
            return
        messages += [{"role": "tool", "tool_call_id": one["id"], "content": "notes.txt"} for one in calls]


if __name__ == "__main__":
    main()
