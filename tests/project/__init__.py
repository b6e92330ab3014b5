"""The project about itself: what its documents say holds of its sources."""
