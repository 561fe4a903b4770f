"""The operator: `main` has the flags and the list of controllers, `kinds` one module a kind."""
