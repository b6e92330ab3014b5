"""Signatures of thinking blocks that tell where they were made, so that a changed or misplaced block shows.

A real vendor signs each thinking block and refuses it when text, order or company differ from its own answer. A
scripted signature carries the answer's id, the block's place among the answer's thinking blocks and a digest of its
text, so that pure functions can judge a history without knowing the answers. Foreign signatures are opaque.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256

_MARK = "callfuse-scripted"


@dataclass(frozen=True, slots=True)
class Signed:
    """What a scripted signature says about its thinking block."""

    answer_id: str
    place: int
    digest: str

    def fits(self, thinking: str) -> bool:
        """Whether `thinking` is the text that was signed."""
        return self.digest == _digest(thinking)


def _digest(thinking: str) -> str:
    return sha256(thinking.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def signature_for(answer_id: str, thinking: str, place: int = 0) -> str:
    """The signature of the `place`-th thinking block of the answer `answer_id`."""
    return urlsafe_b64encode(f"{_MARK}|{place}|{_digest(thinking)}|{answer_id}".encode()).decode()


def read_signature(signature: str) -> Signed | None:
    """What `signature` says, or None where it is not a scripted one."""
    try:
        text = urlsafe_b64decode(signature.encode()).decode()
    except ValueError:  # not base64, or not text inside: a foreign signature
        return None
    match text.split("|", 3):
        case [mark, place, digest, answer_id] if mark == _MARK and place.isdigit():
            return Signed(answer_id, int(place), digest)
    return None
