"""Read the status of a result from its words: error, no data, still running.

Tools word a status in many ways, so the rules are tables: beginnings of errors, wordings of emptiness, keys of objects.
Only the beginning and the end of a text are searched. JSON inside a text is parsed and read as a value, and so is JSON
inside that value.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple

from callfuse.model.outcomes.escapes import strip_escapes
from callfuse.wire.jsontext import NotJSON, loads
from callfuse.wire.values import is_too_much_inside

HEAD: Final = 400
TAIL: Final = 300
"""How many characters at the beginning and at the end of a text are searched."""

MAX_DEPTH: Final = 12
"""How many levels of nested objects, lists and JSON texts are read."""

_MAX_EMPTY_LENGTH: Final = 600
"""Characters; a longer text is not empty, whatever its words."""


class ResultStatus(NamedTuple):
    """The status that a result reports. `empty`: it has no data; `pending`: the work still runs."""

    error: bool = False
    empty: bool = False
    pending: bool = False


_NOTHING: Final = ResultStatus(empty=True)
_SOMETHING: Final = ResultStatus()

_ERROR = re.compile(
    r"\W*+(?:"
    r"(?:\w+ |[\w.]+)?(?:error|exception)\b\s?(?:\[\w+\]|\(\w+\)|-?\d+)?+\s?(?:[:!\]>\n]|-\s|$)"  # ValueError:
    r"|(?:error|exception)['\"]:\s?(?!\W{0,3}(?:null|none|false|0)\b|['\"]{2}|\[\]|\{\})"  # {'error': 'no such key'}
    r"|error (?:at|code|during|from|in|when|while|\d+|(?!handling|logging|reporting|checking)[a-z]{3,12}ing)\b"
    r"|an? (?:\w+ ){0,2}(?:error|exception) (?:has|occurred|was)\b"
    r"|traceback \(most recent call last|(?:fatal|panic|critical|failure)(?: error)?:"
    r"|(?:\w+ ){0,4}?failed\b(?: (?:after|because|due|for|to|with)\b|\s?[:,.!(-]|\s*$)"
    r"|(?:cannot|can't|could not|couldn't|unable to) [a-z]+"
    r"|(?:invalid|missing|missing required|unknown|unrecognized|unsupported) (?:\w+ ){0,2}?"
    r"(?:argument|command|field|format|function|id|input|key|option|parameter|path|tool|type|value)s?\b"
    r"|no such (?:column|command|directory|file|function|key|method|table|tool)\b"
    r"|(?:the )?(?:command|directory|file|function|key|module|page|path|resource|table|tool|user)\b[^\n]{0,120}? "
    r"(?:(?:was )?not found|not available|(?:does not|doesn't) exist|not recognized)\b"
    r"|\S+ is not a (?:known|recognized|valid) (?:command|function|tool)\b"
    r"|(?:the arguments provided to the tool are invalid: )?model tried to call unavailable tool\b|unknown action \S"
    r"|unsupported (?:custom tool )?call: \S|there is no (?:tool|function) \S"
    r"|no (?:tool|function) (?:called|named|(?:found )?with name) \S"
    r"|(?:action|function|tool) \S{1,80} (?:don't exist|is not (?:a (?:known|valid) |in the list of )(?:tool|function))"
    r"|(?:\w+ ){0,3}timed out\b"
    r"|(?:(?:http|status|code)\S{0,8}\s?){1,3}[45]\d\d\b|[45]\d\d (?-i:[A-Z])[a-z]+"
    r"|(?:rate.?limit(?:ed| exceeded| reached)|too many requests|service unavailable|bad gateway|unauthorized)\b"
    r"|(?:(?:\w+ )?time-?out|(?:\w+ ){0,3}overloaded|connection refused|(?:api )?rate.?limit)\W*$|curl: \(\d+\)"
    r"|(?:permission|access) (?:was )?denied|(?:\w+ )?requested permissions? to\b"
    r"|(?:the )?(?:user|operator|human) (?:has )?(?:cancell?ed|declined|denied|refused|rejected|doesn't want)\b"
    r"|(?:action|command|operation|permission|request|tool)\b[^\n]{0,60}? (?:declined|denied|rejected)\b"
    r"|(?:\S*/)?-?(?:ba|da|k|z)?sh: "  # a shell complains
    r")",
    re.IGNORECASE,
)
_COMPLAINER = re.compile(r"[^\s:]{1,40}: ")
_COMPLAINTS: Final = (
    "no such file or directory",
    "permission denied",
    "syntax error",
    "illegal option",
    "invalid option",
    "unrecognized option",
    "connection refused",
    ": not found",
    ": command not found",
    ": is a directory",
    ": not a directory",
)
"""Complaints of commands, after the command's name: `cat: nowhere: No such file or directory`."""
_KILLED: Final = ("The last command <command>", "</command> timed out and has been killed")
"""The text of mini-SWE-agent for a command that ran for too long."""
_MAX_COMMAND: Final = 4000
_EXIT_PHRASES: Final = ("exit code", "exit_code", "exit status", "exitcode", "exited with", "return code", "returncode")
"""A text with an exit code contains one of these; checked first, because the pattern costs more."""
_EXITED = (
    r"(?:shell[iI]d: [\w.-]{1,64} )?"  # GitHub Copilot CLI
    r"(?:\w+ ){0,5}?(?:exit(?:ed)?(?: with)?[ _](?:code|status)|exitcode|return ?code)\W{1,4}(-?\d{1,10})"
)
_EXIT_CODE = re.compile(rf"(?:^|\. )\W{{0,2}}{_EXITED}(?=\W*$|:|<|\))", re.MULTILINE)
_FRAME = re.compile(
    r"^\W{0,2}(?:"
    rf"{_EXITED}\W*"
    r"|(\w+)>-?\d+</\2>|/?[\w-]+>"  # mini-SWE-agent
    r"|(?:chunk id|wall time|original token count|total output lines|process (?:exited|running|group))\b.*"  # Codex
    r"|(?:command|directory|background pids): .*"  # Gemini CLI
    r"|(?:output|stdout|stderr|error|signal):?(?: \((?:empty|none)\))?"
    r"|(?:current working directory|python interpreter): .*"  # OpenHands
    r")$",
    re.IGNORECASE | re.MULTILINE,
)
"""The lines that harnesses put around the output of a command."""

