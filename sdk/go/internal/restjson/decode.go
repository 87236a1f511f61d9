package restjson

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// deepest is how far an answer may be nested: further than any message of the contract, and not so far that the stack would grow by
// much for an answer that something else wrote.
const deepest = 200

// errJSON ends the decoding of what is not JSON, or not of the type that the contract says.
var errJSON = errors.New("the answer is not JSON")

// Decode reads a JSON object into a message, which must be empty. Names and words that the contract does not have are passed over, or kept for
// Kept: the server may be newer.
func Decode(b []byte, m protoreflect.Message) error {
	d := &decoder{b: b}
	// Nothing may follow the object but white space.
	d.object(planOf(m.Descriptor()), m)
	if d.space() != 0 || d.i < len(d.b) {
		d.fail(errJSON)
	}
	return d.err
}

// Member returns the value of one member of an object as it stands, nil where there is none.
func Member(b []byte, member string) (out []byte) {
	d := &decoder{b: b}
	d.each('{', '}', func(name []byte) {
		if string(name) == member && !d.null() {
			out = d.raw()
			return
		}
		d.skip()
	})
	if d.err != nil {
		return nil
	}
	return out
}

// decoder reads one document. After the first error every method does nothing.
type decoder struct {
	// b is the document, and i is the place of the next byte in it.
	b []byte
	i int
	// depth counts the objects and lists around i.
	depth int
	// err is the first error.
	err error
}

// fail ends the decoding with err, by going to the end of the document: no method finds anything there.
func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
		d.i = len(d.b)
	}
}

// space passes white space and returns the byte after it, 0 at the end.
func (d *decoder) space() byte {
	// The four characters that JSON calls white space, and no other.
	for d.i < len(d.b) {
		switch c := d.b[d.i]; c {
		case ' ', '\t', '\n', '\r':
			d.i++
		default:
			return c
		}
	}
	return 0
}

// each passes an object or a list, from its opening to its closing byte, and calls element for each of its elements, which must pass the
// value. In an object it is called with the name of the member.
func (d *decoder) each(open, end byte, element func(name []byte)) {
	if d.err != nil {
		return
	}
	// depth bounds the recursion, and with it the stack.
	if d.depth++; d.space() != open || d.depth > deepest {
		d.fail(errJSON)
		return
	}
	d.i++
	for first := true; d.err == nil; first = false {
		c := d.space()
		if c == end {
			d.i++
			d.depth--
			return
		}
		// A comma stands between elements, and none behind the last.
		if !first {
			if c != ',' {
				d.fail(errJSON)
				return
			}
			d.i++
			d.space()
		}
		var name []byte
		if open == '{' {
			if name = d.text(); d.space() != ':' {
				d.fail(errJSON)
				return
			}
			d.i++
		}
		element(name)
	}
}

// object reads an object into a message. A member whose fields stand inline in the contract's message goes into that message.
func (d *decoder) object(p *plan, m protoreflect.Message) {
	d.each('{', '}', func(name []byte) {
		f := p.byName[string(name)]
		switch {
		case f == nil && p.keep && !d.null():
			keep(m, name, d.raw())
			return
		case f == nil || d.null() && (f.form != formContent || f.as64): // null is a value that a client may store
			d.skip()
			return
		case p.keep && f.form == formWord && !f.list && !f.knows(d.peek()):
			keep(m, name, d.raw())
			return
		}
		// A member of a message that stands inline makes that message.
		into := m
		if f.in != nil {
			into = m.Mutable(f.in).Message()
		}
		d.field(f, into)
	})
}

// null reports whether a null comes, which counts as left out. No other word of JSON begins with its first letter.
func (d *decoder) null() bool { return d.space() == 'n' }

// field reads the value of a field into a message. A field that comes twice has the last value, and a list all elements.
func (d *decoder) field(f *field, m protoreflect.Message) {
	switch {
	case f.form == formMap:
		// All maps of the contract are of texts.
		entries := m.Mutable(f.of).Map()
		d.each('{', '}', func(name []byte) {
			key := protoreflect.ValueOfString(string(name)).MapKey()
			entries.Set(key, protoreflect.ValueOfString(string(d.text())))
		})
	case f.list:
		list := m.Mutable(f.of).List()
		d.each('[', ']', func([]byte) { d.element(f, list) })
	case f.form == formMessage:
		d.object(f.sub(), m.Mutable(f.of).Message())
	// These are messages in the contract and one value in JSON.
	case f.form == formTime || f.form == formSpan || f.form == formMillis:
		d.clock(f, m.Mutable(f.of).Message())
	default:
		if v := d.scalar(f); d.err == nil {
			m.Set(f.of, v)
		}
	}
}

