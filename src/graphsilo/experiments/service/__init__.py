"""Runs over silos at other machines: the coordinator, its queue of jobs, its status page."""
