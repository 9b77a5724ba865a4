"""The project's tests; each folder mirrors a package."""
