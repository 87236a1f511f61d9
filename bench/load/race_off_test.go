//go:build !race

package load

const underRace = false
