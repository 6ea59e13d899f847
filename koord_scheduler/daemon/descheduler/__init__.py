"""The descheduler: rounds that say who shall go, and jobs that carry it out."""
