//go:build race

package sim

// underRace says that the race detector watches. A simulated cluster is one goroutine: some histories show it all that there is.
const underRace = true
