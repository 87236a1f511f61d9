package retrieval

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/rules"
)

// Limits of the values of one point. The payload as a whole has a limit of its own.
const (
	MaxKeyword  = 512 // bytes: a set of rows is kept for each
	MaxKeywords = 256 // of one field
	MaxText     = 32 << 10
	MaxDistinct = 100_000 // keywords of a field in one index: a set of rows is kept for each
)

// FieldError says that a declared field of a payload holds something else, or too much.
type FieldError struct {
	Path string // as in payload.certs[2].expires_at
	Want string
}

// Error names the path.
func (e *FieldError) Error() string { return e.Path + ": want " + e.Want }

// Credential is what a row holds and until when.
type Credential struct {
	ID      string
	Expires int64 // nanoseconds since 1970; never is math.MaxInt64
}

// never is the end of a credential that does not end.
const never = math.MaxInt64

// value is one field of one row; absent is the zero value.
type value struct {
	has   bool
	num   int64 // int, bool, time
	float float64
	str   string // keyword, text
	// list is of a field of keywords, creds of one of credentials.
	list  []string
	creds []Credential
	// place is latitude and longitude in degrees.
	place [2]float64
}

// ruleTypes are the types of fields as rules know them.
var ruleTypes = map[core.FieldType]rules.Type{
	core.FieldKeyword: rules.Keyword, core.FieldKeywords: rules.Keywords, core.FieldInt: rules.Int,
	core.FieldFloat: rules.Float, core.FieldBool: rules.Bool, core.FieldTime: rules.Time, core.FieldGeo: rules.Geo,
	core.FieldText: rules.Text, core.FieldCredential: rules.Credentials,
}

// Schema is a collection's declared fields, ready for reading payloads and compiling expressions.
type Schema struct {
	fields []core.SchemaField
	// texts are the text fields whose words an index keeps.
	texts []core.TextField
	// place is where each field is in fields, by name.
	place map[string]int
	rules *rules.Schema
}

// NewSchema prepares the fields of a definition that the machine has taken.
func NewSchema(fields []core.SchemaField) (*Schema, error) {
	s := &Schema{fields: fields, place: make(map[string]int)}
	list := make([]rules.Field, len(fields))
	for i, f := range fields {
		t, ok := ruleTypes[f.Type]
		if !ok {
			return nil, fmt.Errorf("field %s: type %d is not known", f.Name, f.Type)
		}
		s.place[f.Name] = i
		list[i] = rules.Field{Name: f.Name, Type: t, Indexed: f.Index, Protected: f.Protected}
	}
	var err error
	s.rules, err = rules.NewSchema(list)
	return s, err
}

// Rules is the schema as expressions are compiled against it.
func (s *Schema) Rules() *rules.Schema { return s.rules }

// kept says whether an index has a column of a field: expressions or the gate read it.
func (s *Schema) kept(i int) bool {
	f := &s.fields[i]
	return f.Type != core.FieldText && (f.Index || f.Gate != core.GateNone)
}

// Check reports what keeps a payload from being stored: it is no JSON object, or a declared field holds something else
// than declared. Its error is a *FieldError.
func (s *Schema) Check(payload []byte) error {
	_, err := s.parse(payload)
	return err
}

// parse reads the declared fields of a payload, by place. A field that is absent or null is the
// zero value; members that are not declared are skipped.
func (s *Schema) parse(payload []byte) ([]value, error) {
	out := make([]value, len(s.fields))
	if len(payload) == 0 {
		return out, nil
	}
	var doc map[string]json.RawMessage
	if err := json.Unmarshal(payload, &doc); err != nil || doc == nil {
		return nil, &FieldError{"payload", "a JSON object"}
	}
	for name, raw := range doc {
		i, ok := s.place[name]
		if !ok || string(raw) == "null" {
			continue
		}
		v, err := parseValue(s.fields[i].Type, raw, "payload."+name)
		if err != nil {
			return nil, err
		}
		v.has = true
		out[i] = v
	}
	return out, nil
}

// Text returns the string of a field of a payload, or nothing if it has none.
func Text(payload []byte, field string) string {
	var doc map[string]json.RawMessage
	var s string
	if json.Unmarshal(payload, &doc) != nil || json.Unmarshal(doc[field], &s) != nil {
		return ""
	}
	return s
}

// Public returns a payload without its protected fields: the same bytes if the schema has none. A
// payload that cannot be read is left out as a whole, since it may have a protected field.
func (s *Schema) Public(payload []byte) []byte {
	hide := false
	for i := range s.fields {
		hide = hide || s.fields[i].Protected
	}
	if !hide || len(payload) == 0 {
		return payload
	}
	var doc map[string]json.RawMessage
	if json.Unmarshal(payload, &doc) != nil {
		return nil
	}
	for i := range s.fields {
		if s.fields[i].Protected {
			delete(doc, s.fields[i].Name)
		}
	}
	out, err := json.Marshal(doc)
	if err != nil {
		return nil
	}
	return out
}

