"""What `docs/architecture.md` promises of extension points: each kind of new thing is added from outside, to a copy."""
