"""What a scripted signature of thinking says: of which answer and block it is, and whether a text is the signed one."""

from base64 import urlsafe_b64decode
from dataclasses import dataclass

from callfuse.testing.turn import SIGNATURE_MARK, signature_for


@dataclass(frozen=True, slots=True)
class Signed:
    """The contents of a scripted signature."""

    answer_id: str
    place: int
    signature: str

    def fits(self, thinking: str) -> bool:
        """Whether `thinking` is the text that was signed."""
        return signature_for(self.answer_id, thinking, self.place) == self.signature


def read_signature(signature: str) -> Signed | None:
    """The contents of a signature; None if it is not a scripted one."""
    try:
        text = urlsafe_b64decode(signature.encode()).decode()
    except ValueError:  # not base64, or not text inside: a foreign signature
        return None
    match text.split("|", 3):
        case [mark, place, _, answer_id] if mark == SIGNATURE_MARK and place.isdigit():
            return Signed(answer_id, int(place), signature)
    return None
