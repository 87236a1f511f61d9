package gitobj

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/millrace/millrace/internal/core"
)

// graph is a history in memory: the parents of each commit, all of them before it, and dates.
type graph struct {
	parents [][]int
	dates   []int64
	asked   map[int]int // how often a walk has asked for a commit
}

func commitOf(i int) (id core.ObjectID) {
	binary.BigEndian.PutUint64(id[:], uint64(i)+1)
	return id
}

// randomGraph makes a history of branches and merges, whose dates are wrong now and then.
func randomGraph(r *rand.Rand, commits int) *graph {
	g := &graph{asked: map[int]int{}}
	for i := range commits {
		var parents []int
		for range min(i, []int{0, 1, 1, 1, 1, 1, 2, 3}[r.IntN(8)]) {
			if p := max(0, i-1-r.IntN(12)); !slices.Contains(parents, p) {
				parents = append(parents, p)
			}
		}
		date := int64(i)
		if r.IntN(10) == 0 {
			date = r.Int64N(int64(2 * commits))
		}
		g.parents, g.dates = append(g.parents, parents), append(g.dates, date)
	}
	return g
}

// descends is what a walk should find.
func (g *graph) descends(from, to int) bool {
	seen, todo := map[int]bool{}, []int{to}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if i == from {
			return true
		}
		for _, p := range g.parents[i] {
			if !seen[p] {
				seen[p] = true
				todo = append(todo, p)
			}
		}
	}
	return false
}

