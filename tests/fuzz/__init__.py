"""Bodies that no vendor and no client would write, by the hundred thousand, and the laws that hold for them, too.

    python -m tests.fuzz [--seed 1] [--start 0] [--count 10000] [--seconds S] [--only INDEX]

A case is drawn from its seed and its index alone: settings, a callback, one to three exchanges with their requests and
answers (the kits' own and, where they are there, recorded ones), which are damaged, compressed and cut. Each is run
twice in process, whole and cut, on an event loop whose clock never waits. What must hold is in `checks`.
"""
