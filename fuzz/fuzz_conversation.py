"""Fuzz ``conversation`` of tests/fuzz_targets.py."""

from harness import run

if __name__ == "__main__":
    run("conversation")
