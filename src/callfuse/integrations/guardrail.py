"""Answer the guardrail requests that LiteLLM sends before it asks a model (`pre_call` of its generic guardrail API).

Input: LiteLLM's view of a request: the history as messages of OpenAI chat completions (`structured_messages`), its
texts (`texts`), the tools. Output: `NONE`, `BLOCKED` with a reason, or `GUARDRAIL_INTERVENED` with warnings added to
the results of calls.

The newest rounds of the history (`max_rounds` and `MOST_CALLS` calls at most) are judged as `callfuse replay` judges
recorded ones: each call by those before it, without times. So the same history gets the same warnings in the same
places each time, which keeps prompt caches valid. Findings are kept (`offline/memory.py`), so that only the new part of
a history must be judged; the result is the same without them. LiteLLM asks only when the result of a call comes back.
So a rung that would ask the model again becomes a warning, and `block` ends the request. If LiteLLM does not show the
result among the texts, a warning is only observed.
"""

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple

from callfuse.asgi import CallFuseMiddleware, off_loop
from callfuse.asgi.fail_open import FailOpen
from callfuse.asgi.headers import VIA
from callfuse.conversations.identity import Lane, credential_of, lane_of, read_session_headers
from callfuse.dialects.base import Note, Request
from callfuse.dialects.openai_chat import OpenAIChat
from callfuse.model.ids import bounded_id
from callfuse.observe.events import ActionTaken, CallSeen, FindingSeen, NotGuarded, Where, action_of, new_finding_id
from callfuse.observe.would import would_take
from callfuse.offline.joining import run_of
from callfuse.offline.judging import Judged, judge_run
from callfuse.offline.memory import VerdictMemory
from callfuse.offline.runs import RecordedConversation, RecordedRun, RunLabel
from callfuse.policy import texts
from callfuse.policy.holdout import Arm, arm_of
from callfuse.policy.rungs import Rung
from callfuse.policy.settings import LoopSettings
from callfuse.wire.jsontext import dumps, loads
from callfuse.wire.values import has_too_many_values

Answer = dict[str, Any]
"""The answer to LiteLLM: `action` and its data."""

NOTHING: Final = "NONE"
"""The action that lets a request pass unchanged."""
NAME: Final = "litellm-guardrail"
"""The dialect of such requests in logs and events."""
HIDDEN: Final = "[present]"
"""LiteLLM's replacement for the value of a header that it does not show."""
MOST_CALLS: Final = 400
"""The most calls of a history that are judged, unless one round has more. For an unknown history, judging this many
takes 0.1 s."""
_CHAT: Final = OpenAIChat()
_ENCODING: Final = ("utf-8", "replace")


class ShownRequest(NamedTuple):
    """LiteLLM's view of a request: the history as a chat request, its parsed body, and the texts in it."""

    request: Request
    body: Mapping[str, Any]
    texts: Sequence[Any]
    lane: Lane


class Opinion(NamedTuple):
    """The result for a request: the calls of the newest round with their findings, and the answer."""

    newest: Sequence[Judged]
    where: Where
    arm: Arm
    answer: Answer


class Guardrail:
    """Answers LiteLLM's requests by the settings of a middleware, and emits findings to its bus."""

    def __init__(self, middleware: CallFuseMiddleware) -> None:
        self._middleware = middleware
        self._memory = VerdictMemory()

    async def answer(self, body: bytes) -> Answer:
        """Answer the body of a request from LiteLLM. Raises NotJSON. If callfuse fails, the client's request passes,
        unless `fail_closed` is set."""
        if has_too_many_values(body):
            return self.unread("request values")
        given = await off_loop.run(partial(loads, body), off_loop.weight_of(body))
        stage = FailOpen(self._middleware.bus).stage("in a request")
        with stage:
            work = partial(judge, given, self._middleware.settings, self._memory)
            # In a thread, even if short: judging a whole history takes longer than reading it.
            opinion = await off_loop.run(work, max(len(body), off_loop.LONG_BYTES + 1))
            if opinion is None:
                return _go_on()
            self._tell(opinion)
            return opinion.answer
        return _block(texts.unchecked_call("")) if self._middleware.settings.fail_closed else _go_on()

    def unread(self, cause: str) -> Answer:
        """Answer a request that was not read, and count the `cause`."""
        self._middleware.bus.emit(NotGuarded(cause))
        return _go_on()

    def _tell(self, opinion: Opinion) -> None:
        """Emit the calls and findings of the newest round."""
        bus = self._middleware.bus
        for one in opinion.newest:
            verdict = one.verdict
            bus.emit(CallSeen(opinion.where, one.call.call, action_of(verdict) if verdict else "none"))
            if verdict is None:
                continue
            would = would_take(verdict, opinion.arm, may_change=True, may_ask=False)
            seen = FindingSeen(opinion.where, verdict, int(verdict.blocks), arm=opinion.arm.name, would=would)
            bus.emit_finding(seen)
            if verdict.warns or verdict.blocks:
                rung = action_of(verdict)
                bus.emit(ActionTaken(opinion.where, verdict.finding_id, rung, verdict.first, opinion.arm.name))


