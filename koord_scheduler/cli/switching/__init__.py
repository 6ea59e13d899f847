"""The change from Koordinator's components to ours, and back."""