// walk asks for moves, without git.
func (g *graph) walk(t *testing.T, most int64, moves []core.Move) (*walk, error) {
	t.Helper()
	w := newWalk(most)
	for _, m := range moves {
		w.add(m)
	}
	heads := make(chan commitHead, walkBatch)
	w.from, w.need = heads, func(bytes int64) error {
		if bytes > most {
			t.Errorf("asks for %d bytes of %d", bytes, most)
		}
		return nil
	}
	w.to = writerFunc(func(b []byte) (int, error) {
		for line := range strings.Lines(string(b)) {
			id, err := core.ParseObjectID(strings.TrimSpace(line))
			if err != nil {
				return 0, err
			}
			i := int(binary.BigEndian.Uint64(id[:])) - 1
			g.asked[i]++
			head := commitHead{id: id, date: g.dates[i]}
			for _, p := range g.parents[i] {
				head.parents = append(head.parents, commitOf(p))
			}
			heads <- head
		}
		return len(b), nil
	})
	return w, w.run(t.Context())
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

func TestAWalkFindsWhatDescendsFromWhat(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for round := range 30 {
		g := randomGraph(r, 2+r.IntN(300))
		var moves []core.Move
		for range []int{1, 10, walkWidth, 2*walkWidth + 5}[round%4] {
			from, to := r.IntN(len(g.parents)), r.IntN(len(g.parents))
			if from != to {
				moves = append(moves, core.Move{From: commitOf(from), To: commitOf(to)})
			}
		}
		w, err := g.walk(t, 1<<20, moves)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range moves {
			from, to := int(binary.BigEndian.Uint64(m.From[:]))-1, int(binary.BigEndian.Uint64(m.To[:]))-1
			want := core.Forced
			if g.descends(from, to) {
				want = core.FastForward
			}
			if w.found[m] != want {
				t.Fatalf("round %d: %d to %d: %d, not %d", round, from, to, w.found[m], want)
			}
		}
		for i, n := range g.asked {
			if n > 1 {
				t.Fatalf("round %d: commit %d was read %d times", round, i, n)
			}
		}
	}
}

// TestAWalkReadsOnlyWhatTellsItsEndsApart moves branches by a few commits at many places of a long history.
func TestAWalkReadsOnlyWhatTellsItsEndsApart(t *testing.T) {
	const commits, step, ahead = 20_000, 500, 3
	g := &graph{asked: map[int]int{}}
	for i := range commits {
		g.parents, g.dates = append(g.parents, []int{i - 1}), append(g.dates, int64(i))
	}
	g.parents[0] = nil
	var moves []core.Move
	for i := 10; i+ahead < commits; i += step {
		moves = append(moves, core.Move{From: commitOf(i), To: commitOf(i + ahead)})
	}
	w, err := g.walk(t, 10<<20, moves)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range moves {
		if w.found[m] != core.FastForward {
			t.Errorf("%s to %s: %d", m.From, m.To, w.found[m])
		}
	}
	if most := len(moves) * 4 * ahead; len(g.asked) > most {
		t.Errorf("%d commits were read for %d moves, more than %d", len(g.asked), len(moves), most)
	}
}

func TestAWalkTakesNoMoreMemoryThanItMay(t *testing.T) {
	g := &graph{asked: map[int]int{}}
	for i := range 20_000 {
		g.parents, g.dates = append(g.parents, []int{max(i-1, 0)}), append(g.dates, int64(i))
	}
	moves := []core.Move{{From: commitOf(0), To: commitOf(19_999)}}
	var limit core.Exhausted
	if _, err := g.walk(t, 1000*(commitCost+parentCost), moves); !errors.As(err, &limit) || limit.Limit != "git_memory" {
		t.Errorf("%v", err)
	}
	if n := len(g.asked); n > 1100 {
		t.Errorf("%d commits were read", n)
	}
	if w, err := g.walk(t, 20_000*(commitCost+parentCost), moves); err != nil || w.found[moves[0]] != core.FastForward {
		t.Errorf("%v, %v", w.found, err)
	}
}

func TestHeadsOfCommitsAreReadAsGitReadsThem(t *testing.T) {
	tree := "tree " + strings.Repeat("1", 40) + "\n"
	parent := func(c string) string { return "parent " + strings.Repeat(c, 40) + "\n" }
	const by = " a <a@a> 1700000000 +0000\n"
	cases := []struct {
		name, content string
		parents       int
		date          int64
	}{
		{"root", tree + "author" + by + "committer" + by + "\nm", 0, 1700000000},
		{"merge", tree + parent("2") + parent("3") + "author" + by + "committer" + by + "\nm\n", 2, 1700000000},
		{"no end of line", tree + parent("2") + "author" + by + "committer a <a@a> 17 +0000", 1, 0},
		{"a parent below the author", tree + parent("2") + "author" + by + parent("3") + "committer" + by + "\n" + parent("4"), 1, 1700000000},
		{"long names", tree + parent("2") + "author " + strings.Repeat("n", 20_000) + by + "committer " + strings.Repeat("n", 5000) + " <a@a> 5 +0000\n\n", 1, 0},
		{"no date", tree + "author" + by + "committer a <a@a>\n\nm", 0, 0},
		{"a date in the name", tree + "author" + by + "committer a> 9 <a@a> 7 -0100\nencoding x\n\nm", 0, 7},
		{"a date before all", tree + "author" + by + "committer a <a@a> -5 +0000\n\n", 0, -5},
		{"two authors", tree + parent("2") + "author" + by + "author" + by + "committer" + by + "\nm", 1, 1700000000},
		{"long message", tree + parent("2") + "author" + by + "committer" + by + "\n" + strings.Repeat("m\n", 100_000), 1, 1700000000},
		{"empty", "", 0, 0},
	}
	var in bytes.Buffer
	for i, c := range cases {
		fmt.Fprintf(&in, "%s commit %d\n%s\n", commitOf(i), len(c.content), c.content)
	}
	fmt.Fprintf(&in, "%s missing\n%s tag 3\nabc\n", commitOf(100), commitOf(101))
	heads := make(chan commitHead, len(cases)+2)
	if err := readHeads(&in, heads); err != nil {
		t.Fatal(err)
	}
	for i, c := range cases {
		if h := <-heads; h.id != commitOf(i) || h.missing || len(h.parents) != c.parents || h.date != c.date {
			t.Errorf("%s: %+v", c.name, h)
		}
	}
	for i := range 2 {
		if h := <-heads; h.id != commitOf(100+i) || !h.missing {
			t.Errorf("%+v", h)
		}
	}
	for _, bad := range []string{"x\n", "\n", "no id at all\n", commitOf(1).String() + " commit x\n", commitOf(1).String() + " commit 5\nabc"} {
		if err := readHeads(strings.NewReader(bad), heads); err == nil || errors.Is(err, io.EOF) && bad[0] == 'x' {
			t.Errorf("%q is taken", bad)
		}
	}
}

// TestOneRunOfGitTellsOfAllMoves asks of branches, of tags of tags, and of commits that only the push has.
func TestOneRunOfGitTellsOfAllMoves(t *testing.T) {
	r, s := newRig(t), newSource(t)
	var held []core.ObjectID
	for i := range 5 {
		held = append(held, s.commit("a", fmt.Sprint(i)))
	}
	if err := r.push(s.pack("main"), held); err != nil {
		t.Fatal(err)
	}
	p, err := r.Begin(t.Context(), PushSpec{At: place, Tenant: 1, MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	ahead := s.commit("a", "ahead")
	s.git("tag", "-a", "-m", "m", "one", "main")
	s.git("tag", "-a", "-m", "m", "two", "one")
	s.git("reset", "-q", "--hard", held[1].String())
	aside := s.commit("b", "aside")
	s.git("merge", "-q", "-m", "m", ahead.String())
	merge := s.id("HEAD")
	if err := p.Receive(t.Context(), bytes.NewReader(s.pack("--all", "^"+held[4].String()))); err != nil {
		t.Fatal(err)
	}
	var moves []core.Move
	var want []core.Ancestry
	for _, from := range append(held[:0:0], held[0], held[4], ahead, aside, merge, s.id("one")) {
		for _, to := range append(held[:0:0], held[0], held[4], ahead, aside, merge, s.id("one"), s.id("two")) {
			moves = append(moves, core.Move{From: from, To: to})
			_, err := s.try("", "merge-base", "--is-ancestor", from.String(), to.String())
			isTag := from == s.id("one") || to == s.id("one") || to == s.id("two")
			if is := err == nil && !isTag || from == to; is {
				want = append(want, core.FastForward)
			} else {
				want = append(want, core.Forced)
			}
		}
	}
	moves, want = append(moves, moves...), append(want, want...) // the same move is asked of more than once
	for _, when := range []string{"received", "kept"} {
		before := r.stats.children.Load()
		got, err := p.Ancestry(t.Context(), moves)
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%s: %v, %v, not %v", when, got, err, want)
		}
		if n := r.stats.children.Load() - before; n != 1 {
			t.Errorf("%s: %d runs of git", when, n)
		}
		if _, _, _, err := p.Keep(t.Context()); err != nil && when == "received" {
			t.Fatal(err)
		}
	}
	if got, err := p.Ancestry(t.Context(), nil); err != nil || len(got) != 0 {
		t.Errorf("of nothing: %v, %v", got, err)
	}
	if got, err := p.Ancestry(t.Context(), []core.Move{{From: commitOf(9), To: ahead}}); err != nil || got[0] != core.Forced {
		t.Errorf("from what is not there: %v, %v", got, err)
	}
}
