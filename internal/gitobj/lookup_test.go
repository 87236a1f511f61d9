package gitobj

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// history makes a repository with many versions of files, so that packs have deltas of all types, and tags of all types
// of objects, some of them alike, so that tags are deltas too.
func history(t testing.TB, rng *rand.Rand, commits int) source {
	t.Helper()
	s := newSource(t)
	var in strings.Builder
	mark := 0
	lines := make([]string, 200)
	for i := range lines {
		lines[i] = fmt.Sprintf("line %d %x", i, rng.Uint64())
	}
	for c := range commits {
		lines[rng.IntN(len(lines))] = fmt.Sprintf("changed %x", rng.Uint64())
		content := strings.Join(lines, "\n")
		mark++
		fmt.Fprintf(&in, "blob\nmark :%d\ndata %d\n%s\n", mark, len(content), content)
		blob := mark
		mark++
		message := fmt.Sprintf("commit %d with a long enough message to be made from another one %d", c, rng.IntN(3))
		fmt.Fprintf(&in, "commit refs/heads/main\nmark :%d\ncommitter c <c@c> %d +0000\ndata %d\n%s\n", mark, 1700000000+c, len(message), message)
		fmt.Fprintf(&in, "M 100644 :%d dir%d/file%d\n\n", blob, c%3, c%5)
	}
	in.WriteString("done\n")
	s.feed(in.String(), "fast-import", "--quiet", "--done")
	for i, target := range []string{"main", "main~1", "main^{tree}", "main:dir0", "main~2"} {
		s.feed(strings.Repeat("a line of a message\n", 40)+fmt.Sprint(i), "tag", "-a", "-F", "-", fmt.Sprintf("t%d", i), target)
	}
	s.git("tag", "-a", "-m", "tag of a tag", "nested", "t1")
	s.git("tag", "-a", "-m", "and once more", "nested2", "nested")
	s.git("repack", "-adfq", "--depth=40", "--window=20")
	return s
}

// answers are what git says of all objects of a repository, with peeled ids of tags.
func (s source) answers() (ids []core.ObjectID, types map[core.ObjectID]string, peeled map[core.ObjectID]core.ObjectID) {
	s.t.Helper()
	types, peeled = map[core.ObjectID]string{}, map[core.ObjectID]core.ObjectID{}
	parse := func(text string) core.ObjectID {
		id, err := core.ParseObjectID(text)
		if err != nil {
			s.t.Fatal(err)
		}
		return id
	}
	var tags strings.Builder
	for line := range strings.Lines(s.git("cat-file", "--batch-all-objects", "--batch-check=%(objectname) %(objecttype)")) {
		name, kind, _ := strings.Cut(strings.TrimSpace(line), " ")
		id := parse(name)
		ids, types[id] = append(ids, id), kind
		if kind == "tag" {
			fmt.Fprintln(&tags, name+"^{}")
		}
	}
	i := 0
	names := strings.Fields(tags.String())
	for line := range strings.Lines(s.feed(tags.String(), "cat-file", "--batch-check=%(objectname)")) {
		peeled[parse(strings.TrimSuffix(names[i], "^{}"))] = parse(strings.TrimSpace(line))
		i++
	}
	return ids, types, peeled
}

func TestLookupSaysWhatGitSays(t *testing.T) {
	r := newRig(t)
	rng := rand.New(rand.NewPCG(1, 2))
	s := history(t, rng, 60)
	ids, types, peeled := s.answers()
	if err := r.push(s.pack("--all"), []core.ObjectID{s.id("main")}); err != nil {
		t.Fatal(err)
	}
	for range 2 { // from the pack, then from memory
		for _, id := range ids {
			kind, to, err := r.Lookup(t.Context(), place, id)
			if err != nil || kind.String() != types[id] || to != peeled[id] {
				t.Errorf("%s is %s to %s, %v; git says %s to %s", id, kind, to, err, types[id], peeled[id])
			}
			id[19] ^= 1
			if kind, _, err := r.Lookup(t.Context(), place, id); types[id] == "" && (err != nil || kind != core.ObjectMissing) {
				t.Errorf("an object that is not there is a %s, %v", kind, err)
			}
		}
	}
	if len(peeled) != 7 || len(ids) < 200 {
		t.Errorf("%d objects, %d tags", len(ids), len(peeled))
	}
}

// indexed makes a pack and its index with git and opens them.
func indexed(t testing.TB, content []byte) (*openPack, error) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "p.pack"), content, 0o600); err != nil {
		t.Fatal(err)
	}
	s := source{t, dir}
	if _, err := s.try("", "index-pack", "p.pack"); err != nil {
		return nil, err
	}
	p, err := openFiles(&disk{}, dir, "p")
	if err == nil {
		t.Cleanup(func() { _ = p.close() })
	}
	return p, err
}

func TestNoBytesOfAPackMakeTheReaderFailButWithAnError(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	s := history(t, rng, 15)
	content := s.pack("--all")
	ids, types, _ := s.answers()
	good, err := indexed(t, content)
	if err != nil {
		t.Fatal(err)
	}
	idx, err := os.ReadFile(good.files[1].(diskFile).Name())
	if err != nil {
		t.Fatal(err)
	}
	for range 3000 {
		a, b := append([]byte(nil), content...), append([]byte(nil), idx...)
		for range 1 + rng.IntN(3) {
			if rng.IntN(2) == 0 {
				a[rng.IntN(len(a))] ^= 1 << rng.IntN(8)
			} else {
				b[rng.IntN(len(b))] ^= 1 << rng.IntN(8)
			}
		}
		if rng.IntN(4) == 0 {
			a = a[:rng.IntN(len(a))]
		}
		p := readable(a, b)
		if p == nil {
			continue
		}
		for _, id := range ids {
			found, kind, _, err := p.lookup(id)
			if err == nil && found && types[id] == "" {
				t.Errorf("%s is a %s", id, kind)
			}
		}
	}
}
