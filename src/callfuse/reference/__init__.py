"""The settings as people read and write them: every key, the template of a file, a JSON schema, what is in effect, and
what `callfuse tune --write` writes into a file. A process that only guards needs none of it."""
