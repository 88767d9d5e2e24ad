"""NVIDIA FLARE between machines: carries byte strings over mutual TLS and one port, and nothing else.

    provision.py     one kit per party: names, certificate, key
    sealing.py       a kit as one encrypted file
    kit.py           what a kit holds, and whether its parts fit together
    coordinator.py   NvflareTransport: requests to sites, from the runner's process
    site.py          NvflareSite: the other end
    keeper.py        starts an engine's process, and starts it again when it ends
    engine.py        the engine's process itself, both roles
    relay.py         what runs inside it

FLARE's own unit of work, the job, is not used: a job ends for everybody when it ends at one site, takes in nobody who
comes later, and needs code or configuration to travel. Our relay is a *system component* instead, named in a file that
every party writes for itself from its own installation. The engine is configured so that it accepts no job at all.

Import the modules; this package itself imports nothing.
"""
