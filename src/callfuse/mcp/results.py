"""Keep the results of one caller, each for the identity that got it."""

from collections import OrderedDict
from typing import Final

from callfuse.inprocess.history import RESULT_KEPT, RESULTS_KEPT
from callfuse.mcp.identity import Identity
from callfuse.mcp.messages import Kept
from callfuse.model.signature import Signature

LONGEST_RESULT: Final = 1024 * 1024
"""The most bytes of a result that is kept for repetition."""
RESULTS_BYTES: Final = 4 * LONGEST_RESULT
"""The most bytes of all kept results of one caller."""
_PARSED: Final = 4
"""A parsed result takes about this many times its length."""


class Results:
    """The newest results, unchanged, by call, up to `RESULTS_BYTES` bytes; and whether more than one identity got any
    of those that detectors still know."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Signature, tuple[Identity, Kept]] = OrderedDict()
        self._first: Identity | None = None
        self._is_shared = False

    @property
    def size(self) -> int:
        """The approximate bytes of memory for the results, including the detectors' data about them."""
        return sum(size + _PARSED * min(size, RESULT_KEPT) for size in self._sizes())

    def _sizes(self) -> list[int]:
        return [len(kept.text) for _, kept in self._kept.values()]

    def note_reader(self, identity: Identity) -> None:
        """Note that this identity got a result, which is evidence from now on."""
        self._is_shared |= self._first is not None and identity != self._first
        self._first = self._first or identity

    def are_all_of(self, identity: Identity) -> bool:
        """Whether all results that are evidence belong to this identity, so that it may read texts that quote them."""
        return self._first == identity and not self._is_shared

    def forget_readers(self) -> None:
        """Forget who got results, because no result is evidence any more."""
        self._first, self._is_shared = None, False

    def keep(self, signature: Signature, identity: Identity, result: Kept | None) -> None:
        """Keep a call's result unless it is too long, and drop its previous one."""
        self._kept.pop(signature, None)
        if result is None or len(result.text) > LONGEST_RESULT:
            return
        self._kept[signature] = identity, result
        while len(self._kept) > RESULTS_KEPT or sum(self._sizes()) > RESULTS_BYTES:
            self._kept.popitem(last=False)

    def of(self, signature: Signature, identity: Identity) -> Kept | None:
        """Return the result of a call by this identity, if it is kept."""
        owner, kept = self._kept.get(signature, (None, None))
        return kept if owner == identity else None
