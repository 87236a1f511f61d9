package auth

import (
	"fmt"
	"strings"
	"testing"
)

func TestATokenReachesTheQueuesThatItsPatternsName(t *testing.T) {
	for _, c := range []struct {
		patterns []string
		queue    string
		want     bool
	}{
		{nil, "mail", true},
		{nil, "", true},
		{[]string{"mail"}, "mail", true},
		{[]string{"mail"}, "mail2", false},
		{[]string{"mail"}, "Mail", false},
		{[]string{"mail"}, "", false},
		{[]string{"ci.*"}, "ci.build", true},
		{[]string{"ci.*"}, "ci.", true},
		{[]string{"ci.*"}, "ci", false},
		{[]string{"ci.*"}, "xci.build", false},
		{[]string{"ci.*"}, "", false},
		{[]string{"mail", "ci.*"}, "ci.test", true},
		{[]string{"mail", "ci.*"}, "web", false},
		{[]string{"*"}, "mail", true},
		{[]string{"*"}, "", true},
	} {
		p := Principal{Queues: c.patterns}
		if got := p.ReachesQueue(c.queue); got != c.want {
			t.Errorf("%q of %q: %v", c.patterns, c.queue, got)
		}
		if c.queue == "" && p.AllQueues() != c.want {
			t.Errorf("%q: all queues %v", c.patterns, !c.want)
		}
	}
}

func TestPatternsOfATokenAreReadAndWritten(t *testing.T) {
	row := func(queues string) string {
		return fmt.Sprintf("tokens:\n  - name: ci\n    tenant: acme\n    hash: %s\n    scopes: [task:read]\n    queues: %s\n", Hash("x"), queues)
	}
	tokens, err := Parse([]byte(row(`[mail, "ci.*", "a:b-c_1", "*"]`)))
	if err != nil || len(tokens) != 1 || strings.Join(tokens[0].Queues, " ") != "mail ci.* a:b-c_1 *" {
		t.Fatalf("%+v, %v", tokens, err)
	}
	b, err := Format(tokens)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Parse(b); err != nil || strings.Join(again[0].Queues, " ") != "mail ci.* a:b-c_1 *" {
		t.Errorf("%+v, %v", again, err)
	}
	longest := strings.Repeat("a", 128)
	if _, err := Parse([]byte(row(`["` + longest + `", "` + longest + `*"]`))); err != nil {
		t.Error(err)
	}
	many := strings.TrimSuffix(strings.Repeat(`mail,`, 65), ",")
	for _, bad := range []string{
		`[""]`, `["a*b"]`, `["*a"]`, `["a**"]`, `["a/b"]`, `["a b"]`, `[".a"]`, `["a?"]`, `["[a]"]`, `["ä"]`,
		`["` + longest + `a"]`, `["` + longest + `a*"]`, "[" + many + "]",
	} {
		if _, err := Parse([]byte(row(bad))); err == nil || !strings.Contains(err.Error(), "queues") {
			t.Errorf("%.40s: %v", bad, err)
		}
	}
}

// TestACallEndsWithTheQueuesThatItMayBeOf: a call of tasks that goes on keeps every queue that its token reached.
func TestACallEndsWithTheQueuesThatItMayBeOf(t *testing.T) {
	rights := Rights{Queues: true}
	for _, c := range []struct {
		old, now string
		goes     bool
	}{
		{"", "", true},
		{"mail", "", true},
		{"", "*", true},
		{"", "mail", false},
		{"*", "mail", false},
		{"mail", "mail", true},
		{"mail", "web mail", true},
		{"mail web", "mail", false},
		{"mail", "web", false},
		{"mail", "m*", true},
		{"m*", "mail", false},
		{"ma*", "m*", true},
		{"m*", "ma*", false},
		{"mail", "*", true},
	} {
		old := Principal{Name: "a", Tenant: "acme", Queues: strings.Fields(c.old)}
		now := Principal{Name: "a", Tenant: "acme", Queues: strings.Fields(c.now)}
		if goes := rights.suffice(&old, &now); goes != c.goes {
			t.Errorf("%q, then %q: goes on %v", c.old, c.now, goes)
		}
		r := newCallRig(t)
		call := r.begin("t", old, rights)
		if took := call.Renew(Holder{Principal: now}); took != c.goes {
			t.Errorf("%q, then another token of %q: taken %v", c.old, c.now, took)
		}
		call.End()
	}
}
