"""The silo's side of a federation between machines."""
