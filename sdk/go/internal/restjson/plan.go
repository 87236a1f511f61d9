// Package restjson reads the bodies of REST answers into messages of the contract. What a field looks like in JSON is said by the options
// of the contract, so that a new field needs no code here.
//
// The first answer with a message makes a plan of it: the members that its object may have, each with the field that it sets and the form
// of its value. A decoder then reads the document once, from its beginning to its end, and sets fields as their members come.
//
// A member or a word that the contract does not have is passed over, because the server may be newer; of a message that a client reads and
// writes back, as the contract says, it is kept. A value of another type than the contract says is an error, and so is a document that is
// not whole: something in between may have written or cut it.
package restjson

import (
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	restpb "github.com/millrace/millrace/gen/millrace/rest"
)

// form is how a value stands in JSON.
type form uint8

// The forms. A field of the contract has one by its type, unless an option names another.
const (
	formText     form = iota // a string
	formBool                 // true or false
	formInt                  // a number with a sign
	formUint                 // a number without one
	formReal                 // a number with decimals
	formWord                 // a word of an enumeration
	formExact                // digits in a string
	formExactInt             // the same with a sign
	formBytes                // text, or base64 under the name with _base64
	formContent              // JSON of the client's own, or base64 under the name with _base64
	formObject               // a JSON object
	formHex                  // hexadecimal digits
	formTime                 // RFC 3339
	formSpan                 // a duration such as 90s
	formSpanMs               // a number of milliseconds, as such a duration
	formMomentMs             // a number of Unix milliseconds, as a time
	formMillis               // a duration, as a number of milliseconds
	formMessage              // an object
	formMap                  // an object of texts
)

// field is one name of an object.
type field struct {
	// name is the member's name, of is the field of the message that it sets, and form is how its value stands there.
	name string
	of   protoreflect.FieldDescriptor
	form form
	// list says that it is a list of such values.
	list bool
	// sub returns the plan of a message, and words are those of an enumeration.
	sub   func() *plan
	words []string
	// in is the message whose fields stand in the enclosing object; nil where the field is its own.
	in protoreflect.FieldDescriptor
	// as64 says that it is the form of bytes under the name with _base64, for other bytes than text or JSON.
	as64 bool
	// rows says that it is messages of one list each, which stand as that list.
	rows bool
}

// plan is how a message stands in JSON.
type plan struct {
	// fields are in the order of the contract; each has its base64 form behind it.
	fields []field
	// byName finds a field by the name of its member.
	byName map[string]*field
	// keep says that members and words which the contract does not have are kept, since the message is written back.
	keep bool
}

var plans sync.Map // from the full name of a message to its *plan

// planOf returns the plan of a message, and makes it the first time. Plans are kept for good: the contract has a bounded number of
// messages.
func planOf(m protoreflect.MessageDescriptor) *plan {
	if p, ok := plans.Load(m.FullName()); ok {
		return p.(*plan) //nolint:forcetypeassert // nothing else is stored
	}
	// Two goroutines may make the same plan at the same time; either will do.
	p := &plan{byName: make(map[string]*field), keep: keeps(m)}
	p.add(m, nil)
	// The array of fields is whole now, so that pointers into it stay good.
	for i := range p.fields {
		p.byName[p.fields[i].name] = &p.fields[i]
	}
	plans.Store(m.FullName(), p)
	return p
}

// add appends the fields of a message. Those of a message that stands inline are appended too: in names the field that holds it.
func (p *plan) add(m protoreflect.MessageDescriptor, in protoreflect.FieldDescriptor) {
	for i := range m.Fields().Len() {
		f := m.Fields().Get(i)
		o := optionsOf(f)
		switch {
		case o.GetInline():
			p.add(f.Message(), f)
		// What REST does not have, or sends in a header.
		case o.GetAbsent() || o.GetReserved() || isAt(f) && !f.IsList():
		default:
			p.addField(f, o, in)
		}
	}
}

