package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// strictObject is a JSON object that is read by the same rules as a server reads a request: a name
// has one spelling and comes once, at every depth; text is UTF-8 without half surrogate pairs; null
// is never the value of a field; a field that was not asked for is an error.
//
// The methods take one field each, and note what is wrong instead of returning it. The first error
// is kept; done returns it at the end. So a reader takes all its fields and checks once.
type strictObject struct {
	// The fields that were not taken yet.
	fields map[string]json.RawMessage
	// The first error; it names the field.
	err error
}

// readStrict reads b, which must be one JSON object with nothing after it.
func readStrict(b []byte) (*strictObject, error) {
	if err := checkJSON(b); err != nil {
		return nil, err
	}
	o := &strictObject{}
	if err := json.Unmarshal(b, &o.fields); err != nil || o.fields == nil {
		return nil, errors.New("must be a JSON object")
	}
	return o, nil
}

// checkJSON refuses text that encoding/json accepts although it does not have one clear meaning:
// invalid UTF-8, half surrogate pairs, a name that is given twice in one object, or data after the
// value.
//
// It goes through the tokens and keeps a stack of the open objects and arrays. In an object tokens
// alternate between a name and a value; a value that is itself an object or array is closed before
// the next name is due.
func checkJSON(b []byte) error {
	if !utf8.Valid(b) {
		return errors.New("must be UTF-8")
	}
	if loneSurrogate(b) {
		return errors.New("must not hold half of a surrogate pair")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	// The names of each open object, from the outermost; nil stands for an array.
	var open []map[string]bool
	// Whether the next token is a name.
	name := false
	for {
		t, err := d.Token()
		if err != nil {
			return fmt.Errorf("must be JSON: %w", err)
		}
		top := len(open) - 1
		if name && t != json.Delim('}') {
			if open[top][t.(string)] {
				return fmt.Errorf("%q is given twice", t)
			}
			open[top][t.(string)], name = true, false
			continue
		}
		switch t {
		case json.Delim('{'):
			open = append(open, map[string]bool{})
		case json.Delim('['):
			open = append(open, nil)
		case json.Delim('}'), json.Delim(']'):
			open = open[:top]
		}
		if len(open) == 0 {
			if rest := bytes.TrimSpace(b[d.InputOffset():]); len(rest) > 0 {
				return errors.New("must be one JSON value, with nothing behind it")
			}
			return nil
		}
		name = open[len(open)-1] != nil
	}
}

// jsonOf returns b without the white space around it, and whether that is one JSON value in UTF-8.
// Programs that print JSON usually end it with a line feed, which is not part of the value.
func jsonOf(b []byte) (json.RawMessage, bool) {
	b = bytes.Trim(b, " \t\r\n")
	return b, json.Valid(b) && utf8.Valid(b) && !loneSurrogate(b)
}

// loneSurrogate reports whether JSON text has an escape of half a surrogate pair, such as \ud83d,
// that is not followed by the other half.
func loneSurrogate(b []byte) bool {
	// half reads one \uXXXX escape at the start of b, and reports whether it is a surrogate.
	half := func(b []byte) (n uint64, ok bool) {
		if len(b) < 6 || b[0] != '\\' || b[1] != 'u' {
			return 0, false
		}
		n, err := strconv.ParseUint(string(b[2:6]), 16, 16)
		return n, err == nil && n >= 0xd800 && n < 0xe000
	}
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			continue
		}
		// A high half must be followed by the escape of a low half; a low half alone is wrong.
		if n, ok := half(b[i:]); ok {
			low, paired := half(b[i+6:])
			if n >= 0xdc00 || !paired || low < 0xdc00 {
				return true
			}
			i += 10
		}
		i++ // the character that is escaped
	}
	return false
}

// refuse notes an error about a field, unless there is one already.
func (o *strictObject) refuse(field, text string) {
	if o.err == nil {
		o.err = fmt.Errorf("%s %s", field, text)
	}
}

// within notes the error of an object that is the value of a field.
func (o *strictObject) within(field string, err error) {
	if err != nil {
		o.refuse(field+":", err.Error())
	}
}

// done returns the first error. If there is none and fields are left, they are unknown; the error
// names the first of them in byte order, so that it is the same each time.
func (o *strictObject) done() error {
	if o.err != nil || len(o.fields) == 0 {
		return o.err
	}
	return fmt.Errorf("unknown field %q", slices.Min(slices.Collect(maps.Keys(o.fields))))
}

// raw takes a field as it is written, also if it is null. ok is false if the object does not have
// it.
func (o *strictObject) raw(name string) (json.RawMessage, bool) {
	v, ok := o.fields[name]
	delete(o.fields, name)
	return v, ok
}

