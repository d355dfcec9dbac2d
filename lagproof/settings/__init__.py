"""What settings are made of: keys with their bounds and help texts, TOML, and models that check both."""
