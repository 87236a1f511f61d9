// Package machinetest is the test kit of the state machines: a transaction over a map, and the suites that every
// machine passes. Only tests import it.
package machinetest
