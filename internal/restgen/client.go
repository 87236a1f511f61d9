package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	restpb "github.com/millrace/millrace/gen/millrace/rest"
	"github.com/millrace/millrace/internal/contract"
)

// client writes the code of the Go SDK: how requests are written, and the table of routes.
func (g *generator) client(c *contract.Contract, p *plan) error {
	for _, e := range p.enums {
		if g.sends(p, e) {
			g.words(e)
		}
	}
	for _, r := range p.readers {
		g.line("\nfunc write%s(w *restBody, m *pb.%s) {", r.name, typeName(r.message))
		if err := g.sendFields(r); err != nil {
			return err
		}
		g.line("}")
	}
	// The SDK chooses among the routes of a method the first whose path it can fill from the request.
	g.line("\n// routes are the routes of each method, by its full name.\nvar routes = map[string][]route{")
	for _, list := range byMethod(c) {
		g.line("%q: {", list[0].Native())
		for _, r := range list {
			g.route(r)
		}
		g.line("},")
	}
	g.line("}")
	return nil
}

// byMethod lists the routes of each method: those first that need most of the request in their path.
func byMethod(c *contract.Contract) (out [][]*contract.Route) {
	for _, r := range c.Routes() {
		if throughList(r) {
			continue // of one element of a list, which the batch does as well
		}
		if strings.Contains(r.GetAnswer(), ".") {
			continue // a part of what another route of the method answers as a whole
		}
		// The contract has the routes of a method one after another.
		if n := len(out); n == 0 || out[n-1][0].Method != r.Method {
			out = append(out, nil)
		}
		last := &out[len(out)-1]
		*last = append(*last, r)
		// A path that needs less of the request would fit a request that has more, so it comes last.
		slices.SortStableFunc(*last, func(a, b *contract.Route) int { return len(b.Fixed) - len(a.Fixed) })
	}
	return out
}

// sends reports whether a request has an enumeration.
func (g *generator) sends(p *plan, e protoreflect.EnumDescriptor) bool {
	for _, r := range p.readers {
		for _, f := range r.fields {
			if f.Enum() == e {
				return true
			}
		}
	}
	return false
}

// throughList reports whether the path of a route names a field of a list's element.
func throughList(r *contract.Route) bool {
	for _, s := range r.Fixed {
		// Such a route is of one item, and the batch does the same with one item in it.
		if name, _, more := strings.Cut(s.Field, "."); more && contract.Find(r.Method.Input(), name).IsList() {
			return true
		}
	}
	return false
}

// route writes one row of the table:
//
//	{
//		verb: "GET", path: []string{"/v1/repos/", "repo=name"},
//		query:  []parameter{{"tag", "tag", nil}, {"min_index", "min_index", nil}, {"consistency", "stale", []string{"stale"}}},
//		answer: "repo",
//	},
func (g *generator) route(r *contract.Route) {
	// The path as the SDK joins it: texts as they are, and name=field where the value of a field
	// stands.
	rest := r.Path
	var path []string
	for _, s := range r.Fixed {
		before, after, _ := strings.Cut(rest, "{"+s.Name+"}")
		path, rest = append(path, strconv.Quote(before), strconv.Quote(s.Name+"="+s.Field)), after
	}
	if rest != "" {
		path = append(path, strconv.Quote(rest))
	}
	g.line("{")
	g.line("verb: %q, path: []string{%s},", r.Verb, strings.Join(path, ", "))
	var query []string
	for _, q := range r.Query {
		// A parameter without a field says nothing that the request says.
		if f := contract.Find(r.Method.Input(), q.GetField()); f != nil {
			query = append(query, fmt.Sprintf("{%q, %q, %s}", q.GetName(), q.GetField(), param(q, f)))
		}
	}
	if len(query) > 0 {
		g.line("query: []parameter{%s},", strings.Join(query, ", "))
	}
	for _, h := range r.Header {
		// The other headers are not of the request: a request id goes in the body.
		if h.GetName() == "If-Match" {
			g.line("match: %q,", h.GetField())
		}
	}
	switch {
	// Bytes are sent by code that is written by hand.
	case r.Raw() || r.GetBody() == "":
	case r.GetBody() == "*":
		g.line("body: func(w *restBody, in any) { write%s(w, in.(*pb.%s)) },", r.BodyName(), typeName(r.Method.Input()))
	default:
		g.line("body: func(w *restBody, in any) { write%s(w, in.(*pb.%s).Get%s()) }, within: %q,",
			r.BodyName(), typeName(r.Method.Input()), goName(contract.Find(r.Method.Input(), r.GetBody())), r.GetBody())
	}
	if f := contract.Find(r.Method.Output(), r.GetAnswer()); f != nil && f.Message() != nil {
		g.line("answer: %q,", r.GetAnswer())
	}
	for _, status := range r.GetStatus() {
		if status == 204 {
			g.line("empty: true,")
		}
	}
	g.line("},")
}

