"""Tools for tests, ours and users': the golden checker, simulations. No product room imports it."""
