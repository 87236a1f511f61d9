// Package rest is the HTTP door of a node: JSON in and out, under the rules, limits and errors of gRPC.
//
// Each route reads JSON into the message that a method takes, calls the service of package api that serves the method, and writes its
// answer as JSON. A request that another node must serve is forwarded, or its caller is sent there.
//
// Elsewhere: what a service does (api), who may call it and how much may be under way (edge), JSON itself (strictjson).
package rest
