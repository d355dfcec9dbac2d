"""A run on disk: the only owner of its layout, its files, and how they are read back."""
