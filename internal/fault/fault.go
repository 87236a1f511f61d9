// Package fault marks the places where a test may plant a fault: an error, a delay, a hang or the end of the process.
//
// Without the build tag faults every Point is a constant no-op that the compiler removes, so nothing of it ships.
package fault
