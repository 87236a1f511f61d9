// Package rest is the HTTP door of a node: JSON in and out, under the rules, limits and errors of gRPC.
//
// Each route reads JSON into the message that a method takes, calls the service of package api that serves the method, and writes its
// answer as JSON. A request that another node must serve is forwarded, or its caller is sent there.
//
// The table of routes is in routes.go and the files of each service; the OpenAPI document is made from it. Most bodies, answers and
// handlers are generated from the contract (contract_gen.go); a handler that is written by hand says why. DESIGN.md tells the way of
// a request.
//
// Promised: a route without a rule, or one that does not say how its requests are repeated, keeps a server from being made; a request
// has one answer; what a request holds is given back when it ends, also by a panic.
//
// Elsewhere: what a service does (api), who may call it and how much may be under way (edge), JSON itself (strictjson).
package rest
