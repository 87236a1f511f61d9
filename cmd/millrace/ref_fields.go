package main

import (
	"context"
	"strings"

	millrace "github.com/millrace/millrace/sdk/go"
)

// zeros is the id that stands for "no object" in git's dialect.
const zeros = "0000000000000000000000000000000000000000"

// fields takes the arguments of one command apart. In the line format an argument follows a space
// and may be quoted like a C string; with -z it follows a NUL and is never quoted. Each method
// consumes what it returns from rest.
type fields struct {
	// What was not read yet. It starts with the separator before the next argument, and ends with
	// the terminator of the command.
	rest string
	// NUL with -z, else a line feed.
	term byte
	// The name of the command, for messages.
	command string
}

// isSpace reports whether c is white space as C's isspace sees it, which is what git uses.
func isSpace(c byte) bool {
	return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\v' || c == '\f'
}

// arg takes the argument that begins at rest: up to the next NUL with -z, else a quoted text or
// everything up to white space. It may be empty.
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

// quoted takes an argument in double quotes, with the escapes of C. White space or the end must
// follow the closing quote.
func (f *fields) quoted() (string, error) {
	bad := func() (string, error) { return "", fatalf("badly quoted argument: %s", f.rest) }
	var b strings.Builder
	for i := 1; i < len(f.rest); i++ {
		switch c := f.rest[i]; c {
		// The closing quote ends the argument.
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

// unescape reads the escape that follows a backslash: a letter, a quote, a backslash, or three
// octal digits. n is the number of bytes read; 0 if s is not an escape. s must not be empty.
func unescape(s string) (c byte, n int) {
	// from and to are parallel: the letter after the backslash, and the byte that it stands for.
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

// ref takes the first argument, which must be a valid name of a ref.
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

// text takes one more argument; ok is false if there is none. A separator that is not the one of
// the format is fatal.
func (f *fields) text() (s string, ok bool, err error) {
	if f.term == 0 {
		if f.rest == "" {
			return "", false, nil
		}
		// The separator comes first; the argument behind it may be empty, but the input must not
		// end there.
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

// value takes one more argument that is an object id or the name of a ref, which it resolves to its
// id. name and what are for messages. ok is false if the argument is not given. An empty argument
// is the zero id in lines; with -z it means "not given", unless required is set, where it is the
// zero id too.
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

// isID reports whether s is 40 hexadecimal digits in either case.
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

// pair takes a ref's name, a target and the end of the command. ok reports whether a target was
// given; without one it is fatal if required.
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

// end refuses anything before the terminator.
func (f *fields) end(name string) error {
	if f.rest == "" || f.rest[0] != f.term || len(f.rest) > 1 {
		return fatalf("%s %s: extra input: %s", f.command, name, f.rest)
	}
	return nil
}
