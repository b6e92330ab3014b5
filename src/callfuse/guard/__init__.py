"""Guards one answer of a model: holds suspect calls, gets the verdict at the end and carries it out. Or only
observes."""
