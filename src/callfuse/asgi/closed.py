"""What a client gets, under `fail_closed`, where an error of callfuse's own keeps calls from being judged before any of
the answer has come: a block in the answer's place, for it may hold a call."""

from callfuse.asgi.commands import SyntheticReply
from callfuse.asgi.prepare import Prepared
from callfuse.policy import texts
from callfuse.policy.holdout import HOLDOUT

ACTION = b"block"


def closed_reply(prepared: Prepared) -> SyntheticReply | None:
    """The block; None if the exchange passes, because no call of it could be withheld."""
    settings = prepared.settings
    withholds = settings.enabled and settings.blocks and not prepared.observed and prepared.arm.name != HOLDOUT
    if not (settings.fail_closed and withholds):
        return None
    return SyntheticReply(prepared.request.get().synthetic_reply(texts.unchecked_call("")), ACTION)
