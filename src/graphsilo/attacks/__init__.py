"""Attacks on finished runs: what somebody who keeps to the protocol learns from what was sent.

An attack is a function of what one attacker sees of some silos, and of the truth, which it takes only to count what it
got right. ``study.ATTACKS`` lists them. ``recorder`` repeats a run and notes its messages, ``views`` hands them out.
"""
