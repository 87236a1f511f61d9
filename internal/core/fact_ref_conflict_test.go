package core

import (
	"strings"
	"testing"
)

func TestARefConflictSaysWhatIsInTheWay(t *testing.T) {
	for other, want := range map[string]string{
		"refs/heads/foo":    `conflicts with "refs/heads/foo"`,
		"refs/heads/foo/a/": `refs exist below "refs/heads/foo/a"`,
		"refs/tags/v1/":     `refs exist below "refs/tags/v1"`,
		"refs/a/b/c/":       `refs exist below "refs/a/b/c"`,
	} {
		f := RefFailure{Reason: RefConflict, Name: "refs/heads/foo/a", Other: other}
		if got := f.Error(); !strings.Contains(got, want) {
			t.Errorf("%s: %s", other, got)
		}
	}
}
