//go:build !race

package node

const underRace = false
