"""Other clients' own test suites, run once at a broker and once at a gateway in front of it."""
