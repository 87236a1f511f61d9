package auth

import (
	"io"
	"io/fs"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/millrace/millrace/internal/env"
)

var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// memFS holds files in memory; only what reading needs is there.
type memFS struct {
	env.FS
	files map[string]string
}

type memFile struct {
	env.File
	strings.Reader
}

func (f *memFile) ReadAt(b []byte, off int64) (int, error) { return f.Reader.ReadAt(b, off) }
func (f *memFile) Close() error                            { return nil }

func (m *memFS) Size(name string) (int64, error) {
	s, ok := m.files[name]
	if !ok {
		return 0, fs.ErrNotExist
	}
	return int64(len(s)), nil
}

func (m *memFS) Open(name string) (env.File, error) {
	s, ok := m.files[name]
	if !ok {
		return nil, fs.ErrNotExist
	}
	return &memFile{Reader: *strings.NewReader(s)}, nil
}

func TestTokensAreRandomAndRecognisable(t *testing.T) {
	rnd := env.NewSeededRand(1)
	a, b := Generate(rnd), Generate(rnd)
	if a == b || !strings.HasPrefix(a, "mr_") || len(a) != 46 {
		t.Errorf("got %q and %q", a, b)
	}
	if h := Hash(a); !strings.HasPrefix(h, "sha256:") || len(h) != 71 || h == Hash(b) || strings.Contains(h, a[3:]) {
		t.Errorf("hash %q", h)
	}
}

func TestATokenIsFoundByItsHashUntilItExpires(t *testing.T) {
	rnd := env.NewSeededRand(2)
	short, long := Generate(rnd), Generate(rnd)
	s, err := New(
		Token{Hash(short), Principal{Name: "ci", Tenant: "acme", Scopes: TaskCreate, Expires: now.Add(time.Hour)}},
		Token{Hash(long), Principal{Name: "ops", Tenant: "acme", Scopes: All}},
	)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		token string
		at    time.Duration
		name  string
		ok    bool
	}{
		{short, 0, "ci", true},
		{short, time.Hour - 1, "ci", true},
		{short, time.Hour, "ci", false},
		{long, 1 << 60, "ops", true},
		{"", 0, "", false},
		{Generate(rnd), 0, "", false},
		{Hash(long), 0, "", false}, // the stored hash opens nothing
		{long + " ", 0, "", false},
	} {
		p, ok := s.Lookup(c.token, now.Add(c.at))
		if ok != c.ok || p.Name != c.name {
			t.Errorf("%q after %v: got %q, %v", c.token, c.at, p.Name, ok)
		}
	}
	if s.Len() != 2 {
		t.Errorf("%d tokens", s.Len())
	}
	if _, err := s.Reload(now); err == nil {
		t.Error("a table without a file was read again")
	}
}

func TestRolesStandForScopes(t *testing.T) {
	for role, want := range map[string]string{
		"producer": "task:create,task:read,kv:read,kv:write,ref:read,ref:write,ref:force,search:read,search:write",
		"worker":   "task:create,task:work,task:read,kv:read,kv:write,ref:read,ref:write,ref:force,search:read,search:write",
		"admin":    "task:create,task:work,task:read,task:operate,kv:read,kv:write,admin,ref:read,ref:write,ref:force,ref:create,ref:admin,search:read,search:write,search:admin,search:protected",
		"operator": "backup,cluster,tenant:admin",

		"viewer":    "task:read,kv:read,ref:read,search:read",
		"responder": "task:read,task:operate,kv:read,ref:read,search:read",
	} {
		if got, ok := ParseRole(role); !ok || got.String() != want {
			t.Errorf("%s: %s", role, got)
		}
	}
	if _, ok := ParseRole("ADMIN"); ok {
		t.Error("a role is known by another name")
	}
	for _, name := range All.Names() {
		if s, ok := ParseScope(name); !ok || s.String() != name || !All.Has(s) {
			t.Errorf("scope %s", name)
		}
	}
	if _, ok := ParseScope(""); ok {
		t.Error("a scope without a name")
	}
	if Admin.Has(TaskCreate) || Admin.Any(TaskCreate|TaskWork) || !All.Any(Admin) {
		t.Error("a scope includes another")
	}
}

