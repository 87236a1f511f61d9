package main

import (
	"fmt"
	"strconv"
	"strings"

	"google.golang.org/protobuf/reflect/protoreflect"

	restpb "github.com/millrace/millrace/gen/millrace/rest"
	"github.com/millrace/millrace/internal/contract"
)

// words writes the names of the numbers of an enumeration, by number. The one that means nothing is empty:
//
//	var backoffWords = []string{"", "fixed", "linear", "exponential", "full_jitter", "equal_jitter"}
func (g *generator) words(e protoreflect.EnumDescriptor) {
	g.line("\nvar %s = %s", wordsName(e), texts(contract.Words(e)))
}

// texts writes a list of texts as Go has it.
func texts(list []string) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = strconv.Quote(s)
	}
	return "[]string{" + strings.Join(quoted, ", ") + "}"
}

// contents are the fields of a message that hold a value of the client's own.
func contents(r *reader) (out []protoreflect.FieldDescriptor) {
	for _, f := range r.fields {
		if contract.FieldOf(f).GetForm() == restpb.Form_CONTENT {
			out = append(out, f)
		}
	}
	return out
}

// reader writes the table of the fields of a body, and the function that reads it where the table alone does not. With a value of the
// client's own the fields are read into a type around the message:
//
//	type completeBody struct {
//		*pb.Complete
//		result content
//	}
//
//	var completeFields = []jsonField[completeBody]{
//		{"result", func(d *jsonReader, m *completeBody) { m.result.readRaw(d) }},
//		{"result_base64", func(d *jsonReader, m *completeBody) { m.result.readBase64(d) }},
//		{"result_type", func(d *jsonReader, m *completeBody) { m.ResultType = d.Text() }},
//	}
func (g *generator) reader(r *reader) error {
	name, into := lower(r.name), "pb."+typeName(r.message)
	// Values of the client's own are kept apart while a body is read: whether they fit their type is
	// known at its end.
	own := contents(r)
	if len(own) > 0 {
		into = name + "Body"
		g.line("\n// %s is a %s while it is read.\ntype %s struct {\n*pb.%s", into, r.name, into, typeName(r.message))
		for _, f := range own {
			g.line("%s content", lower(goName(f)))
		}
		g.line("}")
	}
	open, shut := "[]jsonField["+into+"]{", "}"
	if contract.MessageOf(r.message).GetNullable() {
		open, shut = "nullable("+open, "})"
	}
	g.line("\nvar %sFields = %s", name, open)
	for _, f := range r.fields {
		if err := g.readField(into, f); err != nil {
			return err
		}
	}
	for i := range r.message.Fields().Len() {
		f := r.message.Fields().Get(i)
		// A row without a function is refused as reserved, and not as unknown.
		if contract.FieldOf(f).GetReserved() {
			g.line("{name: %q},", f.Name())
		}
		for _, other := range contract.FieldOf(f).GetOther() {
			g.line("{name: %q},", other)
		}
	}
	g.line("%s", shut)
	if len(own) > 0 {
		g.line("\n// finish takes over what the client's own values are.\nfunc (m *%s) finish(d *jsonReader) {", into)
		for _, f := range own {
			// The field that says which content type the value has.
			kind := r.message.Fields().ByName(protoreflect.Name(contract.FieldOf(f).GetType()))
			g.line("m.%s.check(d, %q, m.%s)", lower(goName(f)), f.Name(), goName(kind))
			g.line("m.%s = m.%s.bytes", goName(f), lower(goName(f)))
		}
		g.line("}")
	}
	g.readFunc(r, into, len(own) > 0)
	return nil
}

