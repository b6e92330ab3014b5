"""callfuse inside other programs: a module for each framework or host, imported by nobody but its users."""
