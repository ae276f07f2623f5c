import pytest

# The contract's assertions live in modules that aren't test files; explain them all the same.
for _name in ("at_once", "homes", "identities", "quotas", "settings", "watches"):
    pytest.register_assert_rewrite(f"contract.{_name}")
