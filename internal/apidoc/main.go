// Command apidoc writes the OpenAPI document of the REST interface: routes from the table that serves them, schemas
// from the contract in proto/, of which it reads the compiled form with its comments from the standard input.
//
// What REST says differently from the contract stands in the contract too, as options. That bodies are read and answers written as the
// document says is tested in internal/rest.
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

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "apidoc:", err)
		os.Exit(1)
	}
}

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

type field struct {
	name  string
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
		o = slices.Clone(o)
		o[i].value = value
		return o
	}
	return append(o, field{name, value})
}

// with appends a field that has a value.
func (o object) with(name string, value any) object {
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
