package backup_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/millrace/millrace/internal/backup"
	"github.com/millrace/millrace/internal/errs"
	"github.com/millrace/millrace/internal/replog/replogtest"
	"github.com/millrace/millrace/internal/store"
)

// What several repositories have is in a backup once.
func TestABackupHoldsEachFileOfRepositoriesOnce(t *testing.T) {
	o := newOrigin(t)
	disk := newDisk(t)
	m := o.take(disk, "kept/b")
	files, content := repoFiles()
	size := int64(0)
	for _, f := range files {
		size += f.Size
		name := f.Digest.String()
		name = filepath.Join("kept/b/objects", name[:2], name+map[bool]string{true: ".idx", false: ".pack"}[f.Index])
		if b, err := replogtest.ReadFile(disk, name); err != nil || !bytes.Equal(b, content[f.Digest]) {
			t.Errorf("%s: %d bytes, %v", name, len(b), err)
		}
	}
	if got := tree(t, disk, "kept/b/objects"); len(got) != len(files)+1 || m.Objects.Files() != uint64(len(files)) || m.Objects.Bytes() != size {
		t.Errorf("%d files are there, and %d of %d bytes in the manifest; want %d of %d", len(got), m.Objects.Files(), m.Objects.Bytes(), len(files), size)
	}
}

// Lists are kept for years too.
func TestAListOfFilesHasItsFrozenForm(t *testing.T) {
	o := newOrigin(t)
	disk := newDisk(t)
	o.take(disk, "kept/b")
	var want []byte
	files, _ := repoFiles()
	for _, f := range files {
		want = append(want, f.Digest[:]...)
		want = append(want, map[bool]byte{true: 1, false: 0}[f.Index], 0, 0, 0, 0, byte(f.Size>>24), byte(f.Size>>16), byte(f.Size>>8), byte(f.Size))
	}
	got, err := replogtest.ReadFile(disk, "kept/b/objects/000001.list")
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%x, %v; want %x", got, err, want)
	}
}

// asOf rewrites the manifest of a backup in a directory.
func asOf(t *testing.T, disk *replogtest.Disk, change func(m *backup.Manifest)) {
	t.Helper()
	b := openBackup(t, disk, "kept/b")
	change(&b.Manifest)
	noErr(t, replogtest.WriteFile(disk, "kept/b/MANIFEST", b.Manifest.Append(nil)))
}

// Backups from before files of repositories were in them, and those of servers that send none, are as they were made. They
// are restored, and everybody is told how many repositories are without objects.
func TestABackupWithoutFilesOfRepositoriesSaysHowManyLackThem(t *testing.T) {
	o := newOrigin(t)
	takes := map[string]func(disk *replogtest.Disk){
		"the first form": func(disk *replogtest.Disk) {
			o.take(disk, "kept/b")
			noErr(t, store.RemoveTree(disk, "kept/b/objects"))
			asOf(t, disk, func(m *backup.Manifest) { m.Format, m.Objects = 1, backup.Objects{} })
		},
		"a server that sends none": func(disk *replogtest.Disk) {
			w, err := backup.Create(disk, "kept/b")
			noErr(t, err)
			h := head
			h.Objects = false
			noErr(t, o.sendAs(h, w))
			_, err = w.Finish()
			noErr(t, err)
		},
	}
	want := backup.Content{Repositories: 2 * shards, Bare: 2 * shards}
	for name, take := range takes {
		disk := newDisk(t)
		take(disk)
		b := openBackup(t, disk, "kept/b")
		if c, err := b.Verify(); err != nil || c != want {
			t.Errorf("%s: verify: %+v, %v; want %+v", name, c, err, want)
		}
		r, err := b.Restore("data", restoreOptions(disk))
		if err != nil || r.Content != want {
			t.Errorf("%s: restore: %+v, %v; want %+v", name, r.Content, err, want)
		}
		auditData(t, disk, "data")
	}
}