def judge(given: Any, settings: LoopSettings, memory: VerdictMemory | None = None) -> Opinion | None:
    """Judge LiteLLM's parsed request. Returns None if there is nothing to judge. `memory`: keeps earlier findings."""
    shown = _read(given)
    if shown is None:
        return None
    settings = settings.for_exchange(f"{_CHAT.backend}:{shown.request.model}")
    if not settings.enabled:
        return None
    lane = shown.lane
    arm = arm_of(settings, lane.credential, lane.session)
    run = run_of(RecordedConversation(RunLabel(), shown.request), most=_most(shown.request, settings.max_rounds))
    judged = [_as_warning(one) for one in judge_run(run, arm.settings, memory)]
    newest = _newest(judged, run, shown.request)
    answer = _answer(shown, run, judged, newest, arm.settings)
    if answer["action"] == NOTHING:
        newest = [_as_observed(one) for one in newest]
    where = Where(lane.session, lane.source, lane.tag, bounded_id(shown.request.model), _CHAT.backend, NAME)
    return Opinion(newest, where, arm, answer)


def _read(given: Any) -> ShownRequest | None:
    """Return LiteLLM's view of a request with tools; None for answers of models, for requests that another callfuse
    guards, and for anything else."""
    if not isinstance(given, dict) or given.get("input_type") == "response" or _is_guarded(given):
        return None
    keys = {"model": "model", "structured_messages": "messages", "tools": "tools"}
    body = {name: given[key] for key, name in keys.items() if given.get(key)}
    request = _CHAT.read_request(dumps(body), body)
    if request is None or request.probe:
        return None
    shown = given.get("texts")
    return ShownRequest(request, body, shown if isinstance(shown, list) else (), _lane_of(given, request))


def _is_guarded(given: Mapping[str, Any]) -> bool:
    """Whether another callfuse has marked the request as guarded."""
    shown = given.get("request_headers")
    return isinstance(shown, dict) and any(name.lower().encode(*_ENCODING) == VIA for name in shown)


def _lane_of(given: Mapping[str, Any], request: Request) -> Lane:
    """Return the lane of a request, by the hash of its client's key and the headers whose values LiteLLM shows."""
    shown, about = given.get("request_headers"), given.get("request_data")
    headers = {
        name.lower().encode(*_ENCODING): value.encode(*_ENCODING)
        for name, value in (shown.items() if isinstance(shown, dict) else ())
        if isinstance(value, str) and value != HIDDEN
    }
    key = about.get("user_api_key_hash") if isinstance(about, dict) else None
    credential = credential_of(headers | {b"authorization": str(key or "").encode(*_ENCODING)})
    return lane_of(credential, read_session_headers(headers), request)


