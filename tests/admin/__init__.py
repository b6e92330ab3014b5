"""The admin page: who may look, what is shown, and that its path is nobody else's."""
