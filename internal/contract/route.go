package contract

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	restpb "github.com/millrace/millrace/gen/millrace/rest"
)

// Route is one route, with what it names found.
type Route struct {
	*restpb.Route
	Method protoreflect.MethodDescriptor
	// Verb is the method of HTTP.
	Verb string
	// Path is without the fields that it names: {name} stands for one segment.
	Path string
	// Fixed are those segments, in order.
	Fixed []Source
	// Query and Header are the parameters, those that are defined elsewhere in place.
	Query  []*restpb.Param
	Header []*restpb.Param
}

// Source is a segment of a path, and the field of the request that has its value, as a path of names.
type Source struct{ Name, Field string }

// Native is the name of the method, as gRPC has it.
func (r *Route) Native() string {
	return "/" + string(r.Method.Parent().FullName()) + "/" + string(r.Method.Name())
}

// segment is {name}, or {name=field} where the field of the request has another name.
var segment = regexp.MustCompile(`\{(\w+)(?:=([\w.]+))?\}`)

// addRoutes adds the routes of all methods of a file.
func (c *Contract) addRoutes(f protoreflect.FileDescriptor) error {
	for i := range f.Services().Len() {
		methods := f.Services().Get(i).Methods()
		for j := range methods.Len() {
			for _, o := range extension[[]*restpb.Route](methods.Get(j), restpb.E_Route) {
				r, err := c.route(methods.Get(j), o)
				if err != nil {
					return fmt.Errorf("%s: %w", methods.Get(j).FullName(), err)
				}
				c.routes = append(c.routes, r)
			}
		}
	}
	return nil
}

// route makes one route of a method of what its option says. A path that names a field which the
// request does not have is an error.
func (c *Contract) route(m protoreflect.MethodDescriptor, o *restpb.Route) (*Route, error) {
	r := &Route{Route: o, Method: m}
	// An option of protobuf has a field for each method of HTTP, of which one is given.
	for _, way := range []struct{ verb, path string }{
		{"GET", o.GetGet()}, {"PUT", o.GetPut()}, {"POST", o.GetPost()}, {"DELETE", o.GetDelete()}, {"PATCH", o.GetPatch()},
	} {
		if way.path == "" {
			continue
		}
		if r.Verb != "" {
			return nil, fmt.Errorf("%s and %s are both its method", r.Verb, way.verb)
		}
		r.Verb, r.Path = way.verb, segment.ReplaceAllString(way.path, "{$1}")
		for _, s := range segment.FindAllStringSubmatch(way.path, -1) {
			field := s[2]
			if field == "" {
				field = s[1]
			}
			if Find(m.Input(), field) == nil {
				return nil, fmt.Errorf("%s has no field %s, which its path names", m.Input().Name(), field)
			}
			r.Fixed = append(r.Fixed, Source{s[1], field})
		}
	}
	if r.Verb == "" {
		return nil, errors.New("a route needs a path")
	}
	var err error
	if r.Query, err = c.found(o.GetQuery()); err != nil {
		return nil, err
	}
	r.Header, err = c.found(o.GetHeader())
	return r, err
}

// found are parameters with those in place that are defined elsewhere.
func (c *Contract) found(list []*restpb.Param) ([]*restpb.Param, error) {
	var out []*restpb.Param
	for _, p := range list {
		if p.GetId() != "" {
			// The definition is copied, with the field that this route gives it.
			known, ok := c.params[p.GetId()]
			if !ok {
				return nil, fmt.Errorf("the parameter %s is not defined", p.GetId())
			}
			field := p.GetField()
			p = &restpb.Param{Id: known.Id, Name: known.Name, Field: known.Field, Type: known.Type, Required: known.Required, Many: known.Many, Doc: known.Doc}
			if field != "" {
				p.Field = field
			}
		}
		if p.GetField() == "" {
			p.Field = p.GetName()
		}
		out = append(out, p)
	}
	return out, nil
}

// Find returns the field at a path of names, nil where there is none.
func Find(m protoreflect.MessageDescriptor, path string) protoreflect.FieldDescriptor {
	name, rest, more := strings.Cut(path, ".")
	// A path leads through messages; only its last name may be of a plain field.
	f := m.Fields().ByName(protoreflect.Name(name))
	if f == nil || !more {
		return f
	}
	if f.Message() == nil {
		return nil
	}
	return Find(f.Message(), rest)
}

// Raw reports whether the body is any bytes.
func (r *Route) Raw() bool {
	f := Find(r.Method.Input(), r.GetBody())
	return f != nil && f.Kind() == protoreflect.BytesKind
}

// BodyName is the name of the schema of the body; empty for none, and for any bytes.
func (r *Route) BodyName() string {
	switch {
	case r.GetBodyShape() != "":
		return r.GetBodyShape()
	case r.GetBody() == "*":
		return string(r.Method.Input().Name())
	case r.GetBody() == "" || r.Raw():
		return ""
	}
	return string(Find(r.Method.Input(), r.GetBody()).Message().Name())
}

