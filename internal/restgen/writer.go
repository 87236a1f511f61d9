package main

import (
	"fmt"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	restpb "github.com/millrace/millrace/gen/millrace/rest"
	"github.com/millrace/millrace/internal/contract"
)

// writer writes the function that writes the fields of a message:
//
//	func writeCreateResult(w *jsonWriter, m *pb.CreateResult) {
//		w.Str("id", m.GetId())
//		if m.GetError() == nil {
//			w.Bool("replayed", m.GetReplayed())
//		}
//		...
//	}
func (g *generator) writer(m protoreflect.MessageDescriptor) error {
	g.line("\nfunc write%s(w *jsonWriter, m *pb.%s) {", typeName(m), typeName(m))
	// Fields in a row that depend on the same condition share an if.
	under := ""
	for _, f := range bodyFields(m) {
		if now := strings.Join(conditions(m, f), " && "); now != under {
			if under != "" {
				g.line("}")
			}
			if under = now; under != "" {
				g.line("if %s {", under)
			}
		}
		if err := g.writeField(f); err != nil {
			return err
		}
	}
	if under != "" {
		g.line("}")
	}
	g.line("}")
	return nil
}

// conditions are what must hold for an answer to have a field.
func conditions(m protoreflect.MessageDescriptor, f protoreflect.FieldDescriptor) []string {
	o := contract.FieldOf(f)
	var out []string
	if o.GetLean() {
		out = append(out, "!w.lean")
	}
	// Any of these fields will do; all other conditions must hold together.
	var some []string
	for _, path := range o.GetWhen() {
		some = append(some, isSet(m, path, true))
	}
	if len(some) > 0 {
		any := strings.Join(some, " || ")
		if len(some) > 1 && len(out) > 0 {
			any = "(" + any + ")"
		}
		out = append(out, any)
	}
	if o.GetUnless() != "" {
		out = append(out, isSet(m, o.GetUnless(), false))
	}
	return out
}

// isSet is the expression that says whether the field at a path is set, or is not.
func isSet(m protoreflect.MessageDescriptor, path string, set bool) string {
	get := "m"
	for name := range strings.SplitSeq(path, ".") {
		get += ".Get" + goName(m.Fields().ByName(protoreflect.Name(name))) + "()"
		// The path goes on in the message of the field.
		if next := m.Fields().ByName(protoreflect.Name(name)).Message(); next != nil {
			m = next
		}
	}
	f := contract.Find(m, path[strings.LastIndexByte(path, '.')+1:])
	if f == nil { // the path ends with a message
		return get + map[bool]string{true: " != nil", false: " == nil"}[set]
	}
	switch {
	case f.Kind() == protoreflect.BoolKind && set:
		return get
	case f.Kind() == protoreflect.BoolKind:
		return "!" + get
	}
	return get + map[bool]string{true: " != 0", false: " == 0"}[set]
}

// writeField writes the statements of one field.
func (g *generator) writeField(f protoreflect.FieldDescriptor) error {
	o, get, name := contract.FieldOf(f), "m.Get"+goName(f)+"()", string(f.Name())
	// The fields of the message stand in place of the field.
	if o.GetInline() {
		g.line("write%s(w, %s)", typeName(f.Message()), get)
		return nil
	}
	switch {
	case contract.IsAt(f) && f.IsList():
		g.line("writeAts(w, %s)", get)
	case contract.IsAt(f):
		g.line("w.Exact(%q, %s.GetIndex())", "index", get)
	case f.IsMap():
		if o.GetOmit() {
			g.line("if len(%s) > 0 {\nw.Texts(%q, %s)\n}", get, name, get)
			return nil
		}
		g.line("w.Texts(%q, %s)", name, get)
	case f.IsList():
		return g.writeList(f, get)
	// Only what is set is written: the pointer tells 0 from nothing.
	case f.HasOptionalKeyword():
		text, err := g.shown(f, name, get)
		g.line("if m.%s != nil {\n%s\n}", goName(f), text)
		return err
	// The writer has no method that leaves it out, so the condition is written.
	case o.GetOmit() && !shownByName(f):
		text, err := g.shown(f, name, get)
		g.line("if %s != %s {\n%s\n}", get, zero(f), text)
		return err
	default:
		text, err := g.shown(f, name, get)
		g.line("%s", text)
		return err
	}
	return nil
}

// shownByName reports whether the writer has a method that leaves out an empty value of the field.
func shownByName(f protoreflect.FieldDescriptor) bool {
	if contract.FieldOf(f).GetForm() == restpb.Form_EXACT {
		return false
	}
	switch f.Kind() {
	case protoreflect.StringKind, protoreflect.BoolKind, protoreflect.Int32Kind, protoreflect.Int64Kind, protoreflect.EnumKind:
		return true
	}
	return false
}

