"""What carries messages between machines: NVIDIA FLARE or Flower."""