// AnswerName is the name of the schema of the answer; empty for none, and for any bytes.
func (r *Route) AnswerName() string {
	switch f := Find(r.Method.Output(), r.GetAnswer()); {
	case r.GetAnswerShape() != "":
		return r.GetAnswerShape()
	case f != nil && f.Message() != nil:
		return string(f.Message().Name())
	// A plain field is answered as bytes, and 204 has no body.
	case f != nil || len(r.GetStatus()) == 1 && r.GetStatus()[0] == 204:
		return ""
	}
	return string(r.Method.Output().Name())
}

// outside reports whether the path or a parameter has a field of the request.
func (r *Route) outside(f protoreflect.FieldDescriptor) bool {
	name := string(f.Name())
	return slices.ContainsFunc(r.Fixed, func(s Source) bool { return s.Field == name }) ||
		slices.ContainsFunc(slices.Concat(r.Query, r.Header), func(p *restpb.Param) bool { return p.GetField() == name })
}

// BodyFields are the fields that the body has, of the message that it returns.
func (r *Route) BodyFields() (protoreflect.MessageDescriptor, []protoreflect.FieldDescriptor) {
	m := r.Method.Input()
	// The body is one field of the request, a message.
	if r.GetBody() != "*" {
		m = Find(m, r.GetBody()).Message()
	}
	var out []protoreflect.FieldDescriptor
	for _, f := range fieldsOf(m) {
		if InBody(f) && (r.GetBody() != "*" || !r.outside(f)) {
			out = append(out, f)
		}
	}
	return m, out
}

// fieldsOf lists the fields of a message.
func fieldsOf(m protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	out := make([]protoreflect.FieldDescriptor, m.Fields().Len())
	for i := range out {
		out[i] = m.Fields().Get(i)
	}
	return out
}

// Part is a run of fields of one message, of which a schema is made.
type Part struct {
	Message protoreflect.MessageDescriptor
	Fields  []protoreflect.FieldDescriptor
}

// Schema is what a schema is made of.
type Schema struct {
	Parts []Part
	Doc   string // where it is not that of the message
	Alone bool   // it is one message, whose comment describes it
	Mixed bool   // its parts are of several messages, and no route's body or answer alone
	Extra []*restpb.Extra
}

// Schema finds what the schema of a name is made of: parts of several messages, the body or the answer of a route, or a message.
func (c *Contract) Schema(name string) (*Schema, error) {
	s := c.shapes[name]
	if len(s.GetPart()) > 0 {
		out := &Schema{Doc: s.GetDoc(), Extra: s.GetExtra(), Mixed: len(s.GetPart()) > 1 || len(s.GetPart()[0].GetField()) > 0}
		for _, p := range s.GetPart() {
			m, err := c.Message(p.GetMessage())
			if err != nil {
				return nil, err
			}
			fields := slices.DeleteFunc(fieldsOf(m), func(f protoreflect.FieldDescriptor) bool {
				return !InBody(f) || len(p.GetField()) > 0 && !slices.Contains(p.GetField(), string(f.Name()))
			})
			out.Parts = append(out.Parts, Part{m, fields})
		}
		return out, nil
	}
	out := &Schema{}
	for _, r := range c.routes {
		// The body is the request itself, without what stands in the path and the query.
		if name != "" && r.BodyName() == name && r.GetBody() == "*" {
			m, fields := r.BodyFields()
			out.Alone = string(m.Name()) == name
			out.Parts = inlined(m, fields)
			return out, nil
		}
		if name != "" && r.GetAnswerShape() == name {
			m := r.Method.Output()
			out.Parts = inlined(m, bodyFields(m))
			return out, nil
		}
	}
	m, err := c.Message(name)
	if err != nil {
		return nil, err
	}
	out.Alone = true
	out.Parts = inlined(m, bodyFields(m))
	return out, nil
}

// bodyFields lists the fields that a body or an answer may have.
func bodyFields(m protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	return slices.DeleteFunc(fieldsOf(m), func(f protoreflect.FieldDescriptor) bool { return !InBody(f) })
}

// inlined are fields as parts, with the fields of messages that are to stand in their place.
func inlined(m protoreflect.MessageDescriptor, fields []protoreflect.FieldDescriptor) []Part {
	// A run of fields ends where another message stands in between.
	out := []Part{{Message: m}}
	for _, f := range fields {
		if FieldOf(f).GetInline() {
			out = append(out, inlined(f.Message(), bodyFields(f.Message()))...)
			out = append(out, Part{Message: m})
			continue
		}
		last := &out[len(out)-1]
		last.Fields = append(last.Fields, f)
	}
	return slices.DeleteFunc(out, func(p Part) bool { return len(p.Fields) == 0 })
}
