"""One entry per method, a file or a package, in the alphabet: what it is stands in its ``METHOD`` statement."""
