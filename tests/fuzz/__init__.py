"""Bodies that no vendor and no client would write, by the hundred thousand, and the laws that hold for them, too.

    python -m tests.fuzz [--seed 1] [--count 10000] [--seconds S] [--corpus DIR] [--atheris]
    python -m tests.fuzz --only INDEX | --case TEXT | --input FILE

A case is drawn from its seed and its index alone: settings, a callback, one to three exchanges with their requests and
answers (the kits' own and, where they are there, recorded ones), which are damaged, compressed and cut. Each is run
twice in process, whole and cut, on an event loop whose clock never waits. What must hold is in `checks`.

With `--corpus`, a case with which callfuse takes a branch for the first time is kept in that folder, and each second
case is made from a kept one. The next search begins with them: it runs all, and removes those that reach nothing that a
smaller one does not. Where a kept case fails, the report has the text that shows it again.

With `--atheris`, libFuzzer makes the cases from bytes (`inputs`): a head that chooses settings, conversation, cuts and
more, and the body itself, an answer or a request. The folder has its inputs. How long callfuse takes is not judged, as
the counters make it slower.
"""