// readFunc writes the function that reads a message where its table alone does not, such as one that may be given as its name alone:
//
//	func readQueueWeight(d *jsonReader) *pb.QueueWeight {
//		if d.Fact() == nil && d.Peek() == '"' {
//			return &pb.QueueWeight{Name: d.Text()}
//		}
//		return readNew(d, queueWeightFields)
//	}
func (g *generator) readFunc(r *reader, into string, own bool) {
	if !special(r.message) {
		return
	}
	name := typeName(r.message)
	g.line("\nfunc read%s(d *jsonReader) *pb.%s {", name, name)
	defer g.line("}")
	// The message may be given as one text, which is this field of it.
	if short := contract.MessageOf(r.message).GetShort(); short != "" {
		f := r.message.Fields().ByName(protoreflect.Name(short))
		g.line("if d.Fact() == nil && d.Peek() == '\"' {\nreturn &pb.%s{%s: d.Text()}\n}", name, goName(f))
	}
	if own {
		g.line("b := %s{%s: new(pb.%s)}\nreadObject(d, &b, %sFields)\nb.finish(d)\nreturn b.%s", into, name, name, lower(r.name), name)
		return
	}
	if o := needed(r.message); o != nil {
		g.line("m := readNew(d, %sFields)", lower(r.name))
		g.line("if m.%s == nil {\nd.Refuse(%q)\n}\nreturn m", goName(o), contract.OneofOf(o).GetRequired())
		return
	}
	g.line("return readNew(d, %sFields)", lower(r.name))
}

// special reports whether a message needs a function to be read.
func special(m protoreflect.MessageDescriptor) bool {
	return contract.MessageOf(m).GetShort() != "" || needed(m) != nil || len(contents(&reader{message: m, fields: bodyFields(m)})) > 0
}

// needed is the oneof of a message that must have a member, nil where there is none.
func needed(m protoreflect.MessageDescriptor) protoreflect.OneofDescriptor {
	for i := range m.Oneofs().Len() {
		if o := m.Oneofs().Get(i); contract.OneofOf(o).GetRequired() != "" {
			return o
		}
	}
	return nil
}

// readField writes the rows of one field.
func (g *generator) readField(into string, f protoreflect.FieldDescriptor) error {
	// A field that has two names in JSON has two rows.
	row := func(name, body string) {
		g.line("{%q, func(d *jsonReader, m *%s) { %s }},", name, into, body)
	}
	o, to, name := contract.FieldOf(f), "m."+goName(f), string(f.Name())
	once := func(base64 bool) string { return fmt.Sprintf("d.anyBytes(&%s, %v)", to, base64) }
	switch {
	case f.Kind() == protoreflect.BytesKind && o.GetForm() == restpb.Form_CONTENT:
		row(name, "m."+lower(goName(f))+".readRaw(d)")
		row(name+"_base64", "m."+lower(goName(f))+".readBase64(d)")
	// Both names append to one list, so the second one is refused.
	case f.Kind() == protoreflect.BytesKind && o.GetForm() == restpb.Form_FORM_UNSPECIFIED && f.IsList():
		top := top(o)
		row(name, fmt.Sprintf("d.anyTexts(&%s, %q, %s, false)", to, o.GetLimit(), top))
		row(name+"_base64", fmt.Sprintf("d.anyTexts(&%s, %q, %s, true)", to, o.GetLimit(), top))
	case f.Kind() == protoreflect.BytesKind && o.GetForm() == restpb.Form_FORM_UNSPECIFIED && (f.ContainingOneof() == nil || f.HasOptionalKeyword()):
		row(name, once(false))
		row(name+"_base64", once(true))
	case f.Kind() == protoreflect.BytesKind && o.GetForm() == restpb.Form_FORM_UNSPECIFIED:
		row(name, g.member(f, "[]byte(d.Text())"))
		row(name+"_base64", g.member(f, "d.Base64()"))
	case f.IsMap():
		row(name, fmt.Sprintf("%s = d.TextMap(%q, %s)", to, o.GetLimit(), top(o)))
	default:
		value, err := g.value(f)
		if err != nil {
			return err
		}
		switch {
		// A vector is a list, or base64, so it has a method of its own.
		case f.IsList() && f.Kind() == protoreflect.FloatKind:
			row(name, fmt.Sprintf("%s = d.Floats(%d)", to, o.GetMost()))
		case f.IsList() && f.Kind() == protoreflect.StringKind && o.GetFilled():
			row(name, fmt.Sprintf("%s = d.filledTexts(%q, %s)", to, o.GetLimit(), top(o)))
		case f.IsList() && f.Kind() == protoreflect.StringKind:
			row(name, fmt.Sprintf("%s = d.Texts(%q, %s)", to, o.GetLimit(), top(o)))
		case f.IsList():
			row(name, fmt.Sprintf("d.Array(%q, %s, func() { %s = append(%s, %s) })", o.GetLimit(), top(o), to, to, value))
		case f.ContainingOneof() != nil && !f.HasOptionalKeyword():
			row(name, g.member(f, value))
		// It points to its value: nil was not given.
		case f.HasOptionalKeyword():
			row(name, fmt.Sprintf("%s = new(%s)", to, value))
		default:
			row(name, fmt.Sprintf("%s = %s", to, value))
		}
	}
	return nil
}

