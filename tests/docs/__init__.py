"""Every code block of the README and of `docs/` runs.

`blocks` reads the pages, `kinds` says how a block is run: `snippets` (Python), `shell`, `data` (YAML, JSON, TOML, ...)
and `outputs` (what a page says that a program prints). `world` is what they run in: a scripted vendor, one running
`callfuse serve`, a folder. What pages take for granted (addresses, files, names, programs) and which blocks run
elsewhere stands in one place: `given`.
"""
