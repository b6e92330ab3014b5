"""Write the texts that callfuse puts into a conversation. Each begins with the marker; operators can replace most."""

from collections.abc import Sequence
from typing import Final

from callfuse.detect.registry import OF_REQUESTS
from callfuse.harness import MARKER
from callfuse.model import Finding, ToolCall
from callfuse.model.outcomes import SHORT_TEXT
from callfuse.model.secrets import star_secrets
from callfuse.policy import explain
from callfuse.policy.ladder import Verdict
from callfuse.policy.rungs import ACCEPT_IT, EMPTY_RESULT, RETURNED, USE_IT, Rung
from callfuse.policy.sections import ErrorMessages
from callfuse.policy.settings import LoopSettings

LOOP_HINT: Final = (
    f"{MARKER} The same call with the same arguments returns the same result: do not repeat it. If a result is of no "
    f"use, change the arguments, use another tool, or answer with what is known. A text that begins with {MARKER} "
    "in a result says that calls are repeating."
)
"""The hint that `tool_hint` adds to descriptions of tools. A constant, so that cached prompts stay cached."""
BLOWN: Final = (
    "The fuse has blown: {finding}, the last of {tool_name}, and no new call between them. The model was not asked. "
    "{suggestion}"
)

BEYOND_BUDGET: Final = "Stopped: this would have been {finding}. The call was not run. {suggestion}"
NEAR_BUDGET: Final = "This is {finding}. Further calls will soon be stopped. {suggestion}"
"""The default texts for an amount that was spent."""
STOPPED: Final = (
    f"Stopped a tool call loop: this was {{finding}} (limit {{max_repeats}}). {RETURNED}The model was not asked. "
    "{suggestion}"
)

CUT_OFF: Final = "The answer was cut off here: this was {finding}. {suggestion}"
GO_ON: Final = (
    "Your answer was cut off, because it was {finding}. Your text before the repetition is above. "
    "Continue from there without the repetition, or do something else."
)
"""What the client and the model get about a text that was cut off."""
SAME_AGAIN: Final = "This is {finding} (limit {max_repeats}). {suggestion}"
NOT_ASKED: Final = "Stopped a loop: this was {finding} (limit {max_repeats}). The model was not asked. {suggestion}"
"""What the model and the client get about a loop that was found in a request."""


def block(verdict: Verdict, settings: LoopSettings, model: str) -> str:
    """Return the text that the client gets in place of a blocked call."""
    rung = verdict.rung if verdict.rung is not None and verdict.rung.blocks else Rung.BLOCK
    text = NOT_ASKED if verdict.finding.kind in OF_REQUESTS else rung.text
    text = BEYOND_BUDGET if verdict.finding.stretch.unit else text
    text = CUT_OFF if verdict.finding.stretch.part else text
    return _fill(_custom_messages(verdict.call, settings).block or text, verdict.call, verdict.finding, model)


def stopped(verdict: Verdict, settings: LoopSettings, model: str) -> str:
    """Return the text that the client gets in place of an answer if a call that has run would have been blocked."""
    custom = _custom_messages(verdict.call, settings).block
    return _fill(custom or STOPPED, verdict.call, verdict.finding, model)


def warning(call: ToolCall, finding: Finding, settings: LoopSettings, model: str) -> str:
    """Return the warning that is added to the result of a repeated call."""
    text = SAME_AGAIN if finding.kind in OF_REQUESTS else Rung.WARN.text
    text = NEAR_BUDGET if finding.stretch.unit and not finding.hard else text
    return _fill(_custom_messages(call, settings).warning or text, call, finding, model)


def guidance(verdict: Verdict, settings: LoopSettings, model: str, *, asking: bool = False) -> str:
    """Return the result for a withheld call: in the retry by callfuse (`asking`), or in the next request together with
    its siblings' results, where tools can be called."""
    rung = verdict.rung
    if rung is None or not rung.asks or (rung.text_only and not asking):
        rung = Rung.STEER
    text = _custom_messages(verdict.call, settings).guidance or (GO_ON if verdict.finding.stretch.part else rung.text)
    return _fill(text, verdict.call, verdict.finding, model)


def told(verdict: Verdict, settings: LoopSettings, model: str) -> str:
    """Return the text that goes with a verdict's rung: a block, guidance or a warning."""
    if verdict.blocks:
        return block(verdict, settings, model)
    if verdict.withholds:
        return guidance(verdict, settings, model, asking=True)
    return warning(verdict.call, verdict.finding, settings, model)


def blown(last: str, outcome: str | None, count: int, settings: LoopSettings, model: str) -> str:
    """Return the text that the client gets in place of a model's answer once the fuse has blown. `last`: the tool whose
    call was blocked last (empty if unknown); `outcome`: its last result (None: unknown); `count`: blocks in a
    row."""
    text = (settings.for_tool(last).settings.error_messages.blown or BLOWN).format(
        tool_name=last or "an answer",
        arguments="",
        count=count,
        max_repeats=settings.blow_after,
        window=f"{settings.ttl_seconds:g}",
        previous_result=_quote(outcome),
        model=model,
        finding=f"{count} blocks in a row",
        suggestion="Say what to do in other words, or begin a new session.",
    )
    return text if text.startswith(MARKER) else f"{MARKER} {text}"


def unchecked_call(tool: str) -> str:
    """Return the text that the client gets under `fail_closed` in place of a call that could not be checked."""
    return f"{MARKER} A call of {tool or 'a tool'} could not be checked for loops and was not let through."


def header(verdicts: Sequence[Verdict]) -> str:
    """Return the value of the header `x-callfuse-action`: the last rung that withheld a call; empty if none did."""
    done = [verdict for verdict in verdicts if verdict.withholds]
    if not done:
        return ""
    return f"{done[-1].rung}; kind={done[-1].finding.kind}; count={done[-1].finding.count}"


def _custom_messages(call: ToolCall, settings: LoopSettings) -> ErrorMessages:
    """Return the operator's texts for calls of this tool; each may be empty."""
    return settings.for_tool(call.full_name).settings.error_messages


def _fill(template: str, call: ToolCall, finding: Finding, model: str) -> str:
    if finding.previous is None:  # no result is known; an empty result is not None
        template = template.replace(RETURNED, "")
    text = template.format(
        tool_name=finding.tool,
        arguments=star_secrets(call.text, SHORT_TEXT),
        count=finding.count,
        max_repeats=finding.threshold,
        window=f"{finding.window_s:g}",
        previous_result=_quote(finding.previous),
        model=model,
        finding=explain.seen(finding),
        suggestion=explain.suggestion(finding),
        empty_result=EMPTY_RESULT if finding.found_nothing else "",
        use_it=ACCEPT_IT if finding.found_nothing else USE_IT,
    )
    return text if text.startswith(MARKER) else f"{MARKER} {text}"


def _quote(result: str | None) -> str:
    """Return a result in the form in which texts quote it."""
    return "(unknown)" if result is None else star_secrets(result) or "(nothing)"
