"""Agents of the frameworks with their calls guarded in process, each with a scripted model."""
