"""The search that libFuzzer leads: it mutates the inputs with which callfuse takes a branch for the first time, or gets
further in a comparison. Atheris brings it, and puts its counters into the functions of callfuse.

libFuzzer keeps its inputs in a folder. It leaves beside it, as `FOLDER-crash-...`, `-timeout-...` or `-oom-...`, one
that ends the process or takes two minutes.
"""

import gc
import hashlib
import os
import random
import re
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, Final, NoReturn

from tests.fuzz.corpus import Damaged
from tests.fuzz.inputs import mutated

MOST_BYTES: Final = 16_384
"""Of an input; the longest answer of the kits has 5,000."""
NAME: Final = re.compile(r"[0-9a-f]{40}")
"""Of an input's file: its digest."""
LIMITS: Final = (f"-max_len={MOST_BYTES}", "-timeout=120", "-rss_limit_mb=4096", "-verbosity=0")


class NotInstalled(RuntimeError):
    """Atheris cannot be imported."""


def atheris() -> Any:
    """The package. Raises NotInstalled."""
    try:
        return import_module("atheris")
    except ImportError as error:
        text = "atheris is not installed; for CPython 3.11 to 3.13, on Linux: pip install -c constraints.txt atheris"
        raise NotInstalled(f"{text} ({error})") from error


def instrument(engine: Any, prefix: str) -> int:
    """Put counters into the functions of files whose paths begin with `prefix`; how many there are."""
    gc.unfreeze()  # what is frozen would not be among the objects
    patched: dict[tuple[str, CodeType], CodeType] = {}  # codes of two files may be equal
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename.startswith(prefix):
            code = one.__code__
            if (code.co_filename, code) not in patched:
                patched[code.co_filename, code] = engine.patch_code(code, True, True)
            one.__code__ = patched[code.co_filename, code]
    gc.freeze()
    return len(patched)


def keep_needed(folder: Path, reaches_new: Callable[[bytes], bool]) -> int:
    """Remove the inputs of a folder that reach nothing new, each after all that are smaller; how many are left."""
    kept = 0
    for path in sorted(folder.iterdir(), key=lambda path: (path.stat().st_size, path.name)):
        if reaches_new(path.read_bytes()):
            kept += 1
        else:
            path.unlink()
    return kept


def write_inputs(folder: Path, inputs: Iterable[bytes]) -> None:
    """Write inputs as libFuzzer does, each under its digest, into a folder that is made where it does not exist. Raises
    Damaged if anything else is in it, as inputs are removed from there."""
    folder.mkdir(parents=True, exist_ok=True)
    if other := [path for path in folder.iterdir() if not NAME.fullmatch(path.name)]:
        raise Damaged(f"{other[0]} is no input of libFuzzer; name a folder that has nothing else")
    for data in inputs:
        name = hashlib.sha1(data, usedforsecurity=False).hexdigest()
        (folder / name).write_bytes(data)


def lead(engine: Any, look: Callable[[bytes], None], folder: Path, seed: int) -> None:
    """Run inputs, at first those of the folder, until `look` raises KeyboardInterrupt."""

    def mutate(data: bytes, most: int, number: int) -> bytes:
        made: bytes = mutated(data, most, random.Random(number), engine.Mutate)
        return made

    arguments = ["tests.fuzz", *LIMITS, f"-seed={seed}", f"-artifact_prefix={folder}-", str(folder)]
    engine.Setup(arguments, look, custom_mutator=mutate)
    try:
        engine.Fuzz()
    except SystemExit:  # what becomes of a KeyboardInterrupt
        return


def leave(status: int) -> NoReturn:
    """End the process with this status: one of Atheris's own handlers would make it 130."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
