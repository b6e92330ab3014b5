"""What comes of a guarded call: a result for the model, or the end of the run."""

from dataclasses import dataclass
from typing import Any

from callfuse.errors import CallFuseError
from callfuse.inprocess.detection import LoopDetection
from callfuse.inprocess.values import shown
from callfuse.model import ToolCall


class ToolLoopError(CallFuseError):
    """A call was blocked, and the guard was asked to end the run then. `detection` says what was found."""

    def __init__(self, detection: LoopDetection) -> None:
        super().__init__(detection.message)
        self.detection = detection


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What goes to the model for a call.

    `content` is the tool's own result, with callfuse's text where there is one; `text` is the same as text. `is_error`
    says that the tool raised (then `error` is the exception) or could not be called. `detection` is what was found.
    """

    call: ToolCall
    content: Any
    is_error: bool = False
    error: Exception | None = None
    detection: LoopDetection | None = None

    @property
    def id(self) -> str:
        """The id of the call."""
        return self.call.id

    @property
    def name(self) -> str:
        """The name of the tool."""
        return self.call.name

    @property
    def text(self) -> str:
        """The content for a message: text as it is, all else as JSON."""
        return shown(self.content)
