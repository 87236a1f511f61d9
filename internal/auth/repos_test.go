package auth

import (
	"fmt"
	"strings"
	"testing"
)

func TestATokenReachesTheRepositoriesThatItsGlobsName(t *testing.T) {
	for _, c := range []struct {
		globs     []string
		namespace string
		repo      string
		want      bool
	}{
		{nil, "any", "thing", true},
		{[]string{"default/app"}, "default", "app", true},
		{[]string{"default/app"}, "default", "app2", false},
		{[]string{"default/app"}, "other", "app", false},
		{[]string{"default/*"}, "default", "app", true},
		{[]string{"*/app"}, "other", "app", true},
		{[]string{"*/*"}, "other", "thing", true},
		{[]string{"a/b", "c/d-*"}, "c", "d-1", true},
		{[]string{"a/b", "c/d-*"}, "c", "b", false},
		{[]string{"*a/b"}, "a", "b", true},
	} {
		p := Principal{Repos: c.globs}
		if got := p.ReachesRepo(c.namespace, c.repo); got != c.want {
			t.Errorf("%q of %s/%s: %v", c.globs, c.namespace, c.repo, got)
		}
	}
}

func TestGlobsOfATokenAreReadAndWritten(t *testing.T) {
	row := func(repos string) string {
		return fmt.Sprintf("tokens:\n  - name: ci\n    tenant: acme\n    hash: %s\n    scopes: [ref:read]\n    repos: %s\n", Hash("x"), repos)
	}
	tokens, err := Parse([]byte(row(`["default/app-*", "*/lib"]`)))
	if err != nil || len(tokens) != 1 || strings.Join(tokens[0].Repos, " ") != "default/app-* */lib" {
		t.Fatalf("%+v, %v", tokens, err)
	}
	b, err := Format(tokens)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := Parse(b); err != nil || strings.Join(again[0].Repos, " ") != "default/app-* */lib" {
		t.Errorf("%+v, %v", again, err)
	}
	many := strings.TrimSuffix(strings.Repeat(`"a/b",`, 65), ",")
	for _, bad := range []string{`[app]`, `["a/b/c"]`, `["a/[b"]`, `[""]`, `["a/` + strings.Repeat("b", 300) + `"]`, "[" + many + "]"} {
		if _, err := Parse([]byte(row(bad))); err == nil || !strings.Contains(err.Error(), "repos") {
			t.Errorf("%.40s: %v", bad, err)
		}
	}
}