// element reads one element of a list and appends it.
func (d *decoder) element(f *field, list protoreflect.List) {
	switch {
	case f.rows:
		// A row is a message with a list alone, which stands without its name.
		m := list.AppendMutable().Message()
		only := m.Descriptor().Fields().Get(0)
		row := m.Mutable(only).List()
		d.each('[', ']', func([]byte) { row.Append(d.real(only)) })
	case f.form == formMessage:
		d.object(f.sub(), list.AppendMutable().Message())
	default:
		if v := d.scalar(f); d.err == nil {
			list.Append(v)
		}
	}
}

// clock reads a time or a duration.
func (d *decoder) clock(f *field, m protoreflect.Message) {
	var s, n int64
	switch f.form {
	case formMillis:
		span := time.Duration(d.int()) * time.Millisecond
		s, n = int64(span/time.Second), int64(span%time.Second)
	case formSpan:
		span := d.span()
		s, n = int64(span/time.Second), int64(span%time.Second)
	default:
		t := d.time()
		s, n = t.Unix(), int64(t.Nanosecond())
	}
	// Both types have seconds as field 1 and nanoseconds as field 2.
	fields := m.Descriptor().Fields()
	m.Set(fields.ByNumber(1), protoreflect.ValueOfInt64(s))
	m.Set(fields.ByNumber(2), protoreflect.ValueOfInt32(int32(n)))
}

// span reads a duration in Go's form, such as 1m30s.
func (d *decoder) span() time.Duration {
	v, err := time.ParseDuration(string(d.text()))
	if err != nil {
		d.fail(err)
	}
	return v
}

// time reads a time of RFC 3339.
func (d *decoder) time() time.Time {
	var v time.Time
	if err := v.UnmarshalText(d.text()); err != nil {
		d.fail(err)
	}
	return v
}

// scalar reads a value that is not a message, as the form of its field says. What is left after the forms below is a text: the contract
// has no other type.
func (d *decoder) scalar(f *field) protoreflect.Value {
	switch f.form {
	case formBool:
		return protoreflect.ValueOfBool(d.bool())
	case formInt, formUint, formExact, formExactInt:
		return d.whole(f)
	case formReal:
		return d.real(f.of)
	case formWord:
		return protoreflect.ValueOfEnum(f.number(d.text()))
	case formBytes, formContent:
		return protoreflect.ValueOfBytes(d.bytes(f))
	case formObject:
		return protoreflect.ValueOfBytes(d.raw())
	case formHex:
		v, err := hex.DecodeString(string(d.text()))
		if err != nil {
			d.fail(err)
		}
		return protoreflect.ValueOfBytes(v)
	// No field of the contract has a negative span.
	case formSpanMs:
		return protoreflect.ValueOfUint64(uint64(max(d.span().Milliseconds(), 0)))
	case formMomentMs:
		return protoreflect.ValueOfInt64(d.time().UnixMilli())
	}
	return protoreflect.ValueOfString(string(d.text()))
}