// param is the word that a flag has in the query, or the words of an enumeration.
func param(q *restpb.Param, f protoreflect.FieldDescriptor) string {
	// true|false or a word of two: the flag is sent as the word that means yes.
	words := strings.Split(q.GetType(), "|")
	switch {
	case f.Kind() == protoreflect.EnumKind:
		return texts(contract.Words(f.Enum()))
	case f.Kind() == protoreflect.BoolKind && words[0] == "true":
		return texts(words[:1])
	case f.Kind() == protoreflect.BoolKind:
		return texts(words[len(words)-1:])
	}
	return "nil"
}

// sendFields writes the statements that write the fields of a body.
func (g *generator) sendFields(r *reader) error {
	for _, f := range r.fields {
		if f.HasOptionalKeyword() {
			g.line("if m == nil {\nreturn\n}")
			break
		}
	}
	// Fields are written in the order of the message. A oneof is written where its first member stands,
	// once.
	var done protoreflect.OneofDescriptor
	for i := range r.message.Fields().Len() {
		f := r.message.Fields().Get(i)
		o := contract.FieldOf(f)
		in := f.ContainingOneof() != nil && !f.HasOptionalKeyword()
		switch {
		// A reserved field is sent all the same: the server refuses it by its name, and the SDK need not
		// know which are built.
		case o.GetReserved():
			g.line("w.flag(%q, %s)", f.Name(), given(f))
		case in && f.ContainingOneof() != done:
			done = f.ContainingOneof()
			if err := g.sendOneof(done); err != nil {
				return err
			}
		case !in && has(r.fields, f):
			text, err := g.sent(f, "m.Get"+goName(f)+"()")
			if err != nil {
				return err
			}
			g.line("%s", text)
		}
	}
	if contract.MessageOf(r.message).GetKeep() {
		g.line("w.kept(m.ProtoReflect())")
	}
	return nil
}

// has reports whether a list has a field.
func has(list []protoreflect.FieldDescriptor, f protoreflect.FieldDescriptor) bool {
	for _, one := range list {
		if one == f {
			return true
		}
	}
	return false
}

// given is the expression that says whether a field is set.
func given(f protoreflect.FieldDescriptor) string {
	get := "m.Get" + goName(f) + "()"
	switch {
	// Presence as the contract has it: what cannot be told from empty counts as not given.
	case f.IsList() || f.IsMap():
		return "len(" + get + ") > 0"
	case f.Message() != nil:
		return get + " != nil"
	case f.Kind() == protoreflect.StringKind:
		return get + ` != ""`
	}
	return get + " != 0"
}

