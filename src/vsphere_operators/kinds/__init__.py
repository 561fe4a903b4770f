"""One module a kind: spec, status, a pure function, the controller. Kinds never import each other."""
