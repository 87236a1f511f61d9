package server

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/millrace/millrace/internal/auth"
	"github.com/millrace/millrace/internal/edge"
	"github.com/millrace/millrace/internal/env"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/replog/wal"
	"github.com/millrace/millrace/internal/store"
)

func TestOnlySafeOptionsStart(t *testing.T) {
	tokens := filepath.Join(t.TempDir(), "tokens.yaml")
	row := fmt.Sprintf("tokens:\n  - {name: ci, tenant: acme, hash: %q, roles: [worker]}\n", HashToken(NewToken()))
	if err := os.WriteFile(tokens, []byte(row), 0o600); err != nil {
		t.Fatal(err)
	}
	none := func(content string) string {
		file := filepath.Join(t.TempDir(), "tokens.yaml")
		put(t, file, content)
		return file
	}
	empty, err := auth.New()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		o    Options
		want string // in the error; empty starts
	}{
		{"an empty list of tokens", Options{Listen: "127.0.0.1:0", TokensFile: none("tokens: []\n")}, "no token"},
		{"an empty tokens file", Options{Listen: "127.0.0.1:0", TokensFile: none("")}, "no token"},
		{"a tokens file of comments", Options{Listen: "127.0.0.1:0", TokensFile: none("# later\n")}, "no token"},
		{"a list of nothing", Options{Listen: "127.0.0.1:0", TokensFile: none("tokens:\n")}, "no token"},
		{"an empty tokens file, insecure", Options{Listen: "127.0.0.1:0", Insecure: []string{"grpc", "http"}, TokensFile: none("\n")}, "no token"},
		{"an empty table", Options{Listen: "127.0.0.1:0", Tokens: empty}, "tokens"},
		{"tokens on loopback", Options{Listen: "127.0.0.1:0", TokensFile: tokens}, ""},
		{"no tokens on loopback", Options{Listen: "127.0.0.1:0"}, "tokens"},
		{"no tokens in public", Options{Listen: "0.0.0.0:0", Insecure: []string{"grpc", "http"}}, "tokens"},
		{"plain text in public", Options{Listen: "0.0.0.0:0", TokensFile: tokens}, "loopback"},
		{"plain text on every address", Options{Listen: ":0", TokensFile: tokens}, "loopback"},
		{"a tokens file that is missing", Options{Listen: "127.0.0.1:0", TokensFile: tokens + "x"}, "tokens"},
		{"a key without its certificate", Options{Listen: "127.0.0.1:0", TokensFile: tokens, TLSKey: "k"}, "tls-cert"},
		{"no port", Options{Listen: "127.0.0.1", TokensFile: tokens}, "listen"},
		{"unknown durability", Options{Listen: "127.0.0.1:0", TokensFile: tokens, Durability: "some"}, "durability"},
		{"too many shards", Options{Listen: "127.0.0.1:0", TokensFile: tokens, Shards: 65}, "shards"},
		{"a limit beyond its bound", Options{Listen: "127.0.0.1:0", TokensFile: tokens, Limits: edge.Limits{CommitOps: 1025}}, "commit_ops"},
		{"too little memory", Options{Listen: "127.0.0.1:0", TokensFile: tokens, Memory: 1}, "memory"},
	} {
		c.o.Dir = t.TempDir()
		_, err := c.o.withDefaults()
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: error %v, want %q in it", c.name, err, c.want)
		}
	}
}

func TestDevelopmentBindsToLoopbackOnly(t *testing.T) {
	for _, listen := range []string{"0.0.0.0:0", ":0", "192.0.2.1:0", "example.org:0"} {
		if _, err := Dev(Options{Listen: listen}, NewToken()); err == nil {
			t.Errorf("%s was accepted", listen)
		}
	}
	if _, err := Dev(Options{TokensFile: "x"}, NewToken()); err == nil {
		t.Error("a tokens file together with the development token was accepted")
	}
}

func TestADirectoryHasOneServer(t *testing.T) {
	dir := t.TempDir()
	s, err := StartDev(DevOptions{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(0)
	_, err = StartDev(DevOptions{Dir: dir})
	if !errors.Is(err, store.ErrLocked) || ExitCode(err) != exitIdentity {
		t.Errorf("a second server: %v, exit code %d", err, ExitCode(err))
	}
	if _, err := Examine(filepath.Join(dir, "none")); err == nil {
		t.Error("a missing directory was examined")
	}
}

func TestEachKindOfFailureHasItsExitCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want int
	}{
		{fmt.Errorf("a: %w", &wal.CorruptionError{File: "f"}), 21},
		{fmt.Errorf("a: %w", errs.Corruptf("x")), 21},
		{fmt.Errorf("a: %w", wal.ErrFatal), 20},
		{fmt.Errorf("a: %w", syscall.ENOSPC), 22},
		{fmt.Errorf("a: %w", store.ErrLocked), 23},
		{fmt.Errorf("a: %w", &store.NewerFormatError{Found: 2, Supported: 1}), 23},
		{fmt.Errorf("a: %w", store.ErrForeign), 23},
		{errors.New("a"), 0},
	} {
		if got := ExitCode(c.err); got != c.want {
			t.Errorf("%v: exit code %d, want %d", c.err, got, c.want)
		}
	}
}

// disk is a file system whose disk has total bytes, all of them free.
type disk struct {
	env.FS
	total uint64
}

func (d disk) Disk(string) (free, total uint64, err error) { return d.total, d.total, nil }

// When the disk is full, the ballast makes room for a segment: a segment is smaller, also where the settings say how large the ballast is.
func TestASegmentOfTheLogFitsIntoTheBallast(t *testing.T) {
	for _, c := range []struct {
		total         uint64
		reserve, want int64
	}{
		{1 << 40, 0, 64 << 20},
		{1 << 40, 128 << 20, 64 << 20},
		{1 << 40, 127 << 20, 32 << 20},
		{1 << 40, 16 << 20, 8 << 20},
		{1 << 30, 0, 8 << 20},
		{64 << 20, 1 << 20, 512 << 10},
		{64 << 20, 0, 512 << 10},
		{1 << 20, 0, 256 << 10},
		{1 << 40, 1, 8 << 20},
	} {
		if got := segmentBytes(disk{total: c.total}, "", c.reserve); got != c.want {
			t.Errorf("a disk of %d bytes, a ballast of %d: segments of %d bytes, want %d", c.total, c.reserve, got, c.want)
		}
	}
}
