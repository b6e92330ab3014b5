"""The results that one caller has got, each for the identity that got it."""

from collections import OrderedDict
from typing import Final

from callfuse.inprocess.history import RESULT_KEPT, RESULTS_KEPT
from callfuse.mcp.identity import Identity
from callfuse.mcp.messages import Kept
from callfuse.model.signature import Signature

LONGEST_RESULT: Final = 1024 * 1024
"""Bytes of a result that is kept to be given again."""
RESULTS_BYTES: Final = 4 * LONGEST_RESULT
"""Bytes of all results of one caller that are kept."""
_PARSED: Final = 4
"""A result that is kept parsed takes about so many times its length."""


class Results:
    """The newest results as they came, `RESULTS_BYTES` bytes of them, by call; and whether more than one identity has
    got any of those that detectors still know."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Signature, tuple[Identity, Kept]] = OrderedDict()
        self._first: Identity | None = None
        self._is_shared = False

    @property
    def size(self) -> int:
        """The approximate bytes of memory that the results take, with what detectors keep of them."""
        return sum(size + _PARSED * min(size, RESULT_KEPT) for size in self._sizes())

    def _sizes(self) -> list[int]:
        return [len(kept.text) for _, kept in self._kept.values()]

    def note_reader(self, identity: Identity) -> None:
        """Note that this identity gets a result, which is evidence from now on."""
        self._is_shared |= self._first is not None and identity != self._first
        self._first = self._first or identity

    def are_all_of(self, identity: Identity) -> bool:
        """Whether all results that are evidence belong to this identity, so that it may read texts that quote one."""
        return self._first == identity and not self._is_shared

    def forget_readers(self) -> None:
        """Forget who has read results, because none is evidence any more."""
        self._first, self._is_shared = None, False

    def keep(self, signature: Signature, identity: Identity, result: Kept | None) -> None:
        """Keep a call's result and drop its previous one, unless the result is too long."""
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
