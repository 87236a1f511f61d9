// Package embed turns texts into vectors: by a built-in model that needs no file and no network, or by a provider that
// the operator names. It keeps what was asked for lately, asks once for what many want at the same time, and stops asking
// a provider that fails.
//
// Every vector has length 1, so that a dot product is a cosine. A provider's address comes from the operator alone, and
// nothing of it, nor of its answers, is in an error that leaves this package.
package embed
