"""What callfuse tells about itself: structured log lines and counts."""
