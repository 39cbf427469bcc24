"""One TOML file per experiment; its header is the command that runs it."""
