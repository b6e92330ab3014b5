"""What goes wrong around callfuse, and what each side sees of it."""
