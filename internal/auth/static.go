// Package auth tells who holds a token.
//
// A token is 256 random bits that only its holder has: the file of tokens stores SHA-256 of each, with the principal,
// the tenant, the scopes and the end of its life. So a leaked file opens nothing. A token alone decides tenant and
// scopes; no header, variable or address adds to them. What a scope opens is the edge's table.
//
// The file is YAML and may be read again at any time: a bad one, or one without a token, changes nothing and says what is
// wrong.
package auth

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/env"
)

// Principal is the holder of a token.
type Principal struct {
	Name    string // recorded as the creator of tasks
	Tenant  string
	Scopes  Scopes
	Repos   []string  // globs of namespace/repository that scopes of refs count for; none: all of the tenant
	Queues  []string  // patterns of queues, of any namespace, that scopes of tasks and admin count for; none: all of the tenant
	Expires time.Time // zero = never
}

// Token is one row of a token table: Hash is what function Hash returns.
type Token struct {
	Hash string
	Principal
}

// maxTokens bounds a table, and so the memory that a file can take.
const maxTokens = 100_000

// maxFileBytes bounds a token file: about 500 B for each token it may hold.
const maxFileBytes = 64 << 20

// maxRemoved bounds how many removed tokens a table remembers, so that a log can say whose token is still being tried: about
// 300 B each.
const maxRemoved = 10_000

// errNoTokens refuses a file that would lock everybody out: more likely it was not written to its end.
var errNoTokens = errors.New("it holds no token")

// Static is a table of tokens that can be replaced while it is in use. It is safe for concurrent use.
type Static struct {
	fs    env.FS
	path  string
	table atomic.Pointer[table]
}

// table finds rows by the first bytes of a hash, which the holder of no token can choose; the rest is compared in
// constant time.
type table struct {
	rows    map[uint64][]row
	n       int
	removed map[[sha256.Size]byte]Principal // that were in tables before this one; read only
}

// Change says how a table differs from the one before.
type Change struct {
	Tokens  int // in the table now
	Added   int
	Removed int
	Altered int // the same token with another holder, other rights or another end
	Expired int // of Tokens: they are refused
}

// Any reports whether anything differs.
func (c Change) Any() bool { return c.Added > 0 || c.Removed > 0 || c.Altered > 0 }

// row is one token in a table.
type row struct {
	hash [sha256.Size]byte
	who  Principal
}

// New returns a table of the given tokens.
func New(tokens ...Token) (*Static, error) {
	t, err := build(tokens)
	if err != nil {
		return nil, err
	}
	s := new(Static)
	s.table.Store(t)
	return s, nil
}

// Open reads the token file at path, which must hold a token at least. Reload reads it again.
func Open(fs env.FS, path string) (*Static, error) {
	s := &Static{fs: fs, path: path}
	if _, err := s.Reload(time.Time{}); err != nil {
		return nil, err
	}
	return s, nil
}

// Reload reads the token file again and says what has changed; now is the wall clock. An error leaves the table as it was: a
// file that cannot be read, that makes no sense, or that holds no token.
func (s *Static) Reload(now time.Time) (Change, error) {
	if s.fs == nil {
		return Change{}, errors.New("reload tokens: the table was not read from a file")
	}
	b, err := env.ReadFile(s.fs, s.path, maxFileBytes+1)
	if err == nil && len(b) > maxFileBytes {
		err = fmt.Errorf("more than %d bytes", maxFileBytes)
	}
	if err != nil {
		return Change{}, fmt.Errorf("read token file %s: %w", s.path, err)
	}
	tokens, err := Parse(b)
	if err == nil && len(tokens) == 0 {
		err = errNoTokens
	}
	if err != nil {
		return Change{}, fmt.Errorf("token file %s: %w", s.path, err)
	}
	t, err := build(tokens)
	if err != nil {
		return Change{}, fmt.Errorf("token file %s: %w", s.path, err)
	}
	change := t.follow(s.table.Load(), now)
	s.table.Store(t)
	return change, nil
}

