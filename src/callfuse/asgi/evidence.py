"""What one exchange knows of its request: parsed while that is needed, else only the bytes of the body.

An answer streams for seconds or minutes, and there may be thousands at once; what is parsed of a long history takes
five to ten times the room of its bytes. So there is one rule, in `Evidence.drop`: while a healthy answer streams, its
exchange keeps the raw body and `LaneEvidence`, nothing parsed. Where the end of the answer asks the request for more,
it is read again.
"""

from collections.abc import Sequence
from typing import Final

from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import LaneState
from callfuse.conversations.notes import note_keys
from callfuse.conversations.timeline import Conversation, read_conversation
from callfuse.dialects.base import Dialect, Request
from callfuse.guard.judge import Judge
from callfuse.model import PastCall, ToolCall
from callfuse.policy.settings import LoopSettings
from callfuse.wire import Format
from callfuse.wire.jsontext import loads

_MEDIA_TYPES: Final = (b"text/event-stream", b"application/json", b"application/x-ndjson")
"""What nearly every answer declares itself as."""


class KeptRequest:
    """A request that can be dropped and read again: `get` reads it where `drop` has let it go.

    `body`: its bytes (without its commands, where it had some). `model` and `choices` are always there; `continues`:
    its vendor remembers conversations.
    """

    __slots__ = ("_formats", "_request", "_target", "body", "choices", "continues", "dialect", "model")

    def __init__(self, dialect: Dialect, request: Request, target: str) -> None:
        self.dialect = dialect
        self.body = request.body
        self.model = request.model
        self.choices = request.choices
        self.continues = request.continuing is not None
        self._target = target
        self._request: Request | None = request
        self._formats: dict[bytes, Format | None] = {}

    def get(self) -> Request:
        """The request, parsed. Raises where its bytes cannot be read any more, which no bytes do by themselves."""
        if self._request is None:
            self._request = self.dialect.read_request(self.body, loads(self.body), self._target)
            if self._request is None:
                raise ValueError("the request cannot be read again")
        return self._request

    def drop(self) -> None:
        """Let go of what has been parsed, but for what the start of an answer asks."""
        if self._request is not None:
            self._formats = {kind: self.dialect.stream_format(kind, self._request) for kind in _MEDIA_TYPES}
            self._request = None

    def stream_format(self, content_type: bytes) -> Format | None:
        """How an answer of this content type is streamed."""
        media_type = content_type.partition(b";")[0].rstrip()
        if self._request is None and media_type in self._formats:
            return self._formats[media_type]
        return self.dialect.stream_format(content_type, self.get())


class Evidence:
    """The conversation of one exchange, and the judge over it, each made when first asked for.

    `kept`: what the ledger needs of the conversation when the answer has come. `is_healthy`: no call that comes next
    can be found looping. `holds`: one that comes may have to be withheld. `hindsight`: what the results of the newest
    round show by themselves, to be reported with the answer.
    """

    __slots__ = (
        "_conversation",
        "_judge",
        "_lane",
        "_limits",
        "_now",
        "_settings",
        "hindsight",
        "holds",
        "is_healthy",
        "kept",
        "request",
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
    ) -> None:
        self.request = request
        self._lane = lane
        self._now = now
        self._settings = settings
        self._limits = (may_change, may_withhold, hold_all)
        self._judge: Judge | None = None
        conversation = read_conversation(request.get(), state, now, settings, named=lane.named)
        self._conversation: Conversation | None = conversation
        self.kept = conversation.evidence
        self.is_healthy = not self.judge.any_finding
        self.holds = not self.is_healthy and self.judge.any_hold
        self.hindsight = self.judge.hindsight() if conversation.brings_results else None

    @property
    def conversation(self) -> Conversation:
        """The history of the request, merged with what the ledger has kept of its lane."""
        if self._conversation is None:
            request, state, named = self.request.get(), self.kept.state, self._lane.named
            self._conversation = read_conversation(request, state, self._now, self._settings, named=named)
        return self._conversation

    @property
    def judge(self) -> Judge:
        """What detectors and policy say of this exchange."""
        if self._judge is None:
            may_change, may_withhold, hold_all = self._limits
            self._judge = Judge(
                self.conversation.timeline,
                self._settings,
                model=self.request.model,
                may_change=may_change,
                may_ask=self.request.choices == 1,
                may_withhold=may_withhold,
                hold_all=hold_all,
            )
        return self._judge

    def drop(self) -> None:
        """Let go of everything that has been parsed. The judge stays where calls of the answer can be found looping."""
        self._conversation = None
        if self.is_healthy:
            self._judge = None
        self.request.drop()

    def after(
        self, rounds: Sequence[Sequence[PastCall]], notes: Sequence[tuple[ToolCall, str]], now: float
    ) -> LaneState:
        """The lane's state with the rounds and notes that this exchange has brought."""
        keyed = note_keys(self.conversation, notes) if notes else []
        return self.kept.after(rounds, keyed, now, max_rounds=self._settings.max_rounds)
