"""Reservations: who may use what they hold."""
