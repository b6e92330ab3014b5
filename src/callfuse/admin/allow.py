"""Let a person allow a call, or a tool, that callfuse found looping, even if it was refused already.

| `what` | allows |
|---|---|
| `call` | this call, in this conversation |
| `tool` | every call of this tool, in this session |
| `always` | nothing yet: the answer has lines for the settings file that allow the tool everywhere |
| `nothing` | nothing any more in the session of the finding |

Allowances are kept with the session in the ledger, so processes that share a store share them.
"""

import time
from dataclasses import replace
from typing import Any, Final

import orjson

from callfuse.admin.access import Access
from callfuse.admin.feedback import LONGEST_ID, UnknownFinding
from callfuse.admin.queries import BadQuery, NoStore, Query, change_states, find_to_change
from callfuse.asgi import CallFuseMiddleware
from callfuse.conversations.ledger import SessionState, StoreUnavailable
from callfuse.observe.events import SettingsChanged
from callfuse.observe.findings import KeptFinding
from callfuse.policy.allowed import Allowance, with_allowance
from callfuse.policy.nearest import suggest

WHAT: Final = ("call", "tool", "always", "nothing")
KEYS: Final = ("finding", "session", "what")
_SHAPE: Final = 'send JSON: {"finding": ID, "what": "call"}'
_WORDS: Final = {
    "call": "this call of {} passes",
    "tool": "every call of {} passes",
    "nothing": "nothing passes any more",
}


async def take_allowance(middleware: CallFuseMiddleware, access: Access, client: str, body: bytes) -> dict[str, Any]:
    """Allow a call or a tool by the JSON of a request, and return the JSON of the answer. `client`: selects one of
    several clients with a session of that name. Raises BadQuery, and then changes nothing."""
    given = _read(body)
    what, found = given["what"], None
    session = given.get("session", "")
    if "finding" in given:
        found = await _finding(middleware, given["finding"])
        session = found.session
        if what == "always":
            return {"allowed": what, "tool": found.tool, "lines": lines_for(found.tool)}
    elif what != "nothing" or not session:
        raise BadQuery(f"finding: use the id of a finding, as in log lines and events; {_SHAPE}")
    allowance = None if found is None or what == "nothing" else allowance_of(found, what)
    sessions = await find_to_change(middleware, access, Query(session=session, client=client))
    now = time.time()

    def let_pass(state: SessionState) -> SessionState:
        if allowance is None:
            return replace(state, allowed=())
        return replace(state, allowed=with_allowance(state.allowed, allowance), reset=max(state.reset, now))

    await change_states(middleware.ledger, {one.key: one.state for one in sessions}, let_pass, now)
    tool = "" if found is None else found.tool
    said = _WORDS[what].format(tool)
    names = [one.key[1] for one in sessions]
    middleware.bus.emit(SettingsChanged(session, said, is_off=False, by="page"))
    return {"allowed": what, "tool": tool, "sessions": names}


def allowance_of(found: KeptFinding, what: str) -> Allowance:
    """Return the allowance for the call, or the tool, of a finding."""
    name, signature, lane = found.call
    return Allowance(name) if what == "tool" else Allowance(found.tool, bytes.fromhex(signature), lane)


def lines_for(tool: str) -> str:
    """Return the lines of a settings file that allow a tool."""
    return f"tool_call_loop:\n  per_tool:\n    {orjson.dumps(tool).decode()}: {{mode: observe}}\n"


async def _finding(middleware: CallFuseMiddleware, finding_id: str) -> KeptFinding:
    try:
        found = await middleware.findings.find(finding_id)
    except StoreUnavailable as down:
        raise NoStore(f"this process does not know the finding, and {down}; nothing was changed") from None
    if found is None:
        raise UnknownFinding(
            "no finding with this id is known: the id is wrong, the finding is too old, or it belongs to another "
            "callfuse"
        )
    return found


def _read(body: bytes) -> dict[str, str]:
    """Read the values of a request. Raises BadQuery."""
    try:
        given = orjson.loads(body)
    except ValueError:
        raise BadQuery(f"this is not JSON; {_SHAPE}") from None
    if not isinstance(given, dict):
        raise BadQuery(f"this is not an object; {_SHAPE}")
    for name, value in given.items():
        if name not in KEYS:
            raise BadQuery(f"there is no key {name!r}; {suggest(name, KEYS)}")
        if not isinstance(value, str) or not 0 < len(value) <= LONGEST_ID:
            raise BadQuery(f"{name}: use a text of at most {LONGEST_ID} characters; {_SHAPE}")
    if given.get("what") not in WHAT:
        raise BadQuery(f"what = {given.get('what')!r}; use one of {', '.join(WHAT)}")
    return given
