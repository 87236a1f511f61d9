package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"unicode/utf8"

	millrace "github.com/millrace/millrace/sdk/go"
)

// hostile are texts that drive a terminal, each with what is shown.
var hostile = map[string]string{
	"\x1b[31mred":          `\x1b[31mred`,
	"\x1b]0;title\a":       `\x1b]0;title\x07`,
	"a\rb":                 `a\x0db`,
	"a\bb\x7f":             `a\x08b\x7f`,
	"\u009b2J":             `\u009b2J`,
	"\xff\x9b":             `\xff\x9b`,
	"abc\u202etxt.exe":     `abc\u202etxt.exe`,
	"\u2066a\u2069\u200f":  `\u2066a\u2069\u200f`,
	"a\u2028b":             `a\u2028b`,
	"\x00":                 `\x00`,
	"plain, ключ 日本 🔑\t\n": "plain, ключ 日本 🔑\t\n",
}

func TestWhatIsPrintedDrivesNoTerminal(t *testing.T) {
	for text, want := range hostile {
		var out, failed bytes.Buffer
		a := &app{out: &out, err: &failed}
		if err := a.print(nil, func(w io.Writer) { fmt.Fprint(w, text) }); err != nil || out.String() != want {
			t.Errorf("%q is printed as %q, %v", text, out.String(), err)
		}
		a.report(errors.New(text))
		if got := failed.String(); got != "millrace: "+want+"\n" {
			t.Errorf("the error %q is printed as %q", text, got)
		}
		if !utf8.ValidString(text) {
			continue
		}
		out.Reset()
		failed.Reset()
		a.json = true
		if err := a.print(map[string]string{"v": text}, nil); err != nil {
			t.Fatal(err)
		}
		a.report(errors.New(text))
		for _, b := range []*bytes.Buffer{&out, &failed} {
			var back map[string]string
			if err := json.Unmarshal(b.Bytes(), &back); err != nil || back["v"]+back["error"] != text || bytes.ContainsFunc(b.Bytes(), drives) {
				t.Errorf("JSON of %q is %q: %v", text, b, err)
			}
		}
	}
}

func TestATaskOfOthersCannotForgeALine(t *testing.T) {
	v := viewOf(&millrace.TaskInfo{Worker: "w\nstate     completed", Tag: "a\tb", ErrorMessage: "bad\nresult    42"}, false)
	var out bytes.Buffer
	v.text(&out)
	for _, line := range []string{"\nstate     completed", "\nresult    42", "a\tb"} {
		if strings.Contains(out.String(), line) {
			t.Errorf("%q stands in\n%s", line, out.String())
		}
	}
}

func TestBytesThatWereAskedForAreEscapedOnATerminalOnly(t *testing.T) {
	value := []byte("\x1b[2J\x00\xff")
	for _, c := range []struct {
		terminal, asIs bool
		want           string
	}{{false, false, string(value)}, {true, false, `\x1b[2J\x00\xff`}, {true, true, string(value)}, {false, true, string(value)}} {
		var out bytes.Buffer
		a := &app{out: &out, terminal: c.terminal}
		if err := a.raw(value, c.asIs); err != nil || out.String() != c.want {
			t.Errorf("terminal %v, --raw %v: %q, %v", c.terminal, c.asIs, out.String(), err)
		}
	}
}

