"""Where graphs come from: the catalogue of known ones, own tables and databases, generators."""
