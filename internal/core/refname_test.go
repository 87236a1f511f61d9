package core

import (
	"net/url"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"
)

// Rules of git's check-ref-format, as its manual lists them; the names that break one are those that a pattern matches.
var brokenRef = regexp.MustCompile(`(^|/)\.` + // a component that begins with a dot
	`|\.lock(/|$)` +
	`|\.\.|@\{|\\` +
	`|[\x00-\x20\x7f~^:?*\[]` +
	`|^/|//|/$|\.$`)

// refNames are texts that are names of refs, or nearly.
var refNames = []string{
	"HEAD", "refs/heads/main", "refs/heads/a.b", "refs/heads/@", "refs/heads/-x", "refs/heads/ü", "refs/x", "refs/heads/a/b", "refs/a{b}", "refs/a@b", "refs/.",
	"", "@", "main", "HEAD/a", "head", "refs", "refs/", "refs//a", "refs/a/", "refs/a.", "refs/.a", "refs/a.lock", "refs/a.lock/b", "refs/a.lockb", "refs/a..b", "refs/a@{b",
	"refs/a b", "refs/a~b", "refs/a^b", "refs/a:b", "refs/a?b", "refs/a*b", "refs/a[b", "refs/a]b", "refs/a\\b", "refs/a\x7fb", "refs/a\x01b", "refs/a\tb", "refs/a\nb", "refs/a/.b",
	"refs/a/..", "refs/../a", "refs/a\u00a0b", "refs/a\u2028b", "refs/-", "/refs/a", "refs/a.lock.", "refs/a.LOCK", "refs/heads/feature/@{u}",
}

// A name that git refuses is refused, and the other way round, where the limits of length do not decide.
func TestNamesOfRefsAreThoseOfGit(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("there is no git")
	}
	for _, name := range refNames {
		git := exec.Command("git", "check-ref-format", "--allow-onelevel", name).Run() == nil
		rooted := name == "HEAD" || strings.HasPrefix(name, "refs/")
		if got := CheckRefName(name); (got == "") != (git && rooted) {
			t.Errorf("%q: %q, by git %v", name, got, git)
		}
	}
}

// FuzzRefName takes a name of a ref where git's rules and the documented limits do, and says which rule is broken where not;
// and a name of a repository where it needs no escape in a path or a URL.
func FuzzRefName(f *testing.F) {
	for _, name := range refNames {
		f.Add(name)
	}
	for _, name := range []string{
		"refs/" + strings.Repeat("a", 255), "refs/" + strings.Repeat("a", 256), "refs" + strings.Repeat("/a", 63), "refs" + strings.Repeat("/a", 64),
		"refs" + strings.Repeat("/"+strings.Repeat("b", 203), 5), "refs" + strings.Repeat("/"+strings.Repeat("b", 204), 5),
		"refs/\xff", "refs/\xed\xa0\x80", "app", "app.git", "a..b", "-a", "a.lock", strings.Repeat("a", 128), strings.Repeat("a", 129), "a/b", "ä", "a%62",
	} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		parts := strings.Split(name, "/")
		fits := len(name) <= 1024 && len(parts) <= 64 && utf8.ValidString(name)
		for _, p := range parts {
			fits = fits && len(p) <= 255
		}
		want := name == "HEAD" || strings.HasPrefix(name, "refs/") && fits && !brokenRef.MatchString(name)
		rule := CheckRefName(name)
		if (rule == "") != want {
			t.Errorf("%q: %q", name, rule)
		}
		if rule == "" && name != "HEAD" {
			for _, more := range []string{"/x", "x"} {
				longer := CheckRefName(name + more)
				if limit := strings.Contains(longer, " longer than ") || strings.Contains(longer, "more than 64"); longer != "" && !limit {
					t.Errorf("%q is a name, and %q breaks %q", name, name+more, longer)
				}
			}
		}
		if CheckRepoName(name) != "" {
			return
		}
		if len(name) > 128 || url.PathEscape(name) != name || filepath.Base(name) != name || strings.Contains(name, "..") ||
			strings.HasSuffix(name, ".git") || strings.HasSuffix(name, ".lock") || CheckRefName("refs/heads/"+name) != "" && !strings.HasSuffix(name, ".") {
			t.Errorf("%q is the name of a repository", name)
		}
	})
}
