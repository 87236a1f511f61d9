// Package api is the native edge: the unary services of gRPC, what guards all of its methods, and the translation between messages
// of the contract and core types.
//
// Handlers check token, limits and shape, translate to core types in their first lines, and reach the node through the interface of
// their service (backend.go). Nothing is decided here that depends on state: that is judged in Apply.
//
// Two packages are other ways in, and stand above this one: rest calls the services, and stream serves the bidirectional stream. For
// stream there are Add, RecvBytes, Decode and Encoded, FrameRule and Known, Bound with its Translator, Answers, and Backend.
package api