// sendOneof writes the member that is set:
//
//	switch x := m.GetOperand().(type) {
//	case *pb.KVCheck_Rev:
//		w.exact("rev", x.Rev)
//	case *pb.KVCheck_Value:
//		w.anyBytes("value", x.Value)
//	}
func (g *generator) sendOneof(o protoreflect.OneofDescriptor) error {
	message := typeName(o.Parent())
	g.line("switch x := m.Get%s().(type) {", goName(o))
	for i := range o.Fields().Len() {
		f := o.Fields().Get(i)
		value := "x." + goName(f)
		g.line("case *pb.%s_%s:", message, goName(f))
		switch {
		case len(contract.FieldOf(f).GetOther()) > 0: // any one that is not built is refused alike
			g.line("w.flag(%q, true)", contract.FieldOf(f).GetOther()[0])
		case f.Kind() == protoreflect.BytesKind:
			g.line("w.anyBytes(%q, %s)", f.Name(), value)
		case f.Kind() == protoreflect.Uint64Kind:
			g.line("w.exact(%q, %s)", f.Name(), value)
		case f.Message() != nil:
			g.line("w.object(%q, func() { write%s(w, %s) })", f.Name(), typeName(f.Message()), value)
		default:
			return fmt.Errorf("%s: a member of kind %s has no form in requests yet", f.FullName(), f.Kind())
		}
	}
	g.line("}")
	return nil
}

// sent is the statement that writes a field, unless it is empty.
func (g *generator) sent(f protoreflect.FieldDescriptor, get string) (string, error) {
	o, name := contract.FieldOf(f), string(f.Name())
	// An optional field is written when it is given, even if it is 0 or empty; any other is written
	// unless it is empty.
	call := func(method, value string) (string, error) {
		if f.HasOptionalKeyword() {
			return fmt.Sprintf("if m.%s != nil {\nw.%s(%q, %s)\n}", goName(f), method, name, value), nil
		}
		return fmt.Sprintf("w.%s(%q, %s)", method, name, value), nil
	}
	// For optional fields the writer has methods that write empty values too.
	any := func(plain, other string) string {
		if f.HasOptionalKeyword() {
			return other
		}
		return plain
	}
	if f.IsMap() {
		return call("textMap", get)
	}
	if f.IsList() {
		switch f.Kind() {
		case protoreflect.MessageKind:
			return fmt.Sprintf("restList(w, %q, %s, write%s)", name, get, typeName(f.Message())), nil
		case protoreflect.StringKind:
			return call("texts", get)
		case protoreflect.FloatKind:
			return call("vector", get)
		case protoreflect.BytesKind:
			return call("bytesList", get)
		case protoreflect.EnumKind:
			return fmt.Sprintf("restWords(w, %q, %s, %s)", name, wordsName(f.Enum()), get), nil
		}
		return "", fmt.Errorf("%s: a list of kind %s has no form in requests yet", f.FullName(), f.Kind())
	}
	switch f.Kind() {
	case protoreflect.StringKind:
		if o.GetForm() == restpb.Form_PROSE || o.GetMend() {
			return call("prose", get)
		}
		return call(any("text", "anyText"), get)
	case protoreflect.BoolKind:
		return call(any("flag", "bool"), get)
	case protoreflect.Int32Kind, protoreflect.Uint32Kind:
		return call(any("int", "anyInt"), "int64("+get+")")
	case protoreflect.Int64Kind:
		return call(any("int", "anyInt"), get)
	case protoreflect.Uint64Kind:
		return call(any("number", "exact"), get)
	case protoreflect.DoubleKind:
		return call(any("float", "anyFloat"), get)
	case protoreflect.EnumKind:
		return call("word", wordsName(f.Enum())+", int32("+get+")")
	case protoreflect.BytesKind:
		switch o.GetForm() {
		case restpb.Form_HEX:
			return call("hex", get)
		case restpb.Form_OBJECT:
			return call("raw", get)
		}
		return call(any("bytes", "anyBytes"), get)
	case protoreflect.MessageKind:
		switch f.Message().FullName() {
		case "google.protobuf.Duration":
			return call("duration", get)
		case "google.protobuf.Timestamp":
			return call("time", get)
		}
		return fmt.Sprintf("if x := %s; x != nil {\nw.object(%q, func() { write%s(w, x) })\n}", get, name, typeName(f.Message())), nil
	}
	return "", fmt.Errorf("%s: a field of kind %s has no form in requests yet", f.FullName(), f.Kind())
}
