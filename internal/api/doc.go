// Package api is the native edge: the unary services of gRPC, the stream, the same services over REST, and the table
// from facts to wire errors.
//
// Handlers check token, limits and shape, translate to core types in their first lines, and reach the node through
// Backend. Nothing is decided here that depends on state: that is judged in Apply.
package api