// zero is the empty value of a field, as Go writes it.
func zero(f protoreflect.FieldDescriptor) string {
	if f.Kind() == protoreflect.BytesKind {
		return "nil"
	}
	return "0"
}

// shown is the statement that writes a value under a name.
func (g *generator) shown(f protoreflect.FieldDescriptor, name, get string) (string, error) {
	o := contract.FieldOf(f)
	// Methods that leave out empty values begin with Opt.
	opt := ""
	if o.GetOmit() && !f.HasOptionalKeyword() {
		opt = "Opt"
	}
	call := func(method, value string) (string, error) {
		return fmt.Sprintf("w.%s(%q, %s)", method, name, value), nil
	}
	switch f.Kind() {
	case protoreflect.StringKind:
		return call(opt+"Str", get)
	case protoreflect.BoolKind:
		return call(opt+"Bool", get)
	case protoreflect.EnumKind:
		return call(opt+"Str", fmt.Sprintf("wordOf(%s, int32(%s))", wordsName(f.Enum()), get))
	case protoreflect.Int32Kind, protoreflect.Int64Kind:
		switch o.GetForm() {
		case restpb.Form_EXACT:
			return call("exactInt", get)
		// Milliseconds in the contract are a time in JSON, under a name that says so.
		case restpb.Form_MOMENT:
			g.use("time")
			return fmt.Sprintf("w.Time(%q, time.UnixMilli(%s).UTC())", strings.TrimSuffix(name, "_ms")+"_at", get), nil
		}
		if f.Kind() == protoreflect.Int32Kind {
			get = "int64(" + get + ")"
		}
		return call(opt+"Int", get)
	// Numbers of 32 bits are exact in every reader.
	case protoreflect.Uint32Kind:
		return call("Count", "uint64("+get+")")
	case protoreflect.Uint64Kind:
		switch o.GetForm() {
		case restpb.Form_EXACT:
			return call("Exact", get)
		case restpb.Form_SPAN:
			return fmt.Sprintf("w.Key(%q)\nw.Seconds(int64(%s))", strings.TrimSuffix(name, "_ms"), get), nil
		}
		return call("Count", get)
	case protoreflect.DoubleKind:
		return call("Real", get)
	case protoreflect.BytesKind:
		switch o.GetForm() {
		case restpb.Form_CONTENT:
			kind := f.Parent().(protoreflect.MessageDescriptor).Fields().ByName(protoreflect.Name(o.GetType()))
			return call("content", get+", m.Get"+goName(kind)+"()")
		case restpb.Form_OBJECT:
			return call("JSON", get)
		}
		return call("AnyBytes", get)
	case protoreflect.MessageKind:
		switch {
		case o.GetForm() == restpb.Form_MILLIS:
			return fmt.Sprintf("if d := %s; d != nil {\nw.Int(%q, d.AsDuration().Milliseconds())\n}", get, name+"_ms"), nil
		case f.Message().FullName() == "google.protobuf.Timestamp":
			return call("time", get)
		case f.Message().FullName() == "google.protobuf.Duration":
			return call("duration", get)
		}
		return fmt.Sprintf("if x := %s; x != nil {\nw.Key(%q)\nw.Open('{')\nwrite%s(w, x)\nw.Close('}')\n}", get, name, typeName(f.Message())), nil
	}
	return "", fmt.Errorf("%s: a field of kind %s has no form in answers yet", f.FullName(), f.Kind())
}

// writeList writes the statements of a list.
func (g *generator) writeList(f protoreflect.FieldDescriptor, get string) error {
	name := string(f.Name())
	if contract.FieldOf(f).GetOmit() {
		g.line("if len(%s) > 0 {", get)
		defer g.line("}")
	}
	g.line("w.Key(%q)", name)
	if f.Kind() == protoreflect.FloatKind {
		g.line("w.Floats(%s)", get)
		return nil
	}
	g.line("w.Open('[')\nfor _, x := range %s {", get)
	switch f.Kind() {
	case protoreflect.MessageKind:
		g.line("w.Open('{')\nwrite%s(w, x)\nw.Close('}')", typeName(f.Message()))
	case protoreflect.StringKind:
		g.line("w.Quote(x)")
	case protoreflect.EnumKind:
		g.line("w.Quote(wordOf(%s, int32(x)))", wordsName(f.Enum()))
	case protoreflect.Uint32Kind:
		g.line("w.Number(uint64(x))")
	default:
		return fmt.Errorf("%s: a list of kind %s has no form in answers yet", f.FullName(), f.Kind())
	}
	g.line("}\nw.Close(']')")
	return nil
}
