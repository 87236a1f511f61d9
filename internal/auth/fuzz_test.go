package auth

import (
	"bytes"
	"path"
	"strings"
	"testing"
)

// FuzzTokens reads what is given as a file of tokens. What is taken holds to the documented rules of names, rights, globs and
// hashes; what Format writes of it is read as the same tokens, and written as the same bytes; and a table of it opens no
// token to a holder without rights.
func FuzzTokens(f *testing.F) {
	for _, seed := range []string{
		goodFile, "tokens: [{name: a, tenant: b, hash: HASH1, roles: [admin], expires: 2030-01-01}]",
		"tokens: [{name: a, tenant: b, hash: HASH1, scopes: [ref:read], repos: [default/app-*, \"n/[a-c]?\"], expires: 2030-01-01T00:00:00.5+05:30}]",
		"tokens: [{name: a, tenant: b, hash: HASH1, roles: [worker]}, {name: a, tenant: b, hash: HASH1, roles: [worker]}]",
		"tokens:\n- &t {name: a, tenant: b, hash: HASH1, roles: [operator]}\n- {<<: *t, name: c, hash: HASH2}\n",
		"tokens: [{name: a, tenant: b, hash: HASH1, roles: [worker], expires: 0001-01-01T00:00:00Z}]", "tokens: []\n---\ntokens: []", "tokens: ~", "",
	} {
		f.Add([]byte(file(seed)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 64<<10 {
			return
		}
		tokens, err := Parse(b)
		if err != nil {
			return
		}
		seen := map[string]bool{}
		for _, row := range tokens {
			for _, name := range []string{row.Name, row.Tenant} {
				if name == "" || len(name) > 128 || strings.Trim(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" {
					t.Errorf("%q: the name %q was taken", b, name)
				}
			}
			if row.Scopes == 0 || row.Scopes&^All != 0 || len(row.Repos) > maxRepos {
				t.Errorf("%q: rights %b, %d globs", b, row.Scopes, len(row.Repos))
			}
			for _, glob := range row.Repos {
				if _, err := path.Match(glob, "a/b"); err != nil || len(glob) > maxRepoBytes {
					t.Errorf("%q: the glob %q was taken", b, glob)
				}
			}
			if len(row.Queues) > maxQueues || strings.Contains(strings.Join(row.Queues, ""), "**") {
				t.Errorf("%q: the queues %q were taken", b, row.Queues)
			}
			if !bytes.Contains(b, []byte("expires")) && !row.Expires.IsZero() {
				t.Errorf("%q: it expires %s", b, row.Expires)
			}
			seen[strings.ToLower(row.Hash)] = true
		}
		if _, err := New(tokens...); (err == nil) != (len(seen) == len(tokens)) {
			t.Errorf("%q: %d tokens with %d hashes: %v", b, len(tokens), len(seen), err)
		}
		written, err := Format(tokens)
		if err != nil {
			t.Fatalf("%q: %v", b, err)
		}
		again, err := Parse(written)
		if err != nil || len(again) != len(tokens) {
			t.Fatalf("%q is written as %q: %v", b, written, err)
		}
		for i := range tokens {
			a, c := tokens[i], again[i]
			if a.Name != c.Name || a.Tenant != c.Tenant || a.Hash != c.Hash || a.Scopes != c.Scopes || !a.Expires.Equal(c.Expires) ||
				strings.Join(a.Repos, "\n") != strings.Join(c.Repos, "\n") || strings.Join(a.Queues, "\n") != strings.Join(c.Queues, "\n") {
				t.Errorf("%+v is read as %+v", a, c)
			}
		}
		if twice, err := Format(again); err != nil || !bytes.Equal(twice, written) {
			t.Errorf("%q is written once more as %q, %v", written, twice, err)
		}
	})
}

func TestATokenWhoseEndWouldStandForNeverIsRefused(t *testing.T) {
	row := func(expires string) []byte {
		return []byte(file("tokens: [{name: a, tenant: b, hash: HASH1, roles: [worker], expires: " + expires + "}]"))
	}
	for _, expires := range []string{"0001-01-01T00:00:00Z", "0001-01-01", "0001-01-01T01:00:00+01:00"} {
		if tokens, err := Parse(row(expires)); err == nil || !strings.Contains(err.Error(), "tokens[0]: expires") {
			t.Errorf("%s: %+v, %v", expires, tokens, err)
		}
	}
	for expires, never := range map[string]bool{"0001-01-01T00:00:01Z": false, "2030-01-01": false, "~": true, "": true} {
		if tokens, err := Parse(row(expires)); err != nil || tokens[0].Expires.IsZero() != never {
			t.Errorf("%s: %+v, %v", expires, tokens, err)
		}
	}
}
