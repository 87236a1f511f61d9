package main

import (
	"bytes"
	"fmt"
	"os"
	"unicode"
	"unicode/utf8"

	"golang.org/x/sys/unix"
)

// Text of others (names, messages, payloads) must not drive the terminal that it is printed on: what a person reads has no
// character that moves the cursor, changes a colour or the title, hides text, or turns its direction. Such characters are shown
// as escapes, wherever the output goes. Bytes that were asked for as they are, such as a key's value, are escaped only where the
// output is a terminal.

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	// Tests pass buffers, which are never terminals.
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	_, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	return err == nil
}

// animates reports whether lines may be drawn over on the output: it is a terminal, and nothing asks for plain text.
func (a *app) animates() bool {
	return a.terminal && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

// drives reports whether a terminal does more with a character than show it: control characters,
// characters that change the direction of text, and line separators. Line feeds and tabs are
// allowed, as they are the form of what is printed.
func drives(r rune) bool {
	return r != '\n' && r != '\t' && (unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029')
}

// escaped returns text with all characters that drive a terminal, and all bytes that are not UTF-8,
// as escapes. It returns b itself if there is nothing to escape.
func escaped(b []byte) []byte {
	if utf8.Valid(b) && bytes.IndexFunc(b, drives) < 0 {
		return b
	}
	out := make([]byte, 0, len(b)+16)
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		switch {
		case r == utf8.RuneError && size == 1, drives(r) && r < utf8.RuneSelf:
			out = fmt.Appendf(out, `\x%02x`, b[0])
		case drives(r):
			out = fmt.Appendf(out, `\u%04x`, r)
		default:
			out = append(out, b[:size]...)
		}
		b = b[size:]
	}
	return out
}

// escapedJSON returns JSON with the same meaning, and characters that drive a terminal as \u
// escapes. The encoder has already escaped those below a space, so what is left is inside strings.
func escapedJSON(b []byte) []byte {
	if bytes.IndexFunc(b, drives) < 0 {
		return b
	}
	out := make([]byte, 0, len(b)+16)
	for _, r := range string(b) {
		if drives(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
			continue
		}
		out = utf8.AppendRune(out, r)
	}
	return out
}

// oneLine returns a text for a line of its own: line feeds and tabs become escapes too.
func oneLine(s string) string {
	b := bytes.ReplaceAll(escaped([]byte(s)), []byte{'\n'}, []byte(`\n`))
	return string(bytes.ReplaceAll(b, []byte{'\t'}, []byte(`\t`)))
}

// tell prints a message on the error stream, escaped.
func (a *app) tell(parts ...any) {
	_, _ = a.err.Write(escaped(fmt.Appendln(nil, parts...))) // there is nowhere left to report to
}

// raw writes bytes as they are. On a terminal they are escaped, unless asIs says that the user
// wants them as they are even there.
func (a *app) raw(b []byte, asIs bool) error {
	if a.terminal && !asIs {
		b = escaped(b)
	}
	_, err := a.out.Write(b)
	return err
}
