package bench

import (
	"context"
	"strings"
	"testing"
)

// has is a server with these refs, name and object in turn.
func has(refs ...string) RefReader {
	return RefReader{"server-1", func(_ context.Context, fn func(name, object string) error) error {
		for i := 0; i < len(refs); i += 2 {
			if err := fn(refs[i], refs[i+1]); err != nil {
				return err
			}
		}
		return nil
	}}
}

func TestRefsAreHeldAgainstWhatWasAcknowledgedOfThem(t *testing.T) {
	const one, two, three, four = "refs/b/0000000", "refs/b/0000001", "refs/b/0000002", "refs/b/0000003"
	l := NewRefLedger("r", "refs/b/")
	l.Keep("refs/keep/0", "aa")
	l.Acked(0, "aa")
	l.Acked(0, "bb")
	l.Acked(1, "aa")
	l.Acked(1, "")
	l.Acked(2, "aa")
	l.Unknown(2, "bb")
	l.Acked(3, "bb")
	l.Unknown(3, "")
	for _, c := range []struct {
		name string
		refs []string
		want string // empty: clean
	}{
		{"as acknowledged", []string{one, "bb", three, "aa", four, "bb", "refs/keep/0", "aa"}, ""},
		{"unknown changes were applied", []string{one, "bb", three, "bb", "refs/keep/0", "aa"}, ""},
		{"an older value", []string{one, "aa", three, "aa", "refs/keep/0", "aa"}, "server-1: different: " + one},
		{"a lost ref", []string{three, "aa", "refs/keep/0", "aa"}, "lost: " + one},
		{"a ref that was deleted", []string{one, "bb", two, "aa", three, "aa", "refs/keep/0", "aa"}, "unexpected: " + two},
		{"a ref that no client created", []string{one, "bb", three, "aa", "refs/keep/0", "aa", "refs/b/9", "aa"}, "unexpected: refs/b/9"},
		{"an object that no client named", []string{one, "cc", three, "aa", "refs/keep/0", "aa"}, "different: " + one},
		{"a ref listed twice", []string{one, "bb", one, "bb", three, "aa", "refs/keep/0", "aa"}, "doubled: " + one},
		{"a lost ref among them", []string{one, "bb", three, "aa"}, "lost: refs/keep/0"},
	} {
		a, err := AuditRefs(t.Context(), l, has(c.refs...))
		if err != nil {
			t.Fatal(err)
		}
		got := strings.Join(a.Violations, "\n")
		if a.OK != (c.want == "") || !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: ok %v, violations %q, want %q", c.name, a.OK, got, c.want)
		}
		if a.ReadBack != uint64(len(c.refs)/2) || a.Created != 6 || a.Unknown != 2 {
			t.Errorf("%s: %d read back, %d acknowledged, %d unknown", c.name, a.ReadBack, a.Created, a.Unknown)
		}
	}
}
