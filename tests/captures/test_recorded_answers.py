"""Real whole answers as `callfuse replay` reads them beside a request."""

import json

from callfuse.dialects import recognise_answer
from callfuse.offline.formats.messages import tokens_of
from tests.captures.recordings import Recording, some_recordings


@some_recordings(lambda one: one.form == "json")
def test_their_tokens_are_read(recording: Recording) -> None:
    """Each that has a usage names tokens, in whichever keys its vendor writes them."""
    answer = json.loads(recording.body)
    has_usage = recognise_answer(answer) is not None and b'"usage' in recording.body
    found = tokens_of(answer)
    assert (found is not None and found.total > 0) or not has_usage
