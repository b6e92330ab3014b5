"""Programs that measure. Each prints medians of interleaved runs, as ratios where machines differ."""
