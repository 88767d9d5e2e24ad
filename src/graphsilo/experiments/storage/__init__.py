"""What a run writes and reads: checkpoints, results, models, its inputs."""
