// Command apidoc writes the OpenAPI document of the REST interface: routes from the table that serves them, schemas
// from the contract in proto/, of which it reads the compiled form with its comments from the standard input.
//
// What REST says differently from the contract is in schema.go. That bodies are read and answers written as the
// document says is tested in internal/api.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/millrace/millrace/internal/api"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "apidoc:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	files, err := contract(in)
	if err != nil {
		return err
	}
	doc, err := document(files, api.Routes())
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

// contract reads a set of compiled files, with the comments of each declaration.
func contract(in io.Reader) (*protoregistry.Files, error) {
	b, err := io.ReadAll(in)
	if err != nil {
		return nil, err
	}
	set := new(descriptorpb.FileDescriptorSet)
	if err := proto.Unmarshal(b, set); err != nil {
		return nil, fmt.Errorf("read the contract: %w", err)
	}
	if len(set.GetFile()) == 0 {
		return nil, errors.New("the contract is empty: give buf build's output")
	}
	return protodesc.NewFiles(set)
}

// pkg is the package of the contract.
const pkg = "millrace.v1."

func message(files *protoregistry.Files, name string) (protoreflect.MessageDescriptor, error) {
	d, err := files.FindDescriptorByName(protoreflect.FullName(pkg + name))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	m, ok := d.(protoreflect.MessageDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is not a message", name)
	}
	return m, nil
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
