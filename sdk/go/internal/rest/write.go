package rest

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/millrace/millrace/sdk/go/internal/restjson"
)

// restBody appends the JSON of one request. Fields that say their default are left out. Payloads, results, keys and
// values go as base64: any bytes then arrive as they are, whatever their type says.
type restBody struct {
	// b is the document so far.
	b     []byte
	comma bool // the next element needs one before it
	lacks bool // something of the message has no form in JSON
}

// sep writes the comma between two elements, where there is one before.
func (w *restBody) sep() {
	if w.comma {
		w.b = append(w.b, ',')
	}
	w.comma = false
}

// braces writes an object of fields.
func (w *restBody) braces(fields func()) {
	w.sep()
	w.b = append(w.b, '{')
	fields()
	w.b = append(w.b, '}')
	w.comma = true
}

// key begins a field. Names are this package's own and need no escapes.
func (w *restBody) key(name string) {
	w.sep()
	w.b = append(w.b, '"')
	w.b = append(w.b, name...)
	w.b = append(w.b, '"', ':')
}

// object writes a field that is an object.
func (w *restBody) object(name string, fields func()) {
	w.key(name)
	w.braces(fields)
}

// restList writes a list of objects; an empty one is left out.
func restList[T any](w *restBody, name string, list []T, element func(*restBody, T)) {
	if len(list) == 0 {
		return
	}
	w.key(name)
	w.b = append(w.b, '[')
	for _, x := range list {
		w.braces(func() { element(w, x) })
	}
	w.b = append(w.b, ']')
	w.comma = true
}

// text writes a text that is left out when it is empty.
func (w *restBody) text(name, s string) {
	if s == "" {
		return
	}
	w.key(name)
	w.quote(s)
}

// anyText writes a text that means something even when it is empty.
func (w *restBody) anyText(name, s string) {
	w.key(name)
	w.quote(s)
}

// texts is a list of texts; an empty one is left out.
func (w *restBody) texts(name string, list []string) {
	if len(list) == 0 {
		return
	}
	w.key(name)
	w.b = append(w.b, '[')
	for _, s := range list {
		w.sep()
		w.quote(s)
	}
	w.b = append(w.b, ']')
	w.comma = true
}

// textMap writes an object of texts, in the order of their names, unless it is empty.
func (w *restBody) textMap(name string, m map[string]string) {
	if len(m) == 0 {
		return
	}
	w.object(name, func() {
		for _, key := range slices.Sorted(maps.Keys(m)) {
			w.anyText(key, m[key])
		}
	})
}

// prose is text for people, of which the routes refuse one character that the contract allows.
func (w *restBody) prose(name, s string) {
	w.text(name, strings.ReplaceAll(s, "\x00", "\ufffd"))
}

// quote writes a string of JSON. Plain ASCII is copied; all else goes through the standard library, which also mends what is not
// UTF-8.
func (w *restBody) quote(s string) {
	// The test is that of the common case: most texts are names and ids.
	for i := range len(s) {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= 0x7f {
			b, _ := json.Marshal(s) // strings always encode
			w.b = append(w.b, b...)
			w.comma = true
			return
		}
	}
	w.b = append(w.b, '"')
	w.b = append(w.b, s...)
	w.b = append(w.b, '"')
	w.comma = true
}

// bytes writes bytes as base64, left out when there are none.
func (w *restBody) bytes(name string, b []byte) {
	if len(b) > 0 {
		w.anyBytes(name, b)
	}
}

// anyBytes writes bytes that mean something even when there are none.
func (w *restBody) anyBytes(name string, b []byte) {
	w.sep()
	w.b = append(w.b, '"')
	w.b = append(w.b, name...)
	w.b = append(w.b, `_base64":"`...)
	w.b = base64.StdEncoding.AppendEncode(w.b, b)
	w.b = append(w.b, '"')
	w.comma = true
}

// bytesList is a list of any bytes.
func (w *restBody) bytesList(name string, list [][]byte) {
	if len(list) == 0 {
		return
	}
	w.key(name + "_base64")
	w.b = append(w.b, '[')
	for _, b := range list {
		w.sep()
		w.b = append(base64.StdEncoding.AppendEncode(append(w.b, '"'), b), '"')
		w.comma = true
	}
	w.b = append(w.b, ']')
	w.comma = true
}

