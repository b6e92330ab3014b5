"""Hold the request of one exchange: parsed while needed, else only the bytes of its body.

Answers stream for seconds or minutes, thousands at a time, and a parsed history takes five to ten times the memory of
its bytes. So `ExchangeEvidence.drop` applies one rule: while a healthy answer streams, its exchange keeps the raw body
and `LaneEvidence`, but nothing parsed. If more is needed at the end of the answer, the body is parsed again.
"""

from collections.abc import Sequence
from dataclasses import replace

from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import LaneState, Told
from callfuse.conversations.notes import newest_result, note_keys
from callfuse.conversations.timeline import Conversation, read_conversation
from callfuse.detect.spending import SpentTokens, near_limit
from callfuse.dialects.base import Dialect, Request
from callfuse.guard.judge import Judge
from callfuse.guard.steer_loop import may_cut
from callfuse.model import PastCall, ToolCall
from callfuse.model.spent import Spent
from callfuse.observe.events import new_finding_id
from callfuse.policy.allowed import Allowance
from callfuse.policy.ladder import Verdict
from callfuse.policy.rungs import Rung
from callfuse.policy.settings import LoopSettings
from callfuse.wire import Format
from callfuse.wire.jsontext import loads


class KeptRequest:
    """A request whose parsed form can be dropped, and is built again on demand.

    `body`: its bytes, without commands, and with hints if enabled; `is_changed`: they differ from the client's bytes.
    `model` and `choices` are always available; `streamed`: it asks for a stream; `continues`: its vendor remembers
    conversations.
    """

    __slots__ = (
        "_request",
        "_target",
        "body",
        "choices",
        "continues",
        "dialect",
        "is_changed",
        "model",
        "streamed",
    )

    def __init__(self, dialect: Dialect, request: Request, target: str, *, is_changed: bool = False) -> None:
        self.dialect = dialect
        self.body = request.body
        self.is_changed = is_changed
        self.model = request.model
        self.choices = request.choices
        self.streamed = request.stream
        self.continues = request.chain is not None
        self._target = target
        self._request: Request | None = request

    def get(self) -> Request:
        """Return the parsed request. Raises ValueError if its bytes cannot be parsed again, which would be a bug."""
        if self._request is None:
            self._request = self.dialect.read_request(self.body, loads(self.body), self._target)
            if self._request is None:
                raise ValueError("the request cannot be read again")
        return self._request

    def replace(self, body: bytes) -> None:
        """Replace the bytes by others that parse to an equivalent request, so the parsed one is kept."""
        self.body, self.is_changed = body, True
        if self._request is not None:
            self._request.body = body

    def drop(self) -> None:
        """Drop the parsed request."""
        self._request = None

    def close(self) -> None:
        """Drop the body, too, because the exchange is over."""
        self._request, self.body = None, b""

    def stream_format(self, content_type: bytes) -> Format | None:
        """Return the stream format of an answer's content type; None if it is not a stream."""
        return self.dialect.stream_format(content_type, asked=self.streamed)