_THINGS = (
    r"(?:changes|content|data|documents?|entr(?:y|ies)|events?|files?|hits?|items?|lines?|logs?|match(?:es)?|messages?"
    r"|objects?|occurrences?|output|pages?|records?|response|results?|rows?|tickets?|values?)"
)
_NO_DATA = re.compile(
    r"[\s\[\](){}<>\"'`*.,:-]{0,20}(?:"
    r"null|none|nil|undefined|n/a|empty(?: \w+)?"
    rf"|(?:(?:found|returned|total|count)\W{{1,2}})?(?:no|0|zero) (?:[\w-]+ ){{0,3}}?{_THINGS}\b"
    r"(?: (?:were |was |are |is )?(?:available|found|matched|produced|returned|yet))?"
    r"(?: (?:at|for|from|in|matching|on|under|with) .{0,200})?"
    r"|(?:total|count)\W{1,3}0"
    r"|(?:not|nothing|none) (?:was |were )?(?:found|matched|returned)"
    r"|(?:[\w']+ ){1,6}?(?:with no|without(?: any)?|produced no|did not produce any|returned no) "
    rf"{_THINGS}(?: or errors?)?"
    r"|(?:[\w']+[ :]+){1,8}(?:is|are) (?:currently )?empty"
    r")?[\s\[\](){}<>\"'`*.,:!/-]{0,20}",
    re.IGNORECASE,
)
_RUNNING_PHRASES: Final = (
    "still running",
    "still in progress",
    "still processing",
    "process running with session id",  # Codex
    "<status>running</status>",  # Claude Code
    "has no new output after",  # OpenHands
    "not finished yet",
    "not ready yet",
    "not yet complete",
    "not yet finished",
    "not yet ready",
    "has not completed",
    "has not finished",
    "could not get lock",  # apt
    "waiting for cache lock",
    "waiting for file lock",  # cargo
    "is held by process",
)

