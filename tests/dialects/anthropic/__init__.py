"""The dialect of Anthropic messages in what the laws do not ask of every dialect."""