// A backup that says that it holds all files is held to that, whatever its lists say.
func TestAFileThatARepositoryNeedsMustBeListed(t *testing.T) {
	o := newOrigin(t)
	whole := newDisk(t)
	o.take(whole, "kept/b")
	list, err := replogtest.ReadFile(whole, "kept/b/objects/000001.list")
	noErr(t, err)
	const record = 32 + 1 + 8
	files, _ := repoFiles()
	for i, f := range files {
		disk := whole.Crash(0, 1)
		shorter := append(append([]byte{}, list[:i*record]...), list[(i+1)*record:]...)
		noErr(t, replogtest.WriteFile(disk, "kept/b/objects/000001.list", shorter))
		asOf(t, disk, func(m *backup.Manifest) {
			l := &m.Objects.Lists[0]
			l.Files, l.Bytes, l.Sum = l.Files-1, l.Bytes-f.Size, xxhash.Sum64(shorter)
			copy(l.Last[:], shorter[len(shorter)-record:])
		})
		refusedByName(t, fmt.Sprintf("file %d is not listed", i), disk, f.Digest.String())
	}
	disk := whole.Crash(0, 1)
	asOf(t, disk, func(m *backup.Manifest) { m.Objects.Lists = nil })
	refusedByName(t, "no lists", disk, "objects/")
	longer := append([]byte{}, list...)
	longer[32+8]++ // a file is longer than the repository's manifest says
	disk = whole.Crash(0, 1)
	noErr(t, replogtest.WriteFile(disk, "kept/b/objects/000001.list", longer))
	asOf(t, disk, func(m *backup.Manifest) {
		m.Objects.Lists[0].Sum = xxhash.Sum64(longer)
		m.Objects.Lists[0].Bytes++
	})
	refusedByName(t, "another size", disk, files[0].Digest.String())
}

// A file that lies where another should has the wrong digest.
func TestAFileInThePlaceOfAnotherIsRefused(t *testing.T) {
	o := newOrigin(t)
	disk := newDisk(t)
	o.take(disk, "kept/b")
	name := func(of string) string {
		d := packOf(of).Digest.String()
		return filepath.Join("kept/b/objects", d[:2], d+".pack")
	}
	other, err := replogtest.ReadFile(disk, name("0-0"))
	noErr(t, err)
	noErr(t, replogtest.WriteFile(disk, name("2-1"), other))
	refusedByName(t, "another pack", disk, name("2-1"))
}

// What a server sends of repositories is held to what it says of it.
func TestFilesOfRepositoriesThatMakeNoSenseBecomeNoBackup(t *testing.T) {
	o := newOrigin(t)
	files, content := repoFiles()
	first, second := files[0], files[1]
	data := content[first.Digest]
	flipped := append([]byte{}, data...)
	flipped[3] ^= 4
	empty, huge := first, first
	empty.Size, huge.Size = 0, 1<<44+1
	steps := map[string]func(w *backup.Writer) error{
		"other bytes": func(w *backup.Writer) error { return errors.Join(w.File(first), w.Data(flipped)) },
		"too many bytes": func(w *backup.Writer) error {
			return errors.Join(w.File(first), w.Data(append(data[:len(data):len(data)], 0)))
		},
		"the same again": func(w *backup.Writer) error { return errors.Join(w.File(first), w.Data(data), w.File(first)) },
		"a smaller one": func(w *backup.Writer) error {
			return errors.Join(w.File(second), w.Data(content[second.Digest]), w.File(first))
		},
		"one within one":   func(w *backup.Writer) error { return errors.Join(w.File(first), w.Data(data[:1]), w.File(second)) },
		"an empty one":     func(w *backup.Writer) error { return w.File(empty) },
		"an endless one":   func(w *backup.Writer) error { return w.File(huge) },
		"an early end":     func(w *backup.Writer) error { return errors.Join(w.File(first), w.Data(data[:2]), end(w)) },
		"a shard after it": func(w *backup.Writer) error { return errors.Join(w.File(first), w.Data(data), w.Shard([]byte("x"))) },
	}
	for name, step := range steps {
		for _, place := range places {
			disk := newDisk(t)
			w, err := backup.Create(disk, place)
			noErr(t, err)
			noErr(t, o.sendShards(head, w))
			var c *errs.Corruption
			if err := step(w); !errors.As(err, &c) {
				t.Errorf("%s: %v", name, err)
			}
			w.Abort()
			if left := tree(t, disk, "kept"); len(left) > 0 {
				t.Errorf("%s: %d files are left", name, len(left))
			}
		}
	}
	bare := head
	bare.Objects = false
	w, err := backup.Create(newDisk(t), "kept/b")
	noErr(t, err)
	noErr(t, o.sendAs(bare, w))
	if err := w.File(first); err == nil {
		t.Error("a server that was to send no files sent one")
	}
	w.Abort()
}

