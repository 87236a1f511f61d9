// Package stream is the bidirectional stream of gRPC: the sessions of producers, workers and clients of keys, and the codec of the
// frames that carry a busy stream. DESIGN.md has the states of a stream, the order of its frames, and what stops reading.
//
// It stands on package api, whose guard every stream passes: api.Server receives bytes, knows rights and limits, and translates.
package stream