const goodFile = `
tokens:
  - name: ci
    tenant: acme
    hash: HASH1
    roles: [worker]
    scopes: [admin]
    expires: 2030-01-02T00:00:00Z
  - {name: web, tenant: shop, hash: HASH2, scopes: ["task:create"]}
`

func file(s string) string {
	return strings.NewReplacer("HASH1", Hash("one"), "HASH2", Hash("two"), "HASH3", Hash("three")).Replace(s)
}

func TestAFileIsReadAndReadAgain(t *testing.T) {
	disk := &memFS{files: map[string]string{"tokens.yaml": file(goodFile)}}
	s, err := Open(disk, "tokens.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := Principal{Name: "ci", Tenant: "acme", Expires: now.Add(24 * time.Hour)}
	want.Scopes, _ = ParseRole("worker")
	want.Scopes |= Admin
	if got, ok := s.Lookup("one", now); !ok || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v", got, ok)
	}
	disk.files["tokens.yaml"] = "tokens: [{name: x}]"
	if _, err := s.Reload(now); err == nil || !strings.Contains(err.Error(), "tokens.yaml") {
		t.Errorf("bad file: %v", err)
	}
	if _, ok := s.Lookup("two", now); !ok {
		t.Error("a bad file changed the table")
	}
	disk.files["tokens.yaml"] = file("tokens: [{name: ci, tenant: acme, hash: HASH3, roles: [admin]}]")
	if change, err := s.Reload(now); err != nil || change != (Change{Tokens: 1, Added: 1, Removed: 2}) || !change.Any() {
		t.Fatalf("%+v, %v", change, err)
	}
	if _, ok := s.Lookup("two", now); ok {
		t.Error("a token that is gone from the file still opens")
	}
	if _, ok := s.Lookup("three", now); !ok {
		t.Error("a new token does not open")
	}
	if _, err := Open(disk, "missing.yaml"); err == nil || !strings.Contains(err.Error(), "missing.yaml") {
		t.Errorf("missing file: %v", err)
	}
}

func TestABadFileIsRefusedByName(t *testing.T) {
	row := func(s string) string { return file("tokens: [{" + s + "}]") }
	for want, content := range map[string]string{
		"field users not found":    "users: []",
		"field token not found":    row("name: a, tenant: b, token: mr_x"),
		"tokens[0]: name is":       row("tenant: b, hash: HASH1, roles: [admin]"),
		"tokens[0]: tenant is":     row("name: a, hash: HASH1, roles: [admin]"),
		"tokens[0]: name \"a b\"":  row("name: a b, tenant: b, hash: HASH1, roles: [admin]"),
		"longer than 128":          row("name: " + strings.Repeat("a", 129) + ", tenant: b, hash: HASH1, roles: [admin]"),
		"neither roles nor scopes": row("name: a, tenant: b, hash: HASH1"),
		"unknown role \"root\"":    row("name: a, tenant: b, hash: HASH1, roles: [root]"),
		"unknown scope \"task:*\"": row("name: a, tenant: b, hash: HASH1, scopes: [\"task:*\"]"),
		"a hash is sha256":         row("name: a, tenant: b, hash: mr_secret, roles: [admin]"),
		"tokens[1]: the same hash": file("tokens: [{name: a, tenant: b, hash: HASH1, roles: [admin]}, {name: c, tenant: d, hash: HASH1, roles: [admin]}]"),
		"more than one YAML":       "tokens: []\n---\ntokens: []",
		"cannot parse":             row("name: a, tenant: b, hash: HASH1, roles: [admin], expires: soon"),
	} {
		_, err := Open(&memFS{files: map[string]string{"f": content}}, "f")
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
		if err != nil && strings.Contains(err.Error(), "mr_secret") {
			t.Errorf("the error repeats a token: %v", err)
		}
	}
	if _, err := New(make([]Token, maxTokens+1)...); err == nil {
		t.Error("a table beyond its bound")
	}
}

