import pytest

# The contract's assertions live in a module that isn't a test file; explain them all the same.
pytest.register_assert_rewrite("contract.suite")
