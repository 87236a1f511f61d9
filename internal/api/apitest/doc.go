// Package apitest has what tests of the edge and of its doors stand on: a node, tokens, objects and a model that do as they are
// told, a clock that moves only when a test says so, and a client that speaks HTTP/2 by hand.
//
// Elsewhere: the servers that are tested (each package makes its own, see newRig there).
package apitest
