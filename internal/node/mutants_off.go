//go:build !mutants

package node

// plantedBug asks which bug a machine carries, to prove that a test catches it: without the build tag mutants there is
// nothing to ask.
var plantedBug func(name string) bool
