"""A text of callfuse's put behind a tool's result, whatever the result is."""

from collections.abc import Mapping
from typing import Any, Final

from callfuse.inprocess.values import shown
from callfuse.model import MARKER

_KEY: Final = MARKER.strip("[]")


def attached(result: Any, text: str) -> Any:
    """The result with the text, its own shape kept where that has room for one.

    Text: behind a blank line. A mapping: under the key `callfuse`. A list of content parts (objects with a `type`): as
    one more part. Anything else becomes text: its JSON, and the text behind it. The result itself stays as it is.
    """
    if isinstance(result, Mapping):
        return {**result, _KEY: text}
    if isinstance(result, list) and result and all(isinstance(part, dict) and "type" in part for part in result):
        return [*result, {"type": "text", "text": text}]
    return text if result is None or result == "" else f"{shown(result)}\n\n{text}"
