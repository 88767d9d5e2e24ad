"""Commands of a federation between machines: `serve`, `join`, `federation`."""