// parseValue reads one field, which is not null. path names the field in the error.
func parseValue(t core.FieldType, raw []byte, path string) (v value, err error) {
	bad := func(want string) (value, error) { return value{}, &FieldError{path, want} }
	switch t {
	case core.FieldKeyword:
		if !readString(raw, &v.str) || len(v.str) > MaxKeyword {
			return bad(fmt.Sprintf("a string of at most %d bytes", MaxKeyword))
		}
	case core.FieldText:
		if !readString(raw, &v.str) || len(v.str) > MaxText {
			return bad(fmt.Sprintf("a string of at most %d bytes", MaxText))
		}
	case core.FieldKeywords:
		return parseKeywords(raw, path)
	case core.FieldInt:
		if v.num, err = strconv.ParseInt(string(raw), 10, 64); err != nil || v.num == missing {
			return bad("a whole number from -9223372036854775807 to 9223372036854775807, without point or exponent")
		}
	case core.FieldFloat:
		if v.float, err = strconv.ParseFloat(string(raw), 64); err != nil || math.IsNaN(v.float) || math.IsInf(v.float, 0) {
			return bad("a number of 64 bits, at most 1.797e308")
		}
	case core.FieldBool:
		switch string(raw) {
		case "true":
			v.num = 1
		case "false":
		default:
			return bad("true or false")
		}
	case core.FieldTime:
		var ok bool
		if v.num, ok = readTime(raw); !ok {
			return bad("a time of RFC 3339 in the years 1678 to 2261")
		}
	case core.FieldGeo:
		var ok bool
		if v.place, ok = readPlace(raw); !ok {
			return bad("[latitude, longitude] in degrees")
		}
	case core.FieldCredential:
		return parseCredentials(raw, path)
	}
	return v, nil
}

// readString reads a JSON string, and returns false if raw is something else.
func readString(raw []byte, to *string) bool {
	return len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, to) == nil
}

// readEnd reads when a credential ends. Years that nanoseconds do not reach, such as 9999, are how many say never.
func readEnd(raw []byte) (int64, bool) {
	var s string
	if readString(raw, &s) {
		if t, err := time.Parse(time.RFC3339, s); err == nil && t.Year() > 2261 {
			return never, true
		}
	}
	return readTime(raw)
}

// readTime reads a time as nanoseconds since 1970. Years outside 1678 to 2261 do not fit into 64
// bits.
func readTime(raw []byte) (int64, bool) {
	var s string
	if !readString(raw, &s) {
		return 0, false
	}
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.Year() < 1678 || t.Year() > 2261 {
		return 0, false
	}
	return t.UnixNano(), true
}

// readPlace reads [latitude, longitude] or {"lat":, "lon":}.
func readPlace(raw []byte) (p [2]float64, ok bool) {
	if len(raw) > 0 && raw[0] == '{' {
		var doc struct{ Lat, Lon *float64 }
		if decodeStrict(raw, &doc) != nil || doc.Lat == nil || doc.Lon == nil {
			return p, false
		}
		p = [2]float64{*doc.Lat, *doc.Lon}
		return p, rules.ValidPlace(p)
	}
	var list []*float64
	if json.Unmarshal(raw, &list) != nil || len(list) != 2 || list[0] == nil || list[1] == nil {
		return p, false
	}
	p = [2]float64{*list[0], *list[1]}
	return p, rules.ValidPlace(p)
}

// decodeStrict reads a JSON object without members that to does not have.
func decodeStrict(raw []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(to)
}

// parseKeywords reads a list of strings. An empty list is a value; null in a list is not a string.
func parseKeywords(raw []byte, path string) (v value, err error) {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil || items == nil || len(items) > MaxKeywords {
		return v, &FieldError{path, fmt.Sprintf("a list of at most %d strings", MaxKeywords)}
	}
	v.list = make([]string, len(items))
	for i, item := range items {
		if !readString(item, &v.list[i]) || len(v.list[i]) > MaxKeyword {
			return v, &FieldError{fmt.Sprintf("%s[%d]", path, i), fmt.Sprintf("a string of at most %d bytes", MaxKeyword)}
		}
	}
	return v, nil
}

// parseCredentials reads a list of objects. One without expires_at, or with null, never ends.
func parseCredentials(raw []byte, path string) (v value, err error) {
	var items []json.RawMessage
	if json.Unmarshal(raw, &items) != nil || items == nil || len(items) > MaxKeywords {
		return v, &FieldError{path, fmt.Sprintf("a list of at most %d credentials", MaxKeywords)}
	}
	v.creds = make([]Credential, 0, len(items))
	for i, item := range items {
		var doc struct {
			ID      *string         `json:"id"`
			Expires json.RawMessage `json:"expires_at"`
		}
		at := fmt.Sprintf("%s[%d]", path, i)
		if decodeStrict(item, &doc) != nil || doc.ID == nil || *doc.ID == "" || len(*doc.ID) > MaxKeyword {
			return v, &FieldError{at, fmt.Sprintf("{id, expires_at?} with an id of 1 to %d bytes", MaxKeyword)}
		}
		c := Credential{ID: *doc.ID, Expires: never}
		if len(doc.Expires) > 0 && string(doc.Expires) != "null" {
			var ok bool
			if c.Expires, ok = readEnd(doc.Expires); !ok {
				return v, &FieldError{at + ".expires_at", "a time of RFC 3339 from the year 1678 on"}
			}
		}
		v.creds = append(v.creds, c)
	}
	return v, nil
}