func TestAFileWithoutATokenIsRefusedAndEmptiesNoTable(t *testing.T) {
	for _, content := range []string{"", "\n \n", "tokens: []\n", "tokens:\n", "tokens: null", "{}", "# tokens come here\n", "---\n", "null"} {
		disk := &memFS{files: map[string]string{"f": content}}
		if _, err := Open(disk, "f"); err == nil || !strings.Contains(err.Error(), "no token") {
			t.Errorf("%q: opened, or refused without saying that it has no token: %v", content, err)
		}
		disk.files["f"] = file(goodFile)
		s, err := Open(disk, "f")
		if err != nil {
			t.Fatal(err)
		}
		disk.files["f"] = content
		if _, err := s.Reload(now); err == nil || !strings.Contains(err.Error(), "no token") {
			t.Errorf("%q: read again, or refused without saying that it has no token: %v", content, err)
		}
		if _, ok := s.Lookup("one", now); !ok || s.Len() != 2 {
			t.Errorf("%q: the table was emptied", content)
		}
	}
}

func TestAReloadTellsWhatChangedAndWhoseTokensWere(t *testing.T) {
	row := func(name, hash, more string) string {
		return "  - {name: " + name + ", tenant: acme, hash: " + hash + ", roles: [worker]" + more + "}\n"
	}
	disk := &memFS{files: map[string]string{"f": file("tokens:\n" + row("a", "HASH1", "") + row("b", "HASH2", ""))}}
	s, err := Open(disk, "f")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		name, content string
		want          Change
	}{
		{"the same", row("a", "HASH1", "") + row("b", "HASH2", ""), Change{Tokens: 2}},
		{"in another order", row("b", "HASH2", "") + row("a", "HASH1", ""), Change{Tokens: 2}},
		{"another name", row("a", "HASH1", "") + row("c", "HASH2", ""), Change{Tokens: 2, Altered: 1}},
		{"fewer repositories", row("a", "HASH1", ", repos: [x/y]") + row("c", "HASH2", ""), Change{Tokens: 2, Altered: 1}},
		{"an end that has passed", row("a", "HASH1", ", repos: [x/y]") + row("c", "HASH2", ", expires: 2001-01-01T00:00:00Z"), Change{Tokens: 2, Altered: 1, Expired: 1}},
		{"one removed, one added", row("c", "HASH2", ", expires: 2001-01-01T00:00:00Z") + row("d", "HASH3", ""), Change{Tokens: 2, Added: 1, Removed: 1, Expired: 1}},
	} {
		disk.files["f"] = file("tokens:\n" + step.content)
		got, err := s.Reload(now)
		if err != nil || got != step.want || got.Any() != (step.want.Added+step.want.Removed+step.want.Altered > 0) {
			t.Errorf("%s: got %+v, %v", step.name, got, err)
		}
	}
	for token, name := range map[string]string{"one": "a", "two": "c", "never": ""} {
		if who, ok := s.Lookup(token, now); ok || who.Name != name {
			t.Errorf("%s: it is %q's, and opens: %v", token, who.Name, ok)
		}
	}
	disk.files["f"] = file("tokens:\n" + row("a", "HASH1", ""))
	if _, err := s.Reload(now); err != nil {
		t.Fatal(err)
	}
	if _, ok := s.Lookup("one", now); !ok {
		t.Error("a token that is back in the file does not open")
	}
	var many strings.Builder
	for i := range maxRemoved + 10 {
		many.WriteString(row("m", Hash("many "+strconv.Itoa(i)), ""))
	}
	disk.files["f"] = "tokens:\n" + many.String()
	_, err = s.Reload(now)
	disk.files["f"] = file("tokens:\n" + row("a", "HASH1", ""))
	if change, err2 := s.Reload(now); err != nil || err2 != nil || change.Removed != maxRemoved+10 {
		t.Errorf("%+v, %v, %v", change, err, err2)
	}
	if n := len(s.table.Load().removed); n != maxRemoved {
		t.Errorf("%d removed tokens are remembered", n)
	}
}

func TestWhatFormatWritesParseReads(t *testing.T) {
	in := []Token{
		{Hash("a"), Principal{Name: "a", Tenant: "t", Scopes: TaskWork | KVRead, Expires: now}},
		{Hash("b"), Principal{Name: "b", Tenant: "t", Scopes: All}},
	}
	b, err := Format(in)
	if err != nil {
		t.Fatal(err)
	}
	got, err := Parse(b)
	if err != nil || !reflect.DeepEqual(got, in) {
		t.Errorf("%s\ngot %+v, %v", b, got, err)
	}
	if _, err := Format([]Token{{Hash: "x"}}); err == nil {
		t.Error("a bad token was written")
	}
}

var _ io.ReaderAt = (*memFile)(nil)
