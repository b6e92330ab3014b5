"""The guard of one answer: the hold, the verdict at its end, what is then done; streamed, whole, or only watched."""
