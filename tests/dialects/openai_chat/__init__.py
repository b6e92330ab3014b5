"""The dialect of OpenAI chat completions in what the laws do not ask of every dialect."""