// follow compares a table with the one that it replaces, and has it remember what was removed.
func (t *table) follow(old *table, now time.Time) Change {
	c := Change{Tokens: t.n}
	for _, rows := range t.rows {
		for i := range rows {
			if !rows[i].who.live(now) {
				c.Expired++
			}
			was, ok := old.find(rows[i].hash)
			switch {
			case !ok:
				c.Added++
			case !reflect.DeepEqual(was, rows[i].who):
				c.Altered++
			}
		}
	}
	if old == nil {
		return c
	}
	t.removed = make(map[[sha256.Size]byte]Principal)
	for _, rows := range old.rows {
		for i := range rows {
			if _, ok := t.find(rows[i].hash); !ok {
				c.Removed++
				t.forget(rows[i].hash, rows[i].who)
			}
		}
	}
	for hash, who := range old.removed {
		if _, ok := t.find(hash); !ok {
			t.forget(hash, who)
		}
	}
	return c
}

// forget remembers whose a removed token was, within bounds.
func (t *table) forget(hash [sha256.Size]byte, who Principal) {
	if len(t.removed) < maxRemoved {
		t.removed[hash] = who
	}
}

// find returns the holder of a hash. It may be called on a nil table, which is empty.
func (t *table) find(hash [sha256.Size]byte) (Principal, bool) {
	if t == nil {
		return Principal{}, false
	}
	for _, r := range t.rows[prefix(hash)] {
		if subtle.ConstantTimeCompare(r.hash[:], hash[:]) == 1 {
			return r.who, true
		}
	}
	return Principal{}, false
}

// live reports whether a token has not expired at now.
func (p *Principal) live(now time.Time) bool { return p.Expires.IsZero() || now.Before(p.Expires) }

// Len returns how many tokens the table holds, expired ones included.
func (s *Static) Len() int { return s.table.Load().n }

// Count returns how many tokens the table holds, and how many of them have expired at now.
func (s *Static) Count(now time.Time) (n, expired int) {
	t := s.table.Load()
	for _, rows := range t.rows {
		for i := range rows {
			if !rows[i].who.live(now) {
				expired++
			}
		}
	}
	return t.n, expired
}

// Ending lists the holders of a tenant's tokens that end after now and up to until, by name.
func (s *Static) Ending(tenant string, now, until time.Time) (out []Principal) {
	for _, rows := range s.table.Load().rows {
		for i := range rows {
			p := &rows[i].who
			if p.Tenant == tenant && !p.Expires.IsZero() && now.Before(p.Expires) && !p.Expires.After(until) {
				out = append(out, *p)
			}
		}
	}
	slices.SortFunc(out, func(a, b Principal) int { return cmp.Or(strings.Compare(a.Name, b.Name), a.Expires.Compare(b.Expires)) })
	return out
}

// Lookup returns who holds token, and whether it can be used at now: not one that is unknown, has expired or was removed from
// the file. Of the last two it returns whose they were.
func (s *Static) Lookup(token string, now time.Time) (Principal, bool) {
	return s.Row(sha256.Sum256([]byte(token)), now)
}

// Row is Lookup of the token that has a hash.
func (s *Static) Row(sum [sha256.Size]byte, now time.Time) (Principal, bool) {
	t := s.table.Load()
	if who, ok := t.find(sum); ok {
		return who, who.live(now)
	}
	return t.removed[sum], false
}

// prefix returns the first 8 bytes of a hash, which select the rows to compare.
func prefix(sum [sha256.Size]byte) uint64 { return binary.BigEndian.Uint64(sum[:8]) }

// build checks all tokens and makes a table of them. The error names the row.
func build(tokens []Token) (*table, error) {
	if len(tokens) > maxTokens {
		return nil, fmt.Errorf("%d tokens: at most %d", len(tokens), maxTokens)
	}
	t := &table{rows: make(map[uint64][]row, len(tokens)), n: len(tokens)}
	seen := make(map[[sha256.Size]byte]int, len(tokens))
	for i, tok := range tokens {
		hash, err := check(tok)
		if err != nil {
			return nil, fmt.Errorf("tokens[%d]: %w", i, err)
		}
		if first, ok := seen[hash]; ok {
			return nil, fmt.Errorf("tokens[%d]: the same hash as tokens[%d]", i, first)
		}
		seen[hash] = i
		t.rows[prefix(hash)] = append(t.rows[prefix(hash)], row{hash: hash, who: tok.Principal})
	}
	return t, nil
}

