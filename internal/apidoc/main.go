// Command apidoc writes the OpenAPI document of the REST interface: routes from the table that serves them, schemas
// from the contract in proto/, of which it reads the compiled form with its comments from the standard input.
//
// What REST says differently from the contract stands in the contract too, as options. That bodies are read and answers written as the
// document says is tested in internal/rest.
//
// The document is made of three things: routes with their parameters (rest.Routes), the fields of bodies (internal/contract), and what
// values look like (rest.FieldForms), which the contract does not say because it depends on limits. Only the schemas of OpenAI's API are
// written by hand.
//
// Promised: the order of everything is that of the table and the contract, so that a change of either changes few lines; a field whose
// kind has no form in JSON is an error.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/millrace/millrace/internal/contract"
	"github.com/millrace/millrace/internal/rest"
)

// main reads the compiled contract and writes the document, and ends with 1 where it cannot.
func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "apidoc:", err)
		os.Exit(1)
	}
}

// run reads the contract from in, with its comments, which the program does not have linked in, and
// writes the document to out.
func run(in io.Reader, out io.Writer) error {
	c, err := contract.Read(in)
	if err != nil {
		return err
	}
	doc, err := document(c, rest.Routes())
	if err != nil {
		return err
	}
	text, err := json.MarshalIndent(doc, "", "  ")
	if err != nil {
		return err
	}
	_, err = out.Write(append(text, '\n'))
	return err
}

// object is a JSON object whose fields keep their order.
type object []field

// field is a member of an object.
type field struct {
	name string
	// value is whatever package json writes: another object, a list, a text or a number.
	value any
}

// MarshalJSON writes the fields in order. A name that is there twice is an error: readers take either field, or none.
func (o object) MarshalJSON() ([]byte, error) {
	out := []byte{'{'}
	for i, f := range o {
		if indexOf(o[:i], f.name) >= 0 {
			return nil, fmt.Errorf("the field %s is there twice", f.name)
		}
		if i > 0 {
			out = append(out, ',')
		}
		name, err := json.Marshal(f.name)
		if err != nil {
			return nil, err
		}
		value, err := json.Marshal(f.value)
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, name...), ':'), value...)
	}
	return append(out, '}'), nil
}

// indexOf is the place of a member in an object, -1 where it is missing.
func indexOf(o object, name string) int {
	for i, f := range o {
		if f.name == name {
			return i
		}
	}
	return -1
}

// set is o with a field, in place of the one of that name if there is one.
func (o object) set(name string, value any) object {
	if i := indexOf(o, name); i >= 0 {
		// The object may be a part of another schema too.
		o = slices.Clone(o)
		o[i].value = value
		return o
	}
	return append(o, field{name, value})
}

// with appends a field that has a value.
func (o object) with(name string, value any) object {
	// An empty description or list says nothing.
	switch v := value.(type) {
	case string:
		if v == "" {
			return o
		}
	case object:
		if len(v) == 0 {
			return o
		}
	case []any:
		if len(v) == 0 {
			return o
		}
	}
	return append(o, field{name, value})
}
