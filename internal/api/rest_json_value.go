package api

import (
	"bytes"
	"encoding/base64"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// text reads a string into a field of text.
func (d *jsonReader) text() string {
	s := d.anyText()
	if strings.IndexByte(s, 0) >= 0 {
		d.refuse("must not hold a NUL character")
		return ""
	}
	return s
}

// anyText reads a string that tells what went wrong: one that holds NUL, as the output of programs may, is better than none.
func (d *jsonReader) anyText() string {
	if d.fact != nil {
		return ""
	}
	if d.space() != '"' {
		d.mistyped("must be a string")
		return ""
	}
	return string(d.str())
}

// filled reads a text into a field in which the empty one would count as left out: that the sender meant something else is
// more likely.
func (d *jsonReader) filled() string {
	s := d.text()
	if d.fact == nil && s == "" {
		d.refuse("must not be empty; leave the field out instead")
	}
	return s
}

// choice reads a text of a closed set.
func (d *jsonReader) choice(words []string) string {
	s := d.text()
	if d.fact == nil && !slices.Contains(words, s) {
		d.refuse(mustBe(words))
	}
	return s
}

// mustBe says which words a value may be.
func mustBe(words []string) string {
	last := len(words) - 1
	if last == 0 {
		return "must be " + words[0]
	}
	return "must be " + strings.Join(words[:last], ", ") + " or " + words[last]
}

// base64 reads a string of base64 with padding.
func (d *jsonReader) base64() []byte {
	if d.fact != nil {
		return nil
	}
	if d.space() != '"' {
		d.mistyped("must be a string of base64")
		return nil
	}
	s := d.str()
	if d.fact != nil {
		return nil
	}
	out := make([]byte, base64.StdEncoding.DecodedLen(len(s)))
	n, err := base64.StdEncoding.Strict().Decode(out, s)
	if err != nil {
		d.refuse("must be base64 with padding")
		return nil
	}
	return out[:n:n]
}

// raw reads a value as it stands, without the white space around it.
func (d *jsonReader) raw() []byte {
	if d.fact != nil {
		return nil
	}
	d.space()
	start := d.i
	d.value()
	if d.fact != nil {
		return nil
	}
	return d.b[start:d.i:d.i]
}

// value passes any value.
func (d *jsonReader) value() {
	switch c := d.space(); {
	case c == '"':
		d.skipString()
	case c == '{':
		if d.enter('{', "") {
			for first := true; d.next('}', first); first = false {
				if d.space() != '"' {
					d.malformed()
					return
				}
				if d.skipString(); d.fact != nil {
					return
				}
				if d.space() != ':' {
					d.malformed()
					return
				}
				d.i++
				d.value()
			}
		}
	case c == '[':
		if d.enter('[', "") {
			for first := true; d.next(']', first); first = false {
				d.value()
			}
		}
	case c == '-' || c >= '0' && c <= '9':
		d.number()
	default:
		d.word()
	}
}

// word passes true, false or null.
func (d *jsonReader) word() {
	for _, w := range []string{"true", "false", "null"} {
		if bytes.HasPrefix(d.b[d.i:], []byte(w)) {
			d.i += len(w)
			return
		}
	}
	d.malformed()
}

// number passes a number and returns it; whole says that it has neither fraction nor exponent.
func (d *jsonReader) number() (text []byte, whole bool) {
	start := d.i
	if d.b[d.i] == '-' {
		d.i++
	}
	first := d.i
	if d.digits() == 0 || d.b[first] == '0' && d.i > first+1 {
		d.malformed()
		return nil, false
	}
	whole = true
	if d.i < len(d.b) && d.b[d.i] == '.' {
		d.i++
		whole = false
		if d.digits() == 0 {
			d.malformed()
			return nil, false
		}
	}
	if d.i < len(d.b) && (d.b[d.i] == 'e' || d.b[d.i] == 'E') {
		d.i++
		whole = false
		if d.i < len(d.b) && (d.b[d.i] == '+' || d.b[d.i] == '-') {
			d.i++
		}
		if d.digits() == 0 {
			d.malformed()
			return nil, false
		}
	}
	return d.b[start:d.i], whole
}

func (d *jsonReader) digits() int {
	start := d.i
	for d.i < len(d.b) && d.b[d.i] >= '0' && d.b[d.i] <= '9' {
		d.i++
	}
	return d.i - start
}

// atNumber says whether a number comes; else what comes is refused.
func (d *jsonReader) atNumber(otherwise string) bool {
	if d.fact != nil {
		return false
	}
	if c := d.space(); c != '-' && (c < '0' || c > '9') {
		d.mistyped(otherwise)
		return false
	}
	return true
}

// integer reads a whole number from low to high.
func (d *jsonReader) integer(low, high int64) int64 {
	if !d.atNumber("must be an integer") {
		return 0
	}
	text, whole := d.number()
	if d.fact != nil {
		return 0
	}
	if !whole {
		d.refuse("must be an integer")
		return 0
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil || n < low || n > high {
		d.refuse("is out of range")
		return 0
	}
	return n
}

func (d *jsonReader) int32() int32   { return int32(d.integer(math.MinInt32, math.MaxInt32)) }
func (d *jsonReader) uint32() uint32 { return uint32(d.integer(0, math.MaxUint32)) }

// unsigned reads a token, an index or a revision: a string of digits, or an integer.
func (d *jsonReader) unsigned() uint64 {
	if d.fact != nil {
		return 0
	}
	var text []byte
	whole := true
	if d.space() == '"' {
		text = d.str()
	} else if d.atNumber("must be an integer, or a string that holds one") {
		text, whole = d.number()
	}
	if d.fact != nil {
		return 0
	}
	n, fact := unsignedOf(string(text))
	if !whole || fact != "" {
		d.refuse("must be an integer from 0 to 18446744073709551615")
		return 0
	}
	return n
}

// unsignedOf reads decimal digits, no more than needed.
func unsignedOf(s string) (n uint64, wrong string) {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil || s[0] == '+' || s[0] == '0' && len(s) > 1 {
		return 0, "must be an integer from 0 to 18446744073709551615"
	}
	return n, ""
}

// float reads a number.
func (d *jsonReader) float() float64 {
	if !d.atNumber("must be a number") {
		return 0
	}
	text, _ := d.number()
	if d.fact != nil {
		return 0
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil {
		d.refuse("is out of range")
	}
	return f
}

// boolean reads true or false.
func (d *jsonReader) boolean() bool {
	if d.fact != nil {
		return false
	}
	d.space()
	for _, v := range []bool{true, false} {
		if w := strconv.FormatBool(v); bytes.HasPrefix(d.b[d.i:], []byte(w)) {
			d.i += len(w)
			return v
		}
	}
	d.mistyped("must be true or false")
	return false
}

// oneOf reads a word of a closed set. Its number is its place in names, of which the first may be empty: no word.
func (d *jsonReader) oneOf(names []string) int32 {
	s := d.text()
	if d.fact != nil {
		return 0
	}
	for i, name := range names {
		if name == s && s != "" {
			return int32(i)
		}
	}
	d.refuse("must be one of " + listOf(names))
	return 0
}

func listOf(names []string) string {
	var out []byte
	for _, n := range names {
		switch {
		case n == "":
			continue
		case len(out) > 0:
			out = append(out, ", "...)
		}
		out = append(out, n...)
	}
	return string(out)
}

// duration reads a duration such as 90s, 1.5s or 1h30m.
func (d *jsonReader) duration() *durationpb.Duration {
	s := d.text()
	if d.fact != nil {
		return nil
	}
	v, ok := durationOf(s)
	if !ok {
		d.refuse(noDuration)
		return nil
	}
	return durationpb.New(v)
}

const noDuration = "must be a duration, such as 90s, 1.5s or 1h30m"

func durationOf(s string) (time.Duration, bool) {
	v, err := time.ParseDuration(s)
	return v, err == nil
}

// time reads a time of RFC 3339.
func (d *jsonReader) time() *timestamppb.Timestamp {
	s := d.text()
	if d.fact != nil {
		return nil
	}
	v, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		d.refuse("must be a time as in RFC 3339, such as 2030-01-02T03:04:05Z")
		return nil
	}
	return timestamppb.New(v)
}

// isJSON says whether b is one JSON value, within the depth that this edge reads.
func isJSON(b []byte, l *Limits) bool {
	d := jsonReader{b: b, l: l}
	d.value()
	d.end()
	return d.fact == nil && len(b) > 0
}
