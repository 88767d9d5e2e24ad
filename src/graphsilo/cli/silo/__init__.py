"""Commands of a silo's owner: `silo`."""