// optionsOf returns what the contract says of a field's JSON; without options all are at their defaults.
func optionsOf(f protoreflect.FieldDescriptor) *restpb.Field {
	if o, ok := proto.GetExtension(f.Options(), restpb.E_Field).(*restpb.Field); ok && o != nil {
		return o
	}
	return new(restpb.Field)
}

// keeps reports whether clients keep what they do not know of a message.
func keeps(m protoreflect.MessageDescriptor) bool {
	o, ok := proto.GetExtension(m.Options(), restpb.E_Message).(*restpb.Message)
	return ok && o.GetKeep()
}

// isAt reports whether a field is a place in the log, which REST sends in a header and not in the body.
func isAt(f protoreflect.FieldDescriptor) bool {
	return f.Message() != nil && f.Message().FullName() == "millrace.v1.At"
}

// addField appends one field, and for bytes that may be text its second form, under the name with _base64.
func (p *plan) addField(f protoreflect.FieldDescriptor, o *restpb.Field, in protoreflect.FieldDescriptor) {
	x := field{
		name: string(f.Name()), of: f, in: in, list: f.IsList(), form: formOf(f, o),
		rows: o.GetForm() == restpb.Form_ROWS,
	}
	switch x.form {
	// The names of the contract carry a unit that the value in JSON has itself, or lacks one that it needs.
	case formSpanMs:
		x.name = strings.TrimSuffix(x.name, "_ms")
	case formMomentMs:
		x.name = strings.TrimSuffix(x.name, "_ms") + "_at"
	case formMillis:
		x.name += "_ms"
	case formWord:
		x.words = words(f.Enum())
	case formMessage:
		m := f.Message()
		// Messages may contain themselves, so the plan of the inner one is made when it is first needed.
		x.sub = sync.OnceValue(func() *plan { return planOf(m) })
	}
	p.fields = append(p.fields, x)
	// Bytes that are not text stand under another name; which of the two comes says how to read them.
	if x.form == formBytes || x.form == formContent {
		x.name += "_base64"
		x.as64 = true
		p.fields = append(p.fields, x)
	}
}

// formOf is how a field stands in JSON: as its options say, else by its type.
func formOf(f protoreflect.FieldDescriptor, o *restpb.Field) form {
	// What an option says goes before the type.
	switch o.GetForm() {
	case restpb.Form_CONTENT:
		return formContent
	case restpb.Form_OBJECT:
		return formObject
	case restpb.Form_HEX:
		return formHex
	case restpb.Form_SPAN:
		return formSpanMs
	case restpb.Form_MOMENT:
		return formMomentMs
	case restpb.Form_MILLIS:
		return formMillis
	case restpb.Form_EXACT:
		if f.Kind() == protoreflect.Int64Kind {
			return formExactInt
		}
		return formExact
	}
	if f.IsMap() {
		return formMap
	}
	switch f.Kind() {
	case protoreflect.BoolKind:
		return formBool
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		return formInt
	case protoreflect.Uint32Kind:
		return formUint
	case protoreflect.Uint64Kind:
		return formUint
	case protoreflect.FloatKind, protoreflect.DoubleKind:
		return formReal
	case protoreflect.EnumKind:
		return formWord
	case protoreflect.BytesKind:
		return formBytes
	case protoreflect.MessageKind:
		switch f.Message().FullName() {
		case "google.protobuf.Timestamp":
			return formTime
		case "google.protobuf.Duration":
			return formSpan
		}
		return formMessage
	}
	return formText
}

// words are the names of an enumeration's values, by number, in lower case; the one that means nothing is empty.
func words(e protoreflect.EnumDescriptor) []string {
	// The contract begins each name with that of its enumeration, where it would not be unique otherwise.
	prefix := strings.ToUpper(string(e.Name())) + "_"
	if first := string(e.Values().Get(0).Name()); strings.HasSuffix(first, "_UNSPECIFIED") { // a name of several words
		prefix = strings.TrimSuffix(first, "UNSPECIFIED")
	}
	out := make([]string, e.Values().Len())
	for i := range out {
		if name := strings.TrimPrefix(string(e.Values().Get(i).Name()), prefix); name != "UNSPECIFIED" {
			out[i] = strings.ToLower(name)
		}
	}
	return out
}
