// Package openapi holds the OpenAPI document of the REST interface. It is generated: see scripts/generate.sh.
package openapi

import _ "embed"

// Document is the document, as JSON.
//
//go:embed millrace.v1.json
var Document []byte
