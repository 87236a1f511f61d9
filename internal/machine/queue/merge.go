package queue

import (
	"bytes"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// A merge patch (RFC 7396) says what to change of a JSON value: an object changes the members that it names, and null takes one away;
// anything else takes the place of the value. What is not named stays byte for byte: order, spaces, and how numbers are written. It is
// applied to bytes, without numbers or maps, so that each replica gets the same.

// maxNesting bounds how deep the values of a patch, or of what it is applied to, may lie in each other.
const maxNesting = 128

// jsonText reads JSON from at on. bad says that it is not JSON, or is nested too deep.
type jsonText struct {
	b   []byte
	at  int
	bad bool
}

// member is one member of an object: where its name begins and ends, where its value does, and where what belongs to it does, with the
// spaces around it.
type member struct {
	name       []byte // decoded
	from, to   int
	value, end int
}

// mergePatch appends to dst what patch makes of target. ok is false where one of them is not JSON.
func mergePatch(dst, target, patch []byte) (out []byte, ok bool) {
	t, p := &jsonText{b: target}, &jsonText{b: patch}
	if !t.whole() || !p.whole() {
		return dst, false
	}
	return merge(dst, target, patch), true
}

// merge is mergePatch for values of which it is known that they are JSON. A nil target is that of a member which is not there.
func merge(dst, target, patch []byte) []byte {
	p, end := trimSpace(patch)
	patch = patch[p:end]
	if patch[0] != '{' {
		return append(dst, patch...)
	}
	changes := (&jsonText{b: patch}).members()
	var own []member
	var lead, tail []byte // the spaces around the object
	if from, to := trimSpace(target); to > from && target[from] == '{' {
		lead, tail = target[:from], target[to:]
		target = target[from:to]
		own = (&jsonText{b: target}).members()
	} else {
		target = nil
	}
	used := make([]bool, len(changes))
	dst = append(append(dst, lead...), '{')
	start := len(dst)
	sep := func() {
		if len(dst) > start {
			dst = append(dst, ',')
		}
	}
	last := len(own) == 0 // the object ends as an empty one does
	for _, m := range own {
		by := -1
		for i := range changes {
			if bytes.Equal(changes[i].name, m.name) {
				by, used[i] = i, true // of members with one name, the last one holds
			}
		}
		if by < 0 {
			sep()
			dst = append(dst, target[m.from:m.to]...)
			continue
		}
		change := patch[changes[by].value:changes[by].end]
		if isNull(change) {
			continue
		}
		sep()
		dst = append(dst, target[m.from:m.value]...)
		dst = merge(dst, target[m.value:m.end], change)
		dst = append(dst, target[m.end:m.to]...)
	}
	for i, c := range changes {
		later := func() bool {
			for _, o := range changes[i+1:] {
				if bytes.Equal(o.name, c.name) {
					return true
				}
			}
			return false
		}
		if used[i] || isNull(patch[c.value:c.end]) || later() {
			continue
		}
		sep()
		dst = append(dst, bytes.TrimLeft(patch[c.from:c.value], space)...)
		dst = merge(dst, nil, patch[c.value:c.end])
	}
	if last && len(dst) == start && target != nil {
		dst = append(dst, target[1:len(target)-1]...)
	}
	return append(append(dst, '}'), tail...)
}

// space is what JSON has between its parts.
const space = " \t\r\n"

// trimSpace returns where a value begins and ends without the spaces around it.
func trimSpace(b []byte) (from, to int) {
	for to = len(b); to > 0 && bytes.IndexByte([]byte(space), b[to-1]) >= 0; to-- {
	}
	for from < to && bytes.IndexByte([]byte(space), b[from]) >= 0 {
		from++
	}
	return from, to
}

func isNull(b []byte) bool { return string(bytes.Trim(b, space)) == "null" }

// whole reports whether all of the text is one value.
func (j *jsonText) whole() bool {
	j.value(0)
	j.spaces()
	return !j.bad && j.at == len(j.b)
}

// members lists the members of an object, with which the text begins.
func (j *jsonText) members() (out []member) {
	j.at = 1
	for {
		from := j.at
		j.spaces()
		if j.peek() == '}' {
			return out
		}
		name := j.at
		j.text()
		m := member{name: unquote(j.b[name:j.at]), from: from}
		j.spaces()
		j.at++ // the colon
		j.spaces()
		m.value = j.at
		j.value(0)
		m.end = j.at
		j.spaces()
		m.to = j.at
		out = append(out, m)
		if j.peek() == '}' {
			return out
		}
		j.at++ // the comma
	}
}

func (j *jsonText) spaces() {
	for j.at < len(j.b) && (j.b[j.at] == ' ' || j.b[j.at] == '\t' || j.b[j.at] == '\r' || j.b[j.at] == '\n') {
		j.at++
	}
}

// peek returns the next byte; 0 at the end.
func (j *jsonText) peek() byte {
	if j.at < len(j.b) {
		return j.b[j.at]
	}
	return 0
}

// take passes a byte that must come next.
func (j *jsonText) take(c byte) {
	if j.peek() != c || j.at == len(j.b) {
		j.bad = true
		return
	}
	j.at++
}

// value passes one value, with the spaces before it.
func (j *jsonText) value(depth int) {
	j.spaces()
	if depth > maxNesting {
		j.bad = true
	}
	if j.bad {
		return
	}
	switch c := j.peek(); {
	case c == '{':
		j.list('}', func() {
			j.spaces()
			j.text()
			j.spaces()
			j.take(':')
			j.value(depth + 1)
		})
	case c == '[':
		j.list(']', func() { j.value(depth + 1) })
	case c == '"':
		j.text()
	case c == '-' || c >= '0' && c <= '9':
		j.number()
	default:
		for _, word := range [...]string{"true", "false", "null"} {
			if bytes.HasPrefix(j.b[j.at:], []byte(word)) {
				j.at += len(word)
				return
			}
		}
		j.bad = true
	}
}

// list passes what is between two brackets.
func (j *jsonText) list(end byte, item func()) {
	j.at++
	j.spaces()
	if j.peek() == end {
		j.at++
		return
	}
	for !j.bad {
		item()
		j.spaces()
		if j.peek() == end {
			j.at++
			return
		}
		j.take(',')
	}
}

// text passes a string.
func (j *jsonText) text() {
	j.take('"')
	for !j.bad {
		switch c := j.peek(); {
		case j.at == len(j.b) || c < ' ':
			j.bad = true
		case c == '"':
			j.at++
			return
		case c == '\\':
			j.escape()
		case c < utf8.RuneSelf:
			j.at++
		default:
			r, n := utf8.DecodeRune(j.b[j.at:])
			if j.at += n; r == utf8.RuneError && n == 1 {
				j.bad = true
			}
		}
	}
}

// escape passes a backslash and what it stands for.
func (j *jsonText) escape() {
	j.at++
	c := j.peek()
	j.at++
	switch c {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
	case 'u':
		for range 4 {
			if c := j.peek(); c >= '0' && c <= '9' || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F' {
				j.at++
			} else {
				j.bad = true
				return
			}
		}
	default:
		j.bad = true
	}
}

