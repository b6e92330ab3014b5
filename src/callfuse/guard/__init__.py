"""Guard one answer of a model: hold suspect calls, get the verdict when the answer ends, and carry it out; or only
observe the answer."""
