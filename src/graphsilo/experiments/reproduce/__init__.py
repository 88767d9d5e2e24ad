"""The papers' tables: what they print, and how each is run again."""
