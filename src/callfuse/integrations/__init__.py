"""Use callfuse inside other programs: a module for each framework or host, which only its users import."""
