package main

import (
	"slices"
	"testing"

	"github.com/millrace/millrace/internal/rest"
)

// A reference to a header that the document does not have is refused by strict readers.
func TestEveryHeaderOfAnAnswerIsInTheDocument(t *testing.T) {
	known := headers()
	for _, r := range rest.Routes() {
		for _, name := range r.Headers {
			if !slices.ContainsFunc(known, func(f field) bool { return f.name == name }) {
				t.Errorf("%s %s answers with %s, which is not in the document", r.Method, r.Path, name)
			}
		}
	}
}
