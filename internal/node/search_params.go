package node

import "strconv"

// paramReader reads JSON as parameters mostly are: no escapes in texts, nothing but ASCII in them. Of all else it says that
// it cannot, and encoding/json, which costs several times as much, decides.
type paramReader struct {
	b []byte
	i int
}

// paramDepth bounds what is read this way; deeper values are left to encoding/json and its bound.
const paramDepth = 8

// plainParams reads an object of parameters, or says that it cannot.
func plainParams(text []byte) (map[string]any, bool) {
	r := paramReader{b: text}
	v, ok := r.value(paramDepth)
	doc, isObject := v.(map[string]any)
	return doc, ok && isObject && r.space() == 0 && r.i == len(r.b)
}

// space passes white space and returns the byte behind it, 0 at the end.
func (r *paramReader) space() byte {
	for ; r.i < len(r.b); r.i++ {
		switch c := r.b[r.i]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

func (r *paramReader) value(depth int) (any, bool) {
	if depth == 0 {
		return nil, false
	}
	switch c := r.space(); c {
	case '{':
		return r.object(depth)
	case '[':
		return r.list(depth)
	case '"':
		return r.text()
	case 't':
		return true, r.word("true")
	case 'f':
		return false, r.word("false")
	case 'n':
		return nil, r.word("null")
	default:
		return r.number()
	}
}

func (r *paramReader) word(w string) bool {
	if len(r.b)-r.i < len(w) || string(r.b[r.i:r.i+len(w)]) != w {
		return false
	}
	r.i += len(w)
	return true
}

func (r *paramReader) object(depth int) (any, bool) {
	out := make(map[string]any, 4)
	for first := true; ; first = false {
		done, ok := r.next('}', first)
		if done || !ok {
			return out, ok
		}
		name, ok := r.text()
		if !ok || r.space() != ':' {
			return nil, false
		}
		r.i++
		v, ok := r.value(depth - 1)
		if !ok {
			return nil, false
		}
		out[name.(string)] = v
	}
}

func (r *paramReader) list(depth int) (any, bool) {
	out := make([]any, 0, 4)
	for first := true; ; first = false {
		done, ok := r.next(']', first)
		if done || !ok {
			return out, ok
		}
		v, ok := r.value(depth - 1)
		if !ok {
			return nil, false
		}
		out = append(out, v)
	}
}

// next goes to the next item of a list or object, whose first byte is the current one at first, or past its end.
func (r *paramReader) next(end byte, first bool) (done, ok bool) {
	if first {
		r.i++
		if r.space() == end {
			r.i++
			return true, true
		}
		return false, true
	}
	switch r.space() {
	case end:
		r.i++
		return true, true
	case ',':
		r.i++
		return false, true
	}
	return false, false
}

func (r *paramReader) text() (any, bool) {
	if r.space() != '"' {
		return nil, false
	}
	for i := r.i + 1; i < len(r.b); i++ {
		switch c := r.b[i]; {
		case c == '"':
			s := string(r.b[r.i+1 : i])
			r.i = i + 1
			return s, true
		case c == '\\' || c < ' ' || c >= 0x7f:
			return nil, false
		}
	}
	return nil, false
}

// number reads digits, with a point among them or without. A number that is whole stays whole.
func (r *paramReader) number() (any, bool) {
	from, digits, point := r.i, 0, false
	if r.i < len(r.b) && r.b[r.i] == '-' {
		r.i++
	}
	if r.i+1 < len(r.b) && r.b[r.i] == '0' && r.b[r.i+1] >= '0' && r.b[r.i+1] <= '9' {
		return nil, false
	}
	for ; r.i < len(r.b); r.i++ {
		c := r.b[r.i]
		if c == '.' && !point && digits > 0 {
			point, digits = true, 0
			continue
		}
		if c < '0' || c > '9' {
			if c == 'e' || c == 'E' || c == '.' || c == '+' || c == '-' {
				return nil, false
			}
			break
		}
		digits++
	}
	if digits == 0 || r.i-from > 30 {
		return nil, false
	}
	s := string(r.b[from:r.i])
	if !point {
		if n, err := strconv.ParseInt(s, 10, 64); err == nil {
			return n, true
		}
	}
	f, err := strconv.ParseFloat(s, 64)
	return f, err == nil
}
