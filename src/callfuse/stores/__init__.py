"""Stores that several processes share: Redis or Valkey behind a circuit breaker, beside the memory of each process."""
