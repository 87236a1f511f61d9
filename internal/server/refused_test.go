package server

import (
	"fmt"
	"net/http"
	"path/filepath"
	"testing"
)

func TestATokenThatIsRefusedIsLoggedAndCounted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tokens.yaml")
	row := func(name string) string {
		return fmt.Sprintf("tokens:\n  - {name: %s, tenant: acme, hash: %q, roles: [admin]}\n", name, HashToken(name))
	}
	put(t, file, row("a"))
	log := new(logged)
	s, err := Start(t.Context(), Options{
		Dir: t.TempDir(), Listen: "127.0.0.1:0", TokensFile: file, Memory: minMemory, Durability: None,
		Logger: log.logger(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(0)
	put(t, file, row("b"))
	if err := s.Reload(); err != nil {
		t.Fatal(err)
	}
	as := func(token string) *http.Request {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+s.HTTPAddress+"/v1/queues", http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		if token != "" {
			r.Header.Set("Authorization", "Bearer "+token)
		}
		return r
	}
	ask := func(r *http.Request) {
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusUnauthorized {
			t.Errorf("%s: %d", r.URL.Path, resp.StatusCode)
		}
	}
	git := func(token string) *http.Request {
		r := as("")
		r.URL.Path, r.URL.RawQuery = "/git/default/app.git/info/refs", "service=git-upload-pack"
		r.SetBasicAuth("git", token)
		return r
	}
	for _, c := range []struct {
		door string
		ask  func(token string)
	}{
		{"REST", func(token string) { ask(as(token)) }},
		{"git", func(token string) { ask(git(token)) }},
	} {
		for reason, token := range map[string]string{"removed": "a", "unknown": "guess"} {
			series := fmt.Sprintf("millrace_auth_refused_tokens_total{reason=%q}", reason)
			before := scrape(t, s)[series]
			c.ask(token)
			if n := scrape(t, s)[series] - before; n != 1 {
				t.Errorf("%s: a token that is %s counts as %v", c.door, reason, n)
			}
		}
	}
	before := scrape(t, s)[`millrace_auth_refused_tokens_total{reason="unknown"}`]
	ask(as(""))
	if after := scrape(t, s)[`millrace_auth_refused_tokens_total{reason="unknown"}`]; after != before {
		t.Error("a request without a token counts as one with a token that is not known")
	}
	for _, line := range []string{`reason=removed token_of="a of tenant acme" from=127.0.0.1:`, `msg="auth: a token that is not known is refused" from=127.0.0.1 refusals=1`} {
		if !log.has(line) {
			t.Errorf("the log lacks %s", line)
		}
	}
	if log.has("guess") {
		t.Error("the log has the text of a token")
	}
}
