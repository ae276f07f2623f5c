"""Clients people use, each behind one interface, and which operations each is tried at."""
