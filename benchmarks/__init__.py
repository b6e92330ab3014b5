"""Measure callfuse. Each program prints medians of interleaved runs, as ratios if results depend on the machine."""