// number passes a number.
func (j *jsonText) number() {
	digits := func() {
		from := j.at
		for c := j.peek(); c >= '0' && c <= '9'; c = j.peek() {
			j.at++
		}
		j.bad = j.bad || j.at == from
	}
	if j.peek() == '-' {
		j.at++
	}
	if j.peek() == '0' {
		j.at++
	} else {
		digits()
	}
	if j.peek() == '.' {
		j.at++
		digits()
	}
	if c := j.peek(); c == 'e' || c == 'E' {
		j.at++
		if c := j.peek(); c == '+' || c == '-' {
			j.at++
		}
		digits()
	}
}

// unquote decodes a string, of which it is known that it is one. Half of a surrogate pair stands for the replacement character.
func unquote(b []byte) []byte {
	b = b[1 : len(b)-1]
	if bytes.IndexByte(b, '\\') < 0 {
		return b
	}
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); i++ {
		if b[i] != '\\' {
			out = append(out, b[i])
			continue
		}
		i++
		switch b[i] {
		case 'b':
			out = append(out, '\b')
		case 'f':
			out = append(out, '\f')
		case 'n':
			out = append(out, '\n')
		case 'r':
			out = append(out, '\r')
		case 't':
			out = append(out, '\t')
		case 'u':
			r := unit(b[i+1:])
			i += 4
			if utf16.IsSurrogate(r) && i+6 < len(b) && b[i+1] == '\\' && b[i+2] == 'u' {
				if pair := utf16.DecodeRune(r, unit(b[i+3:])); pair != utf8.RuneError {
					r = pair
					i += 6
				}
			}
			out = utf8.AppendRune(out, r)
		default:
			out = append(out, b[i])
		}
	}
	return out
}

// unit reads the four hexadecimal digits that b begins with.
func unit(b []byte) rune {
	n, _ := strconv.ParseUint(string(b[:4]), 16, 32)
	return rune(n)
}
