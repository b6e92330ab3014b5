"""Programs of others: LiteLLM's proxy with the guard around it, and the guardrail that a LiteLLM elsewhere asks."""