_STATE: Final = (
    r"(?:building|compiling|container ?creating|in[ _-]progress|initializing|not[ _-](?:yet[ _-])?ready|pending"
    r"|pod ?initializing|processing|queued|running|scheduled|starting|waiting)"
)
_AWAITED: Final = (
    r"(?:agents?|approvals?|builds?|capacity|deployments?|executors?|jobs?|locks?|machines?|nodes?|pipelines?|pods?"
    r"|quota|replicas|resources?|reviews?|rollout|runners?|slots?|workers?)"
)
"""What work may wait for that comes without the caller; not input, for example."""
_TENSE: Final = r"(?:(?:already|being|currently|just|now|still|yet) ){0,2}"
_WAITING = re.compile(
    rf"\A\W{{0,12}}{_STATE}\W{{0,12}}\Z"  # the only words
    r"|(?:\b(?:is|are|remains?|stays?|still|currently|now|status|state|phase)|[:=>|\t]"
    r"|\b(?:build|deployment|job|operation|pipeline|run|task)(?: [#\w-]{1,40})?)"
    rf"[ \"'*`\[(]{{0,4}}{_TENSE}{_STATE}"
    r"(?=[\"'*`\])]{0,3}(?:\s{0,4}\Z|[.,;!|<\n\t(]|  |…| (?:\(|\d|-|since|for \d|and will|please|try again|check)))"
    rf"|(?:\n|  |\t|\| ?){_STATE}(?=  |\t| ?\||\n|\s{{0,4}}\Z)"  # a column of a table
    r"|(?:\A\W{0,4}|[:=] ?[\"']?)0/[1-9]\d{0,5}(?=\W{0,4}\Z|[\"',;}\n])"
    r"|\b0/[1-9]\d{0,5} (?:\w+ ){0,3}?(?:available|complete|completed|done|finished|ready|running|up)\b"
    r"|\b(?:completed|done|finished|progress|ready|running)\W{1,3}0/[1-9]"
    r"|\b0(?:/| of )[1-9]\d{0,5} (?:\w+ ){0,2}?(?:containers|instances|nodes|pods|replicas|tasks)\b"
    rf"|\b(?:waiting for|awaiting) (?:[\w-]+ ){{0,3}}?{_AWAITED}\b",
    re.IGNORECASE,
)
"""The state of work in progress, as the only word, at the end of a sentence, as a field, or in a column; or what it
waits for."""
_WAITING_WORDS: Final = (
    "building", "compiling", "creating", "initializing", "progress", "ready", "pending", "processing", "queued",
    "running", "scheduled", "starting", "waiting", "0/", "0 of",
)  # fmt: skip
"""A waiting text contains one of these; checked first, because the pattern costs more."""
_MAX_STATE_LENGTH: Final = 300
"""A state word counts only in a result of at most so many characters; longer ones are about more than a state."""
_KUBECTL_COLUMNS: Final = frozenset({"COMPLETIONS", "READY", "STATUS"})
"""A table of `kubectl get` that says whether things are ready has one of these columns, beside `NAME` and `AGE`."""
_NOT_YET_UP = re.compile(
    r" (?:Pending|ContainerCreating|PodInitializing|Init:\d+/\d+|Terminating) "
    r"| 0/[1-9]\d{0,5} +(?:Running\b|\d)"
)
"""A thing in such a table that is starting or ending; not a container that crashes again and again."""
_MAX_TABLE: Final = 16 * 1024
"""How many characters of such a table are searched."""
_GITHUB_RUN = re.compile(r"^\* [^\n]{1,200}\nTriggered via ", re.MULTILINE)
"""The beginning of the output of `gh run view` for a run that is not complete."""

