"""Remove the escape sequences of terminals from the text of a result before its words are read."""

import re
from typing import Final

_ESCAPES: Final = re.compile(
    r"\x1b(?:\[[0-?]*+[ -/]*+[@-~]"  # CSI: colours, cursor
    r"|\][^\x07\x1b\n]*+(?:\x07|\x1b\\)"  # OSC: titles, links; unterminated ones are not searched to the end
    r"|[@-_])"
)
_END: Final = 32 * 1024
"""How many characters at each end of a longer text are kept: words are not searched beyond them."""


def strip_escapes(text: str) -> str:
    """Return a text without escape sequences; a long text that has some is cut to its ends."""
    if "\x1b" not in text:
        return text
    if len(text) > 2 * _END:
        text = f"{text[:_END]}\n{text[-_END:]}"
    return _ESCAPES.sub("", text)
