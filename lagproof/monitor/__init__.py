"""Watching a run while it trains: alarms and what to try. Rows of metrics in, alarms out."""