_ERROR_KEYS: Final = ("error", "isError", "is_error", "exception", "error_message", "errorMessage")
_EXIT_KEYS: Final = ("exit_code", "exitCode", "exit_status", "returncode", "return_code", "returnCode")
_HTTP_KEYS: Final = ("status", "status_code", "statusCode")
_FAILED: Final = frozenset(("denied", "error", "errored", "exception", "fail", "failed", "failure"))
_RUNNING: Final = frozenset((
    "building", "compiling", "containercreating", "deploying", "in_progress", "in-progress", "initializing",
    "not_ready", "podinitializing", "processing", "provisioning", "queued", "running", "starting", "still_running",
    "waiting",
))  # fmt: skip
_AWAITS = re.compile(rf"(?:waiting_for|awaiting)_(?:[a-z]+_){{0,3}}?{_AWAITED}")
"""A state that names what the work waits for."""
_MAYBE_RUNNING: Final = frozenset(("pending", "scheduled", "started", "submitted"))
"""States of jobs, but also of orders: they count if the object has a key of `_PROGRESS`, or few keys."""
_PROGRESS: Final = frozenset(("elapsed", "eta", "job_id", "percent", "poll_after", "progress", "retry_after", "run_id"))
_FEW_KEYS: Final = 4
_STATE_KEYS: Final = frozenset(("phase", "state", "status"))
"""Last words of keys whose value is a state."""
_WORK: Final = frozenset(("batch", "build", "deployment", "execution", "job", "pipeline", "run", "task", "workflow"))
"""Words for work that ends by itself; engines and servers, for example, keep running."""
_CAMEL = re.compile(r"(?<=[a-z])(?=[A-Z])")
_NOT_BEGUN = re.compile(r"0/[1-9]\d{0,5}(?: (?:ready|done|complete|completed|available))?")
_MAX_STATE_WORD: Final = 40
_EMPTY_STATES: Final = frozenset(("empty", "no_content", "no_data", "no_results", "not_found", "success_no_data"))
_WRAPPERS: Final = frozenset(("content", "json", "metadata", "outcome", "output", "response", "result", "text"))
"""Last words of keys that wrap a whole result, whose own status counts."""
_PAYLOAD: Final = _WRAPPERS | frozenset((
    "data", "documents", "entries", "files", "hits", "items", "list", "matches", "messages", "objects", "records",
    "results", "rows", "stdout", "values",
))  # fmt: skip
"""Last words of keys that contain the data a tool was asked for."""
_SIDE_KEYS: Final = frozenset(("filters", "meta", "pagination", "params", "query", "request", "usage"))
_COUNTS: Final = frozenset(("count", "num_results", "total", "total_count", "total_results"))


def read_text(text: str, depth: int = 0) -> ResultStatus:
    """Read the status of a text; a JSON text is read as its value."""
    text = strip_escapes(text).strip()
    if not text:
        return _NOTHING
    value = parse_container(text) if depth < MAX_DEPTH else None
    return _read_prose(text) if value is None else read_value(value, depth + 1)


def read_value(value: Any, depth: int = 0) -> ResultStatus:
    """Read the status of a value: of an object by its keys, of a wrapper by its content."""
    if value is None:
        return _NOTHING
    if isinstance(value, str):
        return read_text(value, depth)
    if depth < MAX_DEPTH and isinstance(value, dict):
        return _read_object(value, depth)
    if depth < MAX_DEPTH and isinstance(value, list) and len(value) <= 2:
        return combine(read_value(item, depth + 1) for item in value)
    return _SOMETHING


def reports_error(value: Any, depth: int = 0) -> bool:
    """Whether `read_text` or `read_value` would find an error, but cheaper."""
    if isinstance(value, str):
        text = strip_escapes(value).strip()
        inner = parse_container(text) if depth < MAX_DEPTH else None
        if inner is not None:
            return reports_error(inner, depth + 1)
        return bool(text) and _is_failure_text(text, exit_code(edges(text).lower()))
    if depth < MAX_DEPTH and isinstance(value, dict):
        return _has_error(value) or any(
            reports_error(item, depth + 1) for key, item in value.items() if _last_word(key) in _WRAPPERS
        )
    if depth < MAX_DEPTH and isinstance(value, list) and len(value) <= 2:
        return any(reports_error(item, depth + 1) for item in value)
    return False


