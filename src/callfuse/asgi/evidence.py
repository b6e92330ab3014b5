"""What one exchange knows of its request: parsed while that is needed, else only the bytes of the body.

An answer streams for seconds or minutes, and there may be thousands at once; what is parsed of a long history takes
five to ten times the room of its bytes. So there is one rule, in `Evidence.drop`: while a healthy answer streams, its
exchange keeps the raw body and what the ledger has given, nothing parsed. The end of an answer that has brought calls
reads the request once more.
"""

from collections.abc import Sequence
from typing import Final

from callfuse.conversations.conversation import Conversation
from callfuse.conversations.glance import is_all_new
from callfuse.conversations.identity import Lane
from callfuse.conversations.ledger import LaneState
from callfuse.conversations.notes import notes_for
from callfuse.detect import is_healthy
from callfuse.dialects.base import Dialect, Note, Request
from callfuse.guard.judge import Judge
from callfuse.model import ToolCall
from callfuse.policy.ladder import Verdict
from callfuse.policy.settings import LoopSettings
from callfuse.wire import Format
from callfuse.wire.jsontext import loads

_MEDIA_TYPES: Final = (b"text/event-stream", b"application/json", b"application/x-ndjson")
"""What nearly every answer declares itself as."""


class KeptRequest:
    """A request that can be dropped and read again: `get` reads it where `drop` has let it go.

    `body`: its bytes (without its commands, where it had some). `model` and `choices` are always there.
    """

    __slots__ = ("_formats", "_request", "_target", "body", "choices", "dialect", "model")

    def __init__(self, dialect: Dialect, request: Request, target: str) -> None:
        self.dialect = dialect
        self.body = request.body
        self.model = request.model
        self.choices = request.choices
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

    `is_healthy`: no call that comes next can be found looping. `holds`: one that comes may have to be withheld.
    `hindsight`: what the results of the newest round show by themselves, to be reported with the answer.
    """

    __slots__ = (
        "_conversation",
        "_has_dropped",
        "_is_all_new",
        "_judge",
        "_lane",
        "_learned",
        "_limits",
        "_now",
        "_settings",
        "_state",
        "hindsight",
        "holds",
        "is_healthy",
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
        self._state = state
        self._now = now
        self._settings = settings
        self._limits = (may_change, may_withhold, hold_all)
        self._conversation: Conversation | None = None
        self._judge: Judge | None = None
        self._learned: LaneState | None = None
        self._has_dropped = False
        self.is_healthy, self.holds = True, False
        self.hindsight: Verdict | None = None
        self._is_all_new = is_all_new(request.get(), state, settings)
        if not self._is_all_new:
            self._examine(self.conversation)

    @property
    def conversation(self) -> Conversation:
        """The timeline of the request, merged with what the ledger has kept of its lane."""
        if self._conversation is None:
            request, named = self.request.get(), self._lane.named
            conversation = Conversation(request, self._state, self._now, self._settings, named=named)
            self._conversation = conversation
            if self._is_all_new:
                conversation.looked_over(None, is_calm=True, judged=self._settings.warns)
            elif self._has_dropped:  # what the ledger keeps depends on what has been looked at
                self._examine(conversation)
                self.notes()
            return conversation
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

    def _examine(self, conversation: Conversation) -> None:
        self.is_healthy = is_healthy(conversation.timeline, self._settings)
        self.holds = not self.is_healthy and self.judge.any_hold
        if conversation.brings_results and conversation.may_fail_again():
            self.hindsight = self.judge.hindsight()

    def notes(self) -> list[Note]:
        """The texts that the request's results are to carry to the model."""
        may_change, _, _ = self._limits
        return notes_for(self.conversation) if may_change and not self._is_all_new else []

    def drop(self) -> None:
        """Let go of everything that has been parsed, where the answer will hardly ask for it."""
        if not self.is_healthy or self.hindsight is not None:
            return
        self._learned = self.learned
        self._conversation = self._judge = None
        self._has_dropped = True
        self.request.drop()

    @property
    def learned(self) -> LaneState | None:
        """A state of the lane that is worth keeping even where the answer brings nothing."""
        return self._learned if self._conversation is None else self._conversation.learned

    def after(
        self, rounds: Sequence[Sequence[ToolCall]], notes: Sequence[tuple[ToolCall, str]], now: float
    ) -> LaneState:
        """The lane's state with the rounds and notes that this exchange has brought."""
        return self.conversation.after(rounds, notes, now, max_rounds=self._settings.max_rounds)
