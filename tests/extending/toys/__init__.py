"""Things to be added to a copy of the project: each file has its place in there, and is not used where it lies."""