def combine(readings: Iterable[ResultStatus]) -> ResultStatus:
    """Combine the parts of one result: an error or pending if one is, empty if all are."""
    found = list(readings)
    return ResultStatus(
        error=any(one.error for one in found),
        empty=all(one.empty for one in found),
        pending=any(one.pending for one in found),
    )


def parse_container(text: str) -> Any:
    """Parse a stripped text that is a JSON object or list; None for other texts, and for one that is too much."""
    if text[:1] not in ("{", "[") or text[-1] not in "}]" or is_too_much_inside(text):
        return None
    try:
        return loads(text)
    except NotJSON:
        return None


def edges(text: str) -> str:
    """Return the beginning and the end of a text, where words are searched; a short text unchanged."""
    text = strip_escapes(text)
    return text if len(text) <= HEAD + TAIL else f"{text[:HEAD]}\n{text[-TAIL:]}"


def exit_code(seen: str) -> int | None:
    """Find the exit code in the lower-case edges of a text; None if there is none."""
    if not ("exit" in seen or "return" in seen):  # each phrase contains one of these
        return None
    found = _EXIT_CODE.search(seen) if any(words in seen for words in _EXIT_PHRASES) else None
    return int(found[1]) if found else None


def strip_frame(text: str) -> str:
    """Remove the lines that harnesses put around the output of a command."""
    return _FRAME.sub("", text).strip()


def _is_failure_text(text: str, code: int | None) -> bool:
    """Whether a text reports a failure: by its exit code if it has one, else by its beginning."""
    if code is not None:
        return code != 0
    if text.startswith(_KILLED[0]) and _KILLED[1] in text[:_MAX_COMMAND]:
        return True
    body = strip_frame(text) if text[0] == "<" and len(text) <= _MAX_EMPTY_LENGTH else text
    return _ERROR.match(body, 0, HEAD) is not None or _is_complaint(body[:HEAD])


def _is_complaint(text: str) -> bool:
    """Whether a text begins with the complaint of a command: its name, a colon, one of `_COMPLAINTS`. Also whether ssh
    says, anywhere in the text, that no key is accepted."""
    if "ermission denied (publickey" in text:
        return True
    if (named := _COMPLAINER.match(text)) is None:
        return False
    line = text[named.end() :].partition("\n")[0].lower()
    return line.startswith("cannot ") or True in [words in line for words in _COMPLAINTS]


def _read_prose(text: str) -> ResultStatus:
    seen = edges(text).lower()
    code = exit_code(seen)
    short = len(text) <= _MAX_EMPTY_LENGTH
    body = strip_frame(text) if short and (code is not None or text[0] == "<") else text
    return ResultStatus(
        error=_is_failure_text(text, code),
        empty=short and _NO_DATA.fullmatch(body) is not None,
        pending=True in [words in seen for words in _RUNNING_PHRASES] or _is_waiting(text, seen),
    )


def _is_waiting(text: str, seen: str) -> bool:
    """Whether a short text says that work is in progress, by a state word; `seen` are its lower-case edges. A table of
    `kubectl` and the output of `gh run view` may be longer."""
    if text.startswith("NAME") and _is_of_kubectl(text.partition("\n")[0].split()):
        return _NOT_YET_UP.search(text, 0, _MAX_TABLE) is not None
    if "Triggered via " in text[:HEAD] and _GITHUB_RUN.search(text, 0, HEAD):
        return True
    if len(text) > _MAX_STATE_LENGTH or True not in [words in seen for words in _WAITING_WORDS]:
        return False
    if seen.count("\n") >= _FEW_KEYS and seen.count(": ") > _FEW_KEYS:  # an object, line by line
        return False
    return _WAITING.search(seen) is not None


