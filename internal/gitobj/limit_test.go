package gitobj

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// TestATagThatIsTooLargeToBeReadIsNoDamage pushes two large tags that are alike, of which git sends one as a delta.
func TestATagThatIsTooLargeToBeReadIsNoDamage(t *testing.T) {
	r, s := newRig(t), newSource(t)
	commit := s.commit("a", "1")
	for i := range 2 {
		s.feed(strings.Repeat("a line of a message\n", 2<<20/20)+fmt.Sprint(i), "tag", "-a", "-F", "-", fmt.Sprintf("t%d", i))
	}
	pack := s.pack("t0", "t1")
	if len(pack) > 20_000 {
		t.Fatalf("%d bytes: git sent no delta", len(pack))
	}
	if err := r.push(pack, nil); err != nil {
		t.Fatal(err)
	}
	large := core.TooLarge{Field: "tag", Limit: "git_tag_bytes", Max: tagBytes}
	refused := 0
	for _, name := range []string{"t0", "t1"} {
		kind, peeled, err := r.Lookup(t.Context(), place, s.id(name))
		switch {
		case errors.Is(err, large):
			refused++
		case err != nil || kind != core.ObjectTag || peeled != commit:
			t.Errorf("%s: %v %s %v", name, kind, peeled, err)
		}
	}
	if refused != 1 || r.typeOf(commit) != core.ObjectCommit {
		t.Errorf("%d tags are too large", refused)
	}
}

func TestAnObjectMadeFromTooManyOthersIsNoDamage(t *testing.T) {
	for _, c := range []struct {
		deltas int
		want   error
	}{{deltaDepth - 1, nil}, {deltaDepth, errDeep}, {deltaDepth + 100, errDeep}} {
		b := make([]byte, packHeader, packHeader+3*(c.deltas+1)+packTrailer)
		b = append(b, byte(core.ObjectCommit)<<4, 0, 0)
		for range c.deltas {
			b = append(b, entryOffsetDelta<<4, 3, 0) // made from the entry before it
		}
		last := int64(len(b) - 3)
		b = append(b, make([]byte, packTrailer)...)
		p := &pack{r: bytes.NewReader(b), file: "x", size: int64(len(b))}
		if kind, err := p.typeAt(last); !errors.Is(err, c.want) || err == nil && kind != core.ObjectCommit {
			t.Errorf("%d deltas: %v, %v", c.deltas, kind, err)
		}
	}
}

func TestALargeDeltaOfATagIsNoDamage(t *testing.T) {
	size := func(n int) (b []byte) {
		for ; n >= 0x80; n >>= 7 {
			b = append(b, byte(n)|0x80)
		}
		return append(b, byte(n))
	}
	if _, err := applyDelta([]byte("base"), append(size(4), size(tagBytes+1)...)); !errors.Is(err, errLargeTag) {
		t.Errorf("more than is read: %v", err)
	}
	if _, err := applyDelta([]byte("base"), append(size(5), size(4)...)); !errors.Is(err, errDelta) {
		t.Errorf("of another base: %v", err)
	}
}

// fakeGit is a git that says its version, and of all else only what a real one said.
func fakeGit(t *testing.T, said string) func(*Options) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "git")
	script := "#!/bin/sh\nif [ \"$1\" = version ]; then echo git version 2.39.5; exit; fi\ncat >/dev/null\necho '" + said + "' >&2\nexit 128\n"
	if err := os.WriteFile(path, []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return func(o *Options) { o.Git = path }
}

func TestAFileThatDoesNotFitIntoMemoryIsRefusedByTheLimit(t *testing.T) {
	s := newSource(t)
	s.commit("a", "1")
	pack := s.pack("main")
	for _, said := range []string{
		"fatal: Out of memory, malloc failed (tried to allocate 450000016 bytes)",
		"fatal: Out of memory, realloc failed",
		"fatal: mmap failed: Cannot allocate memory",
	} {
		r := newRig(t, fakeGit(t, said))
		err := r.push(pack, nil)
		if f, ok := errors.AsType[core.Exhausted](err); !ok || f.Limit != "git_memory" || f.Max == 0 {
			t.Errorf("%s: %v", said, err)
		}
	}
}
