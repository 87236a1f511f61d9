// Package contract reads the compiled contract of proto/ and what its options say about REST. The OpenAPI document and the code that
// reads and writes bodies are made from it.
//
// It answers three questions, each of names: which routes there are (Routes), of what a schema is made (Schema), and what REST does with
// a field, a oneof or a message (FieldOf, OneofOf, MessageOf). Programs that generate code or documents ask these and read no option by
// themselves, so that both say the same.
//
// Promised: a route names fields that its request has, parameters that are defined, and one method of HTTP; else reading fails.
// Elsewhere: what the options are (proto/millrace/rest), Go code (restgen), schemas in JSON (apidoc).
package contract

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	restpb "github.com/millrace/millrace/gen/millrace/rest"
	_ "github.com/millrace/millrace/gen/millrace/v1" // the contract
)

// pkg is the package of the contract, and dir the folder of its files.
const (
	pkg = "millrace.v1."
	dir = "millrace/v1/"
)

// order is that of the contract's files in tables and documents; files that it does not name come last.
var order = []string{"task", "kv", "tenant", "ref", "search", "cluster", "stream"}

// Contract is the whole contract.
type Contract struct {
	// files are the compiled files, those that the contract imports too.
	files *protoregistry.Files
	// params are parameters that several routes name by an id, shapes are schemas that are not messages.
	params map[string]*restpb.Param
	shapes map[string]*restpb.Shape // by name
	routes []*Route
}

// Read reads a set of compiled files, with the comments of each declaration where the set has them.
func Read(in io.Reader) (*Contract, error) {
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
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, err
	}
	return of(files)
}

// Linked is the contract as this program has it: whole, but without comments.
func Linked() (*Contract, error) { return of(protoregistry.GlobalFiles) }

// of reads the options of the contract's files. Parameters and shapes come first: routes of any file
// may name them.
func of(files *protoregistry.Files) (*Contract, error) {
	c := &Contract{files: files, params: make(map[string]*restpb.Param), shapes: make(map[string]*restpb.Shape)}
	list := c.list()
	for _, f := range list {
		for _, p := range extension[[]*restpb.Param](f, restpb.E_Param) {
			c.params[p.GetId()] = p
		}
		for _, s := range extension[[]*restpb.Shape](f, restpb.E_Shape) {
			c.shapes[s.GetName()] = s
		}
	}
	for _, f := range list {
		if err := c.addRoutes(f); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// list lists the contract's own files in order.
func (c *Contract) list() []protoreflect.FileDescriptor {
	var out, rest []protoreflect.FileDescriptor
	for _, name := range order {
		if f, err := c.files.FindFileByPath(dir + name + ".proto"); err == nil {
			out = append(out, f)
		}
	}
	c.files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		// Files of other packages, such as those of well-known types, are not listed.
		name, own := strings.CutPrefix(f.Path(), dir)
		if own && !slices.Contains(order, strings.TrimSuffix(name, ".proto")) {
			rest = append(rest, f)
		}
		return true
	})
	slices.SortFunc(rest, func(a, b protoreflect.FileDescriptor) int { return strings.Compare(a.Path(), b.Path()) })
	// A file that was added and not named in order still has its routes.
	return append(out, rest...)
}

// Message returns a message of the contract by its name without the package.
func (c *Contract) Message(name string) (protoreflect.MessageDescriptor, error) {
	d, err := c.files.FindDescriptorByName(protoreflect.FullName(pkg + name))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	m, ok := d.(protoreflect.MessageDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is not a message", name)
	}
	return m, nil
}

// Routes lists the routes of all methods, in the order of the contract.
func (c *Contract) Routes() []*Route { return c.routes }

// extension is the value of an option of a declaration; the zero value where it has none.
func extension[T any](d protoreflect.Descriptor, x protoreflect.ExtensionType) (out T) {
	// A declaration without options has none to ask.
	if o := d.Options(); o.ProtoReflect().IsValid() && proto.HasExtension(o, x) {
		out, _ = proto.GetExtension(o, x).(T)
	}
	return out
}

// FieldOf is what REST does with a field. It is never nil.
func FieldOf(f protoreflect.FieldDescriptor) *restpb.Field {
	if o := extension[*restpb.Field](f, restpb.E_Field); o != nil {
		return o
	}
	return new(restpb.Field)
}

// MessageOf is what REST does with a message. It is never nil.
func MessageOf(m protoreflect.MessageDescriptor) *restpb.Message {
	if o := extension[*restpb.Message](m, restpb.E_Message); o != nil {
		return o
	}
	return new(restpb.Message)
}

// OneofOf is what REST does with a oneof. It is never nil.
func OneofOf(d protoreflect.OneofDescriptor) *restpb.Oneof {
	if o := extension[*restpb.Oneof](d, restpb.E_Oneof); o != nil {
		return o
	}
	return new(restpb.Oneof)
}

// InBody reports whether a body may have a field.
func InBody(f protoreflect.FieldDescriptor) bool {
	o := FieldOf(f)
	return !o.GetAbsent() && !o.GetReserved()
}

// IsAt reports whether a field says where an answer stands, which has a form of its own in each answer.
func IsAt(f protoreflect.FieldDescriptor) bool {
	return f.Message() != nil && f.Message().Name() == "At"
}

// Words are the names of an enumeration's values, by number, in lower case. The one that means nothing is empty.
func Words(e protoreflect.EnumDescriptor) []string {
	// STATE_READY of State is ready. An enumeration whose name has several words has them apart in its
	// values, so the value that means nothing tells the prefix.
	prefix := strings.ToUpper(string(e.Name())) + "_"
	if first := string(e.Values().Get(0).Name()); strings.HasSuffix(first, "_UNSPECIFIED") { // a name of several words
		prefix = strings.TrimSuffix(first, "UNSPECIFIED")
	}
	out := make([]string, e.Values().Len())
	for i := range out {
		name := strings.TrimPrefix(string(e.Values().Get(i).Name()), prefix)
		if name != "UNSPECIFIED" {
			out[i] = strings.ToLower(name)
		}
	}
	return out
}
