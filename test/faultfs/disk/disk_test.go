package disk

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"syscall"
	"testing"
)

// kit is a disk with a session, whose calls may not fail.
type kit struct {
	*testing.T
	d *Disk
	s *Session
}

func newKit(t *testing.T) *kit {
	d, err := New(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &kit{t, d, d.Boot()}
}

func (k *kit) ok(errno syscall.Errno) {
	k.Helper()
	if errno != 0 {
		k.Fatal(errno)
	}
}

// cut cuts the power and boots.
func (k *kit) cut(seed uint64, share int) Cut {
	k.Helper()
	c, err := k.d.Cut(seed, share)
	if err != nil {
		k.Fatal(err)
	}
	k.s = k.d.Boot()
	return c
}

func (k *kit) make(parent uint64, name string, mode uint32) uint64 {
	k.Helper()
	a, errno := k.s.Make(parent, name, mode|0o600, 0, 0, "")
	k.ok(errno)
	return a.ID
}

func (k *kit) file(parent uint64, name string) uint64 {
	k.Helper()
	return k.make(parent, name, syscall.S_IFREG)
}

// kept makes a file with a name that is on the disk.
func (k *kit) kept(name string) uint64 {
	k.Helper()
	id := k.file(rootID, name)
	k.ok(k.s.Sync(rootID))
	return id
}

func (k *kit) write(id uint64, at int64, data string) {
	k.Helper()
	n, errno := k.s.Write(id, []byte(data), at)
	k.ok(errno)
	if n != len(data) {
		k.Fatalf("wrote %d of %d bytes", n, len(data))
	}
}

func (k *kit) read(id uint64) []byte {
	k.Helper()
	a, errno := k.s.Attr(id)
	k.ok(errno)
	b := make([]byte, a.Size)
	n, errno := k.s.Read(id, b, 0)
	k.ok(errno)
	return b[:n]
}

func (k *kit) holds(id uint64, want string) {
	k.Helper()
	if got := k.read(id); string(got) != want {
		k.Fatalf("file holds %q, want %q", got, want)
	}
}

// tree lists all names below a directory, with the content of files.
func (k *kit) tree(id uint64, at string) (out []string) {
	k.Helper()
	all, errno := k.s.List(id)
	k.ok(errno)
	for _, e := range all {
		if e.Mode&syscall.S_IFMT == syscall.S_IFDIR {
			out = append(append(out, at+e.Name+"/"), k.tree(e.ID, at+e.Name+"/")...)
		} else {
			out = append(out, fmt.Sprintf("%s%s=%s", at, e.Name, k.read(e.ID)))
		}
	}
	return out
}

func (k *kit) has(want ...string) {
	k.Helper()
	if got := k.tree(rootID, ""); !slices.Equal(got, want) {
		k.Fatalf("there is %q, want %q", got, want)
	}
}

func TestBytesThatWereNotSyncedAreLostAndSyncedOnesAreNot(t *testing.T) {
	k := newKit(t)
	f := k.kept("f")
	k.write(f, 0, "synced")
	k.ok(k.s.Sync(f))
	k.write(f, 0, "SYN")
	k.write(f, 6, " and not")
	k.holds(f, "SYNced and not")
	c := k.cut(1, 0)
	k.holds(f, "synced")
	if c.SectorsLost != 1 || c.SectorsKept != 0 {
		t.Fatalf("cut took %+v, want one sector lost", c)
	}
	k.write(f, 0, "SYN")
	k.write(f, 6, " and not")
	c = k.cut(1, 100)
	k.holds(f, "SYNced and not")
	if c.SectorsLost != 0 || c.SectorsKept != 1 {
		t.Fatalf("cut took %+v, want one sector kept", c)
	}
	k.cut(1, 0) // what survived is on the disk
	k.holds(f, "SYNced and not")
}

func TestASyncIsOfWhatWasWrittenBeforeItBegan(t *testing.T) {
	k := newKit(t)
	f := k.kept("f")
	k.write(f, 0, "before")
	if err := k.d.SetRules([]Rule{{Kinds: []Kind{Sync}, Hang: true}}); err != nil {
		t.Fatal(err)
	}
	done := make(chan syscall.Errno)
	go func() { done <- k.s.Sync(f) }()
	for k.d.Calls().Waiting == 0 {
	}
	k.write(f, 0, "behind")
	if err := k.d.SetRules(nil); err != nil {
		t.Fatal(err)
	}
	k.ok(<-done)
	k.cut(1, 0)
	k.holds(f, "before")
}

func TestWhatAFailedSyncWasToWriteIsNotTriedAgain(t *testing.T) {
	k := newKit(t)
	f := k.kept("f")
	k.write(f, 0, "old")
	k.ok(k.s.Sync(f))
	k.write(f, 0, "new")
	k.write(f, sector, "more")
	if err := k.d.SetRules([]Rule{{Kinds: []Kind{Sync}, Error: "EIO", Times: 1}}); err != nil {
		t.Fatal(err)
	}
	if errno := k.s.Sync(f); errno != syscall.EIO {
		t.Fatalf("sync answered %v, want EIO", errno)
	}
	k.ok(k.s.Sync(f))
	k.write(f, sector, "again")
	k.ok(k.s.Sync(f))
	k.cut(1, 0)
	k.holds(f, "old"+string(make([]byte, sector-3))+"again")
}

func TestNamesNeedASyncOfTheirDirectory(t *testing.T) {
	k := newKit(t)
	k.file(rootID, "kept")
	k.ok(k.s.Sync(rootID))
	f := k.file(rootID, "lost")
	k.write(f, 0, "x")
	k.ok(k.s.Sync(f)) // keeps its bytes, and no name
	k.cut(1, 0)
	k.has("kept=")

	sub := k.make(rootID, "sub", syscall.S_IFDIR)
	k.file(sub, "f")
	k.ok(k.s.Sync(sub)) // whose own name is not on the disk
	k.cut(1, 0)
	k.has("kept=")

	k.ok(k.s.Rename(rootID, "kept", rootID, "renamed", false))
	k.ok(k.s.Remove(rootID, "renamed", false))
	k.has()
	k.cut(1, 0)
	k.has("kept=")
	k.ok(k.s.Rename(rootID, "kept", rootID, "renamed", false))
	k.ok(k.s.Sync(rootID))
	k.cut(1, 0)
	k.has("renamed=")
}

func TestARenameLosesNoFile(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(64) {
		k := newKit(t)
		a, b := k.make(rootID, "a", syscall.S_IFDIR), k.make(rootID, "b", syscall.S_IFDIR)
		k.ok(k.s.Sync(rootID))
		f := k.file(a, "f")
		k.write(f, 0, "x")
		k.ok(k.s.Sync(f))
		k.ok(k.s.Sync(a))
		k.ok(k.s.Rename(a, "f", b, "f", false))
		if seed%4 == 0 {
			k.ok(k.s.Sync(a)) // the old name is gone: so the new one is there
		}
		k.cut(seed, 50)
		got := fmt.Sprint(k.tree(rootID, ""))
		seen[got] = true
		if got != "[a/ a/f=x b/]" && got != "[a/ b/ b/f=x]" && got != "[a/ a/f=x b/ b/f=x]" {
			t.Fatalf("seed %d: there is %s", seed, got)
		}
		if seed%4 == 0 && got != "[a/ b/ b/f=x]" {
			t.Fatalf("seed %d: there is %s after a sync of the directory that it left", seed, got)
		}
	}
	if len(seen) != 3 {
		t.Fatalf("power cuts left %v, want the old name, the new one, and both", seen)
	}
}

func TestChangesOfOneNameStayInOrder(t *testing.T) {
	for seed := range uint64(64) {
		k := newKit(t)
		old := k.kept("current")
		k.write(old, 0, "old")
		k.ok(k.s.Sync(old))
		k.ok(k.s.Rename(rootID, "current", rootID, "former", false))
		k.file(rootID, "current") // without the rename the old file would be gone
		k.cut(seed, 50)
		got := fmt.Sprint(k.tree(rootID, ""))
		if got != "[current=old]" && got != "[former=old]" && got != "[current= former=old]" {
			t.Fatalf("seed %d: there is %s", seed, got)
		}
	}
}

// TestRandomWritesAgainstCopies holds what a power cut leaves against copies that were made at each sync.
func TestRandomWritesAgainstCopies(t *testing.T) {
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 1))
		k := newKit(t)
		f := k.kept("f")
		versions := [][]byte{nil} // since the last sync, that being the first
		for range 3 {
			for range 1 + r.IntN(12) {
				now := slices.Clone(versions[len(versions)-1])
				switch r.IntN(6) {
				case 0:
					k.ok(k.s.Sync(f))
					versions = [][]byte{now}
					continue
				case 1:
					size := r.IntN(len(now) + 700)
					n := int64(size)
					_, errno := k.s.Set(f, Change{Size: &n})
					k.ok(errno)
					now = append(now, make([]byte, max(0, size-len(now)))...)[:size]
				default:
					at, data := r.IntN(len(now)+100), bytes.Repeat([]byte{byte(1 + r.IntN(255))}, 1+r.IntN(1500))
					k.write(f, int64(at), string(data))
					now = append(now, make([]byte, max(0, at+len(data)-len(now)))...)
					copy(now[at:], data)
				}
				versions = append(versions, now)
				if got := k.read(f); !bytes.Equal(got, now) {
					t.Fatalf("seed %d: programs do not see what they wrote", seed)
				}
			}
			share := []int{0, 100, 1 + r.IntN(99)}[r.IntN(3)]
			k.cut(r.Uint64(), share)
			got := k.read(f)
			switch {
			case share == 0 && !bytes.Equal(got, versions[0]):
				t.Fatalf("seed %d: what was synced is not what is there", seed)
			case share == 100 && !bytes.Equal(got, versions[len(versions)-1]):
				t.Fatalf("seed %d: what was written is not what is there", seed)
			}
			for at := 0; at < len(got); at += sector {
				if !isOfOne(got, versions, at) {
					t.Fatalf("seed %d, share %d: sector %d was never written like that", seed, share, at/sector)
				}
			}
			versions = [][]byte{got}
		}
	}
}

