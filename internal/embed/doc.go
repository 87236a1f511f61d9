// Package embed turns texts into vectors: by a built-in model that needs no file and no network, or
// by a provider that the operator names.
//
// Main types:
//
//   - Embedder makes vectors of one model. It queues texts, sends them in batches and shares the
//     provider fairly between tenants.
//   - Cache keeps vectors that were used recently, and holds the calls under way, so that a text
//     which many want at the same time is asked for once. All embedders of a process share one.
//   - breaker stops asking a provider that fails, per tenant, and tries again after a while.
//   - provider speaks the protocol of one kind of provider over HTTP.
//
// How a text flows through it: Embed prepares it and looks into the cache. If its vector is not
// there, the caller either waits for the call of another caller or makes one of its own. Own calls
// wait in the queue of their tenant until send takes them into a batch; run asks the provider,
// checks the answer, and ends the calls, which wakes all callers that wait for them.
//
// Rules: every vector has length 1, so that a dot product is a cosine. A provider's address comes
// from the operator alone. No part of it or of the provider's answers is in an error that leaves
// this package.
package embed
