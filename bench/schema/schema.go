// Package schema holds the JSON Schema of result.json, for those who read results with other tools.
//
// Promised: it names every field that package bench writes, and within millrace.bench/1 fields are only added. A reader
// passes over fields that it does not know.
package schema

import _ "embed" // the schema is a file, so that tools find it without building anything

// Result is the JSON Schema (draft 2020-12) of a result with "schema": "millrace.bench/1".
//
//go:embed result.v1.json
var Result []byte