// member sets a field of a oneof, of which no other may be set:
//
//	d.only(m.Outcome != nil, "outcome")
//	m.Outcome = &pb.SettleItem_Fail{Fail: readNew(d, failFields)}
func (g *generator) member(f protoreflect.FieldDescriptor, value string) string {
	o := f.ContainingOneof()
	m := typeName(f.Parent())
	return fmt.Sprintf("d.only(m.%s != nil, %q)\nm.%s = &pb.%s_%s{%s: %s}", goName(o), contract.OneofOf(o).GetOnly(), goName(o), m, goName(f), goName(f), value)
}

// top is the largest length of a list.
func top(o *restpb.Field) string {
	// A number of its own, or the limit of the server that has the name.
	if o.GetMost() != 0 {
		return strconv.FormatInt(o.GetMost(), 10)
	}
	var out strings.Builder
	for word := range strings.SplitSeq(o.GetLimit(), "_") {
		// The field of edge.Limits: frame_items is FrameItems.
		if word == "ids" {
			word = "IDs"
		}
		out.WriteString(strings.ToUpper(word[:1]) + word[1:])
	}
	return "d.l." + out.String()
}

// value is the expression that reads one value of a field.
func (g *generator) value(f protoreflect.FieldDescriptor) (string, error) {
	o := contract.FieldOf(f)
	switch f.Kind() {
	case protoreflect.StringKind:
		switch {
		case o.GetForm() == restpb.Form_PROSE:
			return "d.AnyText()", nil
		case len(o.GetWords()) > 0:
			return "d.Choice(" + choiceName(f) + ")", nil
		case o.GetFilled():
			return "d.Filled()", nil
		}
		return "d.Text()", nil
	case protoreflect.BytesKind:
		switch o.GetForm() {
		case restpb.Form_OBJECT:
			return "d.RawObject()", nil
		case restpb.Form_HEX:
			return "d.requestID()", nil
		}
	case protoreflect.BoolKind:
		return "d.Boolean()", nil
	case protoreflect.Int32Kind:
		return "d.Int32()", nil
	case protoreflect.Uint32Kind:
		return "d.Uint32()", nil
	case protoreflect.Uint64Kind:
		return "d.Unsigned()", nil
	case protoreflect.Int64Kind:
		// Bounds of the kind, unless the option has others.
		low, high := "math.MinInt64", "math.MaxInt64"
		if o.GetNatural() {
			low = "0"
		}
		if o.GetMost() != 0 {
			high = strconv.FormatInt(o.GetMost(), 10)
		}
		if strings.Contains(low+high, "math.") {
			g.use("math")
		}
		return fmt.Sprintf("d.Integer(%s, %s)", low, high), nil
	case protoreflect.DoubleKind:
		return "d.Float()", nil
	// Only vectors have this kind, which readField reads as a whole.
	case protoreflect.FloatKind:
		return "", nil
	case protoreflect.EnumKind:
		return fmt.Sprintf("pb.%s(d.OneOf(%s))", typeName(f.Enum()), wordsName(f.Enum())), nil
	case protoreflect.MessageKind:
		switch f.Message().FullName() {
		case "google.protobuf.Duration":
			return "d.duration()", nil
		case "google.protobuf.Timestamp":
			return "d.time()", nil
		}
		if special(f.Message()) {
			return "read" + typeName(f.Message()) + "(d)", nil
		}
		return "readNew(d, " + lower(string(f.Message().Name())) + "Fields)", nil
	}
	return "", fmt.Errorf("%s: a field of kind %s has no form in requests yet", f.FullName(), f.Kind())
}
