"""The Responses dialect in what the laws do not ask of every dialect."""
