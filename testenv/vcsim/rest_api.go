package main

const (
	restBoth   = "both"
	restAPI    = "api"
	restLegacy = "rest"
)
