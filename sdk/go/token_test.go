package millrace

import (
	"strings"
	"testing"
)

func TestATokenIsTrimmedAndMustBeOneWord(t *testing.T) {
	for _, token := range []string{"mr_secret", "mr_secret\n", " mr_secret\r\n"} {
		t.Setenv("MILLRACE_TOKEN", token)
		o, err := newOptions(nil)
		if err != nil || o.token != "mr_secret" {
			t.Errorf("%q of the environment: %q, %v", token, o.token, err)
		}
		if o, err = newOptions([]Option{Token(token)}); err != nil || o.token != "mr_secret" {
			t.Errorf("%q: %q, %v", token, o.token, err)
		}
	}
	for _, token := range []string{"mr_se cret", "mr_se\ncret", "mr_se\x1bcret", "mr_secr\u00e9t", "mr_secret\u200b"} {
		t.Setenv("MILLRACE_TOKEN", token)
		for _, opts := range [][]Option{nil, {Token(token)}} {
			if _, err := newOptions(opts); err == nil || strings.Contains(err.Error(), "mr_se") {
				t.Errorf("%q: %v", token, err)
			}
		}
	}
}