def _is_of_kubectl(columns: Sequence[str]) -> bool:
    return {"NAME", "AGE"}.issubset(columns) and not _KUBECTL_COLUMNS.isdisjoint(columns)


def _read_object(value: dict[str, Any], depth: int) -> ResultStatus:
    ends = {key: _last_word(key) for key in value}
    inside = {
        key: read_value(value[key], depth + 1)
        for key, end in ends.items()
        if end in _PAYLOAD and isinstance(value[key], str | dict | list | None)
    }
    wrapped = [reading for key, reading in inside.items() if ends[key] in _WRAPPERS]
    return ResultStatus(
        error=_has_error(value) or any(one.error for one in wrapped),
        empty=_is_empty(value, ends, inside),
        pending=_is_pending(value) or any(one.pending for one in wrapped),
    )


def _last_word(key: str) -> str:
    return key.lower().rpartition("_")[2]


def _has_error(value: dict[str, Any]) -> bool:
    if any(isinstance(said := value.get(key), str | dict | list | bool) and said for key in _ERROR_KEYS):
        return True
    if value.get("success") is False or value.get("ok") is False:
        return True
    if _words(value, "status", "state", "type", "object") & _FAILED:
        return True
    if value.get("errors") and (len(value) == 1 or value.get("data", True) is None):  # GraphQL
        return True
    return any(_number(value, key) for key in _EXIT_KEYS) or any(400 <= _number(value, key) < 600 for key in _HTTP_KEYS)


def _is_pending(value: dict[str, Any]) -> bool:
    """Whether an object says that work still runs: by its state, or by a field that says that it is not done."""
    states = {said.replace(" ", "_") for said in _words(value, "status", "state")}
    if (
        states & _RUNNING
        or any(map(_AWAITS.fullmatch, states))
        or any(value.get(key) is True for key in ("running", "is_running", "isRunning"))
    ):
        return True
    if len(value) > _FEW_KEYS and _PROGRESS.isdisjoint(value):
        return False
    unfinished = any(value.get(key) is False for key in ("completed", "done", "finished", "ready"))
    return unfinished or bool(states & _MAYBE_RUNNING) or any(_is_state(key, said) for key, said in value.items())


def _is_state(key: str, said: Any) -> bool:
    """Whether a field of a short object says that work still runs: `"job_status": "queued"`, `"ready": "0/3"`."""
    if not isinstance(said, str) or len(said) > _MAX_STATE_WORD:
        return False
    if _NOT_BEGUN.fullmatch(said):
        return True
    *before, last = _CAMEL.sub("_", key).lower().split("_")
    state = said.lower().replace(" ", "_").replace("-", "_")
    if last not in _STATE_KEYS or not (state in _RUNNING or state in _MAYBE_RUNNING):
        return False
    return state != "running" or not before or before[-1] in _WORK


def _is_empty(value: dict[str, Any], ends: dict[str, str], inside: dict[str, ResultStatus]) -> bool:
    """Whether an object has no data: at least one data field, and all are empty; or it says so (`found`, `status`)."""
    if not value or value.get("found") is False or _words(value, "status") & _EMPTY_STATES:
        return True
    missing = len(value) <= _FEW_KEYS and any(value[key] == 0 for key in _COUNTS & value.keys())
    for key, item in value.items():
        if key in inside:
            if not inside[key].empty:
                return False
            missing = True
        elif item in (None, "", [], {}):
            missing |= len(value) == 1
        elif isinstance(item, dict | list) and ends[key] not in _SIDE_KEYS:
            return False
    return missing


def _words(value: dict[str, Any], *keys: str) -> set[str]:
    """Return the texts under these keys, in lower case."""
    return {said.lower() for key in keys if isinstance(said := value.get(key), str)}


def _number(value: dict[str, Any], key: str) -> int:
    """Return the whole number under this key, else 0."""
    said = value.get(key)
    return said if isinstance(said, int) and not isinstance(said, bool) else 0
