"""Peak prediction: what a subject will need, and what production leaves. Pure. Floor 2."""
