"""Read callfuse's own format: runs as lists of calls, `{"id", "source", "model", "success", "calls": [...]}`.

A record is one run. It may have `tools`: the names, or the declarations, of all available tools. A call has `name` and
`arguments` (JSON text, or the value), and may have `turn` (calls with the same number are one round), `user_turn` (the
number of the user message before it), `result`, `is_error` and `id`. Cut results are compared by `result_norm_sha1`, a
digest of the whole result without times and digits. A result is cut unless its text matches `result_sha1`, the whole
result's SHA-1 in hex, or its first digits; without that digest it counts as cut, too.
"""

from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha1
from typing import Any, Final

from callfuse.config.wording import format_value
from callfuse.dialects.declared import all_names, name_of
from callfuse.model import PastCall, Result, Round, ToolCall
from callfuse.model.outcomes import Outcome, OutcomeKind
from callfuse.offline.runs import BadRecord, RecordedRun, kind_of, label_of

_NUMBER: Final = (int, type(None))
_FLAG: Final = (bool, type(None))
_TEXT: Final = (str, type(None))


class RecordedCall(PastCall):
    """A call whose recorded result is cut. `digest`: that of the whole result."""

    __slots__ = ("_digest",)

    def __init__(self, call: ToolCall, result: Result, digest: bytes) -> None:
        super().__init__(call, result)
        self._digest = digest

    @property
    def outcome(self) -> Outcome | None:
        """The outcome: classified by the cut text, compared by the digest of the whole result."""
        if self._outcome is None and (seen := super().outcome) is not None:
            digest = self._digest + (b"error" if seen.kind is OutcomeKind.ERROR else b"")
            self._outcome = replace(seen, digest=digest)
        return self._outcome


def accepts(record: Any) -> bool:
    """Whether a record has a list of calls."""
    return isinstance(record, dict) and isinstance(record.get("calls"), list)


def read(record: Any, text: bytes) -> Iterator[RecordedRun]:
    """Yield the run of a record."""
    label = label_of(record)
    turns: list[list[list[PastCall]]] = []
    before: tuple[Any, Any] | None = None
    for number, call in enumerate(record["calls"], 1):
        _check(number - 1, call)
        user_turn, turn = call.get("user_turn"), call.get("turn")
        if before is None or user_turn != before[0]:
            turns.append([[]])
        elif turn is None or turn != before[1]:
            turns[-1].append([])
        turns[-1][-1].append(_call(call, number))
        before = user_turn, turn
    rounds = [[Round(tuple(calls), position) for position, calls in enumerate(of_turn)] for of_turn in turns]
    yield RecordedRun(label.id, label.source, label.model, label.success, rounds, _tools(record.get("tools")))


def _tools(listed: Any) -> frozenset[str] | None:
    """Return the names of all tools; None if the record does not list them all. Raises BadRecord for a value of another
    shape."""
    if not isinstance(listed, list | None):
        raise BadRecord(f"tools is {kind_of(listed)}; use a list of names or of declarations")
    for at, one in enumerate(listed or ()):
        if not isinstance(one, str | dict):
            raise BadRecord(f"tools[{at}] is {kind_of(one)}; use a name or a declaration")
    return all_names(name for one in listed or () for name in _names_of(one))


def _names_of(tool: str | dict[str, Any]) -> Iterator[Any]:
    """Yield the names in an entry of a list of tools, in the format of any vendor; None if it has none."""
    if isinstance(tool, str):
        yield tool
    elif isinstance(declarations := tool.get("functionDeclarations"), list):
        yield from map(name_of, declarations)
    else:
        yield name_of(tool) or name_of(tool.get("function")) or name_of(tool.get("toolSpec"))


def _check(at: int, call: Any) -> None:
    """Raise BadRecord if a value is not a call."""
    if not isinstance(call, dict):
        raise BadRecord(f"calls[{at}] is {kind_of(call)}; use an object")
    if not isinstance(call.get("name"), str):
        raise BadRecord(f"calls[{at}].name = {format_value(call.get('name'))}: use a text")
    for key in ("turn", "user_turn"):
        value = call.get(key)
        if not isinstance(value, _NUMBER):
            raise BadRecord(f"calls[{at}].{key} = {format_value(value)}: use a whole number")
    if not isinstance(call.get("is_error"), _FLAG):
        raise BadRecord(f"calls[{at}].is_error = {format_value(call['is_error'])}: use true, false or null")
    for key in ("result_sha1", "result_norm_sha1"):
        if not isinstance(call.get(key), _TEXT):
            raise BadRecord(f"calls[{at}].{key} = {format_value(call[key])}: use a text")


def _call(call: dict[str, Any], number: int) -> PastCall:
    """Return a call with its result. Without an id it is named by its number in the run."""
    id_ = str(call.get("id") or f"#{number}")
    made = ToolCall(id_, call["name"], call.get("arguments", ""))
    content = call.get("result")
    # A false `is_error` is ignored, because the middleware would classify the text.
    failed = call.get("is_error") or None
    if (digest := call.get("result_norm_sha1")) and not _is_whole(content, call.get("result_sha1")):
        return RecordedCall(made, Result(content, failed), digest.encode())
    return PastCall(made, None if content is None else Result(content, failed))


def _is_whole(content: Any, digest: str | None) -> bool:
    """Whether a result is the whole recorded text, judged by its digest."""
    if not digest or not isinstance(content, str):
        return False
    own = sha1(content.encode("utf-8", "surrogatepass"), usedforsecurity=False).hexdigest()
    return own.startswith(digest.lower())