class ExchangeEvidence:
    """The conversation of one exchange and its judge, each built on first use.

    `kept`: the part of the conversation that the ledger needs after the answer. `is_healthy`: no single call of the
    answer can have a finding. `holds`: a single call may have to be withheld, or a text cut off. `room`: how many calls
    the answer may have before they could have a finding together; `may_hold`: such calls may have to be withheld.
    `brings_results`: the request shows results of the newest round for the first time. `hindsight`: a verdict on the
    newest round by its results, to be reported with the answer.
    """

    __slots__ = (
        "_conversation",
        "_judge",
        "_lane",
        "_limits",
        "_now",
        "brings_results",
        "hindsight",
        "holds",
        "is_healthy",
        "kept",
        "may_hold",
        "request",
        "room",
        "settings",
    )

    def __init__(
        self,
        request: KeptRequest,
        lane: Lane,
        state: LaneState,
        now: float,
        settings: LoopSettings,
        *,
        may_change: bool,
        may_withhold: bool,
        hold_all: bool,
        allowed: Sequence[Allowance] = (),
    ) -> None:
        self.request = request
        self._lane = lane
        self._now = now
        self.settings = settings
        self._limits = (may_change, may_withhold, hold_all, allowed)
        self._judge: Judge | None = None
        conversation = read_conversation(request.get(), state, now, settings, named=lane.named)
        self._conversation: Conversation | None = conversation
        self.kept = conversation.evidence
        judge = self.judge
        self.is_healthy = not judge.any_finding
        self.holds = not self.is_healthy and judge.any_hold
        if settings.cuts_texts and may_withhold and may_cut(request.get()):
            self.holds = True
        self.room = judge.room
        self.may_hold = judge.may_withhold_any and request.choices == 1
        self.brings_results = bool(conversation.timeline.rounds) and conversation.brings_results
        self.hindsight = judge.hindsight() if self.brings_results else None
        if settings.budget.is_on and self.brings_results and self.hindsight is None:
            self._warn_of_budget(conversation)

    @property
    def conversation(self) -> Conversation:
        """The history of the request, merged with the ledger's state of its lane."""
        if self._conversation is None:
            request, state, named = self.request.get(), self.kept.state, self._lane.named
            self._conversation = read_conversation(request, state, self._now, self.settings, named=named)
        return self._conversation

    @property
    def judge(self) -> Judge:
        """The judge of this exchange."""
        if self._judge is None:
            may_change, may_withhold, hold_all, allowed = self._limits
            self._judge = Judge(
                self.conversation.timeline,
                self.settings,
                model=self.request.model,
                may_change=may_change,
                may_ask=self.request.choices == 1,
                may_withhold=may_withhold,
                hold_all=hold_all,
                allowed=allowed,
                new_id=new_finding_id,
            )
        return self._judge

    def reread(self, state: LaneState, begun_with: LaneState) -> None:
        """Read the request again with a state that other exchanges wrote meanwhile, and update `kept`. `begun_with`:
        the state at the begin of this exchange. Its verdicts stay, so the judge must not be used any more."""
        request, named = self.request.get(), self._lane.named
        self._conversation = conversation = read_conversation(
            request, state, self._now, self.settings, named=named, begun_with=begun_with
        )
        self._judge, self.kept = None, conversation.evidence

    @property
    def asks_callback(self) -> bool:
        """Whether a callback decides about findings."""
        return self._limits[2]

    def decide(self, verdict: Verdict) -> bool:
        """Apply a callback's verdict on the newest round: a warning or nothing, because its calls have run. Returns
        whether it changes the verdict."""
        found, rung = self.hindsight, verdict.rung
        if rung not in (None, Rung.OBSERVE):
            rung = self.judge.allowed(Rung.WARN)
        if found is None or rung is found.rung:
            return False
        self.hindsight = replace(verdict, rung=rung)
        if carrier := newest_result(self.conversation):
            key, call = carrier
            text = self.judge.warning(replace(verdict, call=call)) if rung is Rung.WARN else ""
            state = self.kept.state
            self.kept = replace(self.kept, state=replace(state, notes={**state.notes, key: text}))
            self._conversation = None  # read again, with the note
        return True

    def _warn_of_budget(self, conversation: Conversation) -> None:
        """Warn the model once, in its newest result, if a limit of its budget is near."""
        kept = self.kept
        near, carrier = near_limit(kept.spent, self.settings.budget, self._now), newest_result(conversation)
        if near is None or carrier is None or not self.settings.detectors.finds(SpentTokens.kind.name):
            return
        key, call = carrier
        self.hindsight = verdict = self.judge.near_budget(call, near)
        text = {key: self.judge.warning(verdict)} if verdict.warns else {}
        state = replace(kept.state, notes={**kept.state.notes, **text})
        self.kept = replace(kept, state=state, spent=kept.spent._replace(warned=True))
        self._conversation = conversation._replace(evidence=self.kept)

    def revive(self) -> None:
        """Build the judge again, which parses the whole request."""
        _ = self.judge

    def drop(self) -> None:
        """Drop everything that was parsed. Keeps the judge if a call of the answer can have a finding."""
        self._conversation = None
        if self.is_healthy:
            self._judge = None
        self.request.drop()

    def close(self) -> None:
        """Drop everything, because the exchange is over, but the app may keep references to this object."""
        self._conversation = self._judge = None
        self.request.close()

    def after(
        self,
        rounds: Sequence[Sequence[PastCall]],
        notes: Sequence[tuple[ToolCall, str]],
        now: float,
        told: Sequence[Told] = (),
        spent: Spent | None = None,
        cut_off: Sequence[tuple[ToolCall, str]] | None = None,
        *,
        is_text_blocked: bool = False,
    ) -> LaneState:
        """Return the lane's state with the new rounds and notes of this exchange, texts that the model has not reacted
        to yet (`told`), and the budget use of the turn (`spent`). `now`: seconds. `cut_off`, `is_text_blocked`: as in
        `LaneEvidence.after`."""
        keyed = note_keys(self.conversation, notes) if notes else []
        blocked = is_text_blocked or any(one.blocked for calls in rounds for one in calls)
        conversation = self.conversation if blocked else None
        return self.kept.after(
            rounds,
            keyed,
            now,
            max_rounds=self.settings.max_rounds,
            conversation=conversation,
            told=told,
            spent=spent,
            cut_off=cut_off,
            is_text_blocked=is_text_blocked,
        )