// check refuses a token without a name, tenant or scopes, and returns its hash.
func check(t Token) (hash [sha256.Size]byte, err error) {
	if err := checkName("name", t.Name); err != nil {
		return hash, err
	}
	if err := checkName("tenant", t.Tenant); err != nil {
		return hash, err
	}
	if t.Scopes == 0 {
		return hash, errors.New("neither roles nor scopes")
	}
	if err := checkRepos(t.Repos); err != nil {
		return hash, err
	}
	if err := checkQueues(t.Queues); err != nil {
		return hash, err
	}
	return parseHash(t.Hash)
}

// fileForm and tokenForm are the form of the file.
type fileForm struct {
	Tokens []tokenForm `yaml:"tokens"`
}

type tokenForm struct {
	Name    string     `yaml:"name"`
	Tenant  string     `yaml:"tenant"`
	Hash    string     `yaml:"hash"`
	Roles   []string   `yaml:"roles"`
	Scopes  []string   `yaml:"scopes"`
	Repos   []string   `yaml:"repos"`
	Queues  []string   `yaml:"queues"`
	Expires *time.Time `yaml:"expires"` // RFC 3339; none = never
}

// Parse reads the YAML of a token file:
//
//	tokens:
//	  - name: ci            # principal
//	    tenant: acme
//	    hash: sha256:…      # what Hash returns
//	    roles: [worker]     # producer, worker, viewer, responder, admin; or scopes: [task:read]; or both
//	    repos: [default/a-*] # namespace/repository that scopes of refs count for; none: all
//	    queues: [mail, ci.*] # queues that scopes of tasks and admin count for; none: all
//	    expires: 2030-01-01T00:00:00Z
//
// A key that is not known is an error that names it.
func Parse(b []byte) ([]Token, error) {
	if len(b) > maxFileBytes {
		return nil, fmt.Errorf("more than %d bytes", maxFileBytes)
	}
	dec := yaml.NewDecoder(bytes.NewReader(b))
	dec.KnownFields(true)
	var file fileForm
	if err := dec.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if err := dec.Decode(new(fileForm)); !errors.Is(err, io.EOF) {
		return nil, errors.New("more than one YAML document")
	}
	out := make([]Token, 0, len(file.Tokens))
	for i, f := range file.Tokens {
		t := Token{Hash: f.Hash, Principal: Principal{Name: f.Name, Tenant: f.Tenant, Repos: f.Repos, Queues: f.Queues}}
		if f.Expires != nil {
			if f.Expires.IsZero() { // which stands for never
				return nil, fmt.Errorf("tokens[%d]: expires must be after the first second of the year 1", i)
			}
			t.Expires = *f.Expires
		}
		for _, name := range f.Roles {
			scopes, ok := ParseRole(name)
			if !ok {
				return nil, fmt.Errorf("tokens[%d]: unknown role %q", i, name)
			}
			t.Scopes |= scopes
		}
		for _, name := range f.Scopes {
			scope, ok := ParseScope(name)
			if !ok {
				return nil, fmt.Errorf("tokens[%d]: unknown scope %q", i, name)
			}
			t.Scopes |= scope
		}
		if _, err := check(t); err != nil {
			return nil, fmt.Errorf("tokens[%d]: %w", i, err)
		}
		out = append(out, t)
	}
	return out, nil
}

// Format returns the YAML that Parse reads as tokens.
func Format(tokens []Token) ([]byte, error) {
	type entry struct {
		Name    string     `yaml:"name"`
		Tenant  string     `yaml:"tenant"`
		Hash    string     `yaml:"hash"`
		Scopes  []string   `yaml:"scopes,flow"`
		Repos   []string   `yaml:"repos,flow,omitempty"`
		Queues  []string   `yaml:"queues,flow,omitempty"`
		Expires *time.Time `yaml:"expires,omitempty"`
	}
	var file struct {
		Tokens []entry `yaml:"tokens"`
	}
	for i, t := range tokens {
		if _, err := check(t); err != nil {
			return nil, fmt.Errorf("tokens[%d]: %w", i, err)
		}
		e := entry{Name: t.Name, Tenant: t.Tenant, Hash: t.Hash, Scopes: t.Scopes.Names(), Repos: t.Repos, Queues: t.Queues}
		if !t.Expires.IsZero() {
			e.Expires = &t.Expires
		}
		file.Tokens = append(file.Tokens, e)
	}
	return yaml.Marshal(file)
}