// hex is an id as hexadecimal digits.
func (w *restBody) hex(name string, b []byte) { w.text(name, hex.EncodeToString(b)) }

// raw is JSON already.
func (w *restBody) raw(name string, b []byte) {
	if len(b) > 0 {
		w.key(name)
		w.b = append(w.b, b...)
		w.comma = true
	}
}

// vector is base64 of numbers of 32 bits, little-endian.
func (w *restBody) vector(name string, v []float32) {
	if len(v) == 0 {
		return
	}
	// Numbers as text would be twice as long, and be rounded by some readers.
	raw := make([]byte, 0, 4*len(v))
	for _, x := range v {
		raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(x))
	}
	w.text(name, base64.StdEncoding.EncodeToString(raw))
}

// kept writes what was kept of a message that was read before.
func (w *restBody) kept(m protoreflect.Message) {
	members, whole := restjson.Kept(m)
	w.lacks = w.lacks || !whole
	for _, x := range members {
		w.sep()
		w.b = append(w.b, x...)
		w.comma = true
	}
}

// int writes a number that is left out when it is 0.
func (w *restBody) int(name string, n int64) {
	if n != 0 {
		w.anyInt(name, n)
	}
}

// anyInt writes a number that means something even when it is 0.
func (w *restBody) anyInt(name string, n int64) {
	w.key(name)
	w.b = strconv.AppendInt(w.b, n, 10)
	w.comma = true
}

// exact is a number that is compared: as text, so that nothing between here and the server rounds it.
func (w *restBody) exact(name string, n uint64) {
	w.key(name)
	w.b = append(w.b, '"')
	w.b = strconv.AppendUint(w.b, n, 10)
	w.b = append(w.b, '"')
	w.comma = true
}

// number is exact, left out when it is 0.
func (w *restBody) number(name string, n uint64) {
	if n != 0 {
		w.exact(name, n)
	}
}

// float writes a number with decimals that is left out when it is 0.
func (w *restBody) float(name string, f float64) {
	if f != 0 {
		w.anyFloat(name, f)
	}
}

// anyFloat writes a number that means something even when it is 0.
func (w *restBody) anyFloat(name string, f float64) {
	w.key(name)
	if math.IsNaN(f) || math.IsInf(f, 0) {
		w.b = append(w.b, `"NaN"`...) // which no field takes: the server refuses it by its name
	} else {
		w.b = strconv.AppendFloat(w.b, f, 'g', -1, 64)
	}
	w.comma = true
}

// bool writes a flag that means something even when it is false.
func (w *restBody) bool(name string, v bool) {
	w.key(name)
	w.b = strconv.AppendBool(w.b, v)
	w.comma = true
}

// flag writes a flag that is left out when it is false.
func (w *restBody) flag(name string, v bool) {
	if v {
		w.key(name)
		w.b = append(w.b, "true"...)
		w.comma = true
	}
}

// duration writes a duration in Go's form, such as 1m30s.
func (w *restBody) duration(name string, d *durationpb.Duration) {
	if d != nil {
		w.text(name, d.AsDuration().String())
	}
}

// time writes a time of RFC 3339 with all of its nanoseconds.
func (w *restBody) time(name string, t *timestamppb.Timestamp) {
	if t != nil {
		w.text(name, t.AsTime().Format(time.RFC3339Nano))
	}
}

// word is a member of an enumeration; one that has no word here is left to the server to refuse.
func (w *restBody) word(name string, words []string, n int32) {
	// The place of a word is its number, and 0 is the default.
	switch {
	case n == 0:
	case n > 0 && int(n) < len(words):
		w.text(name, words[n])
	default:
		w.text(name, "unknown-"+strconv.Itoa(int(n)))
	}
}

// restWords is a list of members of an enumeration.
func restWords[T ~int32](w *restBody, name string, words []string, list []T) {
	out := make([]string, len(list))
	for i, n := range list {
		out[i] = "unknown"
		if n > 0 && int(n) < len(words) {
			out[i] = words[n]
		}
	}
	w.texts(name, out)
}
