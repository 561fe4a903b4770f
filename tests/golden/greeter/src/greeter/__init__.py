"""The operator: `main` has its flags and its list of controllers, `kinds` has the kinds."""
