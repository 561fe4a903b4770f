"""`manager doctor`: finds what keeps the manager from working, and says how to mend it. It changes nothing."""
