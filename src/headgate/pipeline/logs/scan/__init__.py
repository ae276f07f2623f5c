"""Read request-log lines in machine code; give back every line that isn't wholly vouched for."""
