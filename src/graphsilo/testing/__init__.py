"""For authors of methods: the conformance suite."""
