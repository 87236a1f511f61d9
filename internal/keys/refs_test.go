package keys

import (
	"cmp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/millrace/millrace/internal/core"
)

func TestRefKeysAreFrozen(t *testing.T) {
	id := core.RepoID{0xaa, 15: 0xbb}
	const ids = "aa0000000000000000000000000000bb"
	const p = samplePrefix + "04"
	wantKey(t, "repository by name", RepoName(sample, "ab"), p+"01"+"6162"+"00")
	wantKey(t, "number of repositories", RepoName(sample, ""), p+"01"+"00")
	wantKey(t, "record", Repo(sample, id), p+"02"+ids+"01"+"00")
	wantKey(t, "counters", RepoStats(sample, id), p+"02"+ids+"02"+"00")
	wantKey(t, "ref", Ref(sample, id, "a/b"), p+"02"+ids+"03"+"612f62"+"00")
	wantKey(t, "directory", RefDir(sample, id, "a"), p+"02"+ids+"04"+"61"+"00")
	wantKey(t, "log", RefLog(sample, id, "a", 1), p+"02"+ids+"05"+"6100"+"fffffffffffffffe"+"00")
	wantKey(t, "pack", Pack(sample, id, core.Digest{1}), p+"02"+ids+"06"+"01"+strings.Repeat("00", 31)+"00")
	wantKey(t, "due", RefDue(sample, 0x0102, id, "a"), p+"03"+"0000000000000102"+ids+"61"+"00")
	wantKey(t, "deleted", RepoDeleted(sample, "ab", id), p+"04"+"6162"+"00"+ids+"00")
	from, to := RepoRange(sample, id)
	wantKey(t, "all of a repository from", from, p+"02"+ids+"00")
	wantKey(t, "all of a repository to", to, p+"02"+"aa0000000000000000000000000000bc"+"00")
	from, to = RepoNames(sample, "ab")
	wantKey(t, "names from", from, p+"01"+"616201"+"00")
	wantKey(t, "names to", to, p+"02"+"00")
	from, to = RefLogs(sample, id, "a", 1)
	wantKey(t, "log from", from, p+"02"+ids+"05"+"6100"+"fffffffffffffffe"+"00")
	wantKey(t, "log to", to, p+"02"+ids+"05"+"6101"+"00")
	_, to = RefsDue(sample, 0x0102)
	wantKey(t, "due to", to, p+"03"+"0000000000000103"+"00")
}

func TestRefKeysSortAsTheirNames(t *testing.T) {
	id := core.RepoID{1}
	name := rapid.StringMatching(`[!-~]{1,6}`)
	rapid.Check(t, func(t *rapid.T) {
		a, b := name.Draw(t, "a"), name.Draw(t, "b")
		want := cmp.Compare(a, b)
		if got := Compare(Ref(sample, id, a), Ref(sample, id, b)); got != want {
			t.Fatalf("%q against %q: %d, want %d", a, b, got, want)
		}
		if got := Compare(RefsAfter(sample, id, a), Ref(sample, id, b)); (got <= 0) != (want < 0) {
			t.Fatalf("what is after %q against %q: %d", a, b, got)
		}
		from, _ := RepoNames(sample, a)
		if got := Compare(from, RepoName(sample, b)); (got <= 0) != (want < 0) {
			t.Fatalf("repositories after %q against %q: %d", a, b, got)
		}
		if got, ok := RefOf(Ref(sample, id, a)); !ok || string(got) != a {
			t.Fatalf("%q reads as %q", a, got)
		}
		x, y := rapid.Uint64().Draw(t, "x"), rapid.Uint64().Draw(t, "y")
		if got := Compare(RefLog(sample, id, a, x), RefLog(sample, id, a, y)); got != cmp.Compare(y, x) {
			t.Fatalf("record %d against %d: %d", x, y, got)
		}
		if got, ok := RefLogOf(RefLog(sample, id, a, x)); !ok || got != x {
			t.Fatalf("record %d reads as %d", x, got)
		}
		due, gotID, gotName, ok := RefDueOf(RefDue(sample, core.ShardTime(x>>1), id, a))
		if !ok || due != core.ShardTime(x>>1) || gotID != id || string(gotName) != a {
			t.Fatalf("due reads as %d, %s, %q", due, gotID, gotName)
		}
		gone, gotID, ok := RepoDeletedOf(RepoDeleted(sample, a, id))
		if !ok || string(gone) != a || gotID != id {
			t.Fatalf("deleted reads as %q, %s", gone, gotID)
		}
	})
}

func TestOnlyLinesOfManifestsAreReadAsThem(t *testing.T) {
	id, digest := core.RepoID{0xaa, 15: 0xbb}, core.Digest{1, 31: 9}
	if p, r, d, ok := PackOf(Pack(sample, id, digest)); !ok || p != sample || r != id || d != digest {
		t.Errorf("read %v %v %v %v", p, r, d, ok)
	}
	long := End(append(Body(Pack(sample, id, digest)), 1))
	for name, key := range map[string][]byte{
		"record": Repo(sample, id), "counters": RepoStats(sample, id), "ref": Ref(sample, id, string(digest[:])), "directory": RefDir(sample, id, "a"),
		"log": RefLog(sample, id, "a", 1), "name": RepoName(sample, strings.Repeat("n", 49)), "deleted": RepoDeleted(sample, "ab", id),
		"due": RefDue(sample, 1, id, "a"), "task": AppendTaskState(nil, sample, core.TaskID{}), "longer": long, "cut": long[:40], "none": nil,
		"of a revision": EndRev(Body(Pack(sample, id, digest)), 1),
	} {
		if _, _, _, ok := PackOf(key); ok {
			t.Errorf("%s is read as a line of a manifest", name)
		}
		r, ok := RepoOf(key)
		from, to := Repos(sample)
		if within := Compare(key, from) >= 0 && Compare(key, to) < 0; within != ok || ok && r != id {
			t.Errorf("%s is of repository %s, %v, and within all: %v", name, r, ok, within)
		}
	}
}