def _most(request: Request, max_rounds: int) -> int:
    """Return how many of the newest rounds are judged, including messages of persons: at least one, if there is one.

    If not all are judged, the first one moves in steps of half of `max_rounds` messages. Until it moves, all earlier
    findings stay known.
    """
    calls, positions = 0, list[int | None]()
    for at, round_ in enumerate(islice(request.rounds(), max_rounds + 1)):
        calls += 0 if round_ is None else len(round_.calls)
        if at == max_rounds or (calls > MOST_CALLS and at):
            return _from_step(positions, max(1, max_rounds // 2))
        positions.append(None if round_ is None else round_.position)
    return max_rounds


def _from_step(positions: Sequence[int | None], step: int) -> int:
    """Return the number of rounds from the first whole step on. `positions`: those of their messages, newest first;
    None for a message of a person."""
    known = [position for position in positions if position is not None]
    if not known:
        return len(positions)
    first = -(-known[-1] // step) * step
    within = [at for at, position in enumerate(positions, 1) if position is not None and position >= first]
    return max(within, default=1)


def _as_warning(one: Judged) -> Judged:
    """Return a judged call with a warning in place of a steer, because it has run and cannot be withheld."""
    verdict = one.verdict
    if verdict is None:
        return one
    rung = Rung.WARN if verdict.rung is not None and verdict.rung.asks else verdict.rung
    return one._replace(verdict=replace(verdict, rung=rung, finding_id=new_finding_id()))


def _as_observed(one: Judged) -> Judged:
    """Return a judged call that is only observed, because its result cannot be changed."""
    verdict = one.verdict
    if verdict is None or not verdict.warns:
        return one
    return one._replace(verdict=replace(verdict, rung=Rung.OBSERVE))


def _newest(judged: Sequence[Judged], run: RecordedRun, request: Request) -> Sequence[Judged]:
    """Return the calls of the newest round, if the model will answer their results now."""
    if next(iter(request.rounds()), None) is None:
        return ()
    place = len(run.turns) - 1, len(run.turns[-1]) - 1
    return [one for one in judged if (one.turn, one.round) == place]


def _answer(
    shown: ShownRequest, run: RecordedRun, judged: Iterable[Judged], newest: Iterable[Judged], settings: LoopSettings
) -> Answer:
    """Return the answer for these verdicts: a block of the newest round, else warnings added to results."""
    model = shown.request.model
    blocks = [one.verdict for one in newest if one.verdict is not None and one.verdict.blocks]
    if blocks:
        return _block(texts.stopped(blocks[-1], settings, model))
    notes: list[Note] = []
    for one in judged:
        if one.verdict is not None and (one.verdict.warns or one.verdict.blocks):
            warning = texts.warning(one.verdict.call, one.verdict.finding, settings, model)
            notes.append(Note(run.turns[one.turn][one.round].position, one.verdict.call, warning))
    if not notes:
        return _go_on()
    noted = loads(shown.request.with_notes(notes))["messages"]
    written = rewritten(shown.texts, shown.body["messages"], noted)
    # LiteLLM accepts messages, too, but then may rewrite the whole history, without reasoning items.
    return _go_on() if written is None else {"action": "GUARDRAIL_INTERVENED", "texts": written}


def rewritten(shown: Sequence[Any], before: Sequence[Any], after: Sequence[Any]) -> list[Any] | None:
    """Return the shown texts of a history, with the changes between two forms of it; None if a changed text is not
    among them.

    LiteLLM writes texts back to their places, in the format of the client. Which texts it shows depends on that format,
    so they are matched from the end, in the order of the history.
    """
    places: dict[str, list[int]] = {}
    for at, text in enumerate(shown):
        if isinstance(text, str):
            places.setdefault(text, []).append(at)
    written, end = list(shown), len(shown)
    for old, new in zip(reversed(before), reversed(after), strict=True):
        old_texts, new_texts = _texts_of(old), _texts_of(new)
        if old != new and len(old_texts) != len(new_texts):
            return None
        for text, changed in zip(reversed(old_texts), reversed(new_texts), strict=True):
            known = places.get(text, [])
            at = bisect_left(known, end) - 1
            if at >= 0:
                end = known[at]
                written[end] = changed
            elif text != changed:
                return None
    return written


def _texts_of(message: Any) -> list[str]:
    """Return the texts in the content of a message."""
    content = message.get("content") if isinstance(message, dict) else None
    parts = content if isinstance(content, list) else [{"text": content}]
    found = [part.get("text") for part in parts if isinstance(part, dict)]
    return [text for text in found if isinstance(text, str)]


def _go_on() -> Answer:
    return {"action": NOTHING}


def _block(reason: str) -> Answer:
    return {"action": "BLOCKED", "blocked_reason": reason}
