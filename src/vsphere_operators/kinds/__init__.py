"""One module or package per kind: types, status, controller. Kinds never import each other."""
