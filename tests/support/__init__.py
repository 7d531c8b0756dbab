"""What several test files share: nets, data, runs and how they are compared."""
