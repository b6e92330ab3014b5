"""Long texts that say something else all the time: one that repeats itself runs away."""

from hashlib import sha256


def text_of(length: int) -> str:
    """So many characters of a text without a repetition."""
    digests = (sha256(str(at).encode()).hexdigest() for at in range(length // 64 + 1))
    return "".join(digests)[:length]
