package millrace_test

import (
	"testing"

	millrace "github.com/millrace/millrace/sdk/go"
)

// oddKeys hold what paths, arguments and terminated strings cannot.
var oddKeys = []string{
	"\x00", "a\x00b", "\x00\x00", "/", "//", "a/b", "../..", "%", "%00", "%2F", "\xff", "\xff\xff\x00", "a\xffb", "\x7f\x80", " ", "\n",
}

func TestAReadAtLeastAtAnAcknowledgementSeesWhatWasAcknowledged(t *testing.T) {
	eachTransport(t, aReadAtLeastAtAnAcknowledgementSeesWhatWasAcknowledged)
}

func aReadAtLeastAtAnAcknowledgementSeesWhatWasAcknowledged(t *testing.T, opts ...millrace.Option) {
	c := dial(t, opts...)
	writes := map[string]millrace.Place{}
	for _, key := range oddKeys {
		out, err := c.CommitResult(t.Context(), func(tx *millrace.Tx) { tx.KV("odd").Put(key, "value of "+key) })
		if err != nil {
			t.Fatalf("put %q: %v", key, err)
		}
		if out.At.Index == 0 {
			t.Errorf("put %q was acknowledged at no place", key)
		}
		writes[key] = out.At
		v, err := c.KV("odd").Get(t.Context(), key, millrace.AtLeast(out.At))
		if err != nil || v.String() != "value of "+key || v.Rev != out.Revs[0] || v.At.Index < out.At.Index {
			t.Errorf("get %q at least at %d: %q at revision %d, %d in the log, err %v", key, out.At.Index, v, v.Rev, v.At.Index, err)
		}
	}
	for key, at := range writes { // later writes have touched none of them
		if v, err := c.KV("odd").Get(t.Context(), key, millrace.AtLeast(at)); err != nil || v.String() != "value of "+key {
			t.Errorf("get %q: %q, err %v", key, v, err)
		}
	}
	h, err := millrace.Job[string, string]("odd").Add(t.Context(), c, "x")
	if err != nil {
		t.Fatal(err)
	}
	info, err := c.Task(t.Context(), h.ID, millrace.AtLeast(writes["/"]))
	if err != nil || info.ID != h.ID || info.At.Index < writes["/"].Index {
		t.Errorf("task %+v, err %v", info, err)
	}
}