func end(w *backup.Writer) error {
	_, err := w.Finish()
	return err
}

// Names in a single-file backup come from its maker and are not trusted: they must name nothing outside, and nothing twice.
func TestNamesInOneFileThatMakeNoSenseAreRefused(t *testing.T) {
	d := strings.Repeat("ab", 32)
	for _, names := range [][]string{
		{"objects/ab/../../../" + d + ".pack"},
		{"../" + d},
		{"/objects/ab/" + d + ".pack"},
		{"objects//ab/" + d + ".idx"},
		{"./MANIFEST"},
		{"objects/ab/" + d + ".pack", "objects/ab/" + d + ".pack"},
		{"objects/ab/" + d + ".pack", "objects/ab/" + d + ".idx"}, // one digest, two contents
		{"shard-0/000001.sst", "shard-0/000001.sst"},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, name := range names {
			noErr(t, w.WriteHeader(&tar.Header{Name: name, Size: 1, Mode: 0o600, Typeflag: tar.TypeReg}))
			_, err := w.Write([]byte("x"))
			noErr(t, err)
		}
		noErr(t, w.Close())
		disk := newDisk(t)
		noErr(t, replogtest.WriteFile(disk, "kept/b.tar", b.Bytes()))
		var c *errs.Corruption
		if _, err := backup.Open(disk, "kept/b.tar"); !errors.As(err, &c) || !strings.Contains(err.Error(), "kept/b.tar") {
			t.Errorf("%q: %v", names, err)
		}
	}
}

// More files than one list takes come into several, and each is found.
func TestFilesOfSeveralListsAreFound(t *testing.T) {
	o := newOrigin(t)
	files, _ := repoFiles()
	for _, place := range places {
		for perList := 1; perList <= len(files)+1; perList += 2 {
			disk := newDisk(t)
			w, err := backup.Create(disk, place)
			noErr(t, err)
			w.ListOf(perList)
			noErr(t, o.send(w))
			m, err := w.Finish()
			noErr(t, err)
			if want := (len(files) + perList - 1) / perList; len(m.Objects.Lists) != want {
				t.Errorf("%d lists of %d, want %d", len(m.Objects.Lists), perList, want)
			}
			verifies(t, openBackup(t, disk, place))
			_, err = openBackup(t, disk, place).Restore("data", restoreOptions(disk))
			noErr(t, err)
			auditRestored(t, disk, "data")
		}
	}
}

// A disk that has room for the backup, and not for each repository's own copy, ends a restore by its name. With room the same
// restore begins again.
func TestADiskWithoutRoomForEachRepositorysCopyEndsARestore(t *testing.T) {
	o := newOrigin(t)
	disk := newDisk(t)
	o.take(disk, "kept/b")
	b := openBackup(t, disk, "kept/b")
	disk.SetFree(uint64(b.Manifest.Bytes()*9/8+100), 160)
	var room *backup.NoRoomError
	if _, err := b.Restore("data", restoreOptions(disk)); !errors.As(err, &room) || !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("without room: %v", err)
	}
	if _, err := store.ReadDir(disk, "data"); err == nil {
		t.Error("what was begun is a data directory")
	}
	disk.SetFree(1<<29, 1<<30)
	_, err := b.Restore("data", restoreOptions(disk))
	noErr(t, err)
	auditRestored(t, disk, "data")
}
