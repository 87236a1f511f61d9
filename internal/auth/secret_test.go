package auth

import (
	"strings"
	"testing"
)

func TestASecretIsTrimmedAndMustBeOneWord(t *testing.T) {
	for in, want := range map[string]string{
		"mr_abc": "mr_abc", "mr_abc\n": "mr_abc", " \tmr_abc\r\n": "mr_abc", "": "", " \n": "", "a-b.c=~!": "a-b.c=~!",
	} {
		if got, err := CleanSecret(in); got != want || err != nil {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
	for _, in := range []string{"mr_a bc", "mr_a\tbc", "mr_a\nmr_b", "mr_\x00abc", "mr_a\x1b[31m", "mr_a\x7f", "mr_\u00e4", "\ufeffmr_abc", "mr_abc\u200b", "mr_\xff"} {
		got, err := CleanSecret(in)
		if err == nil || got != "" {
			t.Errorf("%q: %q, %v", in, got, err)
		} else if strings.Contains(err.Error(), "mr_") {
			t.Errorf("%q: the error shows it: %v", in, err)
		}
	}
}
