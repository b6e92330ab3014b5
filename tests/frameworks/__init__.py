"""Agent frameworks over sockets: their own loops, stopped and steered by the guard between them and the vendor."""
