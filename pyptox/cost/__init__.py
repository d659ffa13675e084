"""Cost of a kernel: rules, in-core machine, traffic, occupancy."""
