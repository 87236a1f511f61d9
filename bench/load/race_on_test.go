//go:build race

package load

// underRace says that the race detector watches: servers are several times slower.
const underRace = true
