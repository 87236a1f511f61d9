package replogtest

import (
	"bytes"
	"errors"
	"io/fs"
	"testing"
)

// sectorsWith returns a disk with a synced file of three sectors under a synced name.
func sectorsWith(t *testing.T, content []byte) *Sectors {
	t.Helper()
	d := NewSectors()
	if err := d.MkdirAll("a/b"); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(d, "a/b/f", content); err != nil {
		t.Fatal(err)
	}
	syncDir(t, d, "a/b")
	return d
}

func syncDir(t *testing.T, d *Sectors, name string) {
	t.Helper()
	dir, err := d.OpenDir(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := dir.Sync(); err != nil {
		t.Fatal(err)
	}
}

func content(t *testing.T, d *Sectors, name string) []byte {
	t.Helper()
	b, err := ReadFile(d, name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestACrashKeepsWhatWasSyncedAndWholeSectorsOfTheRest(t *testing.T) {
	before, after := bytes.Repeat([]byte{1}, 3*SectorBytes), bytes.Repeat([]byte{2}, 3*SectorBytes)
	d := sectorsWith(t, before)
	f, err := d.OpenReadWrite("a/b/f")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt(after, 0); err != nil {
		t.Fatal(err)
	}
	if got := content(t, d.Crash(0, 1), "a/b/f"); !bytes.Equal(got, before) {
		t.Error("a crash that keeps nothing changed what was synced")
	}
	if got := content(t, d.Crash(100, 1), "a/b/f"); !bytes.Equal(got, after) {
		t.Error("a crash that keeps all lost something")
	}
	torn := false
	for seed := range uint64(20) {
		got := content(t, d.Crash(50, seed), "a/b/f")
		for i := 0; i < len(got); i += SectorBytes {
			if s := got[i : i+SectorBytes]; !bytes.Equal(s, before[:SectorBytes]) && !bytes.Equal(s, after[:SectorBytes]) {
				t.Fatalf("seed %d tore a sector", seed)
			}
			torn = torn || got[i] != got[0]
		}
		if again := content(t, d.Crash(50, seed), "a/b/f"); !bytes.Equal(got, again) {
			t.Errorf("seed %d leaves two contents", seed)
		}
	}
	if !torn {
		t.Error("20 crashes that keep half never kept a part of a write")
	}
	if err := f.SyncData(); err != nil {
		t.Fatal(err)
	}
	if got := content(t, d.Crash(0, 1), "a/b/f"); !bytes.Equal(got, after) {
		t.Error("a crash lost what was synced")
	}
}

func TestACrashTakesNamesBackUntilTheirDirectoryIsSynced(t *testing.T) {
	d := sectorsWith(t, []byte("old"))
	if err := WriteFile(d, "a/b/new", []byte("new")); err != nil {
		t.Fatal(err)
	}
	if err := d.Rename("a/b/new", "a/b/f"); err != nil {
		t.Fatal(err)
	}
	if got := content(t, d.Crash(0, 1), "a/b/f"); string(got) != "old" {
		t.Errorf("the name shows %q before its directory is synced", got)
	}
	syncDir(t, d, "a/b")
	if got := content(t, d.Crash(0, 1), "a/b/f"); string(got) != "new" {
		t.Errorf("the name shows %q after its directory is synced", got)
	}
	if err := d.Remove("a/b/f"); err != nil {
		t.Fatal(err)
	}
	if got := content(t, d.Crash(0, 1), "a/b/f"); string(got) != "new" {
		t.Errorf("a removal that was not synced left %q", got)
	}
	if _, err := d.Crash(100, 1).Open("a/b/f"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a removal that was kept: %v", err)
	}
}

func TestALengthThatWasNotSyncedMayBeTakenBack(t *testing.T) {
	d := sectorsWith(t, []byte("12345"))
	f, err := d.OpenReadWrite("a/b/f")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("67890"), 5); err != nil {
		t.Fatal(err)
	}
	if got := content(t, d.Crash(0, 1), "a/b/f"); string(got) != "12345" {
		t.Errorf("got %q", got)
	}
	if got := content(t, d.Crash(100, 1), "a/b/f"); string(got) != "1234567890" {
		t.Errorf("got %q", got)
	}
}
