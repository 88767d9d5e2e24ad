"""What clients and server say to each other: messages, codec, policy, ledger, sums, and the bases of both."""
