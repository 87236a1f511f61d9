package bench

import (
	"os"
	"path/filepath"
	"testing"
)

// procDir makes a folder as Linux has one for each process.
func procDir(t *testing.T, user, kernel, reads, writes string, threads ...[2]string) string {
	t.Helper()
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("stat", "7 (a (b) c) S 1 2 3 4 5 6 7 8 9 10 "+user+" "+kernel+" 13 14 15")
	write("io", "rchar: 900\nwchar: 800\nsyscr: "+reads+"\nsyscw: "+writes+"\nread_bytes: 0\n")
	for i, s := range threads {
		write(filepath.Join("task", string(rune('1'+i)), "status"), "Name:\tx\nvoluntary_ctxt_switches:\t"+s[0]+"\nnonvoluntary_ctxt_switches:\t"+s[1]+"\n")
	}
	return dir
}

func TestCountersOfAProcessAreReadAndDividedByItsEntries(t *testing.T) {
	t.Parallel()
	var before, after entryCounters
	if err := before.read(procDir(t, "100", "200", "1000", "500", [2]string{"10", "1"}, [2]string{"20", "2"})); err != nil {
		t.Fatal(err)
	}
	if err := after.read(procDir(t, "150", "300", "1400", "700", [2]string{"110", "11"}, [2]string{"120", "12"}, [2]string{"40", "0"})); err != nil {
		t.Fatal(err)
	}
	after.allocs, after.bytes = 5000, 90_000
	got := after.over(&before, 1000)
	want := EntryUse{User: 500, Kernel: 1000, Sleeps: 0.24, Preempted: 0.02, Reads: 0.4, Writes: 0.2, Allocs: 5, Bytes: 90}
	if got.User != want.User || got.Kernel != want.Kernel || got.Sleeps != want.Sleeps || got.Preempted != want.Preempted || got.Reads != want.Reads ||
		got.Writes != want.Writes || got.Allocs != want.Allocs || got.Bytes != want.Bytes {
		t.Errorf("%+v, expected %+v", got, want)
	}
	if err := new(entryCounters).read(filepath.Join(t.TempDir(), "gone")); err == nil {
		t.Error("a process that is gone was read")
	}
	if err := new(entryCounters).read(procDir(t, "x", "1", "1", "1")); err == nil {
		t.Error("a time that is not a number was read")
	}
}

func TestProcessesOfAnEntryHaveRoles(t *testing.T) {
	t.Parallel()
	for n, want := range map[int][]string{2: {"client", "server"}, 4: {"client", "leader", "follower", "follower"}} {
		for i, role := range want {
			if got := roleOf(i, n); got != role {
				t.Errorf("process %d of %d is the %s, expected %s", i, n, got, role)
			}
		}
	}
	r := EntryReport{Processes: []EntryUse{
		{Parts: []EntryPart{{Name: "a", US: 5}, {Name: "b", US: 1}}}, {Parts: []EntryPart{{Name: "c", US: 4}, {Name: "b", US: 9}}},
	}}
	if got := r.Parts(); len(got) != 3 || got[0] != "b" || got[1] != "a" || got[2] != "c" {
		t.Errorf("parts %v", got)
	}
}

func TestSwitchesOfThreadsThatEndAreNotTakenOffThoseOfOthers(t *testing.T) {
	before := entryCounters{threads: map[string]threadCounters{
		"1": {sleeps: 10, preempted: 5}, "2": {sleeps: 1_000, preempted: 100}, "3": {sleeps: 50, preempted: 50},
	}}
	// Thread 2 ended, 3 is another one with its id, and 4 is new.
	after := entryCounters{threads: map[string]threadCounters{
		"1": {sleeps: 30, preempted: 6}, "3": {sleeps: 4, preempted: 2}, "4": {sleeps: 6, preempted: 1},
	}}
	if u := after.over(&before, 10); u.Sleeps != 3 || u.Preempted != 0.4 {
		t.Errorf("%v sleeps and %v preempted for each entry, want 3 and 0.4", u.Sleeps, u.Preempted)
	}
}
