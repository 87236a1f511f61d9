package githttp

import (
	"bufio"
	"bytes"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
	"github.com/millrace/millrace/internal/edge"
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
	id, given, err := c.readOurs()
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
	if q.s.held.Held.Load() == 0 {
		t.Error("nothing is accounted for")
	}
	if q.release(c); q.s.held.Held.Load() != 0 {
		t.Errorf("%d bytes stay accounted for", q.s.held.Held.Load())
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

func TestWhatIsNoPushIsAnErrorAndLeavesNothing(t *testing.T) {
	good := zeros + " " + ones + " refs/heads/a"
	for name, in := range map[string][]byte{
		"cut":                    pushOf(good),
		"cut after shallow":      pushOf("shallow " + ones),
		"no packet":              []byte("GET / HTTP/1.1"),
		"short":                  pushOf(zeros+" "+ones+" ", flushPkt),
		"upper case":             pushOf(zeros+" "+strings.Repeat("A", 40)+" refs/heads/a", flushPkt),
		"no space":               pushOf(zeros+" "+ones+"-refs/heads/a", flushPkt),
		"shallow at nothing":     pushOf("shallow main", good, flushPkt),
		"delimiter":              append(pushOf(good), delimPkt...),
		"options without an end": pushOf(good+"\x00push-options", flushPkt, "o"),
	} {
		q := reader(Limits{PushRefs: 3})
		if _, err := q.readCommands(bufio.NewReader(bytes.NewReader(in))); !edge.Is[core.Invalid](err) || !strings.Contains(err.Error(), "must be a push") {
			t.Errorf("%s: %v", name, err)
		}
		if q.s.held.Held.Load() != 0 {
			t.Errorf("%s: %d bytes stay accounted for", name, q.s.held.Held.Load())
		}
	}
}

// TestAPushThatIsRefusedAsAWholeIsReadToItsPack: its client learns why when it has sent all, in words of git's protocol.
func TestAPushThatIsRefusedAsAWholeIsReadToItsPack(t *testing.T) {
	good := zeros + " " + ones + " refs/heads/a"
	many := make([]string, 40)
	for i := range many {
		many[i] = "o"
	}
	options := func(o ...string) []byte {
		return pushOf(append(append([]string{good + "\x00report-status push-options", flushPkt}, o...), flushPkt)...)
	}
	for name, c := range map[string]struct {
		in     []byte
		limits Limits
		list   int // commands that are told of
		want   string
	}{
		"signed":                   {pushOf("push-cert\x00report-status", "certificate version 0.1\n", "\n", good, "-----BEGIN PGP\n", "push-cert-end\n", flushPkt), Limits{}, 1, "signed"},
		"not offered":              {pushOf(good+"\x00report-status bundle-uri", flushPkt), Limits{}, 1, "bundle-uri was not offered"},
		"sha256":                   {pushOf(good+"\x00report-status object-format=sha256", flushPkt), Limits{}, 1, "object-format=sha256 was not offered"},
		"too many":                 {pushOf(good+"\x00report-status", good, good, good, good, flushPkt), Limits{PushRefs: 3}, 3, "push_refs of 3"},
		"many options":             {options(many...), Limits{}, 1, "limit push_options of 32"},
		"long option":              {options(strings.Repeat("x", 1025)), Limits{}, 1, "limit push_option_bytes of 1024"},
		"longest option":           {options("a", strings.Repeat("x", maxPayload)), Limits{}, 1, "limit push_option_bytes of 1024"},
		"option not text":          {options("\xff"), Limits{}, 1, "UTF-8"},
		"beyond the memory of all": {pushOf(good+"\x00report-status", good, good, flushPkt), Limits{HeldBytes: 400}, 2, "overload"},
	} {
		q := reader(c.limits)
		in := bufio.NewReaderSize(bytes.NewReader(append(c.in, "PACK"...)), 64<<10)
		got, err := q.readCommands(in)
		if err != nil || got.denied == nil || !strings.Contains(got.denied.Error(), c.want) || !edge.Is[core.Fact](got.denied) {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if rest, _ := in.Peek(4); string(rest) != "PACK" || len(got.list) != c.list || !got.caps["report-status"] {
			t.Errorf("%s: %d commands, %v, then %q", name, len(got.list), got.caps, rest)
		}
		if q.release(got); q.s.held.Held.Load() != 0 {
			t.Errorf("%s: %d bytes stay accounted for", name, q.s.held.Held.Load())
		}
	}
}

func TestAPushOfAShallowCloneIsRead(t *testing.T) {
	in := bufio.NewReader(bytes.NewReader(append(pushOf("shallow "+ones, "shallow "+ones+"\n", zeros+" "+ones+" refs/heads/a\x00report-status", flushPkt), "PACK"...)))
	c, err := reader(Limits{}).readCommands(in)
	if err != nil || c.denied != nil || !c.shallow || len(c.list) != 1 || c.list[0].name != "refs/heads/a" || !c.caps["report-status"] {
		t.Errorf("%+v, %v", c, err)
	}
}

func FuzzCommands(f *testing.F) {
	f.Add(pushOf(zeros+" "+ones+" refs/heads/a\x00report-status push-options", flushPkt, "a", flushPkt))
	f.Add(pushOf("shallow "+ones, flushPkt))
	f.Fuzz(func(t *testing.T, b []byte) {
		q := reader(Limits{})
		c, err := q.readCommands(bufio.NewReader(bytes.NewReader(b)))
		if err == nil {
			_, _, _ = c.readOurs()
			q.release(c)
		}
		if q.s.held.Held.Load() != 0 {
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
