"""A result of twice the length is twice the work, whatever a page or a file writes into it.

The regular expressions are counted in `tests/project/test_linear.py`; here all the rest: the lines of Python.
"""

import json
from functools import partial

import pytest

from callfuse.harness import MARKER, is_automatic, is_placeholder, is_tool_report, strip_additions, typed_starts
from callfuse.model.outcomes import is_failure, outcome_of
from callfuse.model.secrets import star_secrets
from callfuse.model.signature import signature_of
from tests.support.work import lines_run

REPEATED = [
    "\\u001b]",
    "\x1b]",
    "<system-reminder>",
    "</system-reminder>",
    "<system-reminder>x</system-reminder>\n",
    f"\n\n{MARKER} ",
    "exit code 1\n",
    "Wall time: 1\n",
    "<a>",
    "</a",
    "0a-",
    "a b ",
    "\n",
    " ",
    '\\"',
    "[",
    '{"a":',
    "token=",
    "1",
    "a",
    "-",
    ".",
    "0.",
    "0a",
    "a0",
    "0-",
    "0:",
    "0s ",
    "deadbee1",
    "abcdef01-",
    "\x1b[1;",
    "'",
    "a/",
    "Error: '",
    "word: ",
    "Traceback (most recent call last)\n",
    '"pid": 1, ',
    "elapsed=1 ",
    "Nov 1 10:00:05 ",
    "1:",
    "=",
    "status: pending ",
    "0/3 ",
    "sleep 1; ",
]
TIMES = 300


def read_all(text: str) -> None:
    """Read a text as everything that may be foreign is read."""
    for content in (text, json.dumps({"output": text}), [{"type": "text", "text": text}]):
        for flag in (None, True):
            outcome_of(content, flag)
            is_failure(content, flag)
    for read in (is_automatic, is_placeholder, is_tool_report, strip_additions, star_secrets):
        read(text)
    typed_starts([text])
    signature_of("tool", text)


@pytest.mark.slow
@pytest.mark.parametrize("end", ["", "!", "</system-reminder>"])
@pytest.mark.parametrize("repeated", REPEATED)
def test_work_grows_with_the_length(repeated: str, end: str) -> None:
    """At most; most results are read at their ends only."""
    once, twice = (lines_run(partial(read_all, repeated * times + end)) for times in (TIMES, 2 * TIMES))
    assert twice < 2.2 * once
