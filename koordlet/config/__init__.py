"""The configuration file: schema, validation, origins, reload. Floor 5."""
