"""What the companion shows over HTTP: health and metrics."""
