"""TODO: the map of this room."""
