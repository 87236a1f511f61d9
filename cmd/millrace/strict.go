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

// strictObject is a JSON object that is read as servers read theirs: names have one spelling and come once, at every depth; text
// is UTF-8 without lone surrogates; null stands for no field's value; and a field that was not asked for is an error. The first error
// stays.
type strictObject struct {
	fields map[string]json.RawMessage // that were not read yet
	err    error
}

// readStrict reads b, which must be one object and nothing else.
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

// checkJSON refuses what encoding/json takes though it is not one JSON value with one meaning.
func checkJSON(b []byte) error {
	if !utf8.Valid(b) {
		return errors.New("must be UTF-8")
	}
	if loneSurrogate(b) {
		return errors.New("must not hold half of a surrogate pair")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	var open []map[string]bool // names of each object that is open; nil for an array
	name := false              // the next token is a name, in an object
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

// jsonOf returns b without the white space around it if it is one JSON value in UTF-8. What programs print as JSON ends with a
// newline as a rule, which is not part of the value.
func jsonOf(b []byte) (json.RawMessage, bool) {
	b = bytes.Trim(b, " \t\r\n")
	return b, json.Valid(b) && utf8.Valid(b) && !loneSurrogate(b)
}

// loneSurrogate reports whether JSON text names half of a surrogate pair, as \ud83d without what must follow it.
func loneSurrogate(b []byte) bool {
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

// refuse notes what is wrong with a field.
func (o *strictObject) refuse(field, text string) {
	if o.err == nil {
		o.err = fmt.Errorf("%s %s", field, text)
	}
}

// within notes the error of an object in a field.
func (o *strictObject) within(field string, err error) {
	if err != nil {
		o.refuse(field+":", err.Error())
	}
}

// done returns the first error, such as a field that was not asked for.
func (o *strictObject) done() error {
	if o.err != nil || len(o.fields) == 0 {
		return o.err
	}
	return fmt.Errorf("unknown field %q", slices.Min(slices.Collect(maps.Keys(o.fields))))
}

// raw takes a field as it is written, null too.
func (o *strictObject) raw(name string) (json.RawMessage, bool) {
	v, ok := o.fields[name]
	delete(o.fields, name)
	return v, ok
}

// value reads a field into v.
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

func (o *strictObject) text(name string) (s string, ok bool) {
	ok = o.value(name, "a string", &s)
	return s, ok
}

func (o *strictObject) required(name string) string {
	s, ok := o.text(name)
	if !ok {
		o.refuse(name, "is required")
	}
	return s
}

func (o *strictObject) boolean(name string) (b bool) {
	o.value(name, "true or false", &b)
	return b
}

func (o *strictObject) integer(name string) (n int64, ok bool) {
	ok = o.value(name, "an integer of 64 bits", &n)
	return n, ok
}

// unsigned reads an integer, or a string of one.
func (o *strictObject) unsigned(name string) (n uint64, ok bool) {
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

// bytes reads a field of text, or the one of the same name with _base64 behind it.
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

func (o *strictObject) requiredBytes(name string) []byte {
	b, ok := o.bytes(name)
	if !ok {
		o.refuse(name, "is required")
	}
	return b
}

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

// count reads an integer that is a number of attempts; 0 when there is none.
func (o *strictObject) count(name string) int32 {
	n, ok := o.integer(name)
	if ok && (n < 1 || n > math.MaxInt32) {
		o.refuse(name, "must be 1 or more")
	}
	return int32(n)
}

// objects reads a field that is an array of objects.
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

// object reads a field that is an object; nil when there is none.
func (o *strictObject) object(name string) *strictObject {
	var fields map[string]json.RawMessage
	if !o.value(name, "an object", &fields) {
		return nil
	}
	return &strictObject{fields: fields}
}
