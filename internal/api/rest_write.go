package api

import (
	"encoding/base64"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	pb "github.com/millrace/millrace/gen/millrace/v1"
)

// jsonWriter appends one JSON document. It puts the commas; order is the caller's.
//
// Fields that have no value are left out, by those methods that say so.
type jsonWriter struct {
	b     []byte
	l     *Limits
	comma bool // the next element needs one before it
}

func (w *jsonWriter) sep() {
	if w.comma {
		w.b = append(w.b, ',')
	}
	w.comma = false
}

func (w *jsonWriter) open(c byte) {
	w.sep()
	w.b = append(w.b, c)
}

func (w *jsonWriter) close(c byte) {
	w.b = append(w.b, c)
	w.comma = true
}

// key begins a field. Names are the product's own and need no escapes.
func (w *jsonWriter) key(name string) {
	w.sep()
	w.b = append(w.b, '"')
	w.b = append(w.b, name...)
	w.b = append(w.b, '"', ':')
}

func (w *jsonWriter) object(name string, fields func()) {
	w.key(name)
	w.open('{')
	fields()
	w.close('}')
}

func (w *jsonWriter) list(name string, n int, element func(i int)) {
	w.key(name)
	w.open('[')
	for i := range n {
		element(i)
	}
	w.close(']')
}

// str is a field of text.
func (w *jsonWriter) str(name, s string) {
	w.key(name)
	w.quote(s)
}

// optStr is str, left out when empty.
func (w *jsonWriter) optStr(name, s string) {
	if s != "" {
		w.str(name, s)
	}
}

func (w *jsonWriter) bool(name string, v bool) {
	w.key(name)
	w.b = strconv.AppendBool(w.b, v)
	w.comma = true
}

// optBool is bool, left out when false.
func (w *jsonWriter) optBool(name string, v bool) {
	if v {
		w.bool(name, v)
	}
}

func (w *jsonWriter) int(name string, n int64) {
	w.key(name)
	w.b = strconv.AppendInt(w.b, n, 10)
	w.comma = true
}

// float is a number that need not be whole.
func (w *jsonWriter) float(name string, v float64) {
	w.key(name)
	w.b = strconv.AppendFloat(w.b, v, 'f', -1, 64)
	w.comma = true
}

// count is a number of things.
func (w *jsonWriter) count(name string, n uint64) {
	w.key(name)
	w.b = strconv.AppendUint(w.b, n, 10)
	w.comma = true
}

// optInt is int, left out when 0.
func (w *jsonWriter) optInt(name string, n int64) {
	if n != 0 {
		w.int(name, n)
	}
}

// exact is a number that is handed back or compared: a string, because many readers round large numbers.
func (w *jsonWriter) exact(name string, n uint64) {
	w.key(name)
	w.b = append(w.b, '"')
	w.b = strconv.AppendUint(w.b, n, 10)
	w.b = append(w.b, '"')
	w.comma = true
}

// time is a time in RFC 3339, left out when unset.
func (w *jsonWriter) time(name string, t *timestamppb.Timestamp) {
	if t == nil {
		return
	}
	w.key(name)
	w.b = append(w.b, '"')
	w.b = t.AsTime().AppendFormat(w.b, "2006-01-02T15:04:05.999Z")
	w.b = append(w.b, '"')
	w.comma = true
}

// duration is a duration in seconds, such as 90s or 1.5s, left out when unset.
func (w *jsonWriter) duration(name string, d *durationpb.Duration) {
	if d != nil {
		w.key(name)
		w.seconds(d.GetSeconds()*second + int64(d.GetNanos())/1e6)
	}
}

func (w *jsonWriter) seconds(ms int64) {
	w.b = append(w.b, '"')
	w.b = strconv.AppendFloat(w.b, float64(ms)/second, 'f', -1, 64)
	w.b = append(w.b, 's', '"')
	w.comma = true
}

// content is a payload or a result: as it was stored when it is JSON and its type says so, else as base64. White space
// around it would be lost in the white space of the document.
func (w *jsonWriter) content(name string, b []byte, contentType string) {
	if jsonType(contentType) && isJSON(b, w.l) && b[0] > ' ' && b[len(b)-1] > ' ' {
		w.key(name)
		w.b = append(w.b, b...)
		w.comma = true
		return
	}
	w.base64(name, b)
}

// anyBytes is a key or a value: as text when it is, else as base64.
func (w *jsonWriter) anyBytes(name string, b []byte) {
	if utf8.Valid(b) && !slices.Contains(b, 0) {
		w.str(name, string(b))
		return
	}
	w.base64(name, b)
}

func (w *jsonWriter) base64(name string, b []byte) {
	w.sep()
	w.b = append(w.b, '"')
	w.b = append(w.b, name...)
	w.b = append(w.b, `_base64":"`...)
	w.b = base64.StdEncoding.AppendEncode(w.b, b)
	w.b = append(w.b, '"')
	w.comma = true
}

// texts is a map of texts, in the order of its keys.
func (w *jsonWriter) texts(name string, m map[string]string) {
	w.object(name, func() {
		for _, k := range slices.Sorted(maps.Keys(m)) {
			w.str(k, m[k])
		}
	})
}

// headers are the headers of a task, left out when there are none.
func (w *jsonWriter) headers(h []*pb.Header) {
	if len(h) == 0 {
		return
	}
	w.list("headers", len(h), func(i int) {
		w.open('{')
		w.str("name", h[i].GetName())
		w.str("value", h[i].GetValue())
		w.close('}')
	})
}

const hexDigits = "0123456789abcdef"

// quote appends a string.
func (w *jsonWriter) quote(s string) {
	w.sep()
	w.b = append(w.b, '"')
	start := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			r, size := utf8.DecodeRuneInString(s[i:])
			if r != utf8.RuneError || size > 1 {
				i += size
				continue
			}
		}
		w.b = append(w.b, s[start:i]...)
		switch c {
		case '"', '\\':
			w.b = append(w.b, '\\', c)
		case '\n':
			w.b = append(w.b, '\\', 'n')
		case '\t':
			w.b = append(w.b, '\\', 't')
		default:
			if c < ' ' {
				w.b = append(w.b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			} else {
				w.b = append(w.b, "\ufffd"...) // a byte that is not part of a rune
			}
		}
		i++
		start = i
	}
	w.b = append(append(w.b, s[start:]...), '"')
	w.comma = true
}