// value takes a field into v, a pointer. It returns false if the field is absent, null or of
// another type; the last two are errors that say that it must be kind.
func (o *strictObject) value(name, kind string, v any) bool {
	raw, ok := o.raw(name)
	if !ok {
		return false
	}
	if string(raw) == "null" || json.Unmarshal(raw, v) != nil {
		o.refuse(name, "must be "+kind)
		return false
	}
	return true
}

// text takes a string. ok is false if it is absent or refused, as it is for all methods below that
// return it.
func (o *strictObject) text(name string) (s string, ok bool) {
	ok = o.value(name, "a string", &s)
	return s, ok
}

// required takes a string that must be there; it may be empty.
func (o *strictObject) required(name string) string {
	s, ok := o.text(name)
	if !ok {
		o.refuse(name, "is required")
	}
	return s
}

// boolean takes a boolean; false if it is absent.
func (o *strictObject) boolean(name string) (b bool) {
	o.value(name, "true or false", &b)
	return b
}

// integer takes a signed integer of 64 bits.
func (o *strictObject) integer(name string) (n int64, ok bool) {
	ok = o.value(name, "an integer of 64 bits", &n)
	return n, ok
}

// unsigned takes an unsigned integer, or a string that holds one: JSON numbers of many programs are
// exact up to 2^53 only.
func (o *strictObject) unsigned(name string) (n uint64, ok bool) {
	// A string must be the shortest form of the number, so that each number has one spelling.
	if raw := o.fields[name]; len(raw) > 1 && raw[0] == '"' {
		s, _ := o.text(name)
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil || strconv.FormatUint(n, 10) != s {
			o.refuse(name, "must be an integer from 0 to 18446744073709551615")
			return 0, false
		}
		return n, true
	}
	ok = o.value(name, "an integer from 0 to 18446744073709551615", &n)
	return n, ok
}

// base64 takes a string in standard base64 with padding, and returns the bytes.
func (o *strictObject) base64(name string) (b []byte, ok bool) {
	s, ok := o.text(name)
	if !ok {
		return nil, false
	}
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err != nil {
		o.refuse(name, "must be base64 with padding")
	}
	return b, err == nil
}

// bytes takes bytes from one of two fields: name holds them as text, name_base64 in base64. Both
// together are an error.
func (o *strictObject) bytes(name string) ([]byte, bool) {
	s, asText := o.text(name)
	b, coded := o.base64(name + "_base64")
	switch {
	case asText && coded:
		o.refuse(name, "and "+name+"_base64 are mutually exclusive")
	case asText:
		return []byte(s), true
	}
	return b, coded
}

// requiredBytes is like bytes, for a field that must be there.
func (o *strictObject) requiredBytes(name string) []byte {
	b, ok := o.bytes(name)
	if !ok {
		o.refuse(name, "is required")
	}
	return b
}

// duration takes a duration in Go's form.
func (o *strictObject) duration(name string) (time.Duration, bool) {
	s, ok := o.text(name)
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		o.refuse(name, "must be a duration, such as 90s, 1.5s or 1h30m")
	}
	return d, err == nil
}

// time takes a time as in RFC 3339.
func (o *strictObject) time(name string) (time.Time, bool) {
	s, ok := o.text(name)
	if !ok {
		return time.Time{}, false
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		o.refuse(name, "must be a time of RFC 3339, such as 2030-01-02T03:04:05Z")
	}
	return t, err == nil
}

// count takes a number of attempts, which must be at least 1; 0 if the field is absent.
func (o *strictObject) count(name string) int32 {
	n, ok := o.integer(name)
	if ok && (n < 1 || n > math.MaxInt32) {
		o.refuse(name, "must be 1 or more")
	}
	return int32(n)
}

// list takes an array of strings; nil if it is absent.
func (o *strictObject) list(name string) (out []string) {
	o.value(name, "an array of strings", &out)
	return out
}

// texts takes an object whose values are strings; nil if it is absent.
func (o *strictObject) texts(name string) map[string]string {
	in := o.object(name)
	if in == nil {
		return nil
	}
	out := make(map[string]string, len(in.fields))
	for _, key := range slices.Sorted(maps.Keys(in.fields)) {
		out[key], _ = in.text(key)
	}
	o.within(name, in.done())
	return out
}

// objects takes an array of objects. The caller reads each and passes the error of its done to
// within.
func (o *strictObject) objects(name string) (out []*strictObject) {
	var all []map[string]json.RawMessage
	if !o.value(name, "an array of objects", &all) {
		return nil
	}
	for _, fields := range all {
		out = append(out, &strictObject{fields: fields})
	}
	return out
}

// object takes an object, as objects does; nil if it is absent.
func (o *strictObject) object(name string) *strictObject {
	var fields map[string]json.RawMessage
	if !o.value(name, "an object", &fields) {
		return nil
	}
	return &strictObject{fields: fields}
}
