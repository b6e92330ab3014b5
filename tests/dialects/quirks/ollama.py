"""Lines of Ollama's, as its own tests do not have them right through the middleware."""

import json
from typing import Any

from tests.dialects.quirks import ZEBRA, Quirk


def line(*calls: dict[str, Any], done: bool = False, **message: Any) -> bytes:
    """A line of Ollama's."""
    said = {"role": "assistant", "content": "", **message, **({"tool_calls": list(calls)} if calls else {})}
    return json.dumps({"model": "m", "message": said, "done": done}).encode() + b"\n"


QUIRKS = [
    Quirk(
        "thinking before the call",
        line(thinking="Hm.") + line({"function": {"name": "search", "arguments": {"query": "zebra"}}})
        + line(done=True),
        [(0, "", "search", ZEBRA)],
        kept=b'"thinking": "Hm."',
        form="ndjson",
    ),
    Quirk(
        "the first call without index, the second with index 1",
        line({"function": {"name": "search", "arguments": {"query": "zebra"}}})
        + line({"function": {"index": 1, "name": "lookup", "arguments": {}}}) + line(done=True),
        [(0, "", "search", ZEBRA), (0, "", "lookup", "{}")],
        form="ndjson",
    ),
]  # fmt: skip
