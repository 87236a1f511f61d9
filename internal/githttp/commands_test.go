package githttp

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// reader is a request without a body, for reading commands.
func reader(l Limits) *request { return &request{s: New(Options{Limits: l})} }

const (
	zeros = "0000000000000000000000000000000000000000"
	ones  = "1111111111111111111111111111111111111111"
)

func pushOf(lines ...string) []byte {
	var b []byte
	for _, l := range lines {
		if l == flushPkt {
			b = append(b, l...)
		} else {
			b = appendPkt(b, l)
		}
	}
	return b
}

func TestCommandsAreRead(t *testing.T) {
	q := reader(Limits{})
	in := bufio.NewReader(bytes.NewReader(append(pushOf(
		zeros+" "+ones+" refs/heads/a\x00 report-status atomic push-options agent=git/2", ones+" "+zeros+" refs/heads/b c\n",
		flushPkt, "one\n", "millrace.request-id=0123456789abcdef0123456789abcdef", flushPkt), "PACK"...)))
	c, err := q.readCommands(in)
	if err != nil {
		t.Fatal(err)
	}
	id, given, err := c.requestID()
	if len(c.list) != 2 || c.list[0].name != "refs/heads/a" || c.list[0].deletes() || c.list[1].name != "refs/heads/b c" || !c.list[1].deletes() ||
		!c.caps["atomic"] || c.caps["agent"] || len(c.options) != 2 || c.options[0] != "one" || err != nil || !given || id[0] != 1 || id[15] != 0xef {
		t.Errorf("%+v, id %x %v %v", c, id, given, err)
	}
	if rest, _ := in.Peek(4); string(rest) != "PACK" {
		t.Errorf("then %q", rest)
	}
	if sorted := c.sorted(); sorted[0].name != "refs/heads/b c" {
		t.Errorf("first is %s", sorted[0].name)
	}
	if q.s.held.Load() == 0 {
		t.Error("nothing is accounted for")
	}
	if q.release(c); q.s.held.Load() != 0 {
		t.Errorf("%d bytes stay accounted for", q.s.held.Load())
	}
}

func TestAProbeHasNoCommands(t *testing.T) {
	for _, in := range []string{"", flushPkt} {
		c, err := reader(Limits{}).readCommands(bufio.NewReader(strings.NewReader(in)))
		if err != nil || len(c.list) != 0 {
			t.Errorf("%q: %v, %v", in, c.list, err)
		}
	}
}

func TestBadCommandsAreRefusedByNameAndLeaveNothing(t *testing.T) {
	good := zeros + " " + ones + " refs/heads/a"
	many := make([]string, 33)
	for i := range many {
		many[i] = "o"
	}
	for name, c := range map[string]struct {
		in   []byte
		want string
	}{
		"cut":             {pushOf(good), "no push"},
		"no packet":       {[]byte("GET / HTTP/1.1"), "no push"},
		"short":           {pushOf(zeros+" "+ones+" ", flushPkt), "no push"},
		"upper case":      {pushOf(zeros+" "+strings.Repeat("A", 40)+" refs/heads/a", flushPkt), "no push"},
		"no space":        {pushOf(zeros+" "+ones+"-refs/heads/a", flushPkt), "no push"},
		"shallow":         {pushOf("shallow "+ones, flushPkt), "unshallow"},
		"signed":          {pushOf("push-cert\x00report-status", flushPkt), "signed"},
		"not offered":     {pushOf(good+"\x00bundle-uri", flushPkt), "offered"},
		"sha256":          {pushOf(good+"\x00object-format=sha256", flushPkt), "offered"},
		"too many":        {pushOf(good, good, good, good, flushPkt), "push_refs"},
		"many options":    {pushOf(append(append([]string{good + "\x00push-options", flushPkt}, many...), flushPkt)...), "push_options"},
		"long option":     {pushOf(good+"\x00push-options", flushPkt, strings.Repeat("x", 1025), flushPkt), "push_option_bytes"},
		"option not text": {pushOf(good+"\x00push-options", flushPkt, "\xff", flushPkt), "UTF-8"},
		"delimiter":       {append(pushOf(good), delimPkt...), "no push"},
	} {
		q := reader(Limits{PushRefs: 3})
		_, err := q.readCommands(bufio.NewReader(bytes.NewReader(c.in)))
		if err == nil || !strings.Contains(err.Error(), c.want) || !is[core.Fact](err) {
			t.Errorf("%s: %v", name, err)
		}
		if q.s.held.Load() != 0 {
			t.Errorf("%s: %d bytes stay accounted for", name, q.s.held.Load())
		}
	}
	q := reader(Limits{HeldBytes: 300})
	if _, err := q.readCommands(bufio.NewReader(bytes.NewReader(pushOf(good, good, flushPkt)))); !is[core.Unavailable](err) {
		t.Errorf("beyond the memory of all: %v", err)
	}
}

func FuzzCommands(f *testing.F) {
	f.Add(pushOf(zeros+" "+ones+" refs/heads/a\x00report-status push-options", flushPkt, "a", flushPkt))
	f.Add(pushOf("shallow "+ones, flushPkt))
	f.Fuzz(func(t *testing.T, b []byte) {
		q := reader(Limits{})
		c, err := q.readCommands(bufio.NewReader(bytes.NewReader(b)))
		if err == nil {
			_, _, _ = c.requestID()
			q.release(c)
		}
		if q.s.held.Load() != 0 {
			t.Error("memory stays accounted for")
		}
	})
}

func TestPrefixesBeginWithWhatTheyHaveInCommon(t *testing.T) {
	for _, c := range []struct {
		prefixes []string
		want     string
	}{
		{nil, ""},
		{[]string{"refs/heads/"}, "refs/heads/"},
		{[]string{"refs/heads/a", "refs/heads/", "refs/hx"}, "refs/h"},
		{[]string{"HEAD", "refs/"}, ""},
		{[]string{"", "refs/"}, ""},
	} {
		if got := common(c.prefixes); got != c.want {
			t.Errorf("%q: %q", c.prefixes, got)
		}
	}
	if !wanted(nil, "x") || !wanted([]string{"a", "refs/"}, "refs/x") || wanted([]string{"refs/heads/"}, "HEAD") {
		t.Error("wrong names are wanted")
	}
}
