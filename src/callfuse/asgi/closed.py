"""Block an answer, under `fail_closed`, if an error of callfuse prevents judging its calls before it has begun."""

from callfuse.asgi.commands import SyntheticReply
from callfuse.asgi.prepare import Prepared
from callfuse.policy import texts
from callfuse.policy.holdout import HOLDOUT

ACTION = b"block"


def closed_reply(prepared: Prepared) -> SyntheticReply | None:
    """Return the block; None if no call of the answer could be withheld, so that the exchange passes."""
    settings = prepared.settings
    withholds = settings.enabled and settings.blocks and not prepared.observed and prepared.arm.name != HOLDOUT
    if not (settings.fail_closed and withholds):
        return None
    return SyntheticReply(prepared.request.get().synthetic_reply(texts.unchecked_call("")), ACTION)
