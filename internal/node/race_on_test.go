//go:build race

package node

// underRace says that the race detector watches. It sees no more in the thousandth round of a test than in the tenth, and makes each
// several times longer.
const underRace = true