// isOfOne reports whether a sector is that of one version, as far as each is long, or zeros.
func isOfOne(got []byte, versions [][]byte, at int) bool {
	part := func(b []byte) []byte {
		out := make([]byte, sector)
		if at < len(b) {
			copy(out, b[at:min(len(b), at+sector)])
		}
		return out
	}
	have := got[at:min(len(got), at+sector)]
	return slices.ContainsFunc(append(versions, nil), func(v []byte) bool { return bytes.Equal(part(v)[:len(have)], have) })
}

func TestWhatNobodyCanReachTakesNoSpace(t *testing.T) {
	k := newKit(t)
	f := k.kept("f")
	k.ok(k.s.Remove(rootID, "f", false))
	if len(k.d.nodes) != 2 {
		t.Fatal("a file went whose name is on the disk")
	}
	k.ok(k.s.Sync(rootID))
	if len(k.d.nodes) != 2 {
		t.Fatal("a file went that somebody holds")
	}
	k.s.Forget(f, 1)
	if len(k.d.nodes) != 1 {
		t.Fatal("a file stays that no process can reach")
	}
}

func TestRulesCountCalls(t *testing.T) {
	k := newKit(t)
	f := k.kept("f")
	if err := k.d.SetRules([]Rule{{Kinds: []Kind{Write}, Error: "EIO", Skip: 1, Times: 1}, {Kinds: []Kind{Grow}, Error: "ENOSPC"}}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []syscall.Errno{syscall.ENOSPC, syscall.EIO, syscall.ENOSPC} {
		if _, errno := k.s.Write(f, []byte("x"), 0); errno != want {
			t.Fatalf("write %d answered %v, want %v", i+1, errno, want)
		}
	}
	if st, errno := k.s.Space(); errno != 0 || st.Bavail != 0 {
		t.Fatalf("a full disk has %d blocks free, err %v", st.Bavail, errno)
	}
	if err := k.d.SetRules([]Rule{{Error: "EPERM"}}); err == nil {
		t.Fatal("a rule with an unknown error was taken")
	}
	if c := k.d.Calls(); c.Failed != 3 {
		t.Fatalf("%d calls failed, want 3", c.Failed)
	}
}

func TestASessionEndsWithThePower(t *testing.T) {
	k := newKit(t)
	f := k.kept("f")
	old := k.s
	k.d.Freeze()
	done := make(chan syscall.Errno)
	go func() {
		_, errno := old.Write(f, []byte("x"), 0)
		done <- errno
	}()
	for k.d.Calls().Waiting == 0 {
	}
	k.cut(1, 100)
	if errno := <-done; errno != syscall.EIO {
		t.Fatalf("a call across a power cut answered %v, want EIO", errno)
	}
	if _, errno := old.Write(f, []byte("x"), 0); errno != syscall.EIO {
		t.Fatalf("a call of the session before answered %v, want EIO", errno)
	}
	k.holds(f, "")
}
