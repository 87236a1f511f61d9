// Package auth tells who holds a token.
//
// A token is 256 random bits that only its holder has: the file of tokens stores SHA-256 of each, with the principal,
// the tenant, the scopes and the end of its life. So a leaked file opens nothing. A token alone decides tenant and
// scopes; no header, variable or address adds to them. What a scope opens is the edge's table.
//
// The file is YAML and may be read again at any time: a bad one changes nothing and says which key or token is wrong.
package auth

import (
	"bytes"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/millrace/millrace/internal/env"
)

// Principal is who holds a token.
type Principal struct {
	Name    string // recorded as the creator of tasks
	Tenant  string
	Scopes  Scopes
	Repos   []string  // globs of namespace/repository that scopes of refs count for; none: all of the tenant
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

// Static is a table of tokens that can be replaced while it is in use. It is safe for concurrent use.
type Static struct {
	fs    env.FS
	path  string
	table atomic.Pointer[table]
}

// table finds rows by the first bytes of a hash, which the holder of no token can choose; the rest is compared in
// constant time.
type table struct {
	rows map[uint64][]row
	n    int
}

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

// Open reads the token file at path. Reload reads it again.
func Open(fs env.FS, path string) (*Static, error) {
	s := &Static{fs: fs, path: path}
	if err := s.Reload(); err != nil {
		return nil, err
	}
	return s, nil
}

// Reload reads the token file again. An error leaves the table as it was.
func (s *Static) Reload() error {
	if s.fs == nil {
		return errors.New("reload tokens: the table was not read from a file")
	}
	b, err := env.ReadFile(s.fs, s.path, maxFileBytes+1)
	if err == nil && len(b) > maxFileBytes {
		err = fmt.Errorf("more than %d bytes", maxFileBytes)
	}
	if err != nil {
		return fmt.Errorf("read token file %s: %w", s.path, err)
	}
	tokens, err := Parse(b)
	if err != nil {
		return fmt.Errorf("token file %s: %w", s.path, err)
	}
	t, err := build(tokens)
	if err != nil {
		return fmt.Errorf("token file %s: %w", s.path, err)
	}
	s.table.Store(t)
	return nil
}

// Len returns how many tokens the table holds, expired ones included.
func (s *Static) Len() int { return s.table.Load().n }

// Lookup returns who holds token, unless it is unknown or has expired at now.
func (s *Static) Lookup(token string, now time.Time) (Principal, bool) {
	sum := sha256.Sum256([]byte(token))
	for _, r := range s.table.Load().rows[prefix(sum)] {
		if subtle.ConstantTimeCompare(r.hash[:], sum[:]) == 1 {
			live := r.who.Expires.IsZero() || now.Before(r.who.Expires)
			return r.who, live
		}
	}
	return Principal{}, false
}

func prefix(sum [sha256.Size]byte) uint64 { return binary.BigEndian.Uint64(sum[:8]) }

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
	return parseHash(t.Hash)
}

type fileForm struct {
	Tokens []tokenForm `yaml:"tokens"`
}

type tokenForm struct {
	Name    string    `yaml:"name"`
	Tenant  string    `yaml:"tenant"`
	Hash    string    `yaml:"hash"`
	Roles   []string  `yaml:"roles"`
	Scopes  []string  `yaml:"scopes"`
	Repos   []string  `yaml:"repos"`
	Expires time.Time `yaml:"expires"` // RFC 3339; none = never
}

// Parse reads the YAML of a token file:
//
//	tokens:
//	  - name: ci            # principal
//	    tenant: acme
//	    hash: sha256:…      # what Hash returns
//	    roles: [worker]     # producer, worker, admin; or scopes: [task:read]; or both
//	    repos: [default/a-*] # namespace/repository that scopes of refs count for; none: all
//	    expires: 2030-01-01T00:00:00Z
//
// A key that is not known is an error that names it.
func Parse(b []byte) ([]Token, error) {
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
		t := Token{Hash: f.Hash, Principal: Principal{Name: f.Name, Tenant: f.Tenant, Repos: f.Repos, Expires: f.Expires}}
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
		Expires *time.Time `yaml:"expires,omitempty"`
	}
	var file struct {
		Tokens []entry `yaml:"tokens"`
	}
	for i, t := range tokens {
		if _, err := check(t); err != nil {
			return nil, fmt.Errorf("tokens[%d]: %w", i, err)
		}
		e := entry{Name: t.Name, Tenant: t.Tenant, Hash: t.Hash, Scopes: t.Scopes.Names(), Repos: t.Repos}
		if !t.Expires.IsZero() {
			e.Expires = &t.Expires
		}
		file.Tokens = append(file.Tokens, e)
	}
	return yaml.Marshal(file)
}
