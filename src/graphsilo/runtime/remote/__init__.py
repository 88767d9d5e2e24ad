"""The coordinator's side of silos at other machines."""
