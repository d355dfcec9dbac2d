"""What flows between the rooms: samples and groups (no torch), token batches, mergeable metrics."""
