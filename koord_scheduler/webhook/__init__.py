"""The admission webhooks over HTTPS, and their certificate."""
