package main

import (
	"strings"
	"testing"
)

// What workers reported is printed on one line, and cannot change what the terminal shows.
func TestAGroupOfErrorsIsOneSafeLine(t *testing.T) {
	var b strings.Builder
	v := errorGroupView{
		Fingerprint: "6de323c4180fb94f", Queue: "mail", Kind: "send\x1b[2J", Code: "E\nF", Message: "a\x1b[31mred\tb\r\nc", Count: 3, Sample: []string{"x"},
	}
	v.text(&b)
	line, rest, _ := strings.Cut(b.String(), "\n")
	if rest != "" || strings.ContainsAny(line, "\x1b\r\t") || !strings.Contains(line, `E\nF`) || !strings.HasSuffix(line, "task x") {
		t.Errorf("printed %q", b.String())
	}
}
