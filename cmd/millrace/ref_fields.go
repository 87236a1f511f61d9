package main

import (
	"context"
	"strings"

	millrace "github.com/millrace/millrace/sdk/go"
)

// zeros is the id of no object.
const zeros = "0000000000000000000000000000000000000000"

// fields are the arguments of one command. In lines, one follows a space and may be quoted as in C; with -z, one follows
// a NUL.
type fields struct {
	rest    string
	term    byte
	command string
}

func isSpace(c byte) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f'
}

// arg takes an argument that begins here.
func (f *fields) arg() (string, error) {
	if f.term == 0 {
		s, _, _ := strings.Cut(f.rest, "\x00")
		f.rest = f.rest[len(s):]
		return s, nil
	}
	if strings.HasPrefix(f.rest, `"`) {
		return f.quoted()
	}
	i := 0
	for i < len(f.rest) && !isSpace(f.rest[i]) {
		i++
	}
	s := f.rest[:i]
	f.rest = f.rest[i:]
	return s, nil
}

// quoted takes a text in double quotes.
func (f *fields) quoted() (string, error) {
	bad := func() (string, error) { return "", fatalf("badly quoted argument: %s", f.rest) }
	var b strings.Builder
	for i := 1; i < len(f.rest); i++ {
		switch c := f.rest[i]; c {
		case '"':
			if next := i + 1; next < len(f.rest) && !isSpace(f.rest[next]) {
				return "", fatalf("unexpected character after quoted argument: %s", f.rest)
			}
			f.rest = f.rest[i+1:]
			return b.String(), nil
		case '\\':
			if i++; i == len(f.rest) {
				return bad()
			}
			c, n := unescape(f.rest[i:])
			if n == 0 {
				return bad()
			}
			b.WriteByte(c)
			i += n - 1
		default:
			b.WriteByte(c)
		}
	}
	return bad()
}

// unescape reads what follows a backslash; n is 0 if that is not an escape.
func unescape(s string) (c byte, n int) {
	const from, to = `abfnrtv\"`, "\a\b\f\n\r\t\v\\\""
	if i := strings.IndexByte(from, s[0]); i >= 0 {
		return to[i], 1
	}
	if len(s) < 3 || s[0] < '0' || s[0] > '3' {
		return 0, 0
	}
	for i := range 3 {
		if s[i] < '0' || s[i] > '7' {
			return 0, 0
		}
		c = c<<3 | s[i] - '0'
	}
	return c, 3
}

// ref takes the name that comes first.
func (f *fields) ref() (string, error) {
	name, err := f.arg()
	if err != nil {
		return "", err
	}
	if name == "" {
		return "", fatalf("%s: missing <ref>", f.command)
	}
	if rule := millrace.RefNameRule(name); rule != "" {
		return "", fatalf("invalid ref format: %s: %s", name, rule)
	}
	return name, nil
}

// text takes a further argument; ok is false when there is none.
func (f *fields) text() (s string, ok bool, err error) {
	if f.term == 0 {
		if f.rest == "" {
			return "", false, nil
		}
		if f.rest[0] != 0 {
			return "", false, fatalf("%s: expected NUL but got: %s", f.command, f.rest)
		}
		if f.rest = f.rest[1:]; f.rest == "" {
			return "", false, fatalf("%s: unexpected end of input", f.command)
		}
		s, err = f.arg()
		return s, true, err
	}
	if f.rest == "" || f.rest[0] == f.term {
		return "", false, nil
	}
	if f.rest[0] != ' ' {
		return "", false, fatalf("%s: expected SP but got: %s", f.command, f.rest)
	}
	f.rest = f.rest[1:]
	s, err = f.arg()
	return s, true, err
}

// value takes an object id, or the name of a ref that has one. In lines an empty one is zero; with -z it is none, but
// where one is required.
func (f *fields) value(ctx context.Context, u *updater, name, what string, required bool) (id string, ok bool, err error) {
	s, ok, err := f.text()
	if err != nil || !ok {
		return "", false, err
	}
	if s == "" {
		return zeros, f.term != 0 || required, nil
	}
	if isID(s) {
		return strings.ToLower(s), true, nil
	}
	id, err = u.store.resolve(ctx, s)
	if err != nil {
		return "", false, err
	}
	if id == "" {
		return "", false, fatalf("%s %s: invalid <%s>: %s", f.command, name, what, s)
	}
	return id, true, nil
}

func isID(s string) bool {
	if len(s) != len(zeros) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') && (c < 'A' || c > 'F') {
			return false
		}
	}
	return true
}

// pair takes a name and a target, and the end.
func (f *fields) pair(what string, required bool) (name, target string, ok bool, err error) {
	if name, err = f.ref(); err != nil {
		return "", "", false, err
	}
	if target, ok, err = f.text(); err != nil {
		return "", "", false, err
	}
	if ok = ok && target != ""; required && !ok {
		return "", "", false, fatalf("%s %s: missing <%s>", f.command, name, what)
	}
	return name, target, ok, f.end(name)
}

// end refuses what follows the last argument.
func (f *fields) end(name string) error {
	if f.rest == "" || f.rest[0] != f.term || len(f.rest) > 1 {
		return fatalf("%s %s: extra input: %s", f.command, name, f.rest)
	}
	return nil
}
