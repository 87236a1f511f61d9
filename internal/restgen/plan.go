package main

import (
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/millrace/millrace/internal/contract"
)

// handwritten are messages that no code is generated for, each with the reason.
var handwritten = map[string]string{
	"SearchResponse": "it is written from the rows that were found, without a message in between",
	"EmbedResponse":  "it is written from the vectors that were made, whose text may be known already",
}

// mixed reports whether a body or an answer is made of parts of several messages: its handler reads and writes it by hand.
func mixed(c *contract.Contract, name string) bool {
	s, err := c.Schema(name)
	return err != nil || s.Mixed
}

// reader is a body, or a message in one, with the fields that it may have.
type reader struct {
	// name is that of the schema.
	name string
	// message is what the body becomes, fields what the body may set of it.
	message protoreflect.MessageDescriptor
	fields  []protoreflect.FieldDescriptor
	// body says that it is that of a route: other fields of the message stand in the path or the query.
	body bool
}

// plan is what to generate, in order.
type plan struct {
	// enums are enumerations of which words are read or written, readers the messages of requests,
	// writers those of answers.
	enums   []protoreflect.EnumDescriptor
	readers []*reader
	writers []protoreflect.MessageDescriptor
}

// planOf finds all that routes need, and what these messages hold in turn.
func planOf(c *contract.Contract) (*plan, error) {
	p := new(plan)
	for _, r := range c.Routes() {
		if r.GetBody() != "" && !r.Raw() && !mixed(c, r.BodyName()) {
			m, fields := r.BodyFields()
			p.read(&reader{name: r.BodyName(), message: m, fields: fields, body: true})
		}
		if r.AnswerName() != "" && !mixed(c, r.AnswerName()) {
			m := r.Method.Output()
			// The answer is one field of what the method returns.
			if f := contract.Find(m, r.GetAnswer()); f != nil {
				m = f.Message()
			}
			p.write(m)
		}
	}
	for _, name := range apart {
		m, err := c.Message(name)
		if err != nil {
			return nil, err
		}
		p.write(m)
	}
	return p, nil
}

// apart are messages that no route answers alone, and that handlers or errors need.
var apart = []string{"Error", "SettleResult"}

// read plans a reader, once for each name, and readers of what it holds.
func (p *plan) read(r *reader) {
	if slices.ContainsFunc(p.readers, func(o *reader) bool { return o.name == r.name }) || handwritten[r.name] != "" {
		return
	}
	p.readers = append(p.readers, r)
	for _, f := range r.fields {
		switch {
		case f.Enum() != nil:
			p.enum(f.Enum())
		case f.Message() != nil && !wellKnown(f) && !f.IsMap():
			m := f.Message()
			p.read(&reader{name: string(m.Name()), message: m, fields: bodyFields(m)})
		}
	}
}

// write plans a writer, once for each message, and writers of what it holds.
func (p *plan) write(m protoreflect.MessageDescriptor) {
	if slices.Contains(p.writers, m) || handwritten[string(m.Name())] != "" {
		return
	}
	p.writers = append(p.writers, m)
	for _, f := range bodyFields(m) {
		switch {
		case f.Enum() != nil:
			p.enum(f.Enum())
		case f.Message() != nil && !wellKnown(f) && !f.IsMap() && !contract.IsAt(f):
			p.write(f.Message())
		}
	}
}

// enum plans the words of an enumeration, once.
func (p *plan) enum(e protoreflect.EnumDescriptor) {
	if !slices.Contains(p.enums, e) {
		p.enums = append(p.enums, e)
	}
}

// bodyFields are the fields of a message that a body may have.
func bodyFields(m protoreflect.MessageDescriptor) (out []protoreflect.FieldDescriptor) {
	for i := range m.Fields().Len() {
		if f := m.Fields().Get(i); contract.InBody(f) {
			out = append(out, f)
		}
	}
	return out
}

// wellKnown reports whether a field is a time or a duration.
func wellKnown(f protoreflect.FieldDescriptor) bool {
	return f.Message() != nil && strings.HasPrefix(string(f.Message().FullName()), "google.protobuf.")
}

// goName is the name that protoc-gen-go gives to a field.
func goName(f protoreflect.Descriptor) string {
	var out strings.Builder
	for word := range strings.SplitSeq(string(f.Name()), "_") {
		out.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return out.String()
}

// typeName is the name that protoc-gen-go gives to a message or an enumeration, which may be within a message.
func typeName(d protoreflect.Descriptor) string {
	if m, ok := d.Parent().(protoreflect.MessageDescriptor); ok {
		return typeName(m) + "_" + string(d.Name())
	}
	return string(d.Name())
}

// lower is a name as those begin that a package keeps to itself: KVPut is kvPut.
func lower(name string) string {
	n := 0
	for n < len(name) && name[n] >= 'A' && name[n] <= 'Z' {
		n++
	}
	// Of several capitals the last one begins the next word.
	if n > 1 && n < len(name) {
		n--
	}
	return strings.ToLower(name[:n]) + name[n:]
}

// wordsName is the name of the words of an enumeration.
func wordsName(e protoreflect.EnumDescriptor) string {
	return lower(strings.ReplaceAll(typeName(e), "_", "")) + "Words"
}

// choiceName is the name of the set of texts that a field may be.
func choiceName(f protoreflect.FieldDescriptor) string {
	return lower(typeName(f.Parent())) + goName(f) + "Words"
}