func TestNothingIsDrawnWhereTheOutputIsNoTerminal(t *testing.T) {
	for _, c := range []struct {
		terminal      bool
		noColor, term string
		want          bool
	}{{true, "", "xterm", true}, {false, "", "xterm", false}, {true, "1", "xterm", false}, {true, "", "dumb", false}} {
		t.Setenv("NO_COLOR", c.noColor)
		t.Setenv("TERM", c.term)
		var out bytes.Buffer
		d := &demo{a: &app{out: &out, terminal: c.terminal}}
		for n := range uint64(101) {
			d.progress(millrace.QueueStats{Completed: n}, 100)
		}
		d.say("a worker was killed")
		lines := strings.Count(out.String(), "\n")
		if strings.ContainsAny(out.String(), "\x1b\r") != c.want || !c.want && lines != 11 {
			t.Errorf("%+v: %d lines: %q", c, lines, out.String())
		}
	}
	for name, want := range map[string]bool{"/dev/null": false, t.TempDir(): false} {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		if isTerminal(f) != want {
			t.Errorf("%s is a terminal: %v", name, !want)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// failing is an output that cannot be written.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

func TestOutputThatCannotBeWrittenIsAFailure(t *testing.T) {
	dir := t.TempDir()
	for _, words := range []string{
		"version", "version --json", "--help", "serve --help", "kv --help", "serve --limits", "serve --limits --json", "serve --settings", "token", "token --json",
		"bench list", "bench env", "cluster init --dir " + dir + "/c", "doctor --data " + dir + "/none",
	} {
		for _, cause := range []error{syscall.ENOSPC, syscall.EIO, syscall.EPIPE} {
			told, stop := heedSignals()
			var said bytes.Buffer
			code := execute(told, strings.Fields(words), strings.NewReader(""), failing{cause}, &said)
			stop()
			if code == exitOK || code == exitUsage {
				t.Errorf("%s, %v: exit code %d", words, cause, code)
			}
			if quiet := said.Len() == 0; quiet != errors.Is(cause, syscall.EPIPE) && !strings.Contains(words, "doctor") && !strings.Contains(words, "init") {
				t.Errorf("%s, %v: %q", words, cause, said.String())
			}
			if err := os.RemoveAll(dir + "/c"); err != nil {
				t.Fatal(err)
			}
		}
	}
}

func TestASecretIsCheckedWithoutBeingShown(t *testing.T) {
	file := t.TempDir() + "/token"
	for _, secret := range []string{"mr_se cret", "mr_se\tcret", "mr_se\ncret", "mr_secr\u00e9t", "mr_se\x1bcret", "mr_secret\u200b"} {
		if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		t.Setenv("MILLRACE_TOKEN", secret)
		for _, args := range [][]string{
			{"queue", "list", "--token", secret},
			{"queue", "list", "--token-file", file},
			{"kv", "get", "ks", "k"},
			{"serve", "--data", t.TempDir(), "--join", "host.invalid:1", "--join-token", secret},
			{"serve", "--data", t.TempDir(), "--join", "host.invalid:1", "--join-token-file", file},
		} {
			code, said := run(t, args...)
			if code != exitUsage || strings.Contains(said, "mr_se") || !strings.Contains(said, "one word of ASCII") {
				t.Errorf("%q: exit code %d, %q", args, code, said)
			}
		}
	}
	for _, secret := range []string{"mr_secret\n", " mr_secret\r\n"} {
		t.Setenv("MILLRACE_TOKEN", secret)
		if code, said := run(t, "kv", "get", "ks", "k", "--server", "host.invalid:1", "--timeout", "1ms"); code == exitUsage {
			t.Errorf("%q: %s", secret, said)
		}
	}
}

func TestTheReadyFileIsThereOnlyWhileTheServerServes(t *testing.T) {
	dir := t.TempDir()
	ready := dir + "/ready"
	for _, words := range []string{
		"serve --ready-file " + ready, // no data directory
		"serve --data " + dir + "/d --ready-file " + ready + " --log-level loud",
		"serve --dev --data " + dir + "/d --ready-file " + ready + " --listen 256.0.0.1:1",
		"serve --data " + dir + "/d --ready-file " + ready + " --tokens " + dir + "/none",
	} {
		if err := os.WriteFile(ready, []byte(`{"pid":1}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if code, said := run(t, strings.Fields(words)...); code == exitOK {
			t.Errorf("%s: %s", words, said)
		}
		if _, err := os.Stat(ready); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the ready file of the last run is there: %v", words, err)
		}
	}
}

func TestAVariableThatLacksAWordIsToldAtTheStart(t *testing.T) {
	t.Setenv("MILLRACE_LISTEN", "host.invalid:1")
	t.Setenv("MILLRACE_GRACE", "abc")
	_, said := run(t, "serve", "--dev", "--data", t.TempDir(), "--listen", "256.0.0.1:1")
	for _, want := range []string{"variable=MILLRACE_LISTEN instead=MILLRACE_SERVE_LISTEN", "variable=MILLRACE_GRACE instead=MILLRACE_SERVE_GRACE"} {
		if !strings.Contains(said, want) {
			t.Errorf("%q is missing in %s", want, said)
		}
	}
}