// bytes reads a value that may be any bytes.
func (d *decoder) bytes(f *field) []byte {
	switch {
	case !f.as64 && f.form == formContent:
		return d.raw()
	case !f.as64:
		// A copy, as text may be part of the document.
		return append([]byte{}, d.text()...)
	}
	// Standard base64 with its padding, as the server writes it.
	text := d.text()
	out := make([]byte, base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(out, text)
	if err != nil {
		d.fail(err)
	}
	return out[:n]
}

// raw returns a value as it stands.
func (d *decoder) raw() []byte {
	d.space()
	// It is passed to find its end, and so is known to be JSON.
	start := d.i
	d.skip()
	if d.err != nil {
		return nil
	}
	// A copy: the message outlives the document.
	return append([]byte{}, d.b[start:d.i]...)
}

// peek returns a value as it stands, without passing it.
func (d *decoder) peek() []byte {
	at := d.i
	out := d.raw()
	if d.err == nil {
		d.i = at
	}
	return out
}

// knows reports whether a value is a word of the field's enumeration.
func (f *field) knows(value []byte) bool {
	word, err := strconv.Unquote(string(value))
	return err != nil || slices.Contains(f.words, word) // a value that is not a text is refused where it is read
}

// number is that of a word of an enumeration; 0 for a word that is not known.
func (f *field) number(word []byte) protoreflect.EnumNumber {
	for i, w := range f.words {
		if w == string(word) {
			return protoreflect.EnumNumber(i)
		}
	}
	return 0
}

// number returns the text of a number, which may stand in a string.
func (d *decoder) number() []byte {
	if d.space() == '"' {
		return d.text()
	}
	// Which characters stand where is judged by what reads the number.
	start := d.i
	for d.i < len(d.b) && (d.b[d.i] >= '0' && d.b[d.i] <= '9' || d.b[d.i] == '-' || d.b[d.i] == '+' || d.b[d.i] == '.' || d.b[d.i]|0x20 == 'e') {
		d.i++
	}
	return d.b[start:d.i]
}

// digits reads a whole number that is not negative.
func (d *decoder) digits(text []byte) (n uint64) {
	if len(text) == 0 {
		d.fail(errJSON)
	}
	for _, c := range text {
		// 128 bits hold any product, so what is too large shows in high or in the carry.
		high, low := bits.Mul64(n, 10)
		sum, carry := bits.Add64(low, uint64(c-'0'), 0)
		if c < '0' || c > '9' || high+carry > 0 {
			d.fail(errJSON)
			return 0
		}
		n = sum
	}
	return n
}

// int reads a whole number with a sign. What does not fit 64 bits is an error and not cut.
func (d *decoder) int() int64 {
	// The magnitude is read first, so that both bounds are checked without an overflow.
	text := d.number()
	if len(text) > 0 && text[0] == '-' {
		n := d.digits(text[1:])
		// The least number has no positive counterpart of 64 bits; its negation is itself.
		if n > 1<<63 {
			d.fail(errJSON)
		}
		return -int64(n)
	}
	n := d.digits(text)
	if n > math.MaxInt64 {
		d.fail(errJSON)
	}
	return int64(n)
}

// whole reads a whole number into the type that the field has. One that does not fit is an error: cut, it would be another number.
func (d *decoder) whole(f *field) protoreflect.Value {
	switch f.of.Kind() {
	case protoreflect.Int32Kind:
		n := d.int()
		if n != int64(int32(n)) {
			d.fail(errJSON)
		}
		return protoreflect.ValueOfInt32(int32(n))
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(d.int())
	case protoreflect.Uint32Kind:
		n := d.digits(d.number())
		if n > math.MaxUint32 {
			d.fail(errJSON)
		}
		return protoreflect.ValueOfUint32(uint32(n))
	}
	return protoreflect.ValueOfUint64(d.digits(d.number()))
}

// real reads a number with decimals, rounded to the type of its field. What no number of that type comes near, such as 1e999, is an
// error.
func (d *decoder) real(f protoreflect.FieldDescriptor) protoreflect.Value {
	// The bits of the field's type.
	size := 64
	if f.Kind() == protoreflect.FloatKind {
		size = 32
	}
	x, err := strconv.ParseFloat(string(d.number()), size)
	if err != nil {
		d.fail(err)
	}
	if size == 32 {
		return protoreflect.ValueOfFloat32(float32(x))
	}
	return protoreflect.ValueOfFloat64(x)
}

// bool reads true or false.
func (d *decoder) bool() bool {
	// Neither is an error, and then false is returned.
	switch {
	case d.word("true"):
		return true
	case !d.word("false"):
		d.fail(errJSON)
	}
	return false
}

// word passes a word of JSON if that is what comes, and reports whether it was.
func (d *decoder) word(w string) bool {
	d.space()
	if len(d.b)-d.i < len(w) || string(d.b[d.i:d.i+len(w)]) != w {
		return false
	}
	d.i += len(w)
	return true
}

// text reads a string. The bytes may be part of the document: who keeps them makes a copy.
func (d *decoder) text() []byte {
	// pass has found the end, so start and i are around the quotes.
	start, plain := d.pass()
	if d.err != nil {
		return nil
	}
	// A text without escapes needs no copy. All else is left to the standard library, which mends what is not UTF-8.
	if in := d.b[start+1 : d.i-1]; plain && utf8.Valid(in) {
		return in
	}
	var s string
	if err := json.Unmarshal(d.b[start:d.i], &s); err != nil {
		d.fail(err)
	}
	return []byte(s)
}

// pass passes a string. plain says that it has no escapes.
func (d *decoder) pass() (start int, plain bool) {
	if d.space() != '"' {
		d.fail(errJSON)
		return 0, false
	}
	start, plain = d.i, true
	for d.i++; d.i < len(d.b); d.i++ {
		switch c := d.b[d.i]; {
		case c == '"':
			d.i++
			return start, plain
		// Whatever is escaped does not end the text; whether it is a valid escape is judged where the text is decoded.
		case c == '\\':
			d.i++
			plain = false
		case c < ' ':
			d.fail(errJSON)
			return 0, false
		}
	}
	d.fail(errJSON)
	return 0, false
}

// skip passes any value, of a member that is not known, and sees to it that it is JSON.
func (d *decoder) skip() {
	// Each kind of value is told by its first byte.
	switch c := d.space(); {
	case d.err != nil:
	case c == '"':
		d.pass()
	case c == '{':
		d.each('{', '}', func([]byte) { d.skip() })
	case c == '[':
		d.each('[', ']', func([]byte) { d.skip() })
	case c == '-' || c >= '0' && c <= '9':
		// number takes any run of characters that numbers have.
		if text := d.number(); !json.Valid(text) {
			d.fail(fmt.Errorf("%q is not a number", text))
		}
	case !d.word("true") && !d.word("false") && !d.word("null"):
		d.fail(errJSON)
	}
}
